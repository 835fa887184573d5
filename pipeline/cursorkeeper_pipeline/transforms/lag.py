"""How far consumers lag behind, from archived days: the age of a cursor's oldest hole, and how its
holes grow. Pure.

How the age is known. Nobody notes when a message was skipped. But acks are never taken back within
a generation, so the oldest hole (the first un-acked entry above mark-delete) of a day is a hole on
every later day until it is acked, and no older one appears. The age on a day is the time since the
first archived day on which this same entry was the oldest hole already. It is a lower bound: before
that day it may have been a hole behind an older one, or nobody archived. Days that are missing in
between do not matter. A reset begins a new generation, and what was known of the cursor ends there;
so it does when a deleted cursor is made again.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.shape import READABLE, shaped, total


def lag(hole_stats: DataFrame, cursors: DataFrame) -> DataFrame:
    """`schemas.LAG`, of the archived tables `hole_stats` and `cursors`. Rows whose state could not
    be read that day are left out.
    """
    known = hole_stats.where(F.col("status").isin(*READABLE))
    named = known.join(
        cursors.select("day", "cursor_key", "cursor", "generation"), ["day", "cursor_key"]
    )
    life = Window.partitionBy("cursor_key", "generation")
    by_day = life.orderBy("day")
    first = F.struct("first_hole_ledger", "first_hole_entry")
    is_new = F.when(F.lag(first).over(by_day).eqNullSafe(first), 0).otherwise(1)
    with_runs = named.withColumn("is_new", is_new).withColumn("run", F.sum("is_new").over(by_day))
    since = F.min("day").over(Window.partitionBy("cursor_key", "generation", "run"))
    has_hole = F.col("first_hole_ledger").isNotNull()
    days = F.datediff("day", F.lag("day").over(by_day))
    grown = _grown("hole_entries", by_day)
    return shaped(
        with_runs.withColumns(
            {
                "since": F.when(has_hole, since),
                "oldest_hole_days_at_least": F.when(has_hole, F.datediff("day", since)),
                "days": days,
                "holes_grown": grown,
                "span_grown": _grown("span_entries", by_day),
                "holes_per_day": grown / days,
            }
        ),
        schemas.LAG,
    )


def tenants(lags: DataFrame) -> DataFrame:
    """`schemas.LAG_TENANTS`, of `lag`."""
    has_hole = F.col("hole_entries") > 0
    return shaped(
        lags.groupBy("day", "tenant").agg(
            F.count("*").alias("cursors"),
            F.count_if(has_hole).alias("cursors_with_holes"),
            F.sum("hole_entries").alias("hole_entries"),
            F.sum("span_entries").alias("span_entries"),
            F.max("oldest_hole_days_at_least").alias("oldest_hole_days_at_least"),
            total("holes_grown"),
            total("holes_per_day"),
        ),
        schemas.LAG_TENANTS,
    )


def _grown(name: str, by_day: object) -> Column:
    return F.col(name) - F.lag(name).over(by_day)  # type: ignore[arg-type]
