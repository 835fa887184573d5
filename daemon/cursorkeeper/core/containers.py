"""Bitmaps from words and from runs, and back, without a number per entry: over roaring's portable
serialized form.

The form (RoaringFormatSpec): cookie, one (key, cardinality - 1) per container of 65,536 values,
offsets, containers. A container is an ascending array of u16 (at most 4,096), 1,024 words, or a
list of (first, length - 1) runs. So the words of a Java BitSet *are* containers, and a list of
ranges is one after it was cut at multiples of 65,536.

Bytes of others go through `checked`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import between, from_sorted

Words = NDArray[np.uint64]
Places = NDArray[np.int64]

CONTAINER_WORDS: Final = 1_024
CONTAINER_VALUES: Final = 65_536
CONTAINERS_MAX: Final = 65_536
WORDS_MAX: Final = CONTAINER_WORDS * CONTAINERS_MAX
"""Words of a set with the largest entry id."""
SPANNED_CONTAINERS_MAX: Final = 1 << 20
"""A few bytes can name runs over whole ledgers of 2^32 entries. All of a state together span no
more than this (68 G entries, 75 MB as runs), so that no number in it can ask for memory without
bound.
"""
WINDOW_CONTAINERS: Final = 64
"""Containers worked on at once: 4 M entries, half a megabyte of words."""
WINDOW_WORDS: Final = CONTAINER_WORDS * WINDOW_CONTAINERS

_ARRAY_MAX: Final = 4_096
_COOKIE: Final = 12_346
_COOKIE_RUNS: Final = 12_347
_OFFSETS_FROM: Final = 4
_ONE_ARRAY: Final = struct.Struct("<IIHHI")
"""All that comes in front of the only container, if that is an array."""
_FEW_RUNS: Final = 64
"""Below this, numpy's costs per call are more than a call per run."""


