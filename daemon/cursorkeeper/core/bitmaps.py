"""Bitmaps from columns: the few conversions where the choice of path is worth a factor of two to
ten.

`BitMap(array('I'))` of sorted values is the only fast constructor of pyroaring; everything here
leads to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

U32 = npt.NDArray[np.uint32]

_DENSE_MIN = 16_384
_DENSE_SPREAD = 4


def from_unsorted(values: U32) -> BitMap:
    """The set of the values of one u32 column, in any order, with any repeats."""
    if values.size == 0:
        return BitMap()
    if values.size >= _DENSE_MIN:
        low, high = int(values.min()), int(values.max())
        span = high - low + 1
        if span <= _DENSE_SPREAD * values.size:
            # a scatter into bits costs half of a sort when the values lie close together
            seen = np.zeros(span, dtype=np.bool_)
            seen[values - np.uint32(low)] = True
            dense = np.flatnonzero(seen)
            return from_sorted((dense + low).astype(np.uint32))
    return from_sorted(np.sort(values))


def from_sorted(values: U32) -> BitMap:
    """The set of an ascending u32 column; repeats are allowed."""
    native = array("I")
    native.frombytes(np.ascontiguousarray(values, dtype=np.uint32).tobytes())
    return BitMap(native)


def to_column(bitmap: BitMap) -> U32:
    """The values, ascending."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32)


def between(bitmap: BitMap, first: int, last: int) -> BitMap:
    """The members in [first, last]."""
    if not bitmap or bitmap.max() < first or bitmap.min() > last:
        return BitMap()
    if bitmap.min() >= first and bitmap.max() <= last:
        return bitmap.copy()
    # less than what a window of so many containers takes
    if bitmap.__sizeof__() < last - first >> 13:
        inside = bitmap.copy()
        inside.remove_range(0, first)
        inside.remove_range(last + 1, 1 << 32)
        return inside
    window = BitMap()
    window.add_range(first, last + 1)
    window &= bitmap
    return window


def pieces(bitmap: BitMap, entries: int) -> Iterator[BitMap]:
    """The members in each range of so many entries that has any, ascending."""
    if bitmap:
        for first in range(bitmap.min() // entries * entries, bitmap.max() + 1, entries):
            inside = between(bitmap, first, first + entries - 1)
            if inside:
                yield inside


def span(first: int, last: int) -> BitMap:
    """Every value in [first, last]."""
    out = BitMap()
    if last >= first:
        out.add_range(first, last + 1)
    return out


def count_runs(bitmap: BitMap) -> int:
    """How many maximal runs of consecutive values: as many as have no predecessor. Containers are
    compared, values are not made: a state of few acks has many holes, and every footer says how
    many runs they form.
    """
    return len(bitmap) - bitmap.intersection_cardinality(bitmap.shift(1))
