"""One set of entry ids or batch indexes: `leb(body_len << 2 | mode) leb(first) body`.

Owns the three modes: GAPS (`leb(a[i] - a[i-1] - 1)` per further member), RUNS (`leb(len - 1)
{leb(gap - 1) leb(len - 1)}*`) and BITS (bitmap of [first, last], lowest bit first). The encoder
takes the mode with the smallest body, ties to the lowest number; the sizes have a closed form, so
nothing is encoded twice. Short sets take a plain loop: numpy costs more than it saves.

Invariants: no member is 2^32 or more; reading never creates more members than the caller has room
for (six bytes of RUNS can claim 2^32 of them); every body is consumed exactly; reading works on
pieces of a body and never on a number per bit or per member of the whole, so that it takes a small
multiple of the body and of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.entries import Entries, as_set
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.shape import direct
from cursorkeeper.core.sizes import leb_sizes_total, run_lengths, section_sizes
from cursorkeeper.format import leb

SHORT: Final = 128
"""Up to this many members a loop writes faster than numpy."""
MANY: Final = 1 << 20
"""From this many members on a set is written by its runs and containers."""
LONG_RUNS_FROM: Final = 1 << 12
"""From this many on, it is if they make up long runs: if roaring has less than a byte for each."""
SHORT_BODY_BYTES: Final = 160
"""Up to this many body bytes a loop reads faster than numpy."""
SHORT_BITS_BYTES: Final = 32
"""Up to this many bytes of a bitmap a loop reads faster than numpy."""
_LEB_BYTES_MAX: Final = 5
PIECE_BYTES: Final = 1 << 17
"""So many bytes of a body are turned into numbers at once."""


@direct
class Mode(IntEnum):
    GAPS = 0
    RUNS = 1
    BITS = 2


_GAPS: Final = 0
_RUNS: Final = 1
_BITS: Final = 2
"""The same as plain numbers."""

Members = NDArray[np.uint32]


def append(out: bytearray, values: Entries) -> None:
    """Write the set, which must not be empty (ValueError)."""
    if not values:
        raise ValueError("an empty set has no section")
    mode, first, body = encode(values)
    leb.append(out, len(body) << 2 | mode)
    leb.append(out, first)
    out += body


def put(out: list[int], values: tuple[int, ...]) -> None:
    """The same of a few, not none, as numbers of a byte each."""
    mode, first, body = _short(list(values))
    leb.put(out, len(body) << 2 | mode)
    leb.put(out, first)
    out += body


def encode(values: Entries) -> tuple[Mode, int, bytes]:
    """The smallest form: mode, first member, body."""
    values, count = as_set(values), len(values)
    if count <= SHORT:
        mode, first, body = _short(values.to_array().tolist())
        return Mode(mode), first, bytes(body)
    first = values.min()
    if values.max() - first + 1 == count:
        return _encode_run(first, count)
    if count > MANY or (count > LONG_RUNS_FROM and values.__sizeof__() < count):
        return _encode_many(values, count)
    return encode_members(np.frombuffer(values.to_array(), np.uint32))


def _encode_many(values: BitMap, count: int) -> tuple[Mode, int, bytes]:
    """The same without a number per member: a few ranges of a message may hold billions."""
    starts, lasts = containers.runs_of(values)
    more, jumps = lasts - starts, starts[1:] - lasts[:-1] - 1
    first = int(starts[0])
    sizes = (
        count - starts.size + leb_sizes_total(jumps),
        leb_sizes_total(more) + leb_sizes_total(jumps - 1),
        (int(lasts[-1]) - first) // 8 + 1,
    )
    mode = Mode(sizes.index(min(sizes)))
    if mode is Mode.BITS:
        return mode, first, containers.to_bits(values)
    if mode is Mode.GAPS:
        return encode_members(np.frombuffer(values.to_array(), np.uint32))
    numbers = np.empty(2 * starts.size - 1, np.int64)
    numbers[0::2] = more
    numbers[1::2] = jumps - 1
    return mode, first, leb.encode_column(numbers)


def _encode_run(first: int, count: int) -> tuple[Mode, int, bytes]:
    out = bytearray()
    leb.append(out, count - 1)  # never longer than the gaps, or the bitmap
    return Mode.RUNS, first, bytes(out)


def _short(members: list[int]) -> tuple[int, int, list[int]]:
    """The mode, the first member, and the body as numbers of a byte each. Of acks here and there
    the gaps are smallest, and nothing else need be looked at: a run takes a byte at least.
    """
    first = previous = members[0]
    gaps: list[int] = []
    jumps = 0
    for at in range(1, len(members)):
        member = members[at]
        gap = member - previous - 1
        previous = member
        if gap:
            jumps += 1
            while gap > 0x7F:
                gaps.append(gap & 0x7F | 0x80)
                gap >>= 7
        gaps.append(gap)
    bits_size = (previous - first) // 8 + 1
    if len(gaps) <= 2 * jumps + 1 and len(gaps) <= bits_size:
        return _GAPS, first, gaps
    runs = _runs_of(members)
    if len(gaps) <= len(runs) and len(gaps) <= bits_size:
        return _GAPS, first, gaps
    if len(runs) <= bits_size:
        return _RUNS, first, runs
    bits = 0
    for member in members:
        bits |= 1 << (member - first)
    return _BITS, first, list(bits.to_bytes(bits_size, "little"))


def _runs_of(members: list[int]) -> list[int]:
    """LEB128 numbers in turn: members of a run less one, width of the gap behind it less one; the
    last is a run. `members` grow.
    """
    out: list[int] = []
    more, previous = 0, members[0]
    for member in members[1:]:
        gap = member - previous - 1
        previous = member
        if gap:
            leb.put(out, more)
            leb.put(out, gap - 1)
            more = 0
        else:
            more += 1
    leb.put(out, more)
    return out


def encode_members(members: Members) -> tuple[Mode, int, bytes]:
    """The same from an array: shape (n,), n > 0, strictly ascending."""
    first = int(members[0])
    gaps = members[1:] - members[:-1] - np.uint32(1)
    runs_min = 2 * int(np.count_nonzero(gaps)) + 1
    if gaps.size <= runs_min:
        body = leb.encode_column(gaps)
        if len(body) <= min(runs_min, (int(members[-1]) - first) // 8 + 1):
            return Mode.GAPS, first, body
    sizes = section_sizes(members)
    mode = Mode(sizes.index(min(sizes)))
    if mode is Mode.BITS:
        flags = np.zeros(sizes[2] * 8, np.bool_)
        flags[members - members[0]] = True
        return mode, first, np.packbits(flags, bitorder="little").tobytes()
    if mode is Mode.GAPS:
        return mode, first, leb.encode_column(gaps)
    breaks = np.flatnonzero(gaps)
    numbers = np.empty(2 * breaks.size + 1, np.int64)
    numbers[0::2] = run_lengths(breaks, gaps.size)
    numbers[1::2] = gaps[breaks].astype(np.int64) - 1
    return mode, first, leb.encode_column(numbers)


def read(data: bytes, pos: int, room: int) -> tuple[BitMap, int]:
    """The set at `pos` and the place after it; at most `room` members.

    Raises DamageError.
    """
    mode, body_len, first, pos = read_head(data, pos)
    end = pos + body_len
    if end > len(data):
        raise DamageError(f"a section of {body_len} bytes where {len(data) - pos} are left")
    return decode(mode, first, data[pos:end], room), end


def read_head(data: bytes, pos: int) -> tuple[int, int, int, int]:
    """(mode, body bytes, first member, place of the body)."""
    head, pos = leb.read(data, pos)
    first, pos = leb.read(data, pos)
    if head & 3 > Mode.BITS:
        raise DamageError(f"unknown section mode {head & 3}")
    if first > leb.U32_MAX:
        raise DamageError(f"a section begins at {first}, which is no entry id")
    return head & 3, head >> 2, first, pos


def decode(mode: int, first: int, body: bytes, room: int) -> BitMap:
    """The members of a body. Raises DamageError."""
    if mode == Mode.GAPS:
        if len(body) >= room:  # each byte is at most one member; exact when it matters
            _check_room(1 + int(np.count_nonzero(np.frombuffer(body, np.uint8) < 0x80)), room)
        return (
            _decode_short_gaps(first, body)
            if len(body) <= SHORT_BODY_BYTES
            else _decode_gaps(first, body)
        )
    if mode == Mode.BITS:
        return _decode_bits(first, body, room)
    return (
        _decode_short_runs(first, body, room)
        if len(body) <= SHORT_BODY_BYTES
        else _decode_runs(first, body, room)
    )


def _check_room(count: int, room: int) -> None:
    if count > room:
        raise DamageError(f"{count} acks are claimed where {room} are allowed")


def _check_last(last: int) -> None:
    if last > leb.U32_MAX:
        raise DamageError(f"a section reaches {last}, which is no entry id")


def _decode_short_gaps(first: int, body: bytes) -> BitMap:
    members, pos, end = [first], 0, len(body)
    while pos < end:
        gap, pos = leb.read(body, pos)
        first += gap + 1
        members.append(first)
    _check_last(first)
    return BitMap(members)


def _pieces(body: bytes) -> Iterator[leb.Numbers]:
    """The numbers of a body, some at a time."""
    view, at = np.frombuffer(body, np.uint8), 0
    while at < len(body):
        piece = view[at : at + PIECE_BYTES]
        if at + piece.size < len(body):
            last = np.flatnonzero(piece[-_LEB_BYTES_MAX:] < 0x80)
            if not last.size:
                raise DamageError("a LEB128 number of 2^32 or more where an entry is expected")
            piece = piece[: piece.size - min(_LEB_BYTES_MAX, piece.size) + int(last[-1]) + 1]
        yield leb.decode_column(piece)[0]
        at += piece.size


def _decode_gaps(first: int, body: bytes) -> BitMap:
    found = BitMap([first])
    for gaps in _pieces(body):
        gaps += np.uint64(1)
        gaps[0] += np.uint64(first)
        members = np.cumsum(gaps)
        first = int(members[-1])
        _check_last(first)
        found |= containers.from_members(members.astype(np.uint32))
    return found


def _decode_bits(first: int, body: bytes, room: int) -> BitMap:
    if not body or body[-1] == 0 or body[0] & 1 == 0:
        raise DamageError(
            "a bitmap section must begin with a set bit and end in a byte that is not zero"
        )
    _check_last(first + 8 * len(body) - 9 + body[-1].bit_length())
    if len(body) * 8 > room:
        _check_room(int.from_bytes(body, "little").bit_count(), room)
    if len(body) <= SHORT_BITS_BYTES:
        return BitMap(
            [first + 8 * i + k for i, byte in enumerate(body) for k in range(8) if byte >> k & 1]
        )
    return containers.from_bits(first, body)


def _decode_short_runs(first: int, body: bytes, room: int) -> BitMap:
    members = BitMap()
    last, pos = leb.read(body, 0)
    last += first
    total = last - first + 1
    _check_room(total, room)
    _check_last(last)
    members.add_range(first, last + 1)
    while pos < len(body):
        gap, pos = leb.read(body, pos)
        length, pos = leb.read(body, pos)
        first = last + gap + 2
        last = first + length
        total += length + 1
        _check_room(total, room)
        _check_last(last)
        members.add_range(first, last + 1)
    return members


def _decode_runs(first: int, body: bytes, room: int) -> BitMap:
    found, total = BitMap(), 0
    last = first - 2  # so that a first run is one more behind a gap of 1, which is written as 0
    rest = np.zeros(1, np.uint64)
    for numbers in _pieces(body):
        numbers = np.concatenate((rest, numbers))
        pairs = numbers[: numbers.size & ~1].astype(np.int64)
        rest = numbers[pairs.size :]
        if not pairs.size:
            continue
        pairs[0::2] += 2
        edges = np.cumsum(pairs) + last
        last = int(edges[-1])
        _check_last(last)
        starts, lasts = edges[0::2], edges[1::2]
        total += int((lasts - starts).sum()) + starts.size
        _check_room(total, room)
        found |= containers.from_runs(starts, lasts)
    if rest.size:
        raise DamageError("a section of runs ends in the middle of a run")
    return found


def expand_runs(starts: leb.Numbers, sizes: leb.Numbers) -> Members:
    """Every member of the runs, in their order."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    return (
        np.repeat(starts - (ends - sizes), sizes.astype(np.intp))
        + np.arange(total, dtype=np.uint64)
    ).astype(np.uint32)
