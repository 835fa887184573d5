"""Serves every message of acks: entries of one data ledger, a few as numbers, many as a set.

From a message to its record a few acks are only looked at and written down. A roaring bitmap of
five numbers costs more to make and to read than all of that; one of many takes less memory.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap

FEW: Final = 8
"""So many entries at most are kept as numbers."""
Entries = BitMap | tuple[int, ...]
"""Never changed. Numbers ascend, and each stands there once."""
NONE: Final[tuple[int, ...]] = ()


def of_few(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The entries that are named, in whatever order and however often."""
    previous = -1
    for number in numbers:
        if number <= previous:
            return tuple(sorted(set(numbers)))
        previous = number
    return numbers


def first_of(entries: Entries) -> int:
    """Of entries that are not empty."""
    return entries[0] if isinstance(entries, tuple) else entries.min()


def last_of(entries: Entries) -> int:
    """Of entries that are not empty."""
    return entries[-1] if isinstance(entries, tuple) else entries.max()


def beyond(entries: Entries, last: int) -> Entries:
    if isinstance(entries, tuple):
        return tuple([entry for entry in entries if entry > last])
    rest = entries.copy()
    rest.remove_range(0, last + 1)
    return rest


def as_set(entries: Entries) -> BitMap:
    """Perhaps the set itself: it must not be changed."""
    return BitMap(entries) if isinstance(entries, tuple) else entries


def union(several: list[Entries]) -> Entries:
    """All of them; perhaps one of the sets itself."""
    few: list[int] = []
    many: list[BitMap] = []
    for one in several:
        if isinstance(one, tuple):
            few += one
        else:
            many.append(one)
    if not many and len(few) <= FEW:
        return of_few(tuple(few))
    if few:
        many.append(BitMap(few))
    return many[0] if len(many) == 1 else BitMap.union(*many)
