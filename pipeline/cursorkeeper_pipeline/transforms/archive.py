"""What is kept of a day: the tables of one reading, each row with its day and its tenant. Pure.

Owns how the parts of a cursor that several tasks read become one row. Kept are footers, what they name and counts of holes; not the
ranges (a billion rows for one large cursor) and not the snapshots' bytes: without the deltas behind them they are no state, and a copy
that is not a state looks like a backup and is none (`cursorkeeper export` makes one).
"""

from __future__ import annotations

import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.shape import shaped

_WORST = (schemas.DAMAGED, schemas.MISSING, schemas.TOO_NEW, schemas.AWAY, schemas.AT_LEAST, schemas.OK)
"""A cursor is as bad as its worst part."""
_SUMS = ("data_ledgers", "span_entries", "acked_entries", "hole_entries", "hole_runs", "partial_batches", "stored_bytes")


def cursors_of(cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_CURSORS`."""
    return shaped(cursors.withColumn("day", F.lit(day)), schemas.ARCHIVED_CURSORS)


def segments_of(segments: DataFrame, cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_SEGMENTS`, of the cursors that are archived: one that came since belongs to the next day."""
    return shaped(_with_tenant(segments, cursors).withColumn("day", F.lit(day)), schemas.ARCHIVED_SEGMENTS)


def hole_stats_of(hole_stats: DataFrame, cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_HOLE_STATS`, one row a cursor."""
    rank = F.array_position(F.array(*[F.lit(status) for status in _WORST]), F.col("status"))
    mark = F.max(F.struct("mark_delete_ledger", "mark_delete_entry"))
    joined = hole_stats.groupBy("cursor_key").agg(
        F.max("parts").alias("parts"),
        F.max("footer_version").alias("footer_version"),
        mark.alias("mark"),
        *[F.sum(name).alias(name) for name in _SUMS],
        F.max("longest_run").alias("longest_run"),
        F.min(_first_hole()).alias("first"),
        F.max("read_at").alias("read_at"),
        F.min_by("status", rank).alias("status"),
        F.min("error").alias("error"),
    )
    flat = joined.withColumns({
        "mark_delete_ledger": F.col("mark.mark_delete_ledger"), "mark_delete_entry": F.col("mark.mark_delete_entry"),
        "first_hole_ledger": F.col("first.first_hole_ledger"), "first_hole_entry": F.col("first.first_hole_entry"),
    })  # fmt: skip
    return shaped(_with_tenant(flat, cursors).withColumn("day", F.lit(day)), schemas.ARCHIVED_HOLE_STATS)


def _first_hole() -> Column:
    return F.when(F.col("first_hole_ledger").isNotNull(), F.struct("first_hole_ledger", "first_hole_entry"))


def _with_tenant(rows: DataFrame, cursors: DataFrame) -> DataFrame:
    return rows.join(cursors.select("cursor_key", "tenant"), "cursor_key")
