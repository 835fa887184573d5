"""BatchedEntryDeletionIndexInfo: the batch indexes of one entry that are still to be acked.

In spite of its name `deleteSet` holds what is *not* deleted: bit 1 = un-acked. The size of the
batch is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.ranges import read_position
from cursorkeeper.format.pulsar.wire import (
    Field,
    Kind,
    append_bytes,
    append_number,
    append_varint,
    expect,
    fields,
    read_varint,
    signed,
    varint_bytes,
)

WORDS_MAX: Final = BATCH_SIZE_MAX // 64
_FEW: Final = 24
"""So many bits are quicker one by one than with numpy."""


def decode(data: bytes, field: Field, newer: list[str]) -> tuple[Position, BitMap]:
    """The entry and its un-acked indexes (empty: the element says nothing). Raises
    PulsarFormatError.
    """
    expect(field, Kind.LEN, "batchedEntryDeletionIndexInfo")
    plain = _decode_plain(data, field.start, field.end)
    if plain is not None:
        return plain[0], _indexes(plain[0], plain[1])
    position: Position | None = None
    words: list[int] = []
    for inner in fields(data, field.start, field.end):
        if inner.number == 1:
            expect(inner, Kind.LEN, "BatchedEntryDeletionIndexInfo.position")
            if position is not None:
                raise PulsarFormatError(
                    f"byte {inner.at}: BatchedEntryDeletionIndexInfo.position is there twice"
                )
            position = read_position(
                data, inner.start, inner.end, "BatchedEntryDeletionIndexInfo.position", newer
            )
        elif inner.number == 2 and inner.kind == Kind.LEN:
            at = inner.start
            while at < inner.end:
                word, at = read_varint(data, at, inner.end)
                words.append(word)
        elif inner.number == 2:
            words.append(
                expect(inner, Kind.VARINT, "BatchedEntryDeletionIndexInfo.deleteSet").value
            )
        else:
            newer.append(f"field {inner.number} in a partly acked batch")
    if position is None:
        raise PulsarFormatError(
            f"byte {field.at}: BatchedEntryDeletionIndexInfo.position is missing"
        )
    return position, _indexes(position, words)


def _decode_plain(data: bytes, start: int, end: int) -> tuple[Position, list[int]] | None:
    """An element exactly as Pulsar writes it: `0a l 08 ledger 10 entry` and `10 word` for every
    word.
    """
    if end - start < 6 or data[start] != 0x0A or data[start + 2] != 0x08:
        return None
    inner = start + 2 + data[start + 1]
    if data[start + 1] >= 0x80 or inner > end:
        return None
    ledger, pos = read_varint(data, start + 3, inner)
    if pos >= inner or data[pos] != 0x10:
        return None
    entry, pos = read_varint(data, pos + 1, inner)
    if pos != inner:
        return None
    words: list[int] = []
    while pos < end:
        if data[pos] != 0x10:
            return None
        word, pos = read_varint(data, pos + 1, end)
        words.append(word)
    return Position(signed(ledger), signed(entry)), words


def _indexes(position: Position, words: list[int]) -> BitMap:
    if any(words[WORDS_MAX:]):
        raise PulsarFormatError(
            f"entry {position}: a deleteSet of {len(words)} words, batches have at most "
            f"{BATCH_SIZE_MAX:,} messages"
        )
    del words[WORDS_MAX:]
    if len(words) > 1 or (words and words[0].bit_count() > _FEW):
        bits = np.unpackbits(np.array(words, "<u8").view(np.uint8), bitorder="little")
        return bitmaps.from_sorted(np.flatnonzero(bits).astype(np.uint32))
    found = []
    word = words[0] if words else 0
    while word:
        lowest = word & -word
        found.append(lowest.bit_length() - 1)
        word ^= lowest
    return BitMap(found)


def _words(indexes: BitMap) -> list[int]:
    if indexes.max() >= BATCH_SIZE_MAX:
        raise ValueError(
            f"a batch index {indexes.max()}, batches have at most {BATCH_SIZE_MAX:,} messages"
        )
    if len(indexes) > _FEW:
        bits = np.zeros((indexes.max() // 64 + 1) * 64, np.uint8)
        bits[bitmaps.to_column(indexes)] = 1
        words: list[int] = np.packbits(bits, bitorder="little").view("<u8").tolist()
        return words
    words = [0] * (indexes.max() // 64 + 1)
    for index in indexes:
        words[index >> 6] |= 1 << (index & 63)
    return words


def encode(out: bytearray, number: int, batches: Mapping[PartialKey, BitMap]) -> None:
    """All of them, ascending. Raises ValueError: an index no batch has."""
    for key in sorted(batches):
        if batches[key]:
            append_bytes(out, number, _content(key, _words(batches[key])))


def append_position(out: bytearray, number: int, position: tuple[int, int]) -> None:
    """A NestedPositionInfo field."""
    inner = bytearray()
    append_number(inner, 1, position[0])
    append_number(inner, 2, position[1])
    append_bytes(out, number, inner)


def _content(key: PartialKey, words: list[int]) -> bytearray:
    content = bytearray()
    append_position(content, 1, key)
    for word in words:
        content.append(2 << 3)
        append_varint(content, word)
    return content


def encoded_bytes(batches: Mapping[PartialKey, BitMap]) -> int:
    """What `encode` takes, for any field number below 16."""
    total = 0
    for key, missing in batches.items():
        if missing:
            words = _words(missing)
            inner = 2 + varint_bytes(key.ledger) + varint_bytes(key.entry)
            content = 2 + inner + len(words) + sum(map(varint_bytes, words))
            total += 1 + varint_bytes(content) + content
    return total
