"""Rewrites cold cursors whose deltas outweigh their snapshot (the one that they have, and the one
that they would get), each as its owner would, so that the next owner reads little. A cursor that
somebody has open, or opens meanwhile, is left to them. While it lasts (seconds; a large state takes
longer) a source that opens it without takeover is refused.

Stop it whenever you like: every cursor is whole at every moment, and the next run goes on where
this one ended. What a cursor takes in BookKeeper ends at two snapshots, the second being what to
fall back to.

Exit code 1: a cursor could not be compacted; 2: a system did not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cursorkeeper.core.names import CursorName
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.jobs.frame import CLEAN, FAILED, FINDINGS, Reporter, arg, read
from cursorkeeper_pipeline.source.options import OptionError, Options
from cursorkeeper_pipeline.source.roots import check_footers
from cursorkeeper_pipeline.transforms.cold import Rule, choose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("cursors", "holes")
"""`holes` is not read; but BookKeeper is written, so a gateway is needed."""
CURSORS_PER_TASK: Final = 16
CURSORS_MAX: Final = 100_000
"""Their rows come to the driver."""
SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Arguments:
    cold_hours: float = arg(24.0, "Only closed cursors whose footer was not written for so long.")
    ratio: float = arg(
        1.0, "Only where the deltas are larger than the snapshot by more than this factor."
    )
    min_delta_bytes: int = arg(65_536, "Only where the deltas are at least so large.")
    limit: int = arg(10_000, "At most so many cursors, those with the largest deltas first.")
    dry_run: bool = arg(False, "Say which, and change nothing.")
    settings: Settings | None = None

    @property
    def rule(self) -> Rule:
        """When a cursor is worth it. Raises OptionError."""
        # nor is nan a number
        if not (self.cold_hours >= 0 and self.ratio >= 0 and self.min_delta_bytes >= 0):
            raise OptionError(
                "cold-hours, ratio and min-delta-bytes must be numbers from 0 on", "leave them out"
            )
        if not 1 <= self.limit <= CURSORS_MAX:
            raise OptionError(
                f"limit = {self.limit}: 1 to {CURSORS_MAX:,} are allowed",
                "run compact several times",
            )
        return Rule(self.cold_hours * 3600, self.ratio, self.min_delta_bytes)


def before(_source: Options, arguments: Arguments, _out: Reporter) -> int | None:
    """See the frame: a rule that means nothing is told before a session is begun. Raises
    OptionError.
    """
    _ = arguments.rule
    return None


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """See the module. Raises OptionError, ProblemError."""
    from pyspark.sql import functions as F  # noqa: N812

    rule, settings = arguments.rule, arguments.settings or source.settings
    check_footers(source)
    chosen = (
        choose(read(spark, source, "cursors"), rule)
        .orderBy(F.desc("delta_bytes"), "cursor_key")
        .limit(arguments.limit)
    )
    # once, here: what the tasks do is work on the world, which no second reading of a table may
    # repeat
    rows = chosen.collect()
    if arguments.dry_run or not rows:
        return _only_said(rows, out)
    done = compacted(spark, rows, rule, settings)
    out.parquet("compacted", spark.createDataFrame(done))
    return _told(done.to_pylist(), out)


def compacted(spark: SparkSession, rows: Sequence[Any], rule: Rule, settings: Settings) -> pa.Table:
    """What became of each chosen cursor: `schemas.COMPACTED`. A task that is tried again, or twice
    at once, does no harm: see `compacting`.
    """
    tasks = -(-len(rows) // CURSORS_PER_TASK)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from compact_batches(batches, rule, settings)

    frame = spark.createDataFrame(rows, _spark_schema(schemas.CHOSEN)).repartition(tasks)
    result: DataFrame = frame.mapInArrow(work, _spark_schema(schemas.COMPACTED))
    return result.toArrow().cast(schemas.COMPACTED)


def compact_batches(
    batches: Iterator[pa.RecordBatch], rule: Rule, settings: Settings
) -> Iterator[pa.RecordBatch]:
    """In a task: batches of `schemas.CHOSEN` to batches of `schemas.COMPACTED`, a row for each
    cursor.
    """
    from cursorkeeper_pipeline.failures import telling
    from cursorkeeper_pipeline.jobs.compacting import Chosen, compact_all

    for batch in batches:
        keys: dict[Chosen, int] = {}
        for row in batch.to_pylist():
            keys[
                Chosen(
                    CursorName(row["topic"], row["subscription"]), row["footer_version"], row["why"]
                )
            ] = row["cursor_key"]
        with telling():
            done = [
                {"cursor_key": keys[chosen], **row}
                for chosen, row in compact_all(settings, list(keys), rule)
            ]
        if done:
            yield pa.RecordBatch.from_pylist(done, schema=schemas.COMPACTED)


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _only_said(rows: Sequence[Any], out: Reporter) -> int:
    """Says what a run would do; the exit code."""
    delta_bytes = sum(row["delta_bytes"] for row in rows)
    shown = [row.asDict() for row in rows[:SHOWN_MAX]]
    out.json({"chosen": len(rows), "deltaBytes": delta_bytes, "done": False, "cursors": shown})
    out.say(f"{len(rows):,} cursors are worth a compaction, with {delta_bytes:,} bytes of deltas.")
    for row in shown:
        out.say(
            f"  {row['cursor']}: {row['delta_bytes']:,} bytes of deltas, snapshot "
            f"{row['snapshot_bytes']:,} ({row['why']})"
        )
    return CLEAN


def _told(rows: Sequence[dict[str, Any]], out: Reporter) -> int:
    """The exit code."""
    counts = dict(Counter(row["outcome"] for row in rows))
    sums = {
        f"{what}Bytes{when.capitalize()}": sum(row[f"{what}_bytes_{when}"] for row in rows)
        for what in ("read", "stored")
        for when in ("before", "after")
    }
    bad = [row for row in rows if row["outcome"] in ("REFUSED", "DIFFERENT", "AWAY")]
    out.json(
        {"chosen": len(rows), "done": True, "outcomes": counts, **sums, "problems": bad[:SHOWN_MAX]}
    )
    out.say(
        f"{len(rows):,} cursors: "
        + ", ".join(f"{count:,} {outcome.lower()}" for outcome, count in sorted(counts.items()))
        + "."
    )
    out.say(
        f"Their next owners read {sums['readBytesAfter']:,} bytes instead of "
        f"{sums['readBytesBefore']:,}; "
        f"stored are {sums['storedBytesAfter']:,} instead of {sums['storedBytesBefore']:,}."
    )
    for row in bad[:SHOWN_MAX]:
        out.say(f"  {row['cursor']}: {row['outcome']}: {row['error']}")
    if any(row["outcome"] == "AWAY" for row in bad):
        return FAILED
    return FINDINGS if bad else CLEAN
