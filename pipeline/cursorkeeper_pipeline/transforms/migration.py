"""Plans and results of imports, exports and comparisons, as DataFrames.

A plan says which cursors, one row each; a cursor's key decides its task, so that a retried task has
the same cursors again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cursorkeeper_pipeline.schemas import schema
from cursorkeeper_pipeline.source.options import TASKS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_L, _S, _B, _D = pa.int64(), pa.string(), pa.bool_(), pa.float64()
PLAN: Final = schema(cursor_key=_L, topic=_S, subscription=_S)
"""The cursors that a run is about."""
OUTCOMES: Final = schema(
    cursor_key=_L,
    cursor=_S,
    status=_S,
    ok=_B,
    epoch_or_null=_L,
    acked_entries_or_null=_L,
    ranges_or_null=_L,
    partial_batches_or_null=_L,
    missing_entries_or_null=_L,
    extra_entries_or_null=_L,
    seconds_or_null=_D,
    problem_or_null=_S,
    remedy_or_null=_S,
    notes_or_null=_S,
    attempt=_S,
)
"""What became of each: `status` for people, `ok` for programs. Of a comparison: acked entries that
only Pulsar has (`missing_entries`) or only we have (`extra_entries`). `attempt`: the one whose row
this is. What does not apply or was not reached is null.
"""
CURSORS_PER_TASK: Final = 200
"""A few seconds of work."""


def tasks_for(cursors: int, wanted: int = 0) -> int:
    """How many tasks; `wanted` 0: as many as the work deserves."""
    return min(TASKS_MAX, wanted or max(1, math.ceil(cursors / CURSORS_PER_TASK)))


def spread(plan: DataFrame, tasks: int) -> DataFrame:
    """The plan over tasks, by cursor."""
    return plan.select(*PLAN.names).repartition(tasks, "cursor_key")


def counts(outcomes: DataFrame) -> DataFrame:
    """(status, ok, cursors)."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        outcomes.groupBy("status", "ok")
        .agg(F.count("*").alias("cursors"))
        .select("status", "ok", "cursors")
    )


def troubles(outcomes: DataFrame) -> DataFrame:
    """The cursors that are not well, by name."""
    from pyspark.sql import functions as F  # noqa: N812

    return outcomes.where(~F.col("ok")).orderBy("cursor").select(*OUTCOMES.names)
