"""Columns of varints, vectorised: reading many from bytes, writing many to places. One at a time:
`wire`.

Numbers are uint64 (a negative int64 as its two's complement). A reader's bytes need `SPARE_BYTES`
behind them, because eight bytes are loaded at once wherever a varint begins.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cursorkeeper.format.pulsar.errors import PulsarFormatError

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.uint64]
Places = NDArray[np.int64]

SPARE_BYTES: Final = 8
LONGEST: Final = 10

_THRESHOLDS: Final = [np.uint64(1 << (7 * k)) for k in range(1, LONGEST)]
_SEVEN = 0x7F7F7F7F7F7F7F7F
_MASKS: Final = np.array(
    [_SEVEN & ((1 << (8 * min(size, 8))) - 1) for size in range(LONGEST + 1)], np.uint64
)
_FOLDS: Final = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]


def padded(piece: Bytes) -> Bytes:
    """A copy with the spare bytes behind."""
    return np.concatenate([piece, np.zeros(SPARE_BYTES, np.uint8)])


def ends_of(piece: Bytes) -> Places:
    """The index of each varint's last byte, if `piece` is nothing but varints."""
    return np.flatnonzero(piece < 0x80)


def read(data: Bytes, starts: Places, ends: Places) -> Numbers:
    """The varints at data[starts..ends]. `data` is `padded`. Raises PulsarFormatError: more than 10
    bytes, or than 64 bits.
    """
    if not starts.size:
        return np.empty(0, np.uint64)
    sizes = ends - starts
    sizes += 1
    longest = int(sizes.max())
    if longest > LONGEST:
        raise PulsarFormatError(f"a varint of more than {LONGEST} bytes")
    if longest == 1:
        return data[starts].astype(np.uint64)
    loads = np.ndarray((data.size - 7,), "<u8", buffer=data, strides=(1,))
    values = loads[starts].astype(np.uint64, copy=False)
    values &= _MASKS[sizes]
    for low, high, shift in _FOLDS:
        values = (values & low) | ((values & high) >> shift)
    if longest > 8:
        _add_high(values, data, starts, sizes)
    return values


def _add_high(values: Numbers, data: Bytes, starts: Places, sizes: Places) -> None:
    """The ninth and tenth bytes."""
    nine = np.flatnonzero(sizes > 8)
    values[nine] |= (data[starts[nine] + 8] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56)
    ten = np.flatnonzero(sizes > 9)
    if ten.size:
        last = data[starts[ten] + 9]
        if last.max() > 1:
            raise PulsarFormatError("a varint of more than 64 bits")
        values[ten] |= last.astype(np.uint64) << np.uint64(63)


def sizes_of(values: Numbers) -> Places:
    """How many bytes each takes."""
    sizes = np.ones(values.size, np.int64)
    if values.size:
        largest = values.max()
        for threshold in _THRESHOLDS:
            if largest < threshold:
                break
            sizes += values >= threshold
    return sizes


def write(out: Bytes, at: Places, values: Numbers, sizes: Places) -> None:
    """Each value's varint to out[at], where `sizes` are `sizes_of(values)`."""
    if not values.size:
        return
    shortest, longest = int(sizes.min()), int(sizes.max())
    rest, place, size = values, at, sizes
    for k in range(longest):
        if k >= shortest:
            more = np.flatnonzero(size > k)
            rest, place, size = rest[more], place[more], size[more]
        byte = (rest & np.uint64(0x7F)).astype(np.uint8)
        byte |= (size > k + 1).view(np.uint8) << np.uint8(7)
        out[place + k] = byte
        rest = rest >> np.uint64(7)
