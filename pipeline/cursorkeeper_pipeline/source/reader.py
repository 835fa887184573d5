"""The one place where Spark's data source API meets our tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.types import StructType

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.table import Part
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


class CursorKeeperReader(DataSourceReader):
    """Made on the driver, and pickled to the tasks: it holds options and no connection."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = Options.parse(given)
        self._options = replace(options, columns=columns_of(options.table, schema))
        self._schema = schema

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Spark's own method, which takes no filter, unless the user says by the option that the
        DataFrame is for one query.

        Spark keeps what the last query with filters planned, for every query of the same `load()`:
        a query without any, or the other side of a union, gets the rows of that filter alone (seen
        with 4.3.0). Neither a plan nor a task is told which query or scan it is for, so no filter
        is safe to take unasked. Where `spark.sql.python.filterPushdown.enabled` is off, as by
        default, Spark refuses a reader that has a method of its own: the option is never without
        effect in silence.
        """
        return self._push if self._options.push_filters else super().pushFilters

    def _push(self, filters: list[Filter]) -> list[Filter]:
        """What a query's filters leave out is not read. Spark checks all of them again, so that
        ours only have to be right about that.
        """
        self._options = replace(self._options, wanted=self._options.wanted.also(wanted(filters)))
        return filters

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
        fields = [batch.schema.field(one.name).with_nullable(one.nullable) for one in self._schema]
        columns = [batch.column(field.name) for field in fields]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def wanted(filters: Iterable[Filter]) -> Wanted:
    """What filters, all of which must hold, leave of the names: equality and IN are understood.
    Spark checks every filter again, so what is not understood costs time and no correctness.
    """
    found = Wanted()
    for one in filters:
        match one:
            case EqualTo((column,), value) | EqualNullSafe((column,), value) if column in OF_NAME:
                values = [value]
            case In((column,), several) if column in OF_NAME:
                values = list(several)
            case _:
                continue
        found = found.also(
            Wanted(((column, frozenset(value for value in values if value is not None)),))
        )
    return found
