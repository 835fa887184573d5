"""How many bytes Pulsar's long-array form of a state takes: one varint per 64 entries, every flush.

The count is exact for field 6 of a PositionInfo: per data ledger a key and the words of a bit set that begins at
entry 0 (1 = acked), each word its own tag and varint; a word with bit 63 set takes ten bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from cursorkeeper.core import bitmaps
from pyroaring import BitMap


def long_array_bytes(acked: Mapping[int, BitMap]) -> int:
    """Bytes of all LongListMap elements of a state; `acked` per data ledger, from entry 0."""
    return sum(_element(ledger, entries) for ledger, entries in acked.items() if entries)


def _element(ledger: int, entries: BitMap) -> int:
    content = 1 + _varint(ledger) + _words_bytes(entries)
    return 1 + _varint(content) + content


def _words_bytes(entries: BitMap) -> int:
    values = bitmaps.to_column(entries)
    bits = np.zeros((int(values[-1]) // 64 + 1) * 64, dtype=np.uint8)
    bits[values] = 1
    words = np.packbits(bits, bitorder="little").view("<u8")
    total = 0
    for step in range(1, 10):
        total += int(np.count_nonzero(words >= np.uint64(1 << (7 * step))))
    return 2 * words.size + total


def _varint(n: int) -> int:
    return max(1, (n.bit_length() + 6) // 7)
