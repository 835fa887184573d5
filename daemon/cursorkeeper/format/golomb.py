"""Sets of a slice as numbers of few bits, for whoever reads and writes snapshots: what is marked
here and there takes little more than its entropy.

Owns `set := leb(bytes of high << 1 | has runs) k [k of the lengths] high low`. The numbers are the
gaps in front of the members; or, of a set of runs, first the gaps and then the lengths. They are in
exponential Golomb code of order k: x + 2^k has w + 1 bits; `high` says w - k in unary (so many
zeros and a one), `low` has the w bits below the leading one. Unlike Rice's code it takes few bits
for a far gap among near ones.

Invariants: nothing here looks at bits or numbers one by one; a set has at most `NUMBERS_MAX`
numbers, so that reading takes a bounded multiple of its bytes; every byte and bit is accounted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.bitmaps import to_column
from cursorkeeper.core.errors import DamageError
from cursorkeeper.format import leb

Numbers = NDArray[np.int64]

NUMBERS_MAX: Final = 1 << 20
_WIDTH_MAX: Final = 32
_ORDER_MAX: Final = 31
_SAMPLE: Final = 4096
_PIECE: Final = 1 << 14
"""So many numbers are worked on at once: they stay in the processor's caches."""
_WINDOW_BYTES: Final = 8


class Stored(NamedTuple):
    """A slice whose bitmap is not decoded yet."""

    ledger: int
    first: int
    last: int
    flags: int
    raw: bytes

    def __str__(self) -> str:
        return f"slice {self.ledger}:{self.first}-{self.last}"


def numbers_of(members: BitMap, runs: int) -> int:
    """How many numbers its code has, as one of gaps or of runs."""
    return min(len(members), 2 * runs)


def encode(members: BitMap, runs: int, first: int) -> bytes:
    """The code of a set that is not empty and has so many maximal runs; `first`: of its slice."""
    if 2 * runs < len(members):
        starts, lasts = containers.runs_of(members)
        gaps = starts - np.concatenate(([first - 2], lasts[:-1])) - 2
        return _encode([gaps, lasts - starts])
    column = to_column(members).astype(np.int64)
    return _encode([column - np.concatenate(([first - 1], column[:-1])) - 1])


def _widths(shifted: Numbers) -> Numbers:
    """Bits below the leading one: the exponents of doubles."""
    return (shifted.astype(np.float64).view(np.int64) >> 52) - 1023


