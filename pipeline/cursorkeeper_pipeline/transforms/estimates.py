"""What the numbers of a footer say about the bytes and ranges of its state: bounds where they are
bounds, closed forms where they are not.

Owns the columns that limits, forecast and sizes are made of, each from a row of `cursors`. A footer
has counts (ledgers, span, holes, runs of holes) and no set, so that

- acked entries above mark-delete are known: span - holes;
- ranges of acked entries are known within the number of data ledgers: a ledger ends in an acked
  entry, unless a partly acked batch is its
  last, and begins with a hole or with an acked entry, which nobody noted. A footer with more than
  `RUNS_COUNTED_MAX` holes says 0 runs;
- bytes follow from these by the wire format of `cursorkeeper.format.pulsar`. Entry ids are taken to
  be dense.

Invariant: `*_at_least` <= the truth <= `*_at_most` for the entries; batch sets are counted with
`BATCH_BYTES` each, which is a guess, and properties not at all. Who needs a bound takes the sets at
their largest: `at_largest_batches`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper_pipeline.transforms.shape import number

RUNS_COUNTED_MAX = 1_000_000
"""The daemon counts runs of holes only up to so many holes."""
WORD_ENTRIES = 64
WORD_BYTES_MAX = 11
"""A tag and a varint of 64 bits."""
LEDGER_HEAD_BYTES_MAX = 2 + 5 + 1 + 9
"""Of a ledger's long array: tag, length, tag and the ledger's id."""
LEDGER_HEAD_BYTES = 8
RANGE_BYTES_MAX = 43
"""Fourteen varints; the lower end of a range at a ledger's start is -1, which takes ten bytes."""
ENTRY_BYTES = 64
"""Mark-delete and what else an entry has, properties not counted."""
BATCH_BYTES = 200
BATCH_BYTES_MAX = BATCH_SIZE_MAX // WORD_ENTRIES * WORD_BYTES_MAX + 25
"""Of the largest batch's set; 25: its own head, and its position."""
CONTAINER_SHARE = 1 / 16
"""Above it a roaring container is a bitmap, which zstd shortens to about its entropy; below, an
array of two bytes a hole.
"""
SNAPSHOT_BYTES, SNAPSHOT_LEDGER_BYTES = 150, 25
"""What a snapshot takes beside its holes, about."""


def with_estimates(cursors: DataFrame) -> DataFrame:
    """`cursors` with `acked_entries`, `ranges_*`, `long_array_bytes*`, `ranges_bytes*` and
    `cursorkeeper_bytes`.
    """
    added = cursors.withColumn(
        "acked_entries", F.col("span_entries") - F.col("hole_entries")
    ).withColumns(_ranges())
    return (
        added.withColumns(_long_array())
        .withColumns(_range_bytes())
        .withColumn("cursorkeeper_bytes", _snapshot())
    )


def at_largest_batches(name: str, stored_max: int) -> Column:
    """`long_array_bytes_at_most` or `ranges_bytes_at_most` with the largest sets there are; at most
    `stored_max` of them are stored.
    """
    batches = F.col("partial_batches")
    return (
        F.col(name) - batches * BATCH_BYTES + F.least(batches, number(stored_max)) * BATCH_BYTES_MAX
    )


def _ranges() -> dict[str, Column]:
    acked, holes, ledgers, runs = (
        F.col("acked_entries"),
        F.col("hole_entries"),
        F.col("data_ledgers"),
        F.col("hole_runs"),
    )
    known = (runs > 0) | (holes == 0)
    ends_in_a_hole = F.least(ledgers, F.col("partial_batches"))
    least = F.when(known, F.greatest(runs - ends_in_a_hole, number(1))).otherwise(number(1))
    most = F.least(F.when(known, runs).otherwise(holes) + ledgers, acked)
    begins_acked = F.greatest(ledgers - 1, number(0)) * acked / _one_at_least("span_entries")
    middle = F.round(
        F.when(known, runs).otherwise(holes * acked / _one_at_least("span_entries")) + begins_acked
    )
    least = F.least(least, most)
    return {
        "ranges_at_least": _if_acked(least),
        "ranges_estimate": _if_acked(F.least(F.greatest(middle.cast("bigint"), least), most)),
        "ranges_at_most": _if_acked(most),
    }


def _long_array() -> dict[str, Column]:
    """A ledger's words begin at its entry 0, also below mark-delete."""
    acked, ledgers = F.col("acked_entries"), F.col("data_ledgers")
    dead = F.greatest(F.col("mark_delete_entry") + 1, number(0))
    few = F.ceil(F.col("span_entries") / WORD_ENTRIES)
    many = F.ceil((F.col("span_entries") + dead) / WORD_ENTRIES) + ledgers
    full = acked / _one_at_least("span_entries")
    words = few * F.least(10 + full, 1 + WORD_ENTRIES * full)
    return {
        # a varint of n set bits has at least n / 7 bytes, and at least one
        "long_array_bytes_at_least": _if_acked(few + F.greatest(few, F.ceil(acked / 7))),
        "long_array_bytes": _if_acked(
            F.round(F.greatest(words, 2 * few)).cast("bigint") + ledgers * LEDGER_HEAD_BYTES
        ),
        "long_array_bytes_at_most": _if_acked(
            many * WORD_BYTES_MAX
            + ledgers * LEDGER_HEAD_BYTES_MAX
            + ENTRY_BYTES
            + F.col("partial_batches") * BATCH_BYTES
        ),
    }


def _range_bytes() -> dict[str, Column]:
    ledger = _varint_bytes(F.col("mark_delete_ledger"))
    entry = _varint_bytes(
        (F.col("span_entries") / _one_at_least("data_ledgers") / 2).cast("bigint")
    )
    return {
        "ranges_bytes": F.col("ranges_estimate") * (number(10) + 2 * ledger + 2 * entry),
        "ranges_bytes_at_most": F.col("ranges_at_most") * RANGE_BYTES_MAX
        + F.when(
            F.col("ranges_at_most") > 0, ENTRY_BYTES + F.col("partial_batches") * BATCH_BYTES
        ).otherwise(number(0)),
    }


def _snapshot() -> Column:
    """Ours: roaring containers of holes, compressed."""
    holes, span = F.col("hole_entries"), _one_at_least("span_entries")
    p = holes / span
    entropy_bits = F.when((p <= 0) | (p >= 1), F.lit(0.0)).otherwise(
        -(p * F.log2(p) + (1 - p) * F.log2(1 - p))
    )
    runs = F.when(F.col("hole_runs") > 0, 4 * F.col("hole_runs")).otherwise(2 * holes)
    members = F.when(
        p > CONTAINER_SHARE, F.least(span * entropy_bits / 8, runs.cast("double"))
    ).otherwise(F.least(2 * holes, runs))
    return (
        F.round(members).cast("bigint")
        + SNAPSHOT_BYTES
        + F.col("data_ledgers") * SNAPSHOT_LEDGER_BYTES
    )


def _one_at_least(name: str) -> Column:
    return F.greatest(F.col(name), number(1))


def _if_acked(value: Column) -> Column:
    """0 where nothing is acked."""
    return F.when(F.col("acked_entries") <= 0, number(0)).otherwise(value)


def _varint_bytes(value: Column) -> Column:
    """Of a number of up to 63 bits."""
    return F.ceil(F.length(F.bin(F.greatest(value, number(0)))) / 7)
