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
from cursorkeeper.format.pulsar.varints import Bytes, Numbers
from cursorkeeper.format.pulsar.wire import (
    U64_MASK,
    Kind,
    Once,
    append_varint,
    expect,
    read_field,
    read_varint,
    varint_bytes,
)

KEY_TAG: Final = 0x08
VALUE_TAG: Final = 0x10
PIECE_BYTES: Final = 1 << 20
"""So many bytes are looked at at once."""
_PATIENCE: Final = 64
"""Looking at a piece for fewer pairs than this costs more than reading as many one by one."""


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
        first = next(pieces, None)
        if first is None:
            continue
        if first.size == containers.WINDOW_WORDS:
            yield from _encode_group(number, group)
            group, size = [], 0
            yield from _encode_large(number, ledger, first, pieces)
            continue
        group.append((ledger, first))
        size += first.size
        if size >= containers.WINDOW_WORDS:
            yield from _encode_group(number, group)
            group, size = [], 0
    yield from _encode_group(number, group)


def _head(number: int, ledger: int, values_bytes: int) -> bytes:
    content = bytearray([KEY_TAG])
    append_varint(content, ledger)
    head = bytearray()
    append_varint(head, number << 3 | Kind.LEN)
    append_varint(head, len(content) + values_bytes)
    return bytes(head + content)


def _encode_large(number: int, ledger: int, first: Numbers, rest: Iterator[Numbers]) -> list[bytes]:
    pieces = [_encode_words(words) for words in (first, *rest)]
    return [_head(number, ledger, sum(map(len, pieces))), *pieces]


def _encode_group(number: int, group: list[tuple[int, Numbers]]) -> Iterator[bytes]:
    """Small ledgers at once: numpy's costs are per call."""
    if not group:
        return
    words = np.concatenate([each for _, each in group])
    counts = np.array([each.size for _, each in group])
    firsts = np.cumsum(counts) - counts
    sizes = varints.sizes_of(words)
    heads = [
        _head(number, ledger, size)
        for (ledger, _), size in zip(
            group, np.add.reduceat(sizes + 1, firsts).tolist(), strict=True
        )
    ]
    before = np.cumsum([len(head) for head in heads])
    places = np.cumsum(sizes + 1) - sizes + np.repeat(before, counts)
    out = np.empty(int(places[-1] + sizes[-1]), np.uint8)
    for head, at in zip(heads, (places[firsts] - 1).tolist(), strict=True):
        out[at - len(head) : at] = np.frombuffer(head, np.uint8)
    out[places - 1] = VALUE_TAG
    varints.write(out, places, words, sizes)
    yield out.tobytes()


def element_bytes(number: int, ledger: int, acked: BitMap) -> int:
    """The bytes that `encode_element` writes."""
    content = (
        1
        + varint_bytes(ledger)
        + sum(
            words.size + int(varints.sizes_of(words).sum()) for words in containers.windows(acked)
        )
    )
    return varint_bytes(number << 3) + varint_bytes(content) + content


def _encode_words(words: Numbers) -> bytes:
    sizes = varints.sizes_of(words)
    places = np.cumsum(sizes + 1) - sizes
    out = np.empty(int(places[-1] + sizes[-1]), np.uint8)
    out[places - 1] = VALUE_TAG
    varints.write(out, places, words, sizes)
    return out.tobytes()


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
    return _checked_ledger(ledger, start), values


def _checked_ledger(ledger: int, at: int) -> int:
    if ledger >= 1 << 63:
        raise PulsarFormatError(f"byte {at}: a long array of ledger {ledger - (1 << 64)}")
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
    once = Once("LongListMap")
    values = _Values(data)
    pos, end = element
    while pos < end:
        pos = values.take_pairs(pos, end)
        if pos == end:
            break
        field = read_field(data, pos, end)
        pos = field.end
        if field.number == 1:
            once.put(field, "key")
        elif field.number == 2 and field.kind == Kind.LEN:
            values.take_packed(field.start, field.end)
        elif field.number == 2:
            values.add(expect(field, Kind.VARINT, "LongListMap.values").value)
        else:
            newer.append(
                "a bitmap (field 3) in a long array"
                if field.number == 3
                else f"field {field.number} in a long array"
            )
    ledger = _checked_ledger(once.required("key") & U64_MASK, element.start)
    return ledger, _bitmap(values.words(), 0)


class _Values:
    """The words of one element, however they are written."""

    def __init__(self, data: bytes) -> None:
        self._data, self._view = data, np.frombuffer(data, np.uint8)
        self._parts: list[Numbers] = []
        self._singles: list[int] = []
        self._patience = 0

    def take_pairs(self, pos: int, end: int) -> int:
        """As many plain pairs as there are, if it is worth a look; the place after them."""
        if self._data[pos] != VALUE_TAG or self._patience:
            self._patience = max(0, self._patience - 1)
            return pos
        words, ends = _pairs(self._view[pos : min(end, pos + PIECE_BYTES)])
        if words.size < _PATIENCE:
            self._patience = _PATIENCE
        if not words.size:
            return pos
        self._put(words)
        return pos + int(ends[-1]) + 1

    def take_packed(self, pos: int, end: int) -> None:
        """A packed field. Raises PulsarFormatError."""
        while pos < end:
            piece = self._view[pos : min(end, pos + PIECE_BYTES)]
            ends = varints.ends_of(piece)
            if not ends.size:
                raise PulsarFormatError(
                    f"byte {pos}: a varint is cut off, or has more than {varints.LONGEST} bytes"
                )
            starts = np.concatenate([[0], ends[:-1] + 1])
            self._put(varints.read(varints.padded(piece), starts, ends))
            pos += int(ends[-1]) + 1

    def add(self, word: int) -> None:
        self._singles.append(word)

    def _put(self, words: Numbers) -> None:
        self._parts += [np.array(self._singles, np.uint64), words]
        self._singles = []

    def words(self) -> Numbers:
        return np.concatenate([*self._parts, np.array(self._singles, np.uint64)])


def encoded_bytes(number: int, acked: Mapping[int, BitMap]) -> int:
    """The bytes of the elements of all ledgers."""
    return sum(
        element_bytes(number, ledger, entries) for ledger, entries in acked.items() if entries
    )
