"""How near each cursor is to what a stock Pulsar of given settings can store. Pure; from footers
alone.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper.pulsar_broker.model import ADD_OVERHEAD_BYTES
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.estimates import with_estimates
from cursorkeeper_pipeline.transforms.shape import readable, shaped, share

NAMES = ("entryCap", "rangeCap", "batchCap", "frame")
"""In the order in which a tie is decided."""


def limits(cursors: DataFrame, settings: PulsarSettings) -> DataFrame:
    """`schemas.LIMITS`, a row for each readable cursor."""
    shares = _shares(settings)
    largest = F.greatest(*[F.col(f"{key}_share") for key in shares])
    nearest = F.lit("none")
    for name, key in zip(reversed(NAMES), reversed(list(shares)), strict=True):
        nearest = F.when(F.col(f"{key}_share") == F.col("nearest_share"), F.lit(name)).otherwise(
            nearest
        )
    frame = with_estimates(readable(cursors)).withColumns(
        {f"{key}_share": value for key, value in shares.items()}
    )
    frame = frame.withColumn("nearest_share", largest)
    return shaped(
        frame.withColumn(
            "nearest", F.when(F.col("nearest_share") > 0, nearest).otherwise(F.lit("none"))
        ),
        schemas.LIMITS,
    )


def _shares(settings: PulsarSettings) -> dict[str, Column]:
    """With the long array the cap counts acked entries, without it ranges."""
    none = F.lit(0.0)
    entry_bytes = F.col(
        "long_array_bytes_at_most" if settings.long_array else "ranges_bytes_at_most"
    )
    used = F.when(entry_bytes > 0, entry_bytes + ADD_OVERHEAD_BYTES).otherwise(entry_bytes)
    return {
        "entry_cap": share(F.col("acked_entries"), settings.ranges_max)
        if settings.long_array
        else none,
        "range_cap": none
        if settings.long_array
        else share(F.col("ranges_at_most"), settings.ranges_max + settings.one_range_more),
        "batch_cap": share(
            F.col("partial_batches"), settings.batches_max if settings.batch_index else 0
        ),
        "frame": share(used, settings.frame_bytes_max),
    }
