"""LongListMap, one per data ledger: the words of a bit set that begins at entry 0 (1 = acked),
unpacked.

A ledger's content is `08 key` and then `10 word` for every word. That is a stream of varints, so
whole columns are read and written at once; the words themselves are roaring's containers
(`core.containers`). What is written in another legal way (packed, key last, longer varints than
needed) is read field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.format.pulsar import varints
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.messages import LONG_ARRAY
from cursorkeeper.format.pulsar.varints import Bytes, Numbers
from cursorkeeper.format.pulsar.wire import (
    Kind,
    append_varint,
    read,
    read_varint,
    signed,
    write,
)

KEY_TAG: Final = 0x08
VALUE_TAG: Final = 0x10
PIECE_BYTES: Final = 1 << 20
"""So many bytes are looked at at once."""


class Element(NamedTuple):
    """Where the content of one LongListMap lies."""

    start: int
    end: int


# ---- writing


def encode(number: int, acked: Mapping[int, BitMap]) -> Iterator[bytes]:
    """The field `number` of every ledger, ascending, in pieces to join."""
    group: list[tuple[int, Numbers]] = []
    size = 0
    for ledger in sorted(acked):
        pieces = containers.windows(acked[ledger])
        for first in pieces:
            is_large = first.size == containers.WINDOW_WORDS
            if is_large or size >= containers.WINDOW_WORDS:
                yield from _encode_group(number, group)
                group, size = [], 0
            if is_large:
                written = [_written(words)[0] for words in (first, *pieces)]
                yield from (_head(number, ledger, sum(map(len, written))), *written)
            else:
                group.append((ledger, first))
                size += first.size
    yield from _encode_group(number, group)


def _head(number: int, ledger: int, values_bytes: int) -> bytes:
    key = write(LONG_ARRAY, (ledger,))
    head = bytearray()
    append_varint(head, number << 3 | Kind.LEN)
    append_varint(head, len(key) + values_bytes)
    return bytes(head + key)


def _encode_group(number: int, group: list[tuple[int, Numbers]]) -> Iterator[bytes]:
    """Small ledgers at once: numpy's costs are per call."""
    if not group:
        return
    written, ends = _written(np.concatenate([words for _, words in group]))
    start = 0
    for (ledger, _), stop in zip(
        group, ends[np.cumsum([words.size for _, words in group]) - 1].tolist(), strict=True
    ):
        yield _head(number, ledger, stop - start)
        yield written[start:stop]
        start = stop


def _written(words: Numbers) -> tuple[bytes, varints.Places]:
    """`10 word` for every word, and where each ends."""
    sizes = varints.sizes_of(words)
    ends = np.cumsum(sizes + 1)
    places = ends - sizes
    out = np.empty(int(ends[-1]), np.uint8)
    out[places - 1] = VALUE_TAG
    varints.write(out, places, words, sizes)
    return out.tobytes(), ends


def encoded_bytes(number: int, acked: Mapping[int, BitMap]) -> int:
    """The bytes that `encode` writes."""
    total = 0
    for ledger, entries in acked.items():
        if entries:
            size = sum(
                words.size + int(varints.sizes_of(words).sum())
                for words in containers.windows(entries)
            )
            total += len(_head(number, ledger, size)) + size
    return total


# ---- reading


def decode_elements(
    data: bytes, elements: list[Element], newer: list[str]
) -> Iterator[tuple[int, BitMap]]:
    """Ledger and acked entries of each element, in any order; a ledger may come twice, a set may be
    empty. `newer` takes what only a newer reader understands. Raises PulsarFormatError.
    """
    view = np.frombuffer(data, np.uint8)
    group: list[tuple[int, Element, int]] = []
    size = 0
    for element in elements:
        found = _plain_head(data, element)
        if found is None:
            yield _decode_slowly(data, element, newer)
            continue
        ledger, start = found
        if element.end - start > PIECE_BYTES:
            bitmap = _decode_large(view, start, element.end)
            yield (ledger, bitmap) if bitmap is not None else _decode_slowly(data, element, newer)
            continue
        group.append((ledger, element, start))
        size += element.end - start
        if size > PIECE_BYTES:
            yield from _decode_group(data, view, group, newer)
            group, size = [], 0
    if group:
        yield from _decode_group(data, view, group, newer)


def _plain_head(data: bytes, element: Element) -> tuple[int, int] | None:
    """Ledger and start of the values, if the element is as Pulsar writes it so far."""
    start, end = element
    if start >= end or data[start] != KEY_TAG:
        return None
    ledger, values = read_varint(data, start + 1, end)
    if values < end and data[values] != VALUE_TAG:
        return None
    return _checked_ledger(signed(ledger), start), values


def _checked_ledger(ledger: int, at: int) -> int:
    if ledger < 0:
        raise PulsarFormatError(f"byte {at}: a long array of ledger {ledger}")
    return ledger


def _decode_group(
    data: bytes, view: Bytes, group: list[tuple[int, Element, int]], newer: list[str]
) -> Iterator[tuple[int, BitMap]]:
    """Small elements at once: numpy's costs are per call."""
    joined = np.concatenate([view[start : element.end] for _, element, start in group])
    bounds = np.cumsum([element.end - start for _, element, start in group])
    words, ends = _pairs(joined)
    counts = np.searchsorted(ends, bounds)
    # every element ends with a pair
    if np.array_equal(np.concatenate([[-1], ends])[counts] + 1, bounds):
        first = 0
        for (ledger, _, _), count in zip(group, counts.tolist(), strict=True):
            yield ledger, _bitmap(words[first:count], 0)
            first = count
        return
    for _, element, _ in group:
        yield _decode_slowly(data, element, newer)


def _pairs(piece: Bytes) -> tuple[Numbers, varints.Places]:
    """The words of the `10 word` pairs that the piece begins with, and where each one ends. What is
    left is the caller's to see.
    """
    ends = varints.ends_of(piece)
    count = ends.size // 2
    tags, ends = ends[: 2 * count : 2], ends[1 : 2 * count : 2]
    good = piece[tags] == VALUE_TAG
    good[:1] &= tags[:1] == 0
    good[1:] &= tags[1:] == ends[:-1] + 1
    if not good.all():
        count = int(np.argmin(good))
        tags, ends = tags[:count], ends[:count]
    return varints.read(varints.padded(piece), tags + 1, ends), ends


def _decode_large(view: Bytes, start: int, end: int) -> BitMap | None:
    """One element, piece by piece; None if it is not plain."""
    out, container = BitMap(), 0
    pending = np.empty(0, np.uint64)
    while start < end:
        words, ends = _pairs(view[start : min(end, start + PIECE_BYTES)])
        if not words.size:
            return None
        start += int(ends[-1]) + 1
        pending = np.concatenate([pending, words])
        whole = pending.size - pending.size % containers.CONTAINER_WORDS
        if whole:
            out |= _bitmap(pending[:whole], container)
            container += whole // containers.CONTAINER_WORDS
            pending = pending[whole:]
    if pending.size:
        out |= _bitmap(pending, container)
    return out


def _bitmap(words: Numbers, container: int) -> BitMap:
    try:
        return containers.from_words(words, container)
    except ValueError:
        raise PulsarFormatError(
            f"a long array with entries above {ENTRY_ID_MAX}, which this release cannot hold"
        ) from None


def _decode_slowly(data: bytes, element: Element, newer: list[str]) -> tuple[int, BitMap]:
    """Any legal form: fields in any order, values packed or not."""
    ledger, words = read(data, *element, LONG_ARRAY, newer)
    return _checked_ledger(ledger, element.start), _bitmap(np.array(words, np.uint64), 0)
