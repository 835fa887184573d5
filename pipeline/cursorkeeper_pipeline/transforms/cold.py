"""Which cursors are worth rewriting although nobody has them open: pure, on the table `cursors`.

Owns the rule. Invariant: a cursor that somebody has open is never chosen, but for one that a
compaction which died left open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cursorkeeper.core.footer import FORMAT_NATIVE
from cursorkeeper_pipeline import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST, SECOND = "compact", "compacted"
"""The kind in a footer's writer (host/pid/KIND/nonce): of the first claim of a compaction, and of
the second, which ends it.
"""
OURS: Final = rf"/\d+/({FIRST}|{SECOND})/[0-9a-f]+(?:\.[0-9a-f]+)?$"
"""What the end of a writer looks like that is a compaction. A daemon's is host/pid/nonce.claim (an
earlier release's has no claim).
"""
COLD, UNFINISHED = "cold", "unfinished"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a cursor is worth it."""

    cold_s: float = 86_400.0
    """Its footer has not been written for so long."""
    ratio: float = 1.0
    """Its deltas are larger than its snapshot by more than this factor,"""
    delta_bytes_min: int = 65_536
    """and at least so large."""

    def is_heavy(self, snapshot_bytes: int, delta_bytes: int) -> bool:
        """The rule without the time."""
        return delta_bytes >= self.delta_bytes_min and delta_bytes > self.ratio * snapshot_bytes


def choose(cursors: DataFrame, rule: Rule) -> DataFrame:
    """`schemas.CHOSEN`, of cursors in the native form whose footers can be read. The time is that
    of the footer's reading.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from cursorkeeper_pipeline.transforms.shape import shaped

    kind = F.regexp_extract("writer", OURS, 1)
    idle_s = F.unix_micros("read_at") / 1e6 - F.unix_micros("footer_modified") / 1e6
    heavy = (F.col("delta_bytes") >= rule.delta_bytes_min) & (
        F.col("delta_bytes") > F.lit(float(rule.ratio)) * F.col("snapshot_bytes")
    )
    cold = (F.col("state") == "closed") & (idle_s >= rule.cold_s) & heavy
    unfinished = (kind == FIRST) | ((kind == SECOND) & (F.col("state") == "open"))
    readable = (
        (F.col("status") == schemas.OK)
        & (F.col("format") == FORMAT_NATIVE)
        & F.col("state").isin("open", "closed")
    )
    why = F.when(unfinished, UNFINISHED).otherwise(COLD)
    return shaped(
        cursors.where(readable & (cold | unfinished)).withColumn("why", why), schemas.CHOSEN
    )
