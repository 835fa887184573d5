"""Random cursor states, and the one thing that two descriptions of a state must agree on: which
entries are acked.

Owns the generator: every seed gives the same states. Invariants of a state made here: acked entries
and batches lie above mark-delete and inside the topic, no entry is both, no batch is empty.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import PositionInfo

Ledgers = Sequence[tuple[int, int]]
"""Data ledgers of a topic: (id, entries)."""

SEED_VARIABLE = "CURSORKEEPER_INTEROP_SEED"
SIZES = (1, 64, 200, 65, 127, 500, 2, 128)
"""Entries per data ledger: at and around word boundaries, and one with many words."""

_LONGS = (0, 1, -1, 127, 128, -(1 << 63), (1 << 63) - 1)


def run_seed() -> int:
    """The same for everybody: who looks for more gives the variable. Failures name it."""
    return int(os.environ.get(SEED_VARIABLE, "2598505"))


def settled(
    ledgers: Ledgers, mark_delete: Position, acked: Mapping[int, BitMap]
) -> dict[int, BitMap]:
    """Every entry of the topic that will not be delivered again. Two states are the same set where
    this is equal, however mark-delete and ranges say it.
    """
    found: dict[int, BitMap] = {}
    for ledger, entries in ledgers:
        below = (
            entries
            if ledger < mark_delete.ledger
            else min(entries, mark_delete.entry + 1)
            if ledger == mark_delete.ledger
            else 0
        )
        found[ledger] = BitMap(range(below)) | (
            acked.get(ledger, BitMap()) & BitMap(range(entries))
        )
    return found


def above(mark_delete: Position, acked: Mapping[int, BitMap]) -> dict[int, BitMap]:
    """What is left of the individual acks at a later mark-delete: Pulsar moves one that stands at
    the end of a ledger as it opens.
    """
    rest = {
        ledger: entries.copy() for ledger, entries in acked.items() if ledger >= mark_delete.ledger
    }
    if mark_delete.ledger in rest:
        rest[mark_delete.ledger].remove_range(0, mark_delete.entry + 1)
    return {ledger: entries for ledger, entries in rest.items() if entries}


def random_state(
    rng: random.Random, ledgers: Ledgers, *, properties: bool = True, batches: bool = True
) -> PositionInfo:
    """A state over the topic."""
    mark_delete = random_mark_delete(rng, ledgers)
    acked: dict[int, BitMap] = {}
    missing: dict[PartialKey, BitMap] = {}
    for ledger, entries in ledgers:
        if ledger < mark_delete.ledger:
            continue
        first = mark_delete.entry + 1 if ledger == mark_delete.ledger else 0
        entries_acked = random_entries(rng, first, entries)
        if entries_acked:
            acked[ledger] = entries_acked
        if batches:
            open_entries = [entry for entry in range(first, entries) if entry not in entries_acked]
            for entry in rng.sample(open_entries, min(len(open_entries), rng.choice((0, 0, 1, 3)))):
                missing[PartialKey(ledger, entry)] = random_missing(rng)
    return PositionInfo(
        mark_delete,
        acked,
        dict(sorted(missing.items())),
        random_properties(rng) if properties else {},
    )


def random_mark_delete(rng: random.Random, ledgers: Ledgers) -> Position:
    """Often low, sometimes before or at the edge of a ledger."""
    ledger, entries = rng.choice(ledgers[: rng.choice((1, 3, len(ledgers)))])
    return Position(ledger, rng.choice((-1, 0, entries - 1, rng.randrange(-1, entries))))


def random_entries(rng: random.Random, first: int, entries: int) -> BitMap:
    """Acked entries of first..entries-1: none, all, few, most, every other one, stretches, or edges
    of words.
    """
    every = range(first, entries)
    if not every:
        return BitMap()
    shape = rng.randrange(7)
    if shape == 0:
        return BitMap()
    if shape == 1:
        return BitMap(every)
    if shape == 2:
        return BitMap(rng.sample(every, min(len(every), 3)))
    if shape == 3:
        return BitMap(every) - BitMap(rng.sample(every, min(len(every), 3)))
    if shape == 4:
        return BitMap(every[rng.randrange(2) :: 2])
    if shape == 5:
        share = rng.random()
        return BitMap(entry for entry in every if rng.random() < share)
    return BitMap(entry for entry in every if entry % 64 in (0, 63) and rng.random() < 0.7)


def random_missing(rng: random.Random) -> BitMap:
    """Un-acked indexes of a partly acked batch of up to 130 messages."""
    size = rng.choice((2, 10, 63, 64, 65, 130))
    return BitMap(rng.sample(range(size), rng.randrange(1, size + 1)))


def random_properties(rng: random.Random) -> dict[str, int]:
    """Mark-delete properties: names as they come, values of the whole 64 bits."""
    return {
        random_name(rng): rng.choice((*_LONGS, rng.getrandbits(63)))
        for _ in range(rng.choice((0, 0, 1, 4)))
    }


def random_texts(rng: random.Random) -> dict[str, str]:
    """Cursor properties."""
    return {random_name(rng): random_name(rng) for _ in range(rng.choice((0, 0, 1, 4)))}


def random_name(rng: random.Random) -> str:
    """Not always ASCII."""
    return "".join(rng.choice("abcXYZ019-_./ äß漢🙂") for _ in range(rng.randrange(1, 20)))
