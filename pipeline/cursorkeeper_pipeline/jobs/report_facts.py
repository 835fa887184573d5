"""From the report's tables to the numbers of report.json. Here, and only here, rows come to the
driver: sums, and the first few of each.

Invariant: how much comes does not depend on how many cursors there are (sizes: a row for each pair
of decades; limits: buckets).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.spelling import camel
from cursorkeeper_pipeline.transforms.forecast import at_risk
from cursorkeeper_pipeline.transforms.growth import by_tenant
from cursorkeeper_pipeline.transforms.shape import READABLE, readable, total

Facts = dict[str, Any]
BUCKETS = (0.01, 0.1, 0.5, 0.8, 1.0)
"""Upper ends of the shares that the page counts cursors by; the last bucket is above 1."""
NAMES_MAX = 50
"""Cursors that cannot be read are named up to here, and counted beyond."""


def where(source: Options) -> Facts:
    """Where the rows came from, and which cursors were selected."""
    keys = ("tenant", "namespace", "topic", "subscription")
    return {
        "zookeeper": source.zookeeper,
        "root": source.root,
        "selection": {key: value for key in keys if (value := getattr(source, key))},
        "made": datetime.now(UTC).isoformat("T", "seconds"),
    }


def pulsar(settings: PulsarSettings) -> Facts:
    """The Pulsar that it is compared with."""
    return {
        "version": settings.version,
        "managedLedgerMaxUnackedRangesToPersist": settings.ranges_max,
        "managedLedgerMaxBatchDeletedIndexToPersist": settings.batches_max,
        "longArray": settings.long_array,
        "frameBytes": settings.frame_bytes_max,
    }


def of_cursors(cursors: DataFrame, top: int) -> Facts:
    """Counts, totals, and what cannot be read."""
    sums = (
        "data_ledgers",
        "span_entries",
        "hole_entries",
        "partial_batches",
        "snapshot_bytes",
        "delta_bytes",
        "footer_bytes",
    )
    groups = (
        cursors.groupBy("status", "state")
        .agg(
            F.count("*").alias("cursors"),
            *[F.sum(name).alias(name) for name in sums],
            F.count_if("truncated").alias("truncated"),
            F.min("read_at").alias("read_from"),
            F.max("read_at").alias("read_until"),
        )
        .collect()
    )
    good = [g for g in groups if g.status in READABLE and g.state != "deleted"]
    unreadable = sum(g.cursors for g in groups if g.status not in READABLE)
    truncated = sum(g.truncated for g in good)
    bad = cursors.where(~F.col("status").isin(*READABLE)).select("cursor", "status", "error")
    left_out = readable(cursors).where("truncated").select("cursor")
    states: dict[str, int] = {}
    for g in groups:
        if g.status in READABLE:
            states[g.state] = states.get(g.state, 0) + g.cursors
    return {
        "findings": unreadable + truncated,
        "read": {
            "readFrom": _time(min, [g.read_from for g in groups]),
            "readUntil": _time(max, [g.read_until for g in groups]),
        },
        "cursors": {
            "total": sum(g.cursors for g in groups),
            "truncated": truncated,
            "unreadable": unreadable,
            "byState": states,
            "truncatedNamed": [row["cursor"] for row in _rows(left_out, top, "cursor")]
            if truncated
            else [],
            "unreadableNamed": _rows(bad, NAMES_MAX, "cursor") if unreadable else [],
        },
        "totals": {camel(name): sum(g[name] for g in good) for name in sums},
    }


def of_forecast(forecasts: DataFrame, tenants: DataFrame, top: int) -> Facts:
    """Pulsar alone against CursorKeeper."""
    names = (
        "acked_entries",
        "redelivered_at_least",
        "redelivered_estimate",
        "redelivered_at_most",
        "batches_redelivered",
    )
    counts = {
        "cursors": F.count("*"),
        "at_risk": F.count_if(at_risk()),
        "certain": F.count_if(F.col("redelivered_at_least") > 0),
        "exact": F.count_if("is_exact"),
        "unknown": F.count_if(F.col("cursorkeeper_redelivered").isNull()),
        **{name: F.sum(name) for name in names},
    }
    groups = (
        forecasts.groupBy("reason")
        .agg(*[value.alias(name) for name, value in counts.items()])
        .collect()
    )
    total = {name: sum(g[name] for g in groups) for name in counts}
    unknown = total.pop("unknown")
    most = F.desc("redelivered_estimate"), F.desc("redelivered_at_most")
    return {
        "pulsarAlone": {camel(key): value for key, value in total.items()},
        "cursorKeeper": {"redelivered": 0, "unknownBecauseTruncated": unknown},
        "reasons": {
            g.reason: {"cursors": g.at_risk, "estimate": g.redelivered_estimate}
            for g in groups
            if g.at_risk
        },
        "tenantsCount": tenants.count(),
        "tenants": _rows(tenants, top, *most, "tenant"),
        "worst": _rows(forecasts.where(at_risk()), top, *most, "cursor")
        if total["at_risk"]
        else [],
    }


def of_limits(limits: DataFrame, near: float, top: int) -> Facts:
    """How many are how near to what."""
    share = F.col("nearest_share")
    counts = (F.count("*"), F.count_if(share > 1), F.count_if((share >= near) & (share <= 1)))
    counted = limits.groupBy(_bucket(share).alias("bucket"), "nearest").agg(*counts).collect()
    histogram: list[Facts] = [{"upTo": up, "cursors": {}} for up in (*BUCKETS, None)]
    for bucket, nearest, cursors, *_ in counted:
        histogram[bucket]["cursors"][nearest] = cursors
    over, close = sum(row[3] for row in counted), sum(row[4] for row in counted)
    worst = limits.where(share >= min(near, 1.0))
    return {
        "over": over,
        "near": close,
        "nearFrom": near,
        "histogram": histogram,
        "worst": _rows(worst, top, F.desc("nearest_share"), "cursor") if over + close else [],
    }


def of_sizes(sizes: DataFrame) -> Facts:
    """The table of issue #25985; `snapshotEstimateRatio`: how far our closed form is off, where it
    can be known.
    """
    rows = _rows(sizes, 21 * 21, "backlog_decade", "hole_decade")
    known, estimated = (
        sum(row[key] for row in rows) for key in ("snapshotBytes", "snapshotEstimateBytes")
    )
    return {
        "estimates": True,
        "snapshotEstimateRatio": estimated / known if known else None,
        "rows": rows,
    }


def of_growth(
    grown: DataFrame, since: str, top: int, keep: Callable[[str, DataFrame], DataFrame]
) -> Facts:
    """What changed, and where the most. `totals` are of all tenants, whichever of them are
    named.
    """
    tenants = keep("growth_tenants", by_tenant(grown))
    sums = (
        "holes_grown",
        "span_grown",
        "ledgers_grown",
        "holes_per_day",
        "span_per_day",
        "ledgers_per_day",
    )
    totals = tenants.agg(*map(total, sums))
    changes = grown.groupBy("change").agg(F.count("*")).collect()
    fastest, rate = grown.where(F.col("holes_per_day") > 0), F.desc("holes_per_day")
    return {
        "since": since,
        "changes": {r[0]: r[1] for r in changes},
        "totals": _rows(totals, 1)[0],
        "tenants": _rows(tenants, top, rate, "tenant"),
        "fastest": _rows(fastest, top, rate, "cursor"),
    }


def _time(choose: Callable[[list[datetime]], datetime], times: list[datetime]) -> str | None:
    return choose(times).astimezone(UTC).isoformat("T", "milliseconds") if times else None


def _bucket(share: Column) -> Column:
    found = F.lit(len(BUCKETS))
    for at, up in reversed(list(enumerate(BUCKETS))):
        found = F.when(share <= up, F.lit(at)).otherwise(found)
    return found


def _rows(frame: DataFrame, most: int, *order: Column | str) -> list[Facts]:
    """The first ones, without the key that only joins need."""
    frame = frame.orderBy(*order).drop("cursor_key") if order else frame
    return [
        {camel(key): value for key, value in row.asDict().items()}
        for row in frame.limit(most).collect()
    ]
