"""The one place where Spark's data source API meets our tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.tables import table_of


@dataclass
class Planned(InputPartition):
    """One part, as Spark carries it."""

    part: Part

    def __init__(self, part: Part) -> None:
        super().__init__(0)
        self.part = part


class CursorKeeperReader(DataSourceReader):
    """Made on the driver for every action, and pickled to the tasks: it holds options and no connection."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = Options.parse(given)

    def partitions(self) -> Sequence[InputPartition]:
        return [Planned(part) for part in table_of(self._options.table).plan(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:  # None: the plan was empty
        if isinstance(partition, Planned):
            yield from table_of(self._options.table).read(self._options, partition.part)
