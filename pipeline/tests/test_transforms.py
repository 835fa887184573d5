"""The report's transforms on small frames with known answers, and the forecast's bounds against the
exact model on random states.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.pulsar_broker.model import count, range_count, what_pulsar_keeps
from cursorkeeper.pulsar_broker.settings import VERSIONS, PulsarSettings
from cursorkeeper.sizes.holes import Workload
from cursorkeeper.sizes.measure import measure
from cursorkeeper_pipeline import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.jvm
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STOCK = VERSIONS["4.2"]
LEDGER_ENTRIES_MAX = 201
"""Of the random states."""
_ZERO = {"int64": 0, "int32": 0, "string": "", "bool": False, "double": 0.0, "binary": b""}


def row(key: int, **given: Any) -> dict[str, Any]:
    """A row of `cursors`; what is not given is empty, or null where the footer cannot be read."""
    is_read = given.get("status", "OK") in ("OK", "AT_LEAST")
    made = {
        f.name: None if f.name == "error" or f.nullable > is_read else _ZERO.get(str(f.type), NOW)
        for f in schemas.CURSORS
    }
    known = {
        "cursor_key": key,
        "cursor": f"c{key}",
        "tenant": "t",
        "state": "open",
        "base": "empty",
        "format": "native",
        "status": "OK",
    }
    assert not set(given) - set(made)
    return {**made, **known, **given}


def frame(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: Any = schemas.CURSORS
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(
        [tuple(one[f.name] for f in schema) for one in rows], from_arrow_schema(schema)
    )


def expect(found: DataFrame, schema: Any, wanted: Sequence[Mapping[str, Any]]) -> None:
    """The columns that `wanted` names hold exactly that; all columns are those of the schema."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.testing import assertDataFrameEqual

    known = from_arrow_schema(schema)
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in known]
    names = list(wanted[0])
    spark = found.sparkSession
    shape = type(known)([known[name] for name in names])
    assertDataFrameEqual(
        found.select(*names),
        spark.createDataFrame([tuple(one[n] for n in names) for one in wanted], shape),
        rtol=1e-9,
    )


# --- forecast -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A state, and what a footer would say of it."""

    info: PositionInfo
    stats: dict[str, int]


def sample(dice: random.Random, *, batch_sizes: Sequence[int] = (1,)) -> Sample:
    """A mark-delete, a few data ledgers with random acks above it, and now and then partly acked
    batches in holes, all of it un-acked.
    """
    own = dice.randrange(1, 500)
    mark_delete = Position(own, dice.randrange(-1, 40))
    acked: dict[int, BitMap] = {}
    batches: dict[PartialKey, BitMap] = {}
    stats = {
        "data_ledgers": 0,
        "span_entries": 0,
        "hole_entries": 0,
        "hole_runs": 0,
        "partial_batches": 0,
    }
    for ledger in range(own, own + dice.choice([1, 1, 2, 5, 30])):
        first = mark_delete.entry + 1 if ledger == own else 0
        size = dice.choice([1, 3, 20, 200])
        entries = BitMap(
            e
            for e in range(first + (ledger == own), first + size)
            if dice.random() < dice.choice([0.05, 0.5, 0.95])
        )
        if dice.random() < 0.2:
            partial = (entries.max() if entries else first) + 1
            batches[PartialKey(ledger, partial)] = bitmaps.span(0, dice.choice(batch_sizes) - 1)
        high = max(
            [entries.max() if entries else -1, *(k.entry for k in batches if k.ledger == ledger)]
        )
        if high < first:
            continue
        holes = bitmaps.span(first, high) - entries
        stats["data_ledgers"] += 1
        stats["span_entries"] += high + 1 - first
        stats["hole_entries"] += len(holes)
        stats["hole_runs"] += bitmaps.count_runs(holes)
        if entries:
            acked[ledger] = entries
    stats["partial_batches"] = len(batches)
    return Sample(PositionInfo(mark_delete, acked, batches), stats)


