"""BatchedEntryDeletionIndexInfo: the batch indexes of one entry that are still to be acked.

In spite of its name `deleteSet` holds what is *not* deleted: bit 1 = un-acked. The size of the
batch is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.messages import BATCH
from cursorkeeper.format.pulsar.wire import Field, Kind, expect, read, read_varint, signed

WORDS_MAX: Final = BATCH_SIZE_MAX // 64
_FEW: Final = 24
"""So many bits are quicker one by one than with numpy."""


def decode(data: bytes, field: Field, newer: list[str]) -> tuple[Position, BitMap]:
    """The entry and its un-acked indexes (empty: the element says nothing). Raises
    PulsarFormatError.
    """
    expect(field, Kind.LEN, "batchedEntryDeletionIndexInfo")
    position, words = _decode_plain(data, field.start, field.end) or read(
        data, field.start, field.end, BATCH, newer
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
    if len(words) > 1:
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


def rows(batches: Mapping[PartialKey, BitMap]) -> Iterator[tuple[PartialKey, list[int]]]:
    """The values of a BATCH for each, ascending. Raises ValueError: an index no batch has."""
    for key in sorted(batches):
        if batches[key]:
            yield key, _words(batches[key])
