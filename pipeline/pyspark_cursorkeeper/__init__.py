"""Found by Spark itself: a module named `pyspark_*` that has a `DefaultSource` is registered
without a call.

It is imported in every Spark session of the environment, also by those who never heard of us:
nothing is imported here but Spark's own base class, and nothing can fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`spark.read.format("cursorkeeper").option("table", ...)`; see
    `cursorkeeper_pipeline.source.options` for the options.
    """

    @classmethod
    def name(cls) -> str:
        return "cursorkeeper"

    def schema(self) -> StructType:
        from cursorkeeper_pipeline.source.tables import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from cursorkeeper_pipeline.source.reader import CursorKeeperReader

        return CursorKeeperReader(self.options, schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        return self._no(
            "readStream",
            "a cursor's state is no stream; each action on what spark.read loads reads it anew",
        )

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return self._no(
            "write",
            "cursors are changed by their owners alone; `cursorkeeper pipeline --help` names the "
            "jobs that may",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return self.writer(schema, overwrite)

    def _no(self, what: str, remedy: str) -> Any:
        from cursorkeeper_pipeline.failures import OptionError

        raise OptionError(f"{what}: this source is read with spark.read. What to do: {remedy}")
