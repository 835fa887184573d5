"""How the cursors of the fleet are: how many, in what state, and how much they hold. From footers alone: BookKeeper is not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter, read
from cursorkeeper_pipeline.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("cursors",)
OUT = "cursorkeeper-report"


@dataclass(frozen=True, slots=True)
class Arguments:
    """None yet."""


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """FINDINGS if a footer cannot be read."""
    counts = {row["status"]: row["count"] for row in read(spark, source, "cursors").groupBy("status").count().collect()}
    out.json({"cursors": sum(counts.values()), "status": counts})
    out.say(f"{sum(counts.values()):,} cursors: {counts}")
    return CLEAN if set(counts) <= {"OK"} else FINDINGS
