"""The rows of `batch_partials`, from a state: the indexes that are missing, as bit sets in one buffer.

Owns the form of `missing`: bit i of byte i // 8, counted from the lowest, says that index i is not acked yet; zero bytes at the end are
left out (as Java's `BitSet.toByteArray` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from cursorkeeper.core import bitmaps
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Partial, PartialKey
from pyroaring import BitMap

from cursorkeeper_pipeline.decode.columns import Column, same

CHUNK_PARTIALS: Final = 4_096
"""Of up to 64 Ki indexes each: 32 MiB of bits in the worst case."""


def partial_columns(cursor_key: int, partials: Iterator[tuple[PartialKey, Partial]]) -> Iterator[tuple[Column, ...]]:
    """cursor_key, ledger_id, entry_id, batch_size, missing, missing_count: many batches at a time."""
    while chunk := list(islice(partials, CHUNK_PARTIALS)):
        keys = np.array([key for key, _ in chunk], np.int64)
        sizes = np.array([partial.batch_size for _, partial in chunk], np.int32)
        missing = [partial.missing for _, partial in chunk]
        counted = np.array([len(one) for one in missing], np.int32)
        yield same(cursor_key, len(chunk)), keys[:, 0], keys[:, 1], sizes, bit_sets(missing), counted


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
    return pa.BinaryArray.from_buffers(pa.binary(), len(sets), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def living_partials(state: AckState) -> Iterator[tuple[PartialKey, Partial]]:
    """Those above mark-delete, in ledgers that the topic still has; ascending."""
    return ((key, partial) for key, partial in state.iter_partials() if not state.layout.is_trimmed(key.ledger))
