"""The rows of `batch_partials`, from a state: the indexes that are missing, as bit sets in one
buffer.

Owns the form of `missing`: bit i of byte i // 8, counted from the lowest, says that index i is not
acked yet; zero bytes at the end are left out (as Java's `BitSet.toByteArray` does). Invariant: a
chunk is at most `CHUNK_BITS` bits, or one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Partial, PartialKey
from cursorkeeper_pipeline.decode.columns import Column, same

CHUNK_PARTIALS: Final = 4_096
CHUNK_BITS: Final = 1 << 20
"""Of all sets of a chunk: while they are packed, a bit takes up to 30 bytes."""


def partial_columns(
    cursor_key: int, partials: Iterator[tuple[PartialKey, Partial]]
) -> Iterator[tuple[Column, ...]]:
    """cursor_key, ledger_id, entry_id, batch_size, missing, missing_count: many batches at a
    time.
    """
    for chunk in _chunks(partials):
        keys = np.array([key for key, _ in chunk], np.int64)
        sizes = np.array([partial.batch_size for _, partial in chunk], np.int32)
        missing = [partial.missing for _, partial in chunk]
        counted = np.array([len(one) for one in missing], np.int32)
        yield (
            same(cursor_key, len(chunk)),
            keys[:, 0],
            keys[:, 1],
            sizes,
            bit_sets(missing),
            counted,
        )


def _chunks(
    partials: Iterator[tuple[PartialKey, Partial]],
) -> Iterator[list[tuple[PartialKey, Partial]]]:
    chunk: list[tuple[PartialKey, Partial]] = []
    bits = 0
    for key, partial in partials:
        own = partial.missing.max() + 1 if partial.missing else 0
        if chunk and (bits + own > CHUNK_BITS or len(chunk) == CHUNK_PARTIALS):
            yield chunk
            chunk, bits = [], 0
        chunk.append((key, partial))
        bits += own
    if chunk:
        yield chunk


def bit_sets(sets: Sequence[BitMap]) -> pa.BinaryArray:
    """One value for each set, see the module."""
    lengths = np.array([one.max() // 8 + 1 if one else 0 for one in sets], np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    bits: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(8 * int(offsets[-1]), np.bool_)
    counted = np.array([len(one) for one in sets], np.int64)
    if counted.sum():
        indexes = np.concatenate([bitmaps.to_column(one) for one in sets]).astype(np.int64)
        bits[indexes + np.repeat(8 * offsets[:-1], counted)] = True
    data = np.packbits(bits, bitorder="little")
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(sets), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def living_partials(state: AckState) -> Iterator[tuple[PartialKey, Partial]]:
    """Those above mark-delete, in ledgers that the topic still has; ascending."""
    return (
        (key, partial)
        for key, partial in state.iter_partials()
        if not state.layout.is_trimmed(key.ledger)
    )
