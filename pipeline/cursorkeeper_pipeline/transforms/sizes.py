"""The size characterisation of Pulsar issue #25985 over the real fleet: by decade of backlog and
decade of holes. Pure.

Bytes are the closed forms of `estimates`, from footers alone; where a cursor has a snapshot, what
is really stored stands beside its estimate, so that the table says how far the closed form is off.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper.pulsar_broker.model import ADD_OVERHEAD_BYTES
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.estimates import with_estimates
from cursorkeeper_pipeline.transforms.shape import number, readable, shaped


def sizes(cursors: DataFrame, settings: PulsarSettings) -> DataFrame:
    """`schemas.SIZES`."""
    frame = with_estimates(readable(cursors)).withColumns(
        {"backlog_decade": _decade("span_entries"), "hole_decade": _decade("hole_entries")}
    )
    stored = F.col("snapshot_bytes") > 0
    sums = (
        "span_entries",
        "hole_entries",
        "long_array_bytes",
        "ranges_bytes",
        "cursorkeeper_bytes",
        "snapshot_bytes",
    )
    grouped = frame.groupBy("backlog_decade", "hole_decade").agg(
        F.count("*").alias("cursors"),
        *[F.sum(name).alias(name) for name in sums],
        F.max("long_array_bytes").alias("largest_long_array_bytes"),
        F.count_if(F.col("long_array_bytes") + ADD_OVERHEAD_BYTES > settings.frame_bytes_max).alias(
            "over_frame"
        ),
        F.count_if(stored).alias("snapshots"),
        F.coalesce(F.sum(F.when(stored, F.col("cursorkeeper_bytes"))), number(0)).alias(
            "snapshot_estimate_bytes"
        ),
    )
    return shaped(grouped, schemas.SIZES)


def _decade(name: str) -> Column:
    return F.when(F.col(name) > 0, F.floor(F.log10(F.col(name).cast("double")))).otherwise(
        number(-1)
    )
