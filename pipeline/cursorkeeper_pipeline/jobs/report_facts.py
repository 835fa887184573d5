"""From the report's tables to the numbers of report.json. Here, and only here, rows come to the driver: sums, and the first few of each.

Invariant: how much comes does not depend on how many cursors there are (sizes: a row for each pair of decades; limits: buckets).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cursorkeeper.pulsar_broker.settings import PulsarSettings
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.transforms.growth import by_tenant
from cursorkeeper_pipeline.transforms.shape import READABLE, readable

Facts = dict[str, Any]
BUCKETS = (0.01, 0.1, 0.5, 0.8, 1.0)
"""Upper ends of the shares that the page counts cursors by; the last bucket is above 1."""
NAMES_MAX = 50
"""Cursors that cannot be read are named up to here, and counted beyond."""


def where(source: Options) -> Facts:
    """What was read."""
    selected = {key: getattr(source, key) for key in ("tenant", "namespace", "topic", "subscription") if getattr(source, key)}
    return {"zookeeper": source.zookeeper, "root": source.root, "selection": selected, "made": datetime.now(UTC).isoformat("T", "seconds")}


def pulsar(settings: PulsarSettings) -> Facts:
    """What it is compared with."""
    return {
        "version": settings.version, "managedLedgerMaxUnackedRangesToPersist": settings.ranges_max,
        "managedLedgerMaxBatchDeletedIndexToPersist": settings.batches_max, "longArray": settings.long_array,
        "frameBytes": settings.frame_bytes_max,
    }  # fmt: skip


def of_cursors(cursors: DataFrame, top: int) -> Facts:
    """Counts, totals, and what cannot be read."""
    counts = [tuple(r) for r in cursors.groupBy("status", "state").agg(F.count("*")).collect()]
    sums = ("data_ledgers", "span_entries", "hole_entries", "partial_batches", "snapshot_bytes", "delta_bytes", "footer_bytes")
    total = readable(cursors).agg(
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums],
        F.count_if("truncated").alias("truncated"),
        F.count_distinct("tenant").alias("tenants"),
        F.min("read_at").alias("read_from"),
        F.max("read_at").alias("read_until"),
    ).collect()[0].asDict()  # fmt: skip
    bad = cursors.where(~F.col("status").isin(*READABLE))
    named = [r.asDict() for r in bad.select("cursor", "status", "error").orderBy("cursor").limit(NAMES_MAX).collect()]
    left_out = cursors.where("truncated").select("cursor").orderBy("cursor").limit(top).collect()
    unreadable = sum(n for status, _, n in counts if status not in READABLE)
    states = {state: sum(n for status, s, n in counts if s == state and status in READABLE) for _, state, _ in counts}
    times = {key: total.pop(key) for key in ("read_from", "read_until")}
    return {
        "findings": unreadable + total["truncated"],
        "read": {_camel(key): value and value.astimezone(UTC).isoformat("T", "milliseconds") for key, value in times.items()},
        "cursors": {
            "total": sum(n for *_, n in counts), "tenants": total.pop("tenants"), "truncated": total.pop("truncated"),
            "unreadable": unreadable, "byState": {key: n for key, n in states.items() if n},
            "truncatedNamed": [r[0] for r in left_out], "unreadableNamed": named,
        },
        "totals": {_camel(key): value for key, value in total.items()},
    }  # fmt: skip


def of_forecast(forecasts: DataFrame, tenants: DataFrame, top: int) -> Facts:
    """Pulsar alone against CursorKeeper."""
    names = ("redelivered_at_least", "redelivered_estimate", "redelivered_at_most", "batches_redelivered")
    at_risk = (F.col("redelivered_at_most") > 0) | (F.col("batches_redelivered") > 0)
    total = forecasts.agg(
        F.count("*").alias("cursors"), F.count_if(at_risk).alias("at_risk"), F.count_if(F.col("redelivered_at_least") > 0).alias("certain"),
        F.count_if("is_exact").alias("exact"), F.coalesce(F.sum("acked_entries"), F.lit(0)).alias("acked_entries"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names],
        F.count_if(F.col("cursorkeeper_redelivered").isNull()).alias("unknown"),
    ).collect()[0].asDict()  # fmt: skip
    reasons = forecasts.where(at_risk).groupBy("reason").agg(F.count("*"), F.sum("redelivered_estimate")).collect()
    worst = forecasts.where(at_risk).orderBy(F.desc("redelivered_estimate"), F.desc("redelivered_at_most"), "cursor")
    unknown = total.pop("unknown")
    return {
        "pulsarAlone": {_camel(key): value for key, value in total.items()},
        "cursorKeeper": {"redelivered": 0, "unknownBecauseTruncated": unknown},
        "reasons": {r[0]: {"cursors": r[1], "estimate": r[2]} for r in reasons},
        "tenants": _rows(tenants.orderBy(F.desc("redelivered_estimate"), F.desc("redelivered_at_most"), "tenant"), top),
        "worst": _rows(worst.drop("cursor_key"), top),
    }


def of_limits(limits: DataFrame, near: float, top: int) -> Facts:
    """How many are how near to what."""
    share = F.col("nearest_share")
    counted = limits.groupBy(_bucket(share).alias("bucket"), "nearest").agg(F.count("*").alias("cursors")).collect()
    total = limits.agg(F.count_if(share > 1), F.count_if((share >= near) & (share <= 1))).collect()[0]
    histogram: list[Facts] = [{"upTo": up, "cursors": {}} for up in (*BUCKETS, None)]
    for bucket, nearest, cursors in counted:
        histogram[bucket]["cursors"][nearest] = cursors
    worst = limits.where(share >= near).orderBy(F.desc("nearest_share"), "cursor").drop("cursor_key")
    return {"over": total[0], "near": total[1], "nearFrom": near, "histogram": histogram, "worst": _rows(worst, top)}


def of_sizes(sizes: DataFrame) -> Facts:
    """The table of issue #25985; `snapshotEstimateRatio`: how far our closed form is off, where it can be known."""
    rows = _rows(sizes.orderBy("backlog_decade", "hole_decade"), 21 * 21)
    known, estimated = (sum(row[key] for row in rows) for key in ("snapshotBytes", "snapshotEstimateBytes"))
    return {"estimates": True, "snapshotEstimateRatio": estimated / known if known else None, "rows": rows}


def of_growth(grown: DataFrame, since: str, top: int, keep: Callable[[str, DataFrame], DataFrame]) -> Facts:
    """What changed, and where the most."""
    tenants = keep("growth_tenants", by_tenant(grown))
    changes = grown.groupBy("change").agg(F.count("*")).collect()
    fastest = grown.where(F.col("holes_per_day") > 0).orderBy(F.desc("holes_per_day"), "cursor").drop("cursor_key")
    return {
        "since": since, "changes": {r[0]: r[1] for r in changes},
        "tenants": _rows(tenants.orderBy(F.desc("holes_per_day"), "tenant"), top), "fastest": _rows(fastest, top),
    }  # fmt: skip


def _bucket(share: Column) -> Column:
    found = F.lit(len(BUCKETS))
    for at, up in reversed(list(enumerate(BUCKETS))):
        found = F.when(share <= up, F.lit(at)).otherwise(found)
    return found


def _rows(frame: DataFrame, most: int) -> list[Facts]:
    return [{_camel(key): value for key, value in row.asDict().items()} for row in frame.limit(most).collect()]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
