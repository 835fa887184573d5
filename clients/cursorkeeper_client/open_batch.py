"""Single acks that wait to leave together as one batch, and what an argument of an ack may be.

Owns: joining them, their size. Does not own: when they leave (`cursor`). Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from pyroaring import BitMap

from cursorkeeper_client.ack_stream.columns import ENTRY_MAX, checked_column
from cursorkeeper_client.values import U32, Acks, LedgerAcks, PartialBatch, Position

LEDGER_MAX = (1 << 63) - 1
BATCH_SIZE_MAX = 65_536


class OpenBatch:
    """`bytes` is about what it takes in a message; 0: it is empty."""

    def __init__(self) -> None:
        self.bytes = 0
        self._entries: defaultdict[int, list[int]] = defaultdict(list)
        self._columns: defaultdict[int, list[U32]] = defaultdict(list)
        self._partials: dict[tuple[int, int], tuple[int, BitMap]] = {}
        self._mark_delete: Position | None = None
        self._properties: Mapping[str, int] | None = None

    def add(self, ledger: int, entry: int) -> None:
        self._entries[ledger].append(entry)

    def add_column(self, ledger: int, entries: U32) -> None:
        self._columns[ledger].append(entries)

    def add_indexes(self, ledger: int, entry: int, indexes: BitMap, batch_size: int) -> None:
        """Raises ValueError if the batch had another size before."""
        size, known = self._partials.get((ledger, entry), (batch_size, BitMap()))
        if size != batch_size:
            raise ValueError(
                f"entry {entry} of ledger {ledger} is a batch of {batch_size} now, and was one of "
                f"{size} before; look which is right"
            )
        self._partials[ledger, entry] = (size, known | indexes)

    def move(self, position: Position, properties: Mapping[str, int] | None) -> None:
        self._mark_delete = max(self._mark_delete or position, position)
        if properties is not None:
            self._properties = dict(properties)

    def acks(self) -> Acks:
        """All of it. A batch of which every index is acked is an acked entry."""
        partials: defaultdict[int, list[PartialBatch]] = defaultdict(list)
        for (ledger, entry), (size, acked) in self._partials.items():
            if missing := BitMap(range(size)) - acked:
                partials[ledger].append(PartialBatch(entry, size, missing))
            else:
                self._entries[ledger].append(entry)
        for ledger, entries in self._entries.items():
            self._columns[ledger].append(np.array(entries, np.uint32))
        ledgers = [
            LedgerAcks(
                ledger,
                np.concatenate(self._columns[ledger]) if ledger in self._columns else (),
                partials=partials.get(ledger, ()),
            )
            for ledger in sorted(self._columns.keys() | partials.keys())
        ]
        return Acks(ledgers, self._mark_delete, self._properties)


def ledger_of(value: int) -> int:
    """A data ledger's id. Raises TypeError or ValueError, with a sentence, as those below."""
    return _number(value, "a ledger", LEDGER_MAX)


def entry_of(value: int) -> int:
    return _number(value, "an entry", ENTRY_MAX)


def entries_of(values: Iterable[int] | U32) -> U32:
    """Any order, repetitions too."""
    if isinstance(values, np.ndarray | range):
        return checked_column(np.array(values), "entries")
    return np.fromiter(map(entry_of, values), np.uint32)


def batch_size_of(value: int) -> int:
    return _number(value, "a batch size", BATCH_SIZE_MAX)


def properties_of(values: Mapping[str, int], bytes_max: int) -> tuple[dict[str, int], int]:
    """A copy that a message can hold, and about what it takes there."""
    kept = dict(values)
    for key, value in kept.items():
        if not isinstance(key, str) or isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(
                f"properties are texts with whole numbers, and this is {key!r}: {value!r}"
            )
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"property {key!r} is {value}, which 64 bits do not hold")
    size = sum(len(key.encode()) + 20 for key in kept)
    if size > bytes_max:
        raise ValueError(f"properties of about {size} bytes, the limit is {bytes_max}")
    return kept, size


def indexes_of(values: Iterable[int], batch_size: int) -> BitMap:
    found = BitMap([_number(value, "a batch index", batch_size - 1) for value in values])
    if not found:
        raise ValueError("no batch index is given; name those of the batch that are acked")
    return found


def _number(value: int, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"{what} is a whole number, and this is {value!r}, a {type(value).__name__}"
        )
    if not 0 <= value <= most:
        raise ValueError(f"{what} is 0 to {most}, and this is {value}")
    return int(value)
