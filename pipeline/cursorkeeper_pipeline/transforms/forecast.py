"""How many acked entries Pulsar alone would deliver again if its broker died now, after it had
flushed the state that a footer describes.

Owns the bounds. `cursorkeeper.pulsar_broker.model.what_pulsar_keeps` is exact on a state; a footer
has only counts, so each cursor gets the least and the most that any state with these counts would
lose, and an estimate that spreads acks evenly over the data ledgers.

- Long array: whole ledgers are kept until the acked entries of the ledgers before pass the cap C.
  Nothing is lost up to C acked entries,
  or with one data ledger; else at most acked - C - 1, and at least one entry for each ledger beyond
  C + 1. Who knows that no data
  ledger has more than N entries knows that at least acked - C - N are lost.
- Ranges: the first C (+1) are kept; each that is lost has an entry or more.
- Where the entry may be larger than a BookKeeper frame, it may be the ranges in the znode that are
  kept, or nothing. A footer knows no
  sizes of batches, so each set that is stored may be the largest there is. Properties are not
  counted.

Not in it: acks since the footer was written, and those of Pulsar's own flush window. Batches are
counted up to their cap: as if the entry fitted its frame.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper.pulsar_broker.model import ADD_OVERHEAD_BYTES
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.estimates import at_largest_batches, with_estimates
from cursorkeeper_pipeline.transforms.shape import number, readable, shaped, total


class Bounds(NamedTuple):
    """How many acked entries are lost, at least, about and at most."""

    least: Column
    middle: Column
    most: Column


def forecast(
    cursors: DataFrame, settings: PulsarSettings, ledger_entries_max: int = 0
) -> DataFrame:
    """`schemas.FORECAST`, a row for each readable cursor. `ledger_entries_max`: no data ledger has
    more entries; 0: nobody knows.
    """
    acked, batches = F.col("acked_entries"), F.col("partial_batches")
    ranges = _as_ranges(settings)
    kept = _as_long_array(settings, ranges, ledger_entries_max) if settings.long_array else ranges
    least, most = kept.least, F.when(_may_pass_frame(settings), acked).otherwise(kept.most)
    least = F.when(_may_pass_frame(settings), F.least(least, ranges.least)).otherwise(least)
    lost_batches = (
        F.greatest(batches - settings.batches_max, number(0)) if settings.batch_index else batches
    )
    frame = with_estimates(readable(cursors)).withColumns(
        {
            "redelivered_at_least": least,
            "redelivered_at_most": most,
            "redelivered_estimate": F.least(
                F.greatest(F.round(kept.middle).cast("bigint"), least), most
            ),
            "is_exact": least == most,
            "batches_redelivered": lost_batches,
            "reason": _reason(settings, kept, lost_batches),
            "cursorkeeper_redelivered": F.when(~F.col("truncated"), number(0)),
        }
    )
    return shaped(frame, schemas.FORECAST)


def at_risk() -> Column:
    """Whether anything of a row of `schemas.FORECAST` may be delivered again."""
    return (F.col("redelivered_at_most") > 0) | (F.col("batches_redelivered") > 0)


def by_tenant(forecasts: DataFrame) -> DataFrame:
    """`schemas.FORECAST_TENANTS` of `schemas.FORECAST`."""
    sums = (
        "acked_entries",
        "redelivered_at_least",
        "redelivered_estimate",
        "redelivered_at_most",
        "batches_redelivered",
    )
    frame = forecasts.groupBy("tenant").agg(
        F.count("*").alias("cursors"),
        F.count_if(at_risk()).alias("cursors_at_risk"),
        *[F.sum(name).alias(name) for name in sums],
        total("cursorkeeper_redelivered"),
    )
    return shaped(frame, schemas.FORECAST_TENANTS)


def _as_ranges(settings: PulsarSettings) -> Bounds:
    room = settings.ranges_max + settings.one_range_more
    acked, few, about, many = (
        F.col(name)
        for name in ("acked_entries", "ranges_at_least", "ranges_estimate", "ranges_at_most")
    )
    most = F.when(many <= room, number(0)).otherwise(F.greatest(acked - room, number(0)))
    middle = F.when(about <= room, number(0)).otherwise(acked * (1 - room / about))
    return Bounds(F.greatest(few - room, number(0)), middle, most)


def _as_long_array(settings: PulsarSettings, ranges: Bounds, ledger_entries_max: int) -> Bounds:
    cap = settings.ranges_max
    acked, ledgers = F.col("acked_entries"), F.col("data_ledgers")
    # a ledger may be in the footer without an acked entry: mark-delete's own, and where there are
    # partly acked batches alone
    certain = F.greatest(ledgers - 1 - F.col("partial_batches"), number(1))
    each = acked / F.greatest(ledgers, number(1))
    if settings.cap_counts_ledger:
        all_kept, one = acked <= cap, ledgers <= 1
        first_may_be_over = acked - (certain - 1) > cap
        least = F.when(first_may_be_over, F.least(acked - cap, ranges.least)).otherwise(acked - cap)
        most = F.when(one, ranges.most).otherwise(F.greatest(acked - 1, ranges.most))
        whole = F.floor(cap / F.greatest(each, F.lit(1.0)))
        middle = F.when(whole < 1, ranges.middle).otherwise(acked - whole * each)
    else:
        all_kept = (acked <= cap) | (ledgers <= 1)
        least, most = F.greatest(certain - (cap + 1), number(0)), acked - cap - 1
        if ledger_entries_max:
            least = F.greatest(least, F.least(acked - cap - ledger_entries_max, most))
        middle = F.greatest(
            acked - (F.floor(cap / F.greatest(each, F.lit(1.0))) + 1) * each, F.lit(0.0)
        )
    none = number(0)
    return Bounds(*[F.when(all_kept, none).otherwise(value) for value in (least, middle, most)])


def _may_pass_frame(settings: PulsarSettings) -> Column:
    sets = settings.batches_max if settings.batch_index else 0
    entry = at_largest_batches(
        "long_array_bytes_at_most" if settings.long_array else "ranges_bytes_at_most", sets
    )
    if settings.long_array and settings.cap_counts_ledger:
        entry = F.greatest(entry, at_largest_batches("ranges_bytes_at_most", sets))
    return (F.col("acked_entries") > 0) & (entry + ADD_OVERHEAD_BYTES > settings.frame_bytes_max)


def _reason(settings: PulsarSettings, kept: Bounds, lost_batches: Column) -> Column:
    """The first limit that may drop something."""
    cap = "entryCap" if settings.long_array else "rangeCap"
    return (
        F.when(kept.most > 0, F.lit(cap))
        .when(_may_pass_frame(settings), F.lit("frame"))
        .when(lost_batches > 0, F.lit("batchCap"))
        .otherwise(F.lit("none"))
    )
