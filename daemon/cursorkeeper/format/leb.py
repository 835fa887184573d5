"""Minimal unsigned LEB128: seven bits per byte, low bits first, the top bit says that more follow.

Owns single numbers and whole columns of them. Invariant: one number has exactly one encoding; a
longer one is damage, so that equal values have equal bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cursorkeeper.core.errors import DamageError

U64_MAX: Final = (1 << 64) - 1
U32_MAX: Final = (1 << 32) - 1

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.uint64]


def append(out: bytearray, n: int) -> None:
    """Write `n`, 0 <= n < 2^64. Raises ValueError outside of it."""
    if 0 <= n <= 0x7F:
        out.append(n)
        return
    few: list[int] = []
    put(few, n)
    out += bytes(few)


def put(out: list[int], n: int) -> None:
    """The same as numbers of a byte each. Machine code adds to a list in a tenth of the time that a
    bytearray takes; for what is a few bytes. Raises ValueError.
    """
    if n < 0 or n > U64_MAX:
        raise ValueError(f"{n} has no unsigned 64-bit LEB128")
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)


def read(data: bytes, pos: int) -> tuple[int, int]:
    """The number at `pos` and the place after it.

    Raises DamageError: truncated, not minimal, 2^64 or more.
    """
    try:
        byte = data[pos]
        pos += 1
        if byte < 0x80:
            return byte, pos
        value, shift = byte & 0x7F, 7
        while True:
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise DamageError("a LEB128 number of more than 10 bytes")
    except IndexError:
        raise DamageError("a LEB128 number is cut off") from None
    if byte == 0:
        raise DamageError("a LEB128 number is not minimal")
    value |= byte << shift
    if value > U64_MAX:
        raise DamageError("a LEB128 number of more than 64 bits")
    return value, pos


def zigzag(n: int) -> int:
    """0, -1, 1, -2 ... as 0, 1, 2, 3 ...; raises ValueError outside of int64."""
    if not -(1 << 63) <= n < 1 << 63:
        raise ValueError(f"{n} is no signed 64-bit number")
    return n << 1 if n >= 0 else -(n << 1) - 1


def unzigzag(n: int) -> int:
    return n >> 1 if n & 1 == 0 else -(n + 1 >> 1)


def encode_column(numbers: NDArray[np.integer]) -> bytes:
    """Every number (0 <= n < 2^32), one after the other."""
    if not numbers.size:
        return b""
    largest = int(numbers.max())
    if largest < 0x80:
        return numbers.astype(np.uint8).tobytes()
    sizes = np.ones(numbers.size, np.intp)
    steps = [7 * k for k in range(1, 5) if largest >> (7 * k)]
    for shift in steps:
        sizes += numbers >= (1 << shift)
    starts = np.cumsum(sizes) - sizes
    out = np.empty(int(starts[-1] + sizes[-1]), np.uint8)
    out[starts] = (numbers & 0x7F).astype(np.uint8) | ((sizes > 1) << 7).astype(np.uint8)
    for k, shift in enumerate(steps, 1):
        more = np.flatnonzero(sizes > k)
        rest = (numbers[more] >> shift).astype(np.uint64)
        out[starts[more] + k] = (rest & np.uint64(0x7F)).astype(np.uint8) | (
            (sizes[more] > k + 1) << 7
        ).astype(np.uint8)
    return out.tobytes()


def decode_column(data: Bytes) -> tuple[Numbers, NDArray[np.intp]]:
    """All numbers in `data`, and the index of each one's last byte.

    Raises DamageError: truncated, not minimal, 2^32 or more.
    """
    ends = np.flatnonzero(data < 0x80)
    if not data.size:
        return np.empty(0, np.uint64), ends
    if not ends.size or ends[-1] != data.size - 1:
        raise DamageError("a LEB128 number is cut off")
    if ends.size == data.size:
        return data.astype(np.uint64), ends
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    sizes = ends - starts
    longest = int(sizes.max())
    if longest > 4:
        raise DamageError("a LEB128 number of 2^32 or more where an entry is expected")
    values = (data[starts] & 0x7F).astype(np.uint64)
    for k in range(1, longest + 1):
        more = np.flatnonzero(sizes >= k)
        byte = data[starts[more] + k]
        if not np.all(byte[sizes[more] == k]):
            raise DamageError("a LEB128 number is not minimal")
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    if int(values.max()) > U32_MAX:
        raise DamageError("a LEB128 number of 2^32 or more where an entry is expected")
    return values, ends
