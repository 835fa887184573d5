"""What is kept of a day: the tables of one reading, each row with its day and its tenant. Pure.

Kept are footers, what they name and counts of holes; not the ranges (a billion rows for one large
cursor) and not the snapshots' bytes: without the deltas behind them they are no state, and a copy
that is not a state looks like a backup and is none (`cursorkeeper export` makes one).
"""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.shape import shaped


def cursors_of(cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_CURSORS`."""
    return shaped(cursors.withColumn("day", F.lit(day)), schemas.ARCHIVED_CURSORS)


def segments_of(segments: DataFrame, cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_SEGMENTS`, of the cursors that are archived: one that came since belongs to
    the next day.
    """
    return shaped(
        _with_tenant(segments, cursors).withColumn("day", F.lit(day)), schemas.ARCHIVED_SEGMENTS
    )


def hole_stats_of(hole_stats: DataFrame, cursors: DataFrame, day: datetime.date) -> DataFrame:
    """`schemas.ARCHIVED_HOLE_STATS`, one row a cursor."""
    return shaped(
        _with_tenant(hole_stats, cursors).withColumn("day", F.lit(day)), schemas.ARCHIVED_HOLE_STATS
    )


def _with_tenant(rows: DataFrame, cursors: DataFrame) -> DataFrame:
    return rows.join(cursors.select("cursor_key", "tenant"), "cursor_key")
