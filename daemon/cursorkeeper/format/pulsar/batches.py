"""BatchedEntryDeletionIndexInfo: the batch indexes of one entry that are still to be acked.

In spite of its name `deleteSet` holds what is *not* deleted: bit 1 = un-acked. The size of the batch is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import roaring
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.ranges import read_position
from cursorkeeper.format.pulsar.wire import (
    Field,
    Kind,
    append_bytes,
    append_number,
    append_varint,
    expect,
    read_field,
    read_varint,
    varint_bytes,
)
from pyroaring import BitMap

WORDS_MAX = BATCH_SIZE_MAX // 64


def decode(data: bytes, field: Field, newer: list[str]) -> tuple[Position, BitMap]:
    """The entry and its un-acked indexes (empty: the element says nothing). Raises PulsarFormatError."""
    expect(field, Kind.LEN, "batchedEntryDeletionIndexInfo")
    position: Position | None = None
    words: list[int] = []
    pos = field.start
    while pos < field.end:
        inner = read_field(data, pos, field.end)
        pos = inner.end
        if inner.number == 1:
            expect(inner, Kind.LEN, "BatchedEntryDeletionIndexInfo.position")
            if position is not None:
                raise PulsarFormatError(f"byte {inner.at}: BatchedEntryDeletionIndexInfo.position is there twice")
            position = read_position(data, inner.start, inner.end, "BatchedEntryDeletionIndexInfo.position", newer)
        elif inner.number == 2 and inner.kind == Kind.LEN:
            at = inner.start
            while at < inner.end:
                word, at = read_varint(data, at, inner.end)
                words.append(word)
        elif inner.number == 2:
            words.append(expect(inner, Kind.VARINT, "BatchedEntryDeletionIndexInfo.deleteSet").value)
        else:
            newer.append(f"field {inner.number} in a partly acked batch")
    if position is None:
        raise PulsarFormatError(f"byte {field.at}: BatchedEntryDeletionIndexInfo.position is missing")
    if any(words[WORDS_MAX:]):
        raise PulsarFormatError(f"entry {position}: a deleteSet of {len(words)} words, batches have at most {BATCH_SIZE_MAX:,} messages")
    return position, _indexes(words[:WORDS_MAX])


def _indexes(words: list[int]) -> BitMap:
    if len(words) > 16:
        return roaring.from_words(np.array(words, np.uint64))
    found = []
    for at, word in enumerate(words):
        while word:
            lowest = word & -word
            found.append(64 * at + lowest.bit_length() - 1)
            word ^= lowest
    return BitMap(found)


def _words(indexes: BitMap) -> list[int]:
    if indexes.max() >= BATCH_SIZE_MAX:
        raise ValueError(f"a batch index {indexes.max()}, batches have at most {BATCH_SIZE_MAX:,} messages")
    if len(indexes) > 64:
        return [word for words in roaring.windows(indexes) for word in words.tolist()]
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
