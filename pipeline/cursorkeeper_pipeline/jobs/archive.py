"""Keeps what the fleet is today: footers, the ledgers that they name and counts of holes, as
Parquet by day and tenant; and says from the days that are kept how long consumers have been behind,
and whether it grows. Run it once a day. A second run of a day replaces the first one as a whole,
whether or not it had ended; with `--tenant`, what the day has of that tenant alone. A smaller
choice is refused, and so is a run that read no cursor where the day has some.

The folder must be one that every executor and this process see. With `--table` the days are kept in
tables of a catalog instead (Iceberg, Delta), and the folder holds archive.json alone. The tables
are `cursors`, `segments` and `hole_stats` (each day=YYYY-MM-DD/tenant=...), and, made anew by each
run from the last `--lag-days` days, `lag` and `lag_tenants`.

Exit code 1: a cursor's footer or state cannot be read; its row says why.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.day_folder import DayFolder
from cursorkeeper_pipeline.jobs.day_tables import DayTables
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter, arg, read, read_by_size
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.roots import check_footers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("cursors", "segments", "hole_stats")
CURSORS_PER_TASK: Final = 256
"""Of the states."""
OUT = "cursorkeeper-archive"
ARCHIVED: Final = {
    "cursors": schemas.ARCHIVED_CURSORS,
    "segments": schemas.ARCHIVED_SEGMENTS,
    "hole_stats": schemas.ARCHIVED_HOLE_STATS,
}
SHOWN: Final = (
    "cursor",
    "tenant",
    "hole_entries",
    "since",
    "oldest_hole_days_at_least",
    "holes_per_day",
)
NO_TENANT: Final = ""
"""Of topics that Pulsar could not have; a folder cannot have this name, so Parquet holds a null."""


@dataclass(frozen=True, slots=True)
class Arguments:
    day: str = arg(
        "", "The day that this reading is kept as; default: today, in UTC.", metavar="YYYY-MM-DD"
    )
    lag_days: int = arg(30, "How many archived days are looked at for ages and growth.")
    table: str = arg(
        "",
        "Keep the days in tables of a catalog (NAME_cursors, ...), not in a folder.",
        metavar="CATALOG.SCHEMA.NAME",
    )
    table_format: str = arg(
        "iceberg", "Of tables that are not there yet, as the catalog calls it.", metavar="FORMAT"
    )
    top: int = arg(20, "How many cursors are named, those with the oldest holes first.")

    @property
    def date(self) -> datetime.date:
        """Raises OptionError."""
        if self.lag_days < 1 or self.top < 0:
            raise OptionError("lag-days must be at least 1, and top not negative", "leave them out")
        try:
            return (
                datetime.date.fromisoformat(self.day)
                if self.day
                else datetime.datetime.now(datetime.UTC).date()
            )
        except ValueError:
            raise OptionError(f"day = {self.day!r}", "write YYYY-MM-DD, or leave it out") from None


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """See the module. Raises OptionError, ProblemError."""
    day = arguments.date
    if not out.folder:
        raise OptionError("out is empty, and an archive is a folder", "give --out DIR")
    if source.namespace or source.topic:
        raise OptionError(
            "a namespace or a topic is given, and a day is kept by tenant",
            "leave it out, or give --tenant",
        )
    check_footers(source)
    if arguments.table:
        tables = DayTables(spark, arguments.table, arguments.table_format, day, source.tenant)
        read_day(spark, source, day, tables.put)
        return _told(tables.read, tables.remake, day, [], arguments, out)
    folder = DayFolder(out.folder, tuple(ARCHIVED))
    recovered = folder.recover()
    keep_day(spark, source, folder, day)

    def read_back(name: str, rows: DataFrame) -> DataFrame:
        return spark.read.parquet(out.parquet(name, rows))

    return _told(
        lambda table: archived(spark, folder, table), read_back, day, recovered, arguments, out
    )


def read_day(
    spark: SparkSession,
    source: Options,
    day: datetime.date,
    put: Callable[[str, DataFrame], DataFrame],
) -> None:
    """Reads the fleet, or one tenant, once. `put`: puts a table of the day away, and gives the rows
    as they are there, without the day. Raises OptionError.
    """
    from cursorkeeper_pipeline.transforms import archive

    cursors = put("cursors", archive.cursors_of(read(spark, source, "cursors"), day))
    # the other tables are joined with what is written, and states are read of these cursors alone,
    # spread by their sizes
    put("segments", archive.segments_of(read(spark, source, "segments"), cursors, day))
    stats = read_by_size(source, "hole_stats", cursors, CURSORS_PER_TASK)
    put("hole_stats", archive.hole_stats_of(stats, cursors, day))


def keep_day(spark: SparkSession, source: Options, folder: DayFolder, day: datetime.date) -> None:
    """Puts the fleet, or one tenant, in the place of what the day has of it. Raises OptionError."""
    stage = folder.stage(day)

    def put(table: str, rows: DataFrame) -> DataFrame:
        # one file a tenant and task: a tenant is one task's
        place = f"{stage}/{table}"
        rows.drop("day").repartition("tenant").write.partitionBy("tenant").parquet(place)
        return _tables(spark, place, table, drop="day")

    read_day(spark, source, day, put)
    folder.publish(stage, source.tenant)


def archived(spark: SparkSession, folder: DayFolder, table: str) -> DataFrame:
    return _tables(spark, folder.table(table), table)


def _tables(spark: SparkSession, place: str, table: str, drop: str = "") -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = pa.schema([field for field in ARCHIVED[table] if field.name != drop])
    # by our own schema: Spark would take a tenant 007 for a number
    return spark.read.schema(from_arrow_schema(schema)).parquet(place).fillna({"tenant": NO_TENANT})


def _told(
    kept: Callable[[str], DataFrame],
    keep: Callable[[str, DataFrame], DataFrame],
    day: datetime.date,
    recovered: list[str],
    arguments: Arguments,
    out: Reporter,
) -> int:
    """Lag, the job's result, the exit code. `kept`: all days of a table; `keep`: puts one away, and
    gives what is there then.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from cursorkeeper_pipeline.transforms.lag import lag, tenants

    after = day - datetime.timedelta(days=arguments.lag_days)
    window = (F.col("day") > F.lit(after)) & (F.col("day") <= F.lit(day))
    cursors, stats = (kept(table).where(window) for table in ("cursors", "hole_stats"))
    lags = keep("lag", lag(stats, cursors))
    keep("lag_tenants", tenants(lags))
    is_today = F.col("day") == F.lit(day)
    today = lags.where(is_today)
    oldest = today.where("since is not null").orderBy(
        F.desc("oldest_hole_days_at_least"), F.desc("hole_entries"), "cursor_key"
    )
    shown: list[dict[str, Any]] = [
        row.asDict() for row in oldest.limit(arguments.top).select(*SHOWN).collect()
    ]
    statuses = {
        name: {row["status"]: row["count"] for row in found.groupBy("status").count().collect()}
        for name, found in (("footers", cursors.where(is_today)), ("states", stats.where(is_today)))
    }
    days = cursors.select("day").distinct().count()
    sums = today.agg(
        F.count("*"), F.coalesce(F.sum("hole_entries"), F.lit(0)), F.sum("holes_grown")
    ).collect()[0]
    bad = sum(
        count
        for found in statuses.values()
        for status, count in found.items()
        if status not in (schemas.OK, schemas.AT_LEAST)
    )
    out.json(
        {
            "day": day,
            "days": days,
            "recovered": recovered,
            "status": statuses,
            "cursors": sums[0],
            "holeEntries": sums[1],
            "holesGrown": sums[2],
            "oldest": shown,
        }
    )
    out.say(
        f"{day}: {sum(statuses['footers'].values()):,} cursors kept, {sums[1]:,} holes; {days} "
        f"days are there."
    )
    for row in shown:
        out.say(
            f"  {row['cursor']}: {row['hole_entries']:,} holes, the oldest for "
            f"{row['oldest_hole_days_at_least']} days at least"
        )
    return FINDINGS if bad else CLEAN
