"""How near the cursors of the fleet are to what a stock Pulsar can store, what it would deliver
again, how they grow, and what they
take: tables as Parquet, report.json, and report.html for people. From footers alone: BookKeeper is
not read.

Exit code 1: a footer cannot be read, or one says that acks were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, PulsarSettings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter, arg, read
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.roots import check_footers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("cursors",)
OUT = "cursorkeeper-report"
FILE = "report.json"
CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A third of the CPU less than with the usual ones: the job is many short queries, and the second
compiler never earns what it costs.
"""


@dataclass(frozen=True, slots=True)
class Arguments:
    since: str = arg("", "Growth against an earlier report: its folder.", metavar="DIR")
    pulsar_version: str = arg(DEFAULT_VERSION, "The Pulsar that is compared with: its defaults.")
    pulsar_broker_conf: Path | None = arg(
        None, "The broker.conf of the Pulsar that is compared with.", metavar="FILE"
    )
    frame_bytes: int | None = arg(None, "Its bookies' largest message, if that is not 5,253,120.")
    ledger_entries_max: int = arg(
        0,
        "No data ledger has more entries than this (managedLedgerMaxEntriesPerLedger, if nothing "
        "rolls later): better lower bounds.",
    )
    near: float = arg(0.8, "From which share of a limit on a cursor counts as near it.")
    top: int = arg(20, "How many cursors and tenants the page names.")

    @property
    def settings(self) -> PulsarSettings:
        """Of the Pulsar that is compared with. Raises SettingsError, ProblemError."""
        from cursorkeeper.migration.pulsar_systems import cluster_settings, pulsar_conf

        default = PulsarSettings().znode_bytes_max
        return cluster_settings(
            self.pulsar_version, pulsar_conf(self.pulsar_broker_conf), self.frame_bytes, default
        )


@dataclass(slots=True)
class Kept:
    """Tables that are read more than once: from their Parquet where there is a folder, else from
    Spark's cache.
    """

    spark: SparkSession
    out: Reporter
    _cached: list[DataFrame] = field(default_factory=list)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """The same rows; ZooKeeper is read once, so that all numbers are of one reading."""
        place = self.out.parquet(name, frame)
        if place:
            return self.spark.read.schema(frame.schema).parquet(place)
        self._cached.append(frame.persist())
        return self._cached[-1]

    def release(self) -> None:
        """Frees what Spark has cached."""
        for frame in self._cached:
            frame.unpersist()


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """See the module. Raises OptionError, SettingsError, ProblemError."""
    from cursorkeeper_pipeline.pages import report_page

    check(arguments, out)
    check_footers(source)
    kept = Kept(spark, out)
    try:
        old = earlier(spark, arguments.since, source) if arguments.since else None
        facts = facts_of(read(spark, source, "cursors"), old, source, arguments, kept.keep)
    finally:
        kept.release()
    page = out.text("report.html", report_page.page(facts))
    out.json(facts, name=FILE)
    for line in report_page.sentences(facts):
        out.say(line)
    if page:
        out.say(f"{page} shows all of it.")
    return FINDINGS if facts["findings"] else CLEAN


def facts_of(
    cursors: DataFrame,
    old: DataFrame | None,
    source: Options,
    arguments: Arguments,
    keep: Callable[[str, DataFrame], DataFrame],
) -> dict[str, object]:
    """report.json, as a value. `old`: the cursors of an earlier report."""
    from cursorkeeper_pipeline.jobs import report_facts as facts
    from cursorkeeper_pipeline.transforms.forecast import by_tenant, forecast
    from cursorkeeper_pipeline.transforms.growth import growth
    from cursorkeeper_pipeline.transforms.limits import limits
    from cursorkeeper_pipeline.transforms.sizes import sizes

    settings = arguments.settings
    cursors = keep("cursors", cursors)
    forecasts = keep("forecast", forecast(cursors, settings, arguments.ledger_entries_max))
    grown = None if old is None else keep("growth", growth(cursors, old))
    return {
        "report": 1,
        "source": facts.where(source),
        "pulsar": facts.pulsar(settings),
        **facts.of_cursors(cursors, arguments.top),
        "forecast": facts.of_forecast(
            forecasts, keep("forecast_tenants", by_tenant(forecasts)), arguments.top
        ),
        "limits": facts.of_limits(
            keep("limits", limits(cursors, settings)), arguments.near, arguments.top
        ),
        "sizes": facts.of_sizes(keep("sizes", sizes(cursors, settings))),
        "growth": None
        if grown is None
        else facts.of_growth(grown, arguments.since, arguments.top, keep),
        "bookkeeperReads": 0,
    }


def check(arguments: Arguments, out: Reporter) -> None:
    """Before anything is read. Raises OptionError."""
    if (
        arguments.since
        and out.folder
        and Path(arguments.since).resolve() == Path(out.folder).resolve()
    ):
        raise OptionError(
            f"since and out are both {out.folder}: the earlier report would be overwritten",
            "give another --out",
        )
    if (
        arguments.since
        and "://" not in arguments.since
        and not (Path(arguments.since) / "cursors").exists()
    ):
        raise OptionError(
            f"since = {arguments.since}: no report is there",
            "name the --out of an earlier `pipeline report`",
        )
    if arguments.near <= 0 or arguments.top < 1 or arguments.ledger_entries_max < 0:
        raise OptionError(
            "near must be above 0, top at least 1, and ledger-entries-max not negative",
            "leave them out",
        )


def earlier(spark: SparkSession, folder: str, source: Options) -> DataFrame:
    """Of its table `cursors` the cursors that are chosen now: the others are not gone."""
    from pyspark.sql.pandas.types import from_arrow_schema

    base = folder.rstrip("/") if "://" in folder else str(Path(folder).resolve())
    return chosen(
        spark.read.schema(from_arrow_schema(schemas.CURSORS)).parquet(f"{base}/cursors"), source
    )


def chosen(cursors: DataFrame, source: Options) -> DataFrame:
    """Those that the source would give."""
    from pyspark.sql import functions as F  # noqa: N812

    for key in ("tenant", "namespace", "subscription"):
        if getattr(source, key):
            cursors = cursors.where(F.col(key) == getattr(source, key))
    if source.topic:
        partition = F.regexp_replace("topic", "-partition-[0-9]+$", "")
        cursors = cursors.where((F.col("topic") == source.topic) | (partition == source.topic))
    return cursors
