"""The archive in tables of a catalog (Iceberg, Delta): `NAME_cursors`, `NAME_segments`,
`NAME_hole_stats`, by day and tenant.

Owns how a day is replaced there: each table by one commit that overwrites what it has of the day
(and tenant), so that a reader sees the old one or the new one. The three commits are not one:
`cursors` is the first, and a run that dies between them is made good by the next one of that day. A
reading that found no cursor takes the place of none. The format must be able to overwrite by a
filter; a table of Spark's own file formats cannot, and is refused.
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Final

from cursorkeeper_pipeline.failures import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME: Final = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


class DayTables:
    """Of one run. `name`: [CATALOG.][SCHEMA.]NAME, `made_as`: the format of tables that are not
    there yet.
    """

    def __init__(
        self, spark: SparkSession, name: str, made_as: str, day: datetime.date, tenant: str = ""
    ) -> None:
        if not NAME.fullmatch(name):
            raise OptionError(
                f"table = {name!r}", "write CATALOG.SCHEMA.NAME, in letters, digits and underscores"
            )
        self._spark, self._name, self._made_as, self._day, self._tenant = (
            spark,
            name,
            made_as,
            day,
            tenant,
        )

    def table(self, which: str) -> str:
        """Its name in the catalog."""
        return f"{self._name}_{which}"

    def read(self, which: str) -> DataFrame:
        return self._spark.table(self.table(which))

    def of_this_run(self, which: str) -> DataFrame:
        """What is there of the day, and of the tenant if there is one."""
        return self.read(which).where(self._condition)

    def put(self, which: str, rows: DataFrame) -> DataFrame:
        """The rows take the place of what the table has of the day; as they are there, without the
        day. Raises OptionError where there are no cursors any more, or the format cannot.
        """
        if which == "cursors":
            rows = rows.persist()
            self.refuse_nothing(rows)
        self.replace(which, rows)
        rows.unpersist()
        return self.of_this_run(which).drop("day")

    def refuse_nothing(self, cursors: DataFrame) -> None:
        """A root that is not the one meant is more likely than a fleet that is gone."""
        if (
            cursors.isEmpty()
            and self._is_there("cursors")
            and not self.of_this_run("cursors").isEmpty()
        ):
            raise OptionError(
                f"table = {self._name}: no cursor was read, and {self._day} has some, which "
                f"would be gone; it stays as it is",
                "check --root and the chroot of --zookeeper. If there is really none any more, "
                "delete the day's rows first",
            )

    def replace(self, which: str, rows: DataFrame) -> None:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F  # noqa: N812

        is_new = not self._is_there(which)
        if is_new:
            rows.limit(0).writeTo(self.table(which)).using(self._made_as).partitionedBy(
                F.col("day"), F.col("tenant")
            ).create()
        try:
            rows.writeTo(self.table(which)).overwrite(self._condition)
        except AnalysisException as error:
            if is_new:
                self._spark.sql(f"DROP TABLE {self.table(which)}")
            raise OptionError(
                f"table = {self._name}: {self.table(which)} cannot replace a day "
                f"({error.getCondition()})",
                "--table-format iceberg or delta, with their jars and a catalog of theirs by "
                "--conf; or keep the archive in a folder",
            ) from error

    def remake(self, which: str, rows: DataFrame) -> DataFrame:
        """All of a table that is made anew by each run; the rows as they are there."""
        rows.writeTo(self.table(which)).using(self._made_as).createOrReplace()
        return self.read(which)

    def _is_there(self, which: str) -> bool:
        return self._spark.catalog.tableExists(self.table(which))

    @property
    def _condition(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        of_day = F.col("day") == F.lit(self._day)
        return of_day & (F.col("tenant") == F.lit(self._tenant)) if self._tenant else of_day