def from_words(words: Words, first_container: int = 0) -> BitMap:
    """The set whose bit b of word w is value first_container * 65,536 + 64 w + b. Raises ValueError
    beyond 32 bits.
    """
    count = -(-words.size // CONTAINER_WORDS)
    if first_container + count > CONTAINERS_MAX:
        raise ValueError("more words than a set of 32-bit values has")
    whole = np.zeros(count * CONTAINER_WORDS, "<u8")
    whole[: words.size] = words
    rows = whole.reshape(count, CONTAINER_WORDS)
    cards = np.bitwise_count(rows).sum(axis=1, dtype=np.int64)
    used = np.flatnonzero(cards)
    if not used.size:
        return BitMap()
    cards = cards[used]
    dense = cards > _ARRAY_MAX
    sizes = np.where(dense, 8 * CONTAINER_WORDS, 2 * cards)
    head = 8 + 8 * used.size
    offsets = head + np.cumsum(sizes) - sizes
    out = np.empty(int(offsets[-1] + sizes[-1]), np.uint8)
    out[:8] = np.array([_COOKIE, used.size], "<u4").view(np.uint8)
    out[8 : 8 + 4 * used.size] = _descriptors(used + first_container, cards)
    out[8 + 4 * used.size : head] = offsets.astype("<u4").view(np.uint8)
    for at, row in zip(offsets[dense].tolist(), used[dense].tolist(), strict=True):
        out[at : at + 8 * CONTAINER_WORDS] = rows[row].view(np.uint8)
    if not dense.all():
        _put_arrays(out, rows[used[~dense]], offsets[~dense], cards[~dense])
    bitmap = BitMap.deserialize(out.tobytes())
    bitmap.run_optimize()
    return bitmap


def from_members(members: NDArray[np.uint32]) -> BitMap:
    """The set of a column that ascends strictly and is not empty. A quarter of what
    `bitmaps.from_sorted` takes where no container has many.
    """
    if members.size <= _FEW_RUNS:
        return from_sorted(members)
    key = int(members[0]) >> 16
    if key == int(members[-1]) >> 16 and members.size <= _ARRAY_MAX:
        head = _ONE_ARRAY.pack(_COOKIE, 1, key, members.size - 1, _ONE_ARRAY.size)
        return BitMap.deserialize(head + members.astype("<u2").tobytes())
    begins = np.concatenate([[0], np.flatnonzero(np.diff(members >> np.uint32(16))) + 1])
    cards = np.diff(np.append(begins, members.size))
    if int(cards.max()) > _ARRAY_MAX:
        return from_sorted(members)
    parts = [
        np.array([_COOKIE, begins.size], "<u4"),
        _descriptors(members[begins] >> 16, cards),
        (8 + 8 * begins.size + 2 * begins).astype("<u4"),
        members.astype("<u2"),
    ]
    return BitMap.deserialize(b"".join(part.tobytes() for part in parts))


def _descriptors(keys: Places, cards: Places) -> NDArray[np.uint8]:
    pairs = np.empty((keys.size, 2), "<u2")
    pairs[:, 0] = keys
    pairs[:, 1] = cards - 1
    return pairs.reshape(-1).view(np.uint8)


def _put_arrays(out: NDArray[np.uint8], rows: Words, offsets: Places, cards: Places) -> None:
    """Array containers: the set bits of each row as u16."""
    flat = rows.reshape(-1)
    used = np.flatnonzero(flat)
    bits = np.flatnonzero(np.unpackbits(flat[used].view(np.uint8), bitorder="little"))
    values = (
        (((used[bits >> 6] & (CONTAINER_WORDS - 1)) << 6) | (bits & 63))
        .astype("<u2")
        .view(np.uint8)
    )
    at = 0
    for offset, size in zip(offsets.tolist(), (2 * cards).tolist(), strict=True):
        out[offset : offset + size] = values[at : at + size]
        at += size


def from_runs(starts: Places, ends: Places) -> BitMap:
    """The union of the runs starts[i]..ends[i] (inclusive; start <= end, all in 32 bits), in any
    order, overlapping or not.
    """
    if starts.size <= _FEW_RUNS:
        return _from_few_runs(starts, ends)
    starts, ends = _merged(starts, ends)
    first, last = starts >> 16, ends >> 16
    pieces = last - first + 1
    if int(pieces.max()) > 1:
        run = np.repeat(np.arange(starts.size), pieces)
        keys = first[run] + (np.arange(run.size) - (np.cumsum(pieces) - pieces)[run])
        starts = np.where(keys == first[run], starts[run] & 0xFFFF, 0)
        ends = np.where(keys == last[run], ends[run] & 0xFFFF, 0xFFFF)
    else:
        keys, starts, ends = first, starts & 0xFFFF, ends & 0xFFFF
    return _of_run_containers(keys, starts, ends - starts)


def _from_few_runs(starts: Places, ends: Places) -> BitMap:
    bitmap = BitMap()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        bitmap.add_range(start, end + 1)
    bitmap.run_optimize()
    return bitmap


def _merged(starts: Places, ends: Places) -> tuple[Places, Places]:
    """Ascending, disjoint, and not touching each other."""
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    apart = starts[1:] > reach[:-1] + 1
    if apart.all():
        return starts, reach
    begins = np.concatenate([[0], np.flatnonzero(apart) + 1])
    return starts[begins], reach[np.concatenate([begins[1:] - 1, [starts.size - 1]])]


def _of_run_containers(keys: Places, starts: Places, more: Places) -> BitMap:
    """`more` = length - 1 of each run; keys ascend."""
    begins = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
    counts = np.diff(np.append(begins, keys.size))
    cards = np.add.reduceat(more + 1, begins)
    flags = np.packbits(np.ones(begins.size, np.uint8), bitorder="little")
    parts = [
        np.array([_COOKIE_RUNS | (begins.size - 1) << 16], "<u4").tobytes(),
        flags.tobytes(),
        _descriptors(keys[begins], cards).tobytes(),
    ]
    if begins.size >= _OFFSETS_FROM:
        sizes = 2 + 4 * counts
        head = sum(map(len, parts)) + 4 * begins.size
        parts.append((head + np.cumsum(sizes) - sizes).astype("<u4").tobytes())
    body = np.empty(begins.size + 2 * keys.size, "<u2")
    container = np.repeat(np.arange(begins.size), counts)
    at = container + 1 + 2 * np.arange(keys.size)
    body[begins * 2 + np.arange(begins.size)] = counts
    body[at] = starts
    body[at + 1] = more
    parts.append(body.tobytes())
    bitmap = BitMap.deserialize(b"".join(parts))
    bitmap.run_optimize()
    return bitmap


def from_bits(first: int, body: bytes) -> BitMap:
    """The set of `first` + the index of each bit of `body` that is set, the lowest bit of the first
    byte first. Works on windows of 64 containers, so that it takes little more than the result.
    Raises ValueError beyond 32 bits.
    """
    body = body.rstrip(b"\0")
    if body and first + 8 * len(body) - 8 + body[-1].bit_length() > 1 << 32:
        raise ValueError("more bits than a set of 32-bit values has")
    out, at, pos = BitMap(), first, 0
    while pos < len(body):
        container, lead = divmod(at, CONTAINER_VALUES)
        piece = body[pos : pos + (WINDOW_CONTAINERS * CONTAINER_VALUES - lead) // 8]
        words = np.zeros((lead + 8 * len(piece) + 63) // 64, "<u8")
        words.view(np.uint8)[lead // 8 : lead // 8 + len(piece)] = np.frombuffer(piece, np.uint8)
        if shift := lead & 7:
            carried = words[:-1] >> np.uint64(64 - shift)
            words <<= np.uint64(shift)
            words[1:] |= carried
        out |= from_words(words[: CONTAINER_WORDS * (CONTAINERS_MAX - container)], container)
        pos += len(piece)
        at += 8 * len(piece)
    return out


# ---- bytes of others


def checked(raw: bytes) -> BitMap:
    """The bitmap that `raw` serializes: exactly one, with nothing behind it. Raises ValueError for
    anything else: CRoaring looks at every container before it believes what that says of itself,
    but at no offset, and not at how many values runs are said to hold.
    """
    if not raw:
        raise ValueError("it is empty")
    bitmap = BitMap.deserialize(raw)
    again = bitmap.serialize()
    if len(raw) != len(again):
        raise ValueError(f"it has {len(raw) - len(again)} bytes too many")
    if raw != again:
        raise ValueError("what it says of its containers is not what they hold")
    return bitmap


def runs_of(bitmap: BitMap) -> tuple[Places, Places]:
    """First and last value of each maximal run, ascending."""
    starts = bitmap - bitmap.shift(1)
    ends = bitmap - bitmap.shift(-1)
    return _column(starts), _column(ends)


def _column(bitmap: BitMap) -> Places:
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def to_bits(bitmap: BitMap) -> bytes:
    """The inverse of `from_bits` for a set that is not empty, from its smallest value to its
    largest.
    """
    first, last = bitmap.min(), bitmap.max()
    low = first >> 16 << 16
    whole = int.from_bytes(
        _window(bitmap, low // 64, (last - low) // 64 + 1).tobytes(), "little"
    ) >> (first - low)
    return whole.to_bytes((last - first) // 8 + 1, "little")


def windows(bitmap: BitMap) -> Iterator[Words]:
    """The words of a set from value 0 to its largest, in pieces; no zero word after the last
    value.
    """
    if not bitmap:
        return
    words = bitmap.max() // 64 + 1
    for first in range(0, words, WINDOW_WORDS):
        yield _window(bitmap, first, min(WINDOW_WORDS, words - first))


def _window(bitmap: BitMap, first_word: int, count: int) -> Words:
    """`count` words from a multiple of CONTAINER_WORDS on."""
    low = 64 * first_word
    inside = between(bitmap, low, low + 64 * count - 1)
    out = np.zeros(-(-count // CONTAINER_WORDS) * CONTAINER_WORDS, np.uint64)
    if inside:
        _unpack(inside, low >> 16, out)
    return out[:count]


def _unpack(bitmap: BitMap, first_key: int, out: Words) -> None:
    """Sets the bits of a set, which lies inside of `out`."""
    data = np.frombuffer(bitmap.serialize(), np.uint8)
    cookie = int(data[:4].view("<u4")[0])
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count, at = (cookie >> 16) + 1, 4
        is_run = np.unpackbits(data[4 : 4 + (count + 7) // 8], bitorder="little")[:count].tolist()
        at += (count + 7) // 8
        has_offsets = count >= _OFFSETS_FROM
    else:
        count, at = int(data[4:8].view("<u4")[0]), 8
        is_run, has_offsets = [0] * count, True
    pairs = data[at : at + 4 * count].view("<u2").astype(np.int64).reshape(count, 2)
    at += 8 * count if has_offsets else 4 * count
    starts: list[Places] = []
    ends: list[Places] = []
    for run, (key, more) in zip(is_run, pairs.tolist(), strict=True):
        base = (key - first_key) * CONTAINER_VALUES
        if run:
            runs = int(data[at : at + 2].view("<u2")[0])
            content = data[at + 2 : at + 2 + 4 * runs].view("<u2").astype(np.int64)
            starts.append(content[::2] + base)
            ends.append(content[::2] + content[1::2] + base)
            at += 2 + 4 * runs
        elif more < _ARRAY_MAX:
            values = data[at : at + 2 * (more + 1)].view("<u2").astype(np.int64) + base
            starts.append(values)
            ends.append(values)
            at += 2 * (more + 1)
        else:
            out[base >> 6 : (base >> 6) + CONTAINER_WORDS] = data[
                at : at + 8 * CONTAINER_WORDS
            ].view("<u8")
            at += 8 * CONTAINER_WORDS
    if starts:
        _fill(out, np.concatenate(starts), np.concatenate(ends))


def _fill(out: Words, starts: Places, ends: Places) -> None:
    """Sets disjoint runs of bits. Every bit belongs to one run, so adding is or-ing."""
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    first, last = starts >> 6, ends >> 6
    head = ones << (starts & 63).astype(np.uint64)
    tail = ones >> (63 - (ends & 63)).astype(np.uint64)
    one = first == last
    np.add.at(out, first, np.where(one, head & tail, head))
    long = np.flatnonzero(~one)
    if not long.size:
        return
    np.add.at(out, last[long], tail[long])
    step = np.zeros(out.size + 1, np.int64)
    np.add.at(step, first[long] + 1, 1)
    np.add.at(step, last[long], -1)
    out[np.cumsum(step[:-1]) > 0] = ones
