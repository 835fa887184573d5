"""Random acks of every kind, made from a seed and a number, with their truth in plain sets.

Owns: one topic's shape and what batch `number` of it acknowledges. Invariant: the same seed and
number give the same batch in every process, so that what a source sent can be known from "sent up
to batch 812" alone.

Entries of every kind: single, in runs, batches partly acked in both forms that the stream knows,
mark-delete properties, and in topics with `moves` a mark-delete that goes forward. Entry 7 of the
first ledger is never acked by itself: in topics without `moves` mark-delete stays there, and every
ack after it is a hole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

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

CLOSED_LEDGERS = {11: 3_000, 14: 1, 15: 0, 20: 5_000}
"""Data ledger -> entries."""
OPEN_LEDGER, OPEN_SPAN = 33, 20_000
BATCH_SIZE = 40
"""Messages of an entry that is acked in part."""
KEPT = 7
"""This entry is never acked by itself."""
MOVES_EVERY = 25
"""Batches from one mark-delete to the next."""
MOVE_ENTRIES = 40

Entry = tuple[int, int]
SPANS = CLOSED_LEDGERS | {OPEN_LEDGER: OPEN_SPAN}
EVERY_ENTRY = [(ledger, entry) for ledger, span in SPANS.items() for entry in range(span)]
LAYOUT = [
    *(LayoutItem(ledger, LayoutState.CLOSED, n) for ledger, n in CLOSED_LEDGERS.items()),
    LayoutItem(OPEN_LEDGER, LayoutState.OPEN),
]
START = Position(11, -1)


@dataclass
class RandomBatch:
    """One message of acks, and what it acknowledges. `number` is its place, from 1."""

    number: int
    entries: set[Entry] = field(default_factory=set)
    indexes: dict[Entry, set[int]] = field(default_factory=dict)
    """Entry to batch indexes that are acked, for entries that are acked in part."""
    properties: dict[str, int] | None = None
    mark_delete: Position | None = None
    ledgers: list[LedgerAcks] = field(default_factory=list)

    @property
    def acks(self) -> Acks:
        """The batch as the stream takes it."""
        return Acks(self.ledgers, mark_delete=self.mark_delete, properties=self.properties)


def make_batch(seed: int, number: int, *, moves: bool = False) -> RandomBatch:
    """Batch `number` (from 1) of the topic `seed`. `moves`: with a mark-delete now and then."""
    rng = random.Random(f"{seed}/{number}")
    batch = RandomBatch(number)
    for ledger in rng.sample([11, 14, 20, OPEN_LEDGER], rng.randint(1, 3)):
        batch.ledgers.append(_ledger(rng, batch, ledger))
    if rng.random() < 0.2:
        batch.properties = {"n": number}
    if moves and number % MOVES_EVERY == 0:
        moved = EVERY_ENTRY[: number // MOVES_EVERY * MOVE_ENTRIES]
        batch.mark_delete = Position(*moved[-1])
        batch.entries.update(moved)
    return batch


def _ledger(rng: random.Random, batch: RandomBatch, ledger: int) -> LedgerAcks:
    span = SPANS[ledger]
    found = {rng.randrange(span) for _ in range(rng.randint(0, 60))} - {KEPT}
    start = rng.randrange(span)
    run = range(max(KEPT + 1, start), min(span, start + rng.randint(0, 50)))
    partials: list[PartialBatch | AckedIndexes] = []
    for _ in range(rng.randint(0, 4)):
        entry = rng.randrange(span)
        if entry == KEPT:
            continue
        acked = {rng.randrange(BATCH_SIZE) for _ in range(rng.randint(1, 20))}
        batch.indexes.setdefault((ledger, entry), set()).update(acked)
        if rng.random() < 0.5:
            partials.append(
                PartialBatch(entry, BATCH_SIZE, BitMap(range(BATCH_SIZE)) - BitMap(acked))
            )
        else:
            partials.append(AckedIndexes(entry, BATCH_SIZE, tuple((i, i) for i in sorted(acked))))
    batch.entries |= {(ledger, e) for e in found} | {(ledger, e) for e in run}
    return LedgerAcks(
        ledger, sorted(found), [run.start, run.stop - 1] if len(run) else [], partials
    )
