"""Columns of many cursors joined into Arrow batches of about `BATCH_ROWS` rows, or fewer large
ones, with exactly a table's schema.

Owns the size of batches. Invariants: the order of rows is kept; at most one batch of rows waits, of
about `BATCH_BYTES` or less if no columns that come are larger; large columns are cut without a
copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

BATCH_ROWS: Final = 65_536
"""Below a few thousand the cost of a batch shows, above it nothing is won."""
BATCH_BYTES: Final = 16 << 20
"""Rows of numbers are far below it; a row that holds a set of bits may be some KiB."""

Column = Any
"""A numpy array, or a pyarrow array where numpy has no such type."""
Row = tuple[Any, ...]


class Batches:
    """Takes columns of any length in, gives batches out."""

    def __init__(self, schema: pa.Schema, batch_rows: int = BATCH_ROWS) -> None:
        self._schema, self._batch_rows = schema, batch_rows
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """Columns of equal length, in the schema's order. Gives the batches that are full now:
        iterate to the end.
        """
        given = self._batch(columns)
        self._waiting.append(given)
        self._rows += given.num_rows
        self._bytes += given.nbytes
        while self._rows >= self._batch_rows or self._bytes >= BATCH_BYTES:
            yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        waiting = pa.Table.from_batches(self._waiting)
        taken, rest = waiting.slice(0, self._batch_rows), waiting.slice(self._batch_rows)
        self._waiting, self._rows, self._bytes = rest.to_batches(), rest.num_rows, rest.nbytes
        (batch,) = taken.combine_chunks().to_batches()
        return batch

    def _batch(self, columns: Sequence[Column]) -> pa.RecordBatch:
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def batches(rows: Iterable[Row], schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Rows in the schema's order as batches of `batch_rows`, the last one of fewer, none empty."""
    coming = iter(rows)
    while some := list(islice(coming, batch_rows)):
        columns = zip(*some, strict=True)
        arrays = [_array(values, field) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can say it, no text can hold it
        return pa.array(
            [text and text.encode(errors="replace").decode() for text in values], field.type
        )


def same_text(value: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), rows)


def same(value: int, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.full(rows, value, np.int64)
