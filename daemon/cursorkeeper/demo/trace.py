"""Recorded acks of real Pulsar consumers as batches, what follows from them by plain sets, and
Pulsar's own cursor.

Reads a folder with `acks.csv.gz` (ms, topic, consumer, kind I|C, ledger, entry, batch_index,
batch_size; in the order in which they were made) and `final.json.gz` (layout, mark-delete and acked
ranges as Pulsar held them in memory).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyroaring import BitMap

from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    PartialBatch,
    Position,
)

RANGE = re.compile(r"\((-?\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")
BATCH_ACKS, BATCH_CUMULATIVE_ACKS = 512, 8
NOT_BATCHED = -1
Entry = tuple[int, int]


class TraceError(Exception):
    """The folder does not hold a trace; the message says what is wrong with it."""


class RecordedAck(NamedTuple):
    """`mark_delete`: of a cumulative ack. `indexes`: those of the entry, which has `size`, that are
    acked one by one; an entry that is no batch has one.
    """

    topic: str
    mark_delete: Position | None
    entry: Entry
    size: int
    indexes: range


@dataclass(frozen=True, slots=True)
class PulsarCursor:
    """What Pulsar's cursor held at the end. `acked`: entries above mark-delete."""

    layout: tuple[LayoutItem, ...]
    mark_delete: Entry
    acked: frozenset[Entry]


class Trace:
    def __init__(self, folder: Path) -> None:
        try:
            self._final: dict[str, Any] = json.loads(
                gzip.decompress((folder / "final.json.gz").read_bytes())
            )
            with gzip.open(folder / "acks.csv.gz", "rt", newline="") as lines:
                self._acks = [_recorded(row) for row in csv.DictReader(lines)]
        except FileNotFoundError as e:
            raise TraceError(
                f"{e.filename} does not exist: a trace folder holds acks.csv.gz and final.json.gz"
            ) from e
        except (OSError, ValueError, KeyError) as e:
            raise TraceError(f"{folder}: not a trace: {e!r}") from e

    @property
    def topics(self) -> list[str]:
        return list(self._final)

    @property
    def acks(self) -> int:
        """How many acks were recorded, over all topics."""
        return len(self._acks)

    def pulsar(self, topic: str) -> PulsarCursor:
        """The cursor that Pulsar itself kept."""
        body = self._final[topic]
        *closed, (last, _) = body["data_ledgers"]
        layout = [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in closed]
        ledger, entry = body["mark_delete_position"].split(":")
        acked: set[Entry] = set()
        for first_ledger, first, last_ledger, until in RANGE.findall(
            body["individually_deleted_messages"]
        ):
            if first_ledger != last_ledger:
                raise TraceError(f"{topic}: a range across ledgers: {first_ledger}..{last_ledger}")
            acked.update((int(last_ledger), e) for e in range(int(first) + 1, int(until) + 1))
        return PulsarCursor(
            (*layout, LayoutItem(last, LayoutState.OPEN)),
            (int(ledger), int(entry)),
            frozenset(acked),
        )

    def missing_above(self, mark_delete: Entry, topic: str) -> dict[Entry, set[int]]:
        """Partly acked batches above a mark-delete, with the indexes that are not acked: what
        follows from the acks of one topic, by plain sets.
        """
        missing: dict[Entry, set[int]] = {}
        for ack in self._of(topic):
            missing.setdefault(ack.entry, set(range(ack.size))).difference_update(ack.indexes)
        return {entry: left for entry, left in missing.items() if left and entry > mark_delete}

    def batches(self, topic: str) -> Iterator[tuple[Acks, int]]:
        """The acks of one topic, gathered as a source gathers them: a few hundred a message, in
        their order; with each message the number of its acks.
        """
        gathered: list[RecordedAck] = []
        for ack in self._of(topic):
            gathered.append(ack)
            if len(gathered) >= (BATCH_CUMULATIVE_ACKS if ack.mark_delete else BATCH_ACKS):
                yield _message(gathered), len(gathered)
                gathered = []
        if gathered:
            yield _message(gathered), len(gathered)

    def _of(self, topic: str) -> Iterator[RecordedAck]:
        return (ack for ack in self._acks if ack.topic == topic)


def _recorded(row: dict[str, str]) -> RecordedAck:
    ledger, entry, index = int(row["ledger"]), int(row["entry"]), int(row["batch_index"])
    size = 1 if index == NOT_BATCHED else int(row["batch_size"])
    last = max(index, 0)
    if row["kind"] != "C":
        return RecordedAck(row["topic"], None, (ledger, entry), size, range(last, last + 1))
    whole = last + 1 == size
    mark_delete = Position(ledger, entry if whole else entry - 1)
    return RecordedAck(
        row["topic"], mark_delete, (ledger, entry), size, range(0 if whole else last + 1)
    )


def _message(acks: Sequence[RecordedAck]) -> Acks:
    """Indexes go as Pulsar's ack sets and as PIP-54's ranges, in turns."""
    found: dict[Entry, tuple[int, set[int]]] = {}
    for ack in acks:
        if ack.indexes:
            found.setdefault(ack.entry, (ack.size, set()))[1].update(ack.indexes)
    entries: dict[int, list[int]] = defaultdict(list)
    partials: dict[int, list[PartialBatch | AckedIndexes]] = defaultdict(list)
    for at, ((ledger, entry), (size, indexes)) in enumerate(found.items()):
        if len(indexes) == size:
            entries[ledger].append(entry)
        elif at % 2:
            missing = BitMap(range(size)) - BitMap(indexes)
            partials[ledger].append(PartialBatch(entry, size, missing))
        else:
            ranges = tuple((index, index) for index in sorted(indexes))
            partials[ledger].append(AckedIndexes(entry, size, ranges))
    return Acks(
        [
            LedgerAcks(ledger, sorted(entries[ledger]), partials=partials[ledger])
            for ledger in sorted(entries.keys() | partials.keys())
        ],
        mark_delete=max((ack.mark_delete for ack in acks if ack.mark_delete), default=None),
    )
