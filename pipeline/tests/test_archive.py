"""The archive and what is said from its days: transforms on small frames, and the job on the real
stack, twice and after a crash.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cursorkeeper import connections
from cursorkeeper.core import events as ev
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.problems import ProblemError
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs import archive
from cursorkeeper_pipeline.jobs.day_folder import DayFolder
from cursorkeeper_pipeline.jobs.day_tables import DayTables
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.options import Options
from pipeline.tests.real_cursors import fleet, options_of
from pipeline.tests.test_transforms import NOW, expect, frame, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm
_ZERO = {"int64": 0, "int32": 0, "string": "", "double": 0.0, "date32[day]": date(2026, 11, 21)}


def stat(schema: Any, key: int, **given: Any) -> dict[str, Any]:
    """A row of `hole_stats`, archived or not; what is not given is empty."""
    made = {
        f.name: None
        if f.nullable and f.name not in ("day", "tenant")
        else _ZERO.get(str(f.type), NOW)
        for f in schema
    }
    assert not set(given) - set(made)
    return {**made, "cursor_key": key, "status": "OK", **given}


# --- transforms -----------------------------------------------------------------------------------


def test_a_day_has_the_cursors_that_were_read(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms.archive import cursors_of, hole_stats_of, segments_of

    day = date(2026, 11, 21)
    cursors = frame(
        spark, [row(1, tenant="a"), row(2, tenant="007"), row(4, tenant="a"), row(5, tenant="a")]
    )
    stats = [
        stat(schemas.HOLE_STATS, 1, parts=1, hole_entries=3, hole_runs=2, mark_delete_ledger=5),
        stat(schemas.HOLE_STATS, 2, parts=1, status="DAMAGED", error="broken"),
        stat(schemas.HOLE_STATS, 3),
    ]
    found = hole_stats_of(frame(spark, stats, schemas.HOLE_STATS), cursors, day).orderBy(
        "cursor_key"
    )
    names = (
        "cursor_key",
        "tenant",
        "day",
        "parts",
        "hole_entries",
        "hole_runs",
        "mark_delete_ledger",
        "status",
        "error",
    )
    wanted = [
        (1, "a", day, 1, 3, 2, 5, "OK", None),
        (2, "007", day, 1, None, None, None, "DAMAGED", "broken"),
    ]
    expect(
        found, schemas.ARCHIVED_HOLE_STATS, [dict(zip(names, one, strict=True)) for one in wanted]
    )
    expect(
        cursors_of(cursors, day).orderBy("cursor_key"),
        schemas.ARCHIVED_CURSORS,
        [
            {"cursor_key": 1, "tenant": "a", "day": day},
            {"cursor_key": 2, "tenant": "007", "day": day},
            {"cursor_key": 4, "tenant": "a", "day": day},
            {"cursor_key": 5, "tenant": "a", "day": day},
        ],
    )
    segment = {f.name: None if f.nullable else _ZERO.get(str(f.type)) for f in schemas.SEGMENTS}
    segments = frame(
        spark, [{**segment, "cursor_key": 2}, {**segment, "cursor_key": 3}], schemas.SEGMENTS
    )
    expect(
        segments_of(segments, cursors, day),
        schemas.ARCHIVED_SEGMENTS,
        [{"cursor_key": 2, "tenant": "007", "day": day}],
    )


def archived(spark: SparkSession, days: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """(hole_stats, cursors): for each row its day of November, cursor, holes and first hole."""
    stats, cursors = [], []
    for one in days:
        given = {"generation": 1, "tenant": "t", "span": 100, "status": "OK", "first": None, **one}
        day = date(2026, 11, given["day"])
        first = given["first"] or (None, None)
        stats.append(
            stat(
                schemas.ARCHIVED_HOLE_STATS,
                given["key"],
                day=day,
                tenant=given["tenant"],
                hole_entries=given["holes"],
                span_entries=given["span"],
                status=given["status"],
                first_hole_ledger=first[0],
                first_hole_entry=first[1],
            )
        )
        cursors.append(
            {
                **row(given["key"], generation=given["generation"], tenant=given["tenant"]),
                "day": day,
            }
        )
    return frame(spark, stats, schemas.ARCHIVED_HOLE_STATS), frame(
        spark, cursors, schemas.ARCHIVED_CURSORS
    )


def test_the_oldest_hole_is_as_old_as_the_first_day_on_which_it_was_the_oldest(
    spark: SparkSession,
) -> None:
    from cursorkeeper_pipeline.transforms.lag import lag, tenants

    stats, cursors = archived(
        spark,
        [
            # moves on, then hangs at 7:5 over a day that nobody archived, then moves
            {"key": 1, "day": 1, "holes": 4, "first": (7, 1)},
            {"key": 1, "day": 2, "holes": 10, "first": (7, 5)},
            {"key": 1, "day": 4, "holes": 40, "first": (7, 5), "span": 300},
            {"key": 1, "day": 5, "holes": 30, "first": (8, 5)},
            {"key": 1, "day": 6, "holes": 0},
            # a reset makes the same entry a new hole
            {"key": 2, "day": 1, "holes": 5, "first": (7, 1)},
            {"key": 2, "day": 2, "holes": 9, "first": (7, 1), "generation": 2},
            {"key": 2, "day": 3, "holes": 9, "first": (7, 1), "generation": 2},
            # could not be read on a day
            {"key": 3, "day": 1, "holes": 2, "first": (1, 1), "tenant": "u"},
            {"key": 3, "day": 2, "holes": 0, "tenant": "u", "status": "DAMAGED"},
            {"key": 3, "day": 3, "holes": 8, "first": (1, 1), "tenant": "u", "status": "AT_LEAST"},
        ],
    )
    names = (
        "cursor_key",
        "day",
        "since",
        "oldest_hole_days_at_least",
        "days",
        "holes_grown",
        "span_grown",
        "holes_per_day",
    )

    def november(day: int | None) -> date | None:
        return date(2026, 11, day) if day else None

    wanted = [
        (1, 1, 1, 0, None, None, None, None),
        (1, 2, 2, 0, 1, 6, 0, 6.0),
        (1, 4, 2, 2, 2, 30, 200, 15.0),
        (1, 5, 5, 0, 1, -10, -200, -10.0),
        (1, 6, None, None, 1, -30, 0, -30.0),
        (2, 1, 1, 0, None, None, None, None),
        (2, 2, 2, 0, None, None, None, None),
        (2, 3, 2, 1, 1, 0, 0, 0.0),
        (3, 1, 1, 0, None, None, None, None),
        (3, 3, 1, 2, 2, 6, 0, 3.0),
    ]
    rows = [
        dict(zip(names, (one[0], november(one[1]), november(one[2]), *one[3:]), strict=True))
        for one in wanted
    ]
    lags = lag(stats, cursors)
    expect(lags.orderBy("cursor_key", "day"), schemas.LAG, rows)
    named = (
        "day",
        "tenant",
        "cursors",
        "cursors_with_holes",
        "hole_entries",
        "oldest_hole_days_at_least",
        "holes_grown",
        "holes_per_day",
    )
    of_tenants = [
        (1, "t", 2, 2, 9, 0, 0, 0.0),
        (2, "t", 2, 2, 19, 0, 6, 6.0),
        (3, "t", 1, 1, 9, 1, 0, 0.0),
        (4, "t", 1, 1, 40, 2, 30, 15.0),
        (5, "t", 1, 1, 30, 0, -10, -10.0),
        (6, "t", 1, 0, 0, None, -30, -30.0),
        (1, "u", 1, 1, 2, 0, 0, 0.0),
        (3, "u", 1, 1, 8, 2, 6, 3.0),
    ]
    expect(
        tenants(lags).orderBy("tenant", "day"),
        schemas.LAG_TENANTS,
        [dict(zip(named, (november(one[0]), *one[1:]), strict=True)) for one in of_tenants],
    )


def test_a_day_is_a_day() -> None:
    assert archive.Arguments().date == datetime.now(UTC).date()
    for wrong in ({"day": "today"}, {"lag_days": 0}, {"top": -1}):
        with pytest.raises(OptionError, match="What to do"):
            _ = archive.Arguments(**wrong).date  # type: ignore[arg-type]


# --- the real stack -------------------------------------------------------------------------------


class Died(BaseException):
    """As a driver that is killed."""


def name(tenant: str, what: str = "topic") -> CursorName:
    return CursorName(f"persistent://{tenant}/ns/{what}", "sub")


@dataclass
class Archive:
    """The archive of a fleet in a folder, and the runs that fill it."""

    spark: SparkSession
    source: Options
    out: Reporter
    capsys: pytest.CaptureFixture[str]

    @property
    def path(self) -> Path:
        return Path(self.out.folder)

    async def run(
        self, day: str, code: int = CLEAN, source: Options | None = None
    ) -> dict[str, Any]:
        """One run of the job; what it said."""
        assert (
            await asyncio.to_thread(
                archive.run, self.spark, source or self.source, archive.Arguments(day=day), self.out
            )
            == code
        )
        said: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return said

    def rows(self, table: str, day: int, tenant: str = "*") -> list[dict[str, Any]]:
        """As the files have them, without what the names of their folders say."""
        files = self.path.glob(f"{table}/day=2026-11-{day}/tenant={tenant}/*.parquet")
        return [row for file in sorted(files) for row in pq.ParquetFile(file).read().to_pylist()]

    def files(self, day: int) -> dict[str, bytes]:
        """All of a day."""
        return {
            str(file.relative_to(self.path)): file.read_bytes()
            for file in self.path.glob(f"*/day=2026-11-{day}/*/*.parquet")
        }

    def tenants(self, table: str, day: int) -> set[str]:
        return {
            path.name.removeprefix("tenant=")
            for path in (self.path / f"{table}/day=2026-11-{day}").glob("tenant=*")
        }

    def staged(self) -> list[Path]:
        return list((self.path / "_staging").iterdir())


async def run_that_dies(kept: Archive) -> None:
    """The first day again; the driver dies when half of the tables are in their place."""
    left = len(archive.ARCHIVED) + 1

    def dies(_step: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died

    with pytest.raises(Died):
        dying = DayFolder(kept.out.folder, tuple(archive.ARCHIVED), say=dies)
        await asyncio.to_thread(
            archive.keep_day, kept.spark, kept.source, dying, date(2026, 11, 20)
        )
    assert len(kept.staged()) == 1, "it died in the middle"
    assert {"gone" in kept.tenants(table, 20) for table in archive.ARCHIVED} == {True, False}, (
        "some tables are new, some are not"
    )


def assert_lags(kept: Archive) -> None:
    """The closed cursor has not moved for a day, the live one has more holes."""
    lags = {
        (r["cursor_key"], r["day"].day): r for r in pq.read_table(kept.path / "lag").to_pylist()
    }
    still, grown = lags[cursor_key(name("007")), 21], lags[cursor_key(name("b")), 21]
    assert (still["oldest_hole_days_at_least"], still["holes_grown"], still["since"]) == (
        1,
        0,
        date(2026, 11, 20),
    )
    assert (
        grown["holes_grown"] > 0 and grown["days"] == 1 and grown["oldest_hole_days_at_least"] == 1
    )
    assert lags[cursor_key(name("new")), 21]["days"] is None


async def run_of_one_tenant(kept: Archive) -> None:
    """The others' rows of the day stay."""
    before, (was,) = kept.files(21), kept.rows("hole_stats", 21, "b")
    said = await kept.run("2026-11-21", FINDINGS, replace(kept.source, tenant="b"))
    assert said["status"]["footers"] == {"OK": 3, "DAMAGED": 1} and said["days"] == 2
    old, new = (
        {file: held for file, held in files.items() if "/tenant=b/" not in file}
        for files in (before, kept.files(21))
    )
    assert new == old
    for table in archive.ARCHIVED:
        assert kept.tenants(table, 21) == {"007", "b", "new"}, table
    (now,) = kept.rows("hole_stats", 21, "b")
    assert now["hole_entries"] > was["hole_entries"]