def _order(numbers: Numbers) -> int:
    """The k that makes some of them shortest, of those about their median."""
    some = numbers[:: numbers.size // _SAMPLE + 1]
    median = int(np.partition(some, some.size // 2)[some.size // 2]).bit_length()
    return min(
        range(max(0, median - 2), min(_ORDER_MAX, median + 1) + 1),
        key=lambda k: 2 * int(_widths(some + (1 << k)).sum()) - k * some.size,
    )


def _encode(columns: list[Numbers]) -> bytes:
    orders, flags, bits = bytearray(), [], 0
    words = np.zeros(sum(x.size for x in columns) * _WIDTH_MAX // 64 + 2, "<u8")
    for column in columns:
        order = _order(column)
        orders.append(order)
        for begin in range(0, column.size, _PIECE):
            shifted = column[begin : begin + _PIECE] + (1 << order)
            widths = _widths(shifted)
            ends = np.cumsum(widths - order + 1)
            ones = np.zeros(int(ends[-1]), np.bool_)
            ones[ends - 1] = True
            flags.append(ones)
            bits = _put(words, bits, (shifted ^ (1 << widths)).view(np.uint64), widths)
    high = np.packbits(np.concatenate(flags), bitorder="little").tobytes()
    out = bytearray()
    leb.append(out, len(high) << 1 | len(columns) - 1)
    return bytes(out) + orders + high + words.view(np.uint8)[: (bits + 7) // 8].tobytes()


def _put(words: leb.Numbers, bits: int, values: leb.Numbers, widths: Numbers) -> int:
    """Writes the values from a bit on, and returns the bit behind them."""
    ends = np.cumsum(widths) + bits
    begins = ends - widths
    places = begins >> 6
    shifts = (begins & 63).astype(np.uint64)
    np.add.at(words, places, values << shifts)
    over = np.flatnonzero((ends - 1) >> 6 > places)
    np.add.at(words, places[over] + 1, values[over] >> (np.uint64(64) - shifts[over]))
    return int(ends[-1])


class _Heads(NamedTuple):
    """Of many sets: what is known of each without its numbers."""

    has_runs: NDArray[np.bool_]
    orders: bytes
    highs: list[bytes]
    lows: list[bytes]


def _read_heads(found: Sequence[Stored]) -> _Heads:
    kinds, orders = [], bytearray()
    highs, lows = [], []
    for one in found:
        head, pos = leb.read(one.raw, 0)
        begin = pos + 1 + (head & 1)
        end = begin + (head >> 1)
        if end > len(one.raw):
            raise DamageError(f"{one} is a set of {len(one.raw)} bytes, at least {end} are needed")
        if end == begin or not one.raw[end - 1]:
            raise DamageError(f"the high bits of {one} do not end in a byte with one of them")
        kinds.append(head & 1)
        orders += one.raw[pos:begin]
        highs.append(one.raw[begin:end])
        lows.append(one.raw[end:])
    return _Heads(np.array(kinds, np.bool_), bytes(orders), highs, lows)


def _ends(parts: Sequence[bytes]) -> Numbers:
    """Where each part ends in all of them together."""
    return np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))


def _numbers(heads: _Heads) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """The numbers of all sets, how many gaps each set has, and which of the numbers are gaps."""
    stream = np.frombuffer(b"".join(heads.highs), np.uint8)
    if stream.size * 8 > NUMBERS_MAX and int(np.bitwise_count(stream).sum()) > NUMBERS_MAX:
        raise DamageError(f"a set of more than {NUMBERS_MAX} numbers")
    ones = np.flatnonzero(np.unpackbits(stream, bitorder="little").view(np.bool_))
    high_begins = 8 * np.append(0, _ends(heads.highs)[:-1])
    begins = np.searchsorted(ones, high_begins)
    counts = np.diff(begins, append=ones.size)
    if np.any(counts[heads.has_runs] & 1):
        raise DamageError("a set of runs ends in the middle of a run")
    columns = 1 + heads.has_runs
    in_columns = np.repeat(counts // columns, columns)
    orders = np.repeat(np.frombuffer(heads.orders, np.uint8).astype(np.int64), in_columns)
    widths = np.diff(ones, prepend=-1)
    widths[begins] = ones[begins] - high_begins + 1
    widths += orders - 1
    if int(widths.max()) > _WIDTH_MAX:
        raise DamageError("a number of 2^32 or more where a gap or a length is expected")
    numbers = _low_bits(heads.lows, widths, begins, counts) - (1 << orders)
    is_gap = np.ones(columns.sum(), np.bool_)
    is_gap[np.cumsum(columns)[heads.has_runs] - 1] = False
    return numbers, counts // columns, np.repeat(is_gap, in_columns)


def _low_bits(lows: list[bytes], widths: Numbers, begins: Numbers, counts: Numbers) -> Numbers:
    """Each number's low bits behind a leading one. Those of a set begin with a byte."""
    places = np.cumsum(widths) - widths
    bits = np.add.reduceat(widths, begins)
    ends = _ends(lows)
    low_begins = np.append(0, ends[:-1])
    if not np.array_equal(ends - low_begins, (bits + 7) // 8):
        raise DamageError("a set has more or fewer bytes than its numbers")
    data = b"".join((*lows, bytes(_WINDOW_BYTES)))
    cut = np.flatnonzero(bits & 7)
    lasts = np.frombuffer(data, np.uint8)[ends[cut] - 1]
    if np.any(lasts >> (bits[cut] & 7)):
        raise DamageError("bits are set behind the last number of a set")
    places += np.repeat(8 * low_begins - places[begins], counts)
    # eight bytes from every fourth one on have all 32 bits from any of its own on
    windows = np.ndarray(len(data) // 4 - 1, "<i8", data, 0, (4,)).copy()
    values = np.empty(places.size, np.int64)
    for begin in range(0, places.size, _PIECE):
        piece = slice(begin, begin + _PIECE)
        leading = 1 << widths[piece]
        read = windows[places[piece] >> 5] >> (places[piece] & 31)
        values[piece] = read & (leading - 1) | leading
    return values


def decode(found: Sequence[Stored]) -> Iterator[BitMap]:
    """The set of each, in their order; they are read together, which a few small ones are worth,
    and made one by one: a few bytes may name billions. Raises DamageError.
    """
    heads = _read_heads(found)
    numbers, counts, is_gap = _numbers(heads)
    gaps, more = numbers[is_gap], np.zeros(int(counts.sum()), np.int64)
    more[np.repeat(heads.has_runs, counts)] = numbers[~is_gap]
    ends = np.cumsum(counts)
    begins = ends - counts
    lasts = np.cumsum(gaps + more + np.repeat(1 + heads.has_runs, counts))
    before = np.array([one.first for one in found]) - 1 - heads.has_runs
    lasts += np.repeat(before - np.append(0, lasts[ends[:-1] - 1]), counts)
    for one, has_runs, begin, end in zip(
        found, heads.has_runs.tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        mine = lasts[begin:end]
        if int(mine[-1]) > one.last:
            raise DamageError(f"the bitmap of {one} reaches outside of it")
        if has_runs:
            yield containers.from_runs(mine - more[begin:end], mine)
        else:
            yield containers.from_members(mine.astype(np.uint32))
