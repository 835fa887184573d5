"""Serves every message of acks: entries of one data ledger, a few as numbers, many as a set.

From a message to its record a few acks are only looked at and written down. A roaring bitmap of
five numbers costs more to make and to read than all of that; one of many takes less memory. Until
it is their turn a few stay packed, as they came: numbers take four times as much memory, and a
cursor that waits for its flush may have many.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps

FEW: Final = 16
"""So many entries at most are numbers, or packed. More are a set, from when they come on: that
takes less memory, and a flush shall not find very many to be sorted.
"""
Entries = BitMap | tuple[int, ...]
"""Never changed. Numbers ascend, and each stands there once."""
Sent = Entries | bytes
"""Entries as they came. Packed, at most `FEW`, they are an array of little-endian u32 whose order
and repeats mean nothing.
"""
NONE: Final[tuple[int, ...]] = ()
_U32_BYTES: Final = 4
_SHORT: Final = 128
"""Up to so many numbers become a set faster from a tuple than from an array."""
_UNPACK: Final = [struct.Struct(f"<{count}I").unpack for count in range(_SHORT + 1)]


def unpacked(packed: bytes) -> Entries:
    count = len(packed) // _U32_BYTES
    if count > _SHORT:
        return bitmaps.from_unsorted(np.frombuffer(packed, "<u4").astype(np.uint32, copy=False))
    numbers = _UNPACK[count](packed)
    return of_few(numbers) if count <= FEW else BitMap(numbers)


def as_entries(sent: Sent) -> Entries:
    """Perhaps the same: it must not be changed."""
    return unpacked(sent) if isinstance(sent, bytes) else sent


def kept(packed: bytes) -> Sent:
    """As they stay until it is their turn."""
    return packed if len(packed) <= FEW * _U32_BYTES else unpacked(packed)


def count_of(sent: Sent) -> int:
    """How many are named; of packed ones each as often as it is named."""
    return len(sent) // _U32_BYTES if isinstance(sent, bytes) else len(sent)


def highest_of(sent: Sent) -> int:
    """Of entries that are not empty."""
    if not isinstance(sent, bytes):
        return last_of(sent)
    numbers: tuple[int, ...] = _UNPACK[len(sent) // _U32_BYTES](sent)
    highest = numbers[0]
    for number in numbers:
        highest = max(highest, number)
    return highest


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


def united(several: list[Sent]) -> Entries:
    """As `union`, of entries as they came."""
    packed: list[bytes] = []
    others: list[Entries] = []
    for one in several:
        if isinstance(one, bytes):
            packed.append(one)
        else:
            others.append(one)
    if packed:
        others.append(unpacked(b"".join(packed)))
    return others[0] if len(others) == 1 else union(others)