def settings_to_try() -> Iterator[PulsarSettings]:
    """Every version with two of the four caps, every cap with two versions: each plan costs Spark
    more than all of its rows.
    """
    few, some, small = (1, 5_253_120, 1_048_575), (12, 15_000, 400), (100, 700, 400)
    frames = (100, 700, 1_048_575)
    for version, caps in {
        "4.0": (few, small),
        "4.2": (some, small),
        "5.0.0-M1": (some, frames),
        "5.0": (few, frames),
    }.items():
        for cap, frame_bytes, znode_bytes in caps:
            known = VERSIONS[version]
            yield replace(
                known,
                ranges_max=cap,
                batches_max=2,
                frame_bytes_max=frame_bytes,
                znode_bytes_max=znode_bytes,
            )


def test_the_bounds_hold_what_the_model_says_of_every_state(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.forecast import forecast

    dice = random.Random(25985)
    samples = [sample(dice, batch_sizes=(1, 100, BATCH_SIZE_MAX)) for _ in range(400)]
    rows = [
        row(
            key,
            mark_delete_ledger=one.info.mark_delete.ledger,
            mark_delete_entry=one.info.mark_delete.entry,
            **one.stats,
        )
        for key, one in enumerate(samples)
    ]
    cursors = frame(spark, rows).cache()
    exact = uncertain = lost = 0
    tries = [(settings, 0) for settings in settings_to_try()]
    tries += [(settings, LEDGER_ENTRIES_MAX) for settings, _ in tries if settings.version == "4.2"]
    for settings, ledger_entries_max in tries:
        for found in forecast(cursors, settings, ledger_entries_max).collect():
            one = samples[found.cursor_key]
            kept = what_pulsar_keeps(one.info, settings)
            said = (found.cursor_key, settings, ledger_entries_max, found, kept.dropped_by)
            assert found.acked_entries == count(one.info.acked), said
            assert found.redelivered_at_least <= kept.dropped_count <= found.redelivered_at_most, (
                said
            )
            assert (
                found.redelivered_at_least
                <= found.redelivered_estimate
                <= found.redelivered_at_most
            ), said
            assert found.is_exact == (found.redelivered_at_least == found.redelivered_at_most)
            assert (found.reason == "none") == (
                found.redelivered_at_most == 0 and found.batches_redelivered == 0
            ), said
            exact, uncertain = exact + found.is_exact, uncertain + (not found.is_exact)
            lost += kept.dropped_count > 0
    assert min(exact, uncertain, lost) > 500  # or the samples show nothing
    cursors.unpersist()


def test_who_knows_how_long_ledgers_are_knows_the_least_that_is_lost(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.forecast import forecast

    rows = [
        row(1, data_ledgers=100, span_entries=5_000_000, hole_entries=1, hole_runs=1),
        row(2, data_ledgers=2, span_entries=12_000),
    ]
    names = ("cursor_key", "redelivered_at_least", "redelivered_at_most")
    expect(
        forecast(frame(spark, rows), STOCK, 50_000),
        schemas.FORECAST,
        [dict(zip(names, one, strict=True)) for one in ((1, 4_939_999, 4_989_998), (2, 0, 1_999))],
    )


def test_the_bounds_of_ranges_and_bytes_hold_too(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.estimates import with_estimates

    dice = random.Random(1)
    samples = [sample(dice) for _ in range(400)]
    rows = [
        row(
            key,
            mark_delete_ledger=one.info.mark_delete.ledger,
            mark_delete_entry=one.info.mark_delete.entry,
            **one.stats,
        )
        for key, one in enumerate(samples)
    ]
    for found in with_estimates(frame(spark, rows)).collect():
        info = samples[found.cursor_key].info
        said = (info, found)
        assert found.ranges_at_least <= range_count(info.acked) <= found.ranges_at_most, said
        for form, low, high in (
            (Form.LONG_ARRAY, found.long_array_bytes_at_least, found.long_array_bytes_at_most),
            (Form.RANGES, 0, found.ranges_bytes_at_most),
        ):
            if info.acked:
                assert low <= position_info.encoded_bytes(info, form) <= high, (form, *said)


def test_forecast_of_known_cursors(spark: SparkSession) -> None:
    """Pulsar issue #25985's cursor: one hole pins mark-delete, and 4.2 keeps the first ledgers up
    to the one that passes 10,000.
    """
    from cursorkeeper_pipeline.transforms.forecast import by_tenant, forecast

    rows = [
        row(1, data_ledgers=100, span_entries=5_000_000, hole_entries=1, hole_runs=1),
        row(2, data_ledgers=1, span_entries=5_000_000, hole_entries=1, hole_runs=1),
        row(
            3,
            data_ledgers=10,
            span_entries=10_010,
            hole_entries=10,
            hole_runs=10,
            partial_batches=3,
        ),
        row(
            4,
            data_ledgers=2,
            span_entries=20_000,
            hole_entries=1,
            hole_runs=1,
            truncated=True,
            tenant="u",
        ),
        row(5, status="DAMAGED", error="bad"),
        row(6, state="deleted"),
        row(
            7,
            data_ledgers=3,
            span_entries=10,
            hole_entries=4,
            hole_runs=4,
            partial_batches=10_001,
            tenant="u",
        ),
    ]
    found = forecast(frame(spark, rows), STOCK)
    names = (
        "cursor_key",
        "acked_entries",
        "redelivered_at_least",
        "redelivered_estimate",
        "redelivered_at_most",
        "is_exact",
        "batches_redelivered",
        "reason",
        "cursorkeeper_redelivered",
    )
    wanted = [
        (1, 4_999_999, 0, 4_949_999, 4_989_998, False, 0, "entryCap", 0),
        (2, 4_999_999, 0, 0, 0, True, 0, "none", 0),
        (3, 10_000, 0, 0, 0, True, 0, "none", 0),
        (4, 19_999, 0, 0, 9_998, False, 0, "entryCap", None),
        (7, 6, 0, 0, 6, False, 1, "frame", 0),
    ]
    expect(found, schemas.FORECAST, [dict(zip(names, one, strict=True)) for one in wanted])
    names = (
        "tenant",
        "cursors",
        "cursors_at_risk",
        "redelivered_at_most",
        "batches_redelivered",
        "cursorkeeper_redelivered",
    )
    expect(
        by_tenant(found),
        schemas.FORECAST_TENANTS,
        [
            dict(zip(names, one, strict=True))
            for one in (("t", 3, 1, 4_989_998, 0, 0), ("u", 2, 2, 10_004, 1, 0))
        ],
    )


def test_large_batches_may_keep_an_entry_from_being_stored(spark: SparkSession) -> None:
    """All counts are below every cap, and yet nothing of it is stored: how large the sets of
    batches are, a footer does not say.
    """
    from cursorkeeper_pipeline.transforms.estimates import BATCH_BYTES_MAX
    from cursorkeeper_pipeline.transforms.forecast import forecast

    half = BitMap(range(0, 10_000, 2))
    info = PositionInfo(
        Position(5, -1),
        {5: bitmaps.span(4_000, 7_989)},
        {PartialKey(5, entry): half for entry in range(4_000)},
    )
    kept = what_pulsar_keeps(info, STOCK)
    assert kept.dropped_count == 3_990 and kept.tried_bytes > 6_000_000
    largest = PositionInfo(
        Position(1 << 62, -1),
        {},
        {PartialKey(1 << 62, (1 << 62) + 1): bitmaps.span(0, BATCH_SIZE_MAX - 1)},
    )
    none = replace(largest, batches={})
    one = position_info.encoded_bytes(largest, Form.RANGES) - position_info.encoded_bytes(
        none, Form.RANGES
    )
    assert BATCH_BYTES_MAX - 10 < one <= BATCH_BYTES_MAX

    stats = {"data_ledgers": 1, "span_entries": 7_990, "hole_entries": 4_000, "hole_runs": 1}
    fit = STOCK.frame_bytes_max // BATCH_BYTES_MAX
    rows = [
        row(1, **stats, partial_batches=4_000),
        row(2, **stats, partial_batches=fit),
        row(3, **stats, partial_batches=fit + 1),
    ]
    names = ("cursor_key", "redelivered_at_least", "redelivered_at_most", "is_exact", "reason")
    found = forecast(frame(spark, rows), STOCK)
    expect(
        found,
        schemas.FORECAST,
        [
            dict(zip(names, one, strict=True))
            for one in (
                (1, 0, 3_990, False, "frame"),
                (2, 0, 0, True, "none"),
                (3, 0, 3_990, False, "frame"),
            )
        ],
    )
    few = forecast(frame(spark, rows), replace(STOCK, batches_max=10))
    assert {found["is_exact"] for found in few.collect()} == {True}, (
        "more than the cap are not in the entry"
    )


def test_ranges_have_a_cap_of_their_own(spark: SparkSession) -> None:
    """4.0 writes ranges: 10,001 of them; each of the other 90,000 single entries comes back. Two
    ledgers more make it uncertain.
    """
    from cursorkeeper_pipeline.transforms.forecast import forecast

    rows = [row(1, data_ledgers=1, span_entries=200_000, hole_entries=100_000, hole_runs=100_000)]
    names = ("cursor_key", "redelivered_at_least", "redelivered_at_most", "is_exact", "reason")
    expect(
        forecast(frame(spark, rows), VERSIONS["4.0"]),
        schemas.FORECAST,
        [dict(zip(names, (1, 89_999, 89_999, True, "rangeCap"), strict=True))],
    )


# --- limits, sizes, growth ------------------------------------------------------------------------


def test_limits_of_known_cursors(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.limits import limits

    rows = [
        row(1, data_ledgers=1, span_entries=5_001, hole_entries=1, hole_runs=1),
        row(
            2,
            data_ledgers=1,
            span_entries=100,
            hole_entries=50,
            hole_runs=50,
            partial_batches=9_000,
        ),
        row(3, data_ledgers=1, span_entries=64_000_000, hole_entries=63_999_000, hole_runs=0),
        row(4),
        row(5, status="TOO_NEW"),
    ]
    names = (
        "cursor_key",
        "acked_entries",
        "ranges_at_least",
        "ranges_at_most",
        "entry_cap_share",
        "range_cap_share",
        "batch_cap_share",
        "nearest",
    )
    wanted = [
        (1, 5_000, 1, 2, 0.5, 0.0, 0.0, "entryCap"),
        (2, 50, 49, 50, 0.005, 0.0, 0.9, "batchCap"),
        (3, 1_000, 1, 1_000, 0.1, 0.0, 0.0, "frame"),
        (4, 0, 0, 0, 0.0, 0.0, 0.0, "none"),
    ]
    found = limits(frame(spark, rows), STOCK)
    expect(found, schemas.LIMITS, [dict(zip(names, one, strict=True)) for one in wanted])
    assert {r.cursor_key: r.nearest_share for r in found.collect()}[3] == pytest.approx(
        11_000_000 / 5_253_120, rel=0.001
    )
    by_ranges = {
        r.cursor_key: r for r in limits(frame(spark, rows[:1]), VERSIONS["4.0"]).collect()
    }[1]
    assert (by_ranges.nearest, by_ranges.entry_cap_share) == (
        "rangeCap",
        0.0,
    ) and by_ranges.range_cap_share == pytest.approx(2 / 10_001)


def test_sizes_are_those_of_the_table_of_issue_25985(spark: SparkSession) -> None:
    """The closed forms against real encodings: long array and ranges within 5 %, ours within 25
    %.
    """
    from cursorkeeper_pipeline.transforms.sizes import sizes

    shapes = [
        Workload(1_000_000, 0.001),
        Workload(1_000_000, 0.01),
        Workload(1_000_000, 0.1),
        Workload(200_000, 0.01, ledger_entries=0),
    ]
    for shape in shapes:
        info, state = shape.states()
        stats = {
            "data_ledgers": len(state.ledgers),
            "span_entries": state.span,
            "hole_entries": state.hole_count,
        }
        runs = sum(bitmaps.count_runs(acks.holes) for acks in state.ledgers.values())
        rows = [
            row(
                1,
                mark_delete_ledger=info.mark_delete.ledger,
                mark_delete_entry=-1,
                hole_runs=runs,
                snapshot_bytes=7,
                **stats,
            )
        ]
        found, real = sizes(frame(spark, rows), STOCK).collect()[0], measure(shape).bytes_by_key
        assert found.long_array_bytes == pytest.approx(real["dense_bytes"], rel=0.05)
        assert found.ranges_bytes == pytest.approx(real["ranges_bytes"], rel=0.05)
        assert found.cursorkeeper_bytes == pytest.approx(real["snapshot_bytes"], rel=0.25)
        assert (found.snapshots, found.snapshot_bytes, found.snapshot_estimate_bytes) == (
            1,
            7,
            found.cursorkeeper_bytes,
        )


def test_sizes_are_grouped_by_decades(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.sizes import sizes

    shapes = [(1_000, 1), (9_999, 9), (10_000, 10), (0, 0), (64_000_000, 5)]
    rows = [
        row(key, data_ledgers=1, span_entries=s, hole_entries=h, hole_runs=h)
        for key, (s, h) in enumerate(shapes)
    ]
    names = (
        "backlog_decade",
        "hole_decade",
        "cursors",
        "span_entries",
        "hole_entries",
        "over_frame",
    )
    wanted = [
        (3, 0, 2, 10_999, 10, 0),
        (4, 1, 1, 10_000, 10, 0),
        (-1, -1, 1, 0, 0, 0),
        (7, 0, 1, 64_000_000, 5, 1),
    ]
    expect(
        sizes(frame(spark, rows), STOCK),
        schemas.SIZES,
        [dict(zip(names, one, strict=True)) for one in wanted],
    )


def test_growth_is_counted_between_the_writes_of_footers(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.growth import by_tenant, growth

    def at(days: float) -> datetime:
        return NOW + timedelta(days=days)

    old = [
        row(1, hole_entries=10, span_entries=100, data_ledgers=1, footer_version=1),
        row(2, hole_entries=10, span_entries=100, footer_version=1),
        row(3, hole_entries=7, footer_version=3),
        row(4, hole_entries=5),
        row(6, hole_entries=1, footer_version=1),
        row(7, hole_entries=40, tenant="v"),
        row(8, status="DAMAGED", tenant="v"),
        row(9, status="TOO_NEW", tenant="v"),
        row(10, status="DAMAGED", tenant="v"),
        row(11, hole_entries=9, footer_version=1, generation=1),
        row(12, hole_entries=9, state="deleted"),
    ]
    new = [
        row(
            1,
            hole_entries=30,
            span_entries=60,
            data_ledgers=3,
            footer_version=9,
            footer_modified=at(2),
        ),
        row(2, hole_entries=10, span_entries=100, footer_version=1, read_at=at(9)),
        row(3, hole_entries=9, footer_version=1, footer_created=at(1), footer_modified=at(1)),
        row(5, hole_entries=6, tenant="u"),
        row(6, hole_entries=2, footer_version=2, footer_modified=at(1e-6)),
        row(7, status="DAMAGED", tenant="v"),
        row(8, hole_entries=50, tenant="v", footer_version=9, footer_modified=at(2)),
        row(9, status="TOO_NEW", tenant="v"),
        row(11, hole_entries=1, footer_version=5, generation=2, footer_modified=at(2)),
        row(12, hole_entries=3, footer_version=1),
        row(13, hole_entries=3, state="deleted"),
    ]
    found = growth(frame(spark, new), frame(spark, old))
    names = (
        "cursor_key",
        "change",
        "days",
        "holes_grown",
        "span_grown",
        "holes_per_day",
        "span_per_day",
        "ledgers_per_day",
    )
    wanted = [
        (1, "moved", 2.0, 20, -40, 10.0, -20.0, 1.0),
        (2, "same", None, 0, 0, 0.0, 0.0, 0.0),
        (3, "recreated", None, 2, 0, None, None, None),
        (4, "gone", None, -5, 0, None, None, None),
        (5, "new", None, 6, 0, None, None, None),
        (6, "moved", 86_000 / 86_400_000_000, 1, 0, None, None, None),
        (7, "unreadable", None, None, None, None, None, None),
        (8, "unreadable", None, None, None, None, None, None),
        (9, "unreadable", None, None, None, None, None, None),
        (10, "gone", None, None, None, None, None, None),
        (11, "recreated", None, -8, 0, None, None, None),
        (12, "new", None, 3, 0, None, None, None),
    ]
    expect(found, schemas.GROWTH, [dict(zip(names, one, strict=True)) for one in wanted])
    names = (
        "tenant",
        "cursors",
        "new",
        "gone",
        "unreadable",
        "holes_grown",
        "holes_per_day",
        "span_per_day",
    )
    expect(
        by_tenant(found),
        schemas.GROWTH_TENANTS,
        [
            dict(zip(names, one, strict=True))
            for one in (
                ("t", 7, 1, 1, 0, 13, 10.0, -20.0),
                ("u", 1, 1, 0, 0, 6, 0.0, 0.0),
                ("v", 4, 0, 1, 3, 0, 0.0, 0.0),
            )
        ],
    )
