"""What became of each cursor since an earlier report: holes, span and data ledgers, per day. Pure;
from two tables `cursors`.

A footer's numbers are of the moment it was written, so days are counted between the two writes. A
footer that cannot be read says nothing: its cursor is neither gone nor new, and how it grew is not
known. Invariant: a cursor that is in either table is in the result once, but for tombstones, which
are no cursors.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.shape import READABLE, number, shaped, total

_COUNTS = {"holes": "hole_entries", "span": "span_entries", "ledgers": "data_ledgers"}
_KEPT = (
    "cursor",
    "tenant",
    "generation",
    "footer_version",
    "footer_created",
    "footer_modified",
    *_COUNTS.values(),
)
DAY_S = 86_400.0
DAYS_MIN = 1 / 24
"""Two writes that are nearer than an hour give no rate: it would be noise, times 24."""


def growth(cursors: DataFrame, earlier: DataFrame) -> DataFrame:
    """`schemas.GROWTH`."""
    both = _there(cursors, "new").join(_there(earlier, "old"), "cursor_key", "full")
    days = (_seconds("new_footer_modified") - _seconds("old_footer_modified")) / DAY_S
    again = (F.col("new_footer_created") != F.col("old_footer_created")) | (
        F.col("new_generation") != F.col("old_generation")
    )
    unknown = ~(F.coalesce("new_readable", F.lit(True)) & F.coalesce("old_readable", F.lit(True)))
    change = (
        F.when(F.col("new_cursor").isNull(), "gone")
        .when(unknown, "unreadable")
        .when(F.col("old_cursor").isNull(), "new")
        .when(again, "recreated")
        .when(F.col("new_footer_version") == F.col("old_footer_version"), "same")
        .otherwise("moved")
    )
    frame = both.withColumn("change", change).withColumn(
        "days", F.when(F.col("change") == "moved", days)
    )
    frame = frame.withColumns(
        {name: F.coalesce(f"new_{name}", f"old_{name}") for name in ("cursor", "tenant")}
    )
    grown = {
        f"{short}_grown": F.when(~unknown, _or_0(f"new_{name}") - _or_0(f"old_{name}"))
        for short, name in _COUNTS.items()
    }
    frame = frame.withColumns({name: _known(name) for name in _COUNTS.values()}).withColumns(grown)
    rates = {
        f"{short}_per_day": F.when(
            F.col("days") >= DAYS_MIN, F.col(f"{short}_grown") / F.col("days")
        ).when(F.col("change") == "same", F.lit(0.0))
        for short in _COUNTS
    }
    return shaped(frame.withColumns(rates), schemas.GROWTH)


def by_tenant(grown: DataFrame) -> DataFrame:
    """`schemas.GROWTH_TENANTS` of `schemas.GROWTH`."""
    frame = grown.groupBy("tenant").agg(
        F.count("*").alias("cursors"),
        F.count_if(F.col("change") == "new").alias("new"),
        F.count_if(F.col("change") == "gone").alias("gone"),
        F.count_if(F.col("change") == "unreadable").alias("unreadable"),
        *[total(f"{short}_{what}") for what in ("grown", "per_day") for short in _COUNTS],
    )
    return shaped(frame, schemas.GROWTH_TENANTS)


def _there(cursors: DataFrame, when: str) -> DataFrame:
    """What is compared, with `when` before its name; `readable`: whether its numbers mean
    something.
    """
    there = cursors.withColumn("readable", F.col("status").isin(*READABLE)).where(
        "not (readable and state = 'deleted')"
    )
    return there.select(
        "cursor_key", *[F.col(name).alias(f"{when}_{name}") for name in (*_KEPT, "readable")]
    )


def _seconds(name: str) -> Column:
    return F.unix_micros(F.col(name)) / 1e6


def _known(name: str) -> Column:
    """0 of a cursor that is gone, null of one whose footer cannot be read."""
    return F.when(F.col("new_readable") | F.col("new_cursor").isNull(), _or_0(f"new_{name}"))


def _or_0(name: str) -> Column:
    return F.coalesce(F.col(name), number(0))