async def runs_that_are_refused(kept: Archive) -> None:
    """What a day is not kept by, and a root that is another, do nothing to it."""
    source, before = kept.source, kept.files(21)
    empty = replace(source, root=f"{source.root}-empty")
    async with connections.zookeeper(empty.settings.systems) as zookeeper:
        await connections.footer_store(zookeeper, empty.settings).deployment()
    for wrong, said_of_it in (
        (replace(source, namespace="b/ns"), "by tenant.*What to do"),
        (empty, "no cursor was read.*What to do"),
        (replace(source, root=f"{source.root}-mistyped"), "does not exist"),
    ):
        with pytest.raises((OptionError, ProblemError), match=said_of_it):
            await kept.run("2026-11-21", source=wrong)
        assert kept.files(21) == before


@pytest.mark.slow
async def test_days_are_kept_replaced_and_survive_a_crash(
    spark: SparkSession,
    stack: Standalone,
    root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = Archive(
        spark,
        options_of(stack, root),
        Reporter("archive", str(tmp_path / "kept"), as_json=True),
        capsys,
    )
    async with fleet(stack, root) as made:
        await made.closed(name("007"), rounds=3)
        live = await made.source(name("b"))
        await made.acked(live, 2)
        gone = await made.source(name("gone"))
        await made.acked(gone, 1)
        assert (await kept.run("2026-11-20"))["cursors"] == 3
        assert kept.tenants("cursors", 20) == {"007", "b", "gone"}
        folder = DayFolder(kept.out.folder, tuple(archive.ARCHIVED))
        first = {
            r["cursor_key"]: r for r in archive.archived(spark, folder, "hole_stats").collect()
        }
        assert {r["tenant"] for r in first.values()} == {"007", "b", "gone"}, "a tenant is a text"
        one = first[cursor_key(name("007"))]
        assert (
            one["hole_entries"],
            one["acked_entries"],
            one["first_hole_ledger"],
            one["first_hole_entry"],
        ) == (60, 60, 7, 0)
        gone.send(ev.Delete())
        await gone.told.until(lambda: bool(gone.told.ended))
        await run_that_dies(kept)

        # the next day ends what was begun; one has more holes, one is new, and one is damaged,
        # which is a row and a finding
        await made.acked(live, 2, start=2)
        await made.closed(name("new"), rounds=1)
        await made.closed(name("new", "broken"), rounds=1)
        await made.overwrite(name("new", "broken"), b"no footer")
        said = await kept.run("2026-11-21", FINDINGS)
        assert said["recovered"] == ["2026-11-20"] and said["days"] == 2 and said["cursors"] == 3
        assert said["status"]["footers"] == {"OK": 3, "DAMAGED": 1} and not kept.staged()
        assert said["oldest"][0]["oldest_hole_days_at_least"] == 1
        for table in archive.ARCHIVED:
            assert kept.tenants(table, 20) == {"007", "b"} and kept.tenants(table, 21) == {
                "007",
                "b",
                "new",
            }, table
        assert {r["role"] for r in kept.rows("segments", 20)} == {"chain"}
        assert_lags(kept)
        await made.acked(live, 2, start=4)
        await run_of_one_tenant(kept)
        await runs_that_are_refused(kept)


# --- tables of a catalog --------------------------------------------------------------------------


def test_a_format_that_cannot_replace_a_day_is_refused_and_leaves_no_table(
    spark: SparkSession,
) -> None:
    """Spark's own file formats; which of the others can is tried by hand, see the page."""
    from cursorkeeper_pipeline.transforms.archive import cursors_of

    day = date(2026, 11, 21)
    tables = DayTables(spark, "kept", "parquet", day, "a")
    rows = cursors_of(frame(spark, [row(1, tenant="a")]), day)
    with pytest.raises(
        OptionError, match=r"kept_cursors cannot replace a day .*--table-format iceberg or delta"
    ):
        tables.replace("cursors", rows)
    assert not spark.catalog.tableExists("kept_cursors")
    with pytest.raises(OptionError, match="write CATALOG"):
        DayTables(spark, "kept; DROP", "parquet", day)
    spark.createDataFrame(rows.rdd, rows.schema).write.partitionBy("day", "tenant").saveAsTable(
        "kept_cursors"
    )
    try:
        tables.refuse_nothing(rows)
        with pytest.raises(OptionError, match="no cursor was read, and 2026-11-21 has some"):
            tables.refuse_nothing(rows.limit(0))
        DayTables(spark, "kept", "parquet", date(2026, 11, 22)).refuse_nothing(rows.limit(0))
    finally:
        spark.sql("DROP TABLE kept_cursors")
