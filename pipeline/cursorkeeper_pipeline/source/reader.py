"""The one place where Spark's data source API meets our tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualNullSafe, EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.part import Part
from cursorkeeper_pipeline.source.tables import columns_of, table_of
from cursorkeeper_pipeline.source.wanted import OF_NAME, Wanted


@dataclass
class Planned(InputPartition):
    """One of `parts` parts, as Spark carries it."""

    part: Part
    parts: int

    def __init__(self, part: Part, parts: int) -> None:
        super().__init__(0)
        self.part, self.parts = part, parts


class Pushing:
    """`pushFilters` of one reader, which Spark takes for the method of its own class.

    Where `spark.sql.python.filterPushdown.enabled` is off (it is by default), Spark never calls the method and refuses every read of a
    reader that has one of its own; it looks at `__func__`. Where it is on, Spark keeps what the last query with filters planned, for every
    query of the same `load()`: a union of two filters, or a query without any, then gets the rows of the last filter alone (seen with
    4.3.0). So filters only choose where the user says by the option `pushFilters` that the DataFrame is for one query.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: CursorKeeperReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Those that Spark must check itself: all of them, so that ours only have to be right about what they leave out."""
        self._reader.push(filters)
        return filters


class CursorKeeperReader(DataSourceReader):
    """Made on the driver, and pickled to the tasks: it holds options and no connection."""

    def __init__(self, given: Mapping[str, str], schema: StructType | None = None) -> None:
        options = Options.parse(given)
        self._options = options if schema is None else replace(options, columns=columns_of(options.table, schema))
        self._nullable = {} if schema is None else {field.name: field.nullable for field in schema}

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - a property, see `Pushing`
        return Pushing(self)

    def push(self, filters: list[Filter]) -> None:
        """What a query's filters leave out is not read."""
        if self._options.push_filters:
            self._options = replace(self._options, wanted=self._options.wanted.also(wanted(filters)))

    def partitions(self) -> Sequence[InputPartition]:
        parts = table_of(self._options.table).plan(self._options)
        return [Planned(part, len(parts)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Planned)
        options = self._options.of_tasks(partition.parts)
        for batch in table_of(options.table).read(options, partition.part):
            yield self._shaped(batch)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the columns that the query's schema names, each as nullable as it says."""
        names = self._options.columns or batch.schema.names
        fields = [batch.schema.field(name) for name in names]
        schema = pa.schema([field.with_nullable(self._nullable.get(field.name, field.nullable)) for field in fields])
        return pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)


def wanted(filters: Iterable[Filter]) -> Wanted:
    """What filters, all of which must hold, leave of the names: equality and IN are understood. Spark checks every filter again, so what
    is not understood costs time and no correctness."""
    found = Wanted()
    for one in filters:
        match one:
            case EqualTo((column,), value) | EqualNullSafe((column,), value) if column in OF_NAME:
                values = [value]
            case In((column,), several) if column in OF_NAME:
                values = list(several)
            case _:
                continue
        found = found.also(Wanted(((column, frozenset(value for value in values if value is not None)),)))
    return found
