"""The checker: what a source knows about its acks against what a new owner of the cursor finds.

Owns: the verdict on every ack. An ack is an entry, or an index of a batch. `confirmed present`:
confirmed and found. `confirmed lost`: confirmed and not found; must be 0. `unconfirmed`: sent,
never confirmed; both outcomes are right. `phantom`: found and never sent; must be 0, because a
message that nobody processed would be skipped. Pure: no Docker, no network.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.demo.plays import acked_in
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import CursorState
from daemon.tests.source.random_acks import BATCH_SIZE, SPANS, Entry, make_batch

SHOWN_MAX = 5
Ack = tuple[int, int, int]
"""Data ledger, entry, batch index; -1: the whole entry."""
WHOLE = -1


@dataclass
class Truth:
    """Of one cursor. Keys are acks; an entry whose every index is acked counts as acked whole,
    too.
    """

    sent: set[Ack] = field(default_factory=set)
    confirmed: set[Ack] = field(default_factory=set)
    sent_batches: int = 0
    durable_batches: int = 0

    @staticmethod
    def of(lines: Iterable[Mapping[str, Any]], at: int, seed: int, moves: bool) -> Truth:
        """From what the source said about its cursor `at`; a source may have had several lives."""
        sent = durable = 0
        for line in lines:
            if "sent" in line and line["sent"][0] == at:
                sent = max(sent, line["sent"][1])
            elif "durable" in line and line["durable"][0] == at:
                durable = max(durable, line["durable"][1])
        truth = Truth(sent_batches=sent, durable_batches=durable)
        for number in range(1, sent + 1):
            acks = acks_of(seed, number, moves)
            truth.sent |= acks
            if number <= durable:
                truth.confirmed |= acks
        return truth.completed()

    def __or__(self, other: Truth) -> Truth:
        """Of two sources on one cursor: what either sent may be there, and what either was told
        must be; an entry may have been acked whole by indexes of both.
        """
        return Truth(
            self.sent | other.sent,
            self.confirmed | other.confirmed,
            self.sent_batches + other.sent_batches,
            self.durable_batches + other.durable_batches,
        ).completed()

    def completed(self) -> Truth:
        """With the entries whose indexes are all acked."""
        for acks in (self.sent, self.confirmed):
            indexes: dict[Entry, int] = {}
            for ledger, entry, index in acks:
                if index != WHOLE:
                    indexes[(ledger, entry)] = indexes.get((ledger, entry), 0) + 1
            acks |= {(*key, WHOLE) for key, count in indexes.items() if count == BATCH_SIZE}
        return self


def acks_of(seed: int, number: int, moves: bool) -> set[Ack]:
    """Every ack of a batch."""
    batch = make_batch(seed, number, moves=moves)
    return {(*key, WHOLE) for key in batch.entries} | {
        (*key, i) for key, indexes in batch.indexes.items() for i in indexes
    }


def found_in(state: CursorState, asked: Iterable[Ack]) -> tuple[set[Ack], set[Ack]]:
    """(those of `asked` that are acked, every ack that the state holds). An entry acked whole has
    all its indexes acked.
    """
    whole = {
        (ledger, e)
        for ledger, span in SPANS.items()
        for e in range(span)
        if state.is_acked(ledger, e)
    }
    whole |= {(ledger, e) for ledger, entries in state.acked.items() for e in entries}
    partly = {
        (*key, i)
        for key, p in state.partials.items()
        if key not in whole
        for i in range(BATCH_SIZE)
        if i not in p.missing
    }
    present = {ack for ack in asked if ack[:2] in whole or ack in partly}
    return present, {(*key, WHOLE) for key in whole} | partly


@dataclass
class Verdict:
    """Counts of acks, over any number of cursors."""

    confirmed_present: int = 0
    confirmed_lost: int = 0
    unconfirmed: int = 0
    phantom: int = 0
    cursors: int = 0
    batches: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, topic: str, truth: Truth, state: CursorState) -> None:
        """One cursor more."""
        present, held = found_in(state, truth.sent)
        lost = truth.confirmed - present
        phantom = {
            a for a in held - truth.sent if not (a[2] != WHOLE and (*a[:2], WHOLE) in truth.sent)
        }
        self.confirmed_present += len(truth.confirmed & present)
        self.confirmed_lost += len(lost)
        self.unconfirmed += len(truth.sent - truth.confirmed)
        self.phantom += len(phantom)
        self.cursors += 1
        self.batches += truth.sent_batches
        self.examples += [f"{topic}: lost {sorted(lost)[:SHOWN_MAX]}"] if lost else []
        self.examples += [f"{topic}: phantom {sorted(phantom)[:SHOWN_MAX]}"] if phantom else []

    def add_case(self, case: BadCase, state: CursorState) -> None:
        """A bad case of which all was confirmed."""
        acked = case.acked()
        self._add_entries(case, acked, acked, state)

    def add_part_of_case(self, case: BadCase, sent: int, durable: int, state: CursorState) -> None:
        """A bad case of which so many batches were sent and confirmed."""
        may, must = dict[int, BitMap](), dict[int, BitMap]()
        for number, columns in enumerate(itertools.islice(case.batches(), sent), 1):
            for ledger, entries in columns.items():
                batch = bitmaps.from_unsorted(entries)
                for known in (may, must) if number <= durable else (may,):
                    known[ledger] = known.get(ledger, BitMap()) | batch
        self.batches += sent
        self._add_entries(case, may, must, state)

    def _add_entries(
        self,
        case: BadCase,
        may: Mapping[int, BitMap],
        must: Mapping[int, BitMap],
        state: CursorState,
    ) -> None:
        nothing = BitMap()
        self.cursors += 1
        for ledger, count in case.layout():
            found, sent, confirmed = (
                acked_in(state, ledger, count),
                may.get(ledger, nothing),
                must.get(ledger, nothing),
            )
            lost, phantom = len(confirmed - found), len(found - sent)
            self.confirmed_present += len(confirmed & found)
            self.confirmed_lost += lost
            self.unconfirmed += len(sent - confirmed)
            self.phantom += phantom
            self.examples += (
                [f"data ledger {ledger}: {lost} lost, {phantom} phantom"] if lost or phantom else []
            )

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing skipped, and there was something to lose."""
        return not self.confirmed_lost and not self.phantom and self.confirmed_present > 0

    def __str__(self) -> str:
        return (
            f"{self.confirmed_present:,} confirmed and present, {self.confirmed_lost} confirmed "
            f"and lost, {self.unconfirmed:,} unconfirmed, {self.phantom} phantom ({self.cursors} "
            f"cursors, {self.batches:,} batches)"
        )
