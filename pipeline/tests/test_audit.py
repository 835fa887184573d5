"""The job `audit`: a clean fleet is clean, each damage is found once and at its place, and a fleet
that lives gives no false alarm.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from cursorkeeper.core.footer import EmptyBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper.zookeeper.values import ANY_VERSION
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError, problem_of_job
from cursorkeeper_pipeline.job_file import convert
from cursorkeeper_pipeline.jobs import audit
from cursorkeeper_pipeline.jobs.audit import Arguments, seconds
from cursorkeeper_pipeline.jobs.frame import CLEAN, FAILED, FINDINGS, Reporter
from cursorkeeper_pipeline.keys import cursor_key
from pipeline.tests.real_cursors import EAGER, LEDGERS, Fleet, fleet, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [CursorName(f"persistent://t/ns/audit-{at}", "sub") for at in range(12)]
AT_ONCE = Arguments(grace="0s", settle="0.5s")
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def test_arguments_are_checked_before_anything_is_started() -> None:
    assert [seconds("grace", text) for text in ("90s", "30m", "1.5h", "2d", "7")] == [
        90,
        1800,
        5400,
        172_800,
        7,
    ]
    for wrong in ("", "h", "-1h", "1w", "1h30m"):
        with pytest.raises(OptionError, match=r"audit: grace = .* is no time: write"):
            convert("audit", Arguments, {"grace": wrong})
    with pytest.raises(OptionError, match="unchecked-max"):
        convert("audit", Arguments, {"unchecked_max": -1})
    assert convert("audit", Arguments, {"settle": "5s"}) == Arguments(settle="5s")


# ---- the transforms


def ledger(spark: SparkSession, *rows: tuple) -> Any:
    """(id, cursor key, epoch, verdict, ours, created, and perhaps why it puts the footer in
    doubt).
    """
    full = [
        (i, key, f"c{key}", epoch, "closed", 5, 100, created, verdict, ours, *(doubt or (None,)))
        for i, key, epoch, verdict, ours, created, *doubt in rows
    ]
    return spark.createDataFrame(full, from_arrow_schema(schemas.LEDGERS))


def check(spark: SparkSession, *rows: tuple) -> Any:
    """(cursor key, state, epoch, kind)."""
    full = [
        (key, f"c{key}", state, epoch, kind, "p", "m", "r", 2, 10, 99, state == "open")
        for key, state, epoch, kind in rows
    ]
    return spark.createDataFrame(full, from_arrow_schema(schemas.CHECKS))


@pytest.mark.jvm
def test_what_the_tables_say(spark: SparkSession) -> None:
    from cursorkeeper_pipeline.transforms import audit as transforms

    now = datetime(2026, 1, 1, tzinfo=UTC)
    before = now - timedelta(hours=1)
    first = ledger(
        spark,
        (1, 5, 1, "garbage", True, LONG_AGO),
        (2, 5, 1, "garbage", True, now),
        (3, 5, 1, "garbage", False, LONG_AGO),
        (4, 5, 1, "garbage", True, LONG_AGO),
        (5, 5, 1, "named", True, LONG_AGO),
    )
    second = ledger(
        spark,
        (1, 5, 1, "garbage", True, LONG_AGO),
        (2, 5, 1, "garbage", True, now),
        (5, 5, 1, "garbage", True, LONG_AGO),
    )
    found = transforms.orphans(transforms.garbage(first, before), second)
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in from_arrow_schema(schemas.FINDINGS)
    ]
    (orphan,) = found.collect()
    assert (orphan["kind"], orphan["place"], orphan["cursor"], orphan["cursor_key"]) == (
        "orphan_ledger",
        "ledger 1",
        "c5",
        5,
    )
    assert (
        "created 2001-01-01T00:00:00Z" in orphan["message"]
        and "cursorkeeper gc" in orphan["remedy"]
    )

    checks = check(
        spark,
        (5, "open", 3, "checked"),
        (5, "open", 3, "record_damaged"),
        (6, None, None, "checked"),
        (6, None, None, "footer_unreadable"),
        (7, "deleted", 4, "checked"),
        (8, "open", 1, "unchecked"),
    )
    ledgers = ledger(
        spark,
        (1, 5, 4, "may_be_named", True, LONG_AGO, "why 1"),
        (2, 5, 3, "may_be_named", True, LONG_AGO),
        (3, 6, 9, "unknown", True, LONG_AGO, "not JSON"),
        (10, 5, 2, "kept", True, LONG_AGO, "outgrown"),
        (11, 8, 1, "kept", True, LONG_AGO, "why 11"),
        (4, 9, 2, "unknown", True, LONG_AGO),
        (5, 9, 2, "unknown", False, LONG_AGO),
        (6, 9, 2, "unknown", True, now),
        (7, 7, 5, "may_be_named", True, LONG_AGO, "why 7"),
        (8, 8, 1, "may_be_named", True, LONG_AGO),
        (9, 5, 9, "named", True, LONG_AGO),
    )
    lost = transforms.without_footer(ledgers, checks, before)
    found = lost.unionByName(
        transforms.doubts(transforms.doubtful(ledgers, before), ledgers.where("ledger_id <> 10"))
    )
    doubts = {("epoch_without_owner", f"ledger {at}", f"why {at}") for at in (1, 7, 11)}
    told = {(row["kind"], row["place"], row["message"]) for row in found.collect()}
    assert told == {
        *doubts,
        ("footer_missing", "ledger 4", "is of epoch 2 of a cursor that has no footer"),
    }
    lost = transforms.root_lost(
        ledger(spark, (1, 5, 1, "unknown", False, LONG_AGO), (2, 5, 1, "unknown", False, now)),
        checks.limit(0),
        "/r",
    )
    assert lost.columns == schemas.FINDINGS.names
    (one,) = lost.collect()
    assert (one["kind"], one["place"], one["cursor"]) == (
        "root_lost",
        "/r",
        None,
    ) and "none of the 2 ledgers" in one["message"]
    for some, read in (
        (ledgers, checks.limit(0)),
        (ledgers.limit(0), checks.limit(0)),
        (ledgers.where("not ours"), checks),
    ):
        assert transforms.root_lost(some, read, "/r").isEmpty()
    damaged = transforms.damage(checks)
    assert damaged.columns == schemas.FINDINGS.names
    assert {row["kind"] for row in damaged.collect()} == {"record_damaged", "footer_unreadable"}
    counts = transforms.counts(checks).first()
    assert counts is not None and counts.asDict() == {
        "cursors": 4,
        "live": 2,
        "unchecked": 1,
        "ledgers": 12,
        "records": 60,
        "stored_bytes": 594,
    }
    assert transforms.counts(checks.limit(0)).first()[3] == 0


# ---- the job


def run(
    spark: SparkSession,
    stack: Standalone,
    root: str,
    folder: Path,
    arguments: Arguments = AT_ONCE,
    **more: str,
) -> tuple[int, dict]:
    source = options_of(stack, root, "checks", tasks="2", **more)
    code = audit.run(spark, source, arguments, Reporter("audit", str(folder), as_json=True))
    return code, json.loads((folder / "audit.json").read_text())


async def clean(made: Fleet) -> None:
    """Closed ones with and without snapshots, in the footer, deleted, and one that a crash left
    open.
    """
    for name in NAMES[:4]:
        await made.closed(name)
    for name in NAMES[4:7]:
        await made.closed(name, rounds=4, limits=EAGER)
    await made.closed(NAMES[7], limits=Limits())
    await made.closed_in_pulsar_s_form(NAMES[10])
    footer = await made.closed(NAMES[8])
    await made.overwrite(
        NAMES[8], replace(footer, state=type(footer.state).DELETED, chain=(), epoch=footer.epoch)
    )
    for item in footer.chain:
        await made.ports.ledgers.delete(item.ledger)
    await made.acked(await made.source(NAMES[9]), 2)


async def damaged(made: Fleet) -> set[tuple[str, str, str]]:
    """A clean fleet has one of each, and what is to be found."""
    deployment = await made.ports.footers.deployment()
    made.ports.ledgers.act_for(deployment)
    copy = await made.flip(NAMES[0], 2)
    missing = (await made.footer(NAMES[1])).chain[-1].ledger
    await made.ports.ledgers.delete(missing)
    await made.overwrite(NAMES[2], b"not a footer")
    of_3 = await made.footer(NAMES[3])
    orphan = await made.ledger(
        [b"x"], custom_metadata(NAMES[3], of_3.epoch, 1, of_3.writer, deployment)
    )
    ahead = await made.ledger([b"x"], custom_metadata(NAMES[4], 99, 1, "w", deployment))
    lost = await made.ledger([b"x"], custom_metadata(NAMES[11], 1, 1, "w", deployment))
    differs = await made.footer(NAMES[5])
    assert differs.previous is not None
    further = replace(differs.previous, base=EmptyBase(Position(7, 5_000)))
    await made.overwrite(NAMES[5], replace(differs, previous=further))
    nobody = await made.footer(NAMES[9])
    of_somebody = {
        ("epoch_without_owner", NAMES[9].display, f"ledger {item.ledger}") for item in nobody.chain
    }
    await made.overwrite(NAMES[9], replace(nobody, writer=""))
    return of_somebody | {
        ("record_damaged", NAMES[0].display, f"ledger {copy} entry 2"),
        ("ledger_missing", NAMES[1].display, f"ledger {missing}"),
        ("footer_unreadable", NAMES[2].display, NAMES[2].path(made.root)),
        ("orphan_ledger", NAMES[3].display, f"ledger {orphan}"),
        ("epoch_without_owner", NAMES[4].display, f"ledger {ahead}"),
        ("footer_missing", NAMES[11].display, f"ledger {lost}"),
        ("epoch_without_owner", NAMES[9].display, NAMES[9].path(made.root)),
        ("snapshot_differs", NAMES[5].display, NAMES[5].path(made.root)),
    }


@pytest.mark.jvm
@pytest.mark.slow
def test_a_clean_fleet_is_clean_and_each_damage_is_found_once_and_where_it_is(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    async def make() -> None:
        async with fleet(stack, root) as made:
            await clean(made)

    async def damage() -> set[tuple[str, str, str]]:
        async with fleet(stack, root) as made:
            return await damaged(made)

    asyncio.run(make())
    code, said = run(spark, stack, root, tmp_path)
    assert (code, said["result"], said["findings"], said["cursors"], said["unchecked"]) == (
        CLEAN,
        "clean",
        [],
        11,
        0,
    )
    assert said["recordsRead"] > 30 and said["ledgersRead"] >= 8 and said["liveCursors"] <= 1

    expected = asyncio.run(damage())
    code, said = run(spark, stack, root, tmp_path, mode="failfast")
    found = [(row["kind"], row["cursor"], row["place"]) for row in said["findings"]]
    assert sorted(found) == sorted(expected) and (code, said["findingsTotal"]) == (
        FINDINGS,
        len(expected),
    )
    assert (
        all(row["message"] and row["remedy"] for row in said["findings"])
        and said["ledgersOurs"] >= 12
    )
    assert {row["cursor"]: row["cursor_key"] for row in said["findings"]}[
        NAMES[0].display
    ] == cursor_key(NAMES[0])
    kept = pq.read_table(tmp_path / "findings").to_pylist()
    assert sorted((row["kind"], row["cursor"], row["place"]) for row in kept) == sorted(expected)

    # younger than the grace: what a daemon may be about to delete is no finding, what is damaged is
    # one; and a choice of cursors
    code, said = run(
        spark, stack, root, tmp_path, Arguments(grace="1h", settle="0s"), topic=NAMES[3].topic
    )
    assert (code, said["findings"], said["cursors"]) == (CLEAN, [], 1)


@pytest.mark.jvm
@pytest.mark.slow
def test_a_fleet_whose_root_is_gone_is_not_clean(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """Somebody deletes all of it; then a daemon starts and makes the root anew, under another
    id.
    """

    async def make() -> None:
        async with fleet(stack, root) as made:
            await made.closed(NAMES[0])

    async def lose() -> None:
        async with fleet(stack, root) as made:
            path = NAMES[0].path(root)
            while path != root.rpartition("/")[0]:
                await made.ports.zookeeper.delete(path, ANY_VERSION)
                path = path.rpartition("/")[0]

    async def anew() -> None:
        async with fleet(stack, root) as made:
            await made.ports.footers.deployment()

    asyncio.run(make())
    asyncio.run(lose())
    with pytest.raises(Exception, match="Traceback") as raised:
        run(spark, stack, root, tmp_path)
    told = problem_of_job(raised.value)
    assert (
        f"{root} in ZooKeeper at {stack.zookeeper} does not exist" in told.message
        and "backup" in told.remedy
    )
    asyncio.run(anew())
    code, said = run(spark, stack, root, tmp_path)
    assert (code, [(row["kind"], row["place"]) for row in said["findings"]]) == (
        FINDINGS,
        [("root_lost", root)],
    )


@contextmanager
def living(stack: Standalone, root: str) -> Iterator[list[int]]:
    """Owners that ack, take a snapshot after every delta, deletes what it replaced, hand over to
    others, and come back. The list counts rounds. Raises what went wrong with them.
    """
    stop, rounds, failures = threading.Event(), [0], []
    limits = replace(EAGER, ledger_bytes_max=20_000)

    async def live() -> None:
        async with fleet(stack, root) as made:
            sources = [
                await made.source(name, limits if at % 2 else LEDGERS)
                for at, name in enumerate(NAMES[:6])
            ]
            while not stop.is_set():
                for at, source in enumerate(sources):
                    await made.acked(source, 1, start=rounds[0])
                    if rounds[0] % 5 == at:
                        await source.keeper.close()
                        sources[at] = await made.source(source.name, limits if at % 2 else LEDGERS)
                rounds[0] += 1

    def work() -> None:
        try:
            asyncio.run(live())
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    while not rounds[0] and thread.is_alive():  # an audit of a root that is being made is refused
        time.sleep(0.05)
    try:
        yield rounds
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


@pytest.mark.jvm
@pytest.mark.slow
def test_a_fleet_that_lives_gives_no_false_alarm(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    with living(stack, root) as rounds:
        before = rounds[0]
        code, said = run(spark, stack, root, tmp_path, replace(AT_ONCE, settle="2s"))
        assert (said["findings"], said["uncheckedCursors"], code) == ([], [], CLEAN)
        assert said["cursors"] <= 6 and rounds[0] > before, "nothing changed meanwhile"
    code, said = run(spark, stack, root, tmp_path)
    assert code == CLEAN and said["cursors"] == 6 and said["recordsRead"] > 20


@pytest.mark.jvm
def test_what_cannot_be_read_is_no_clean_audit(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted, and a failure if it is more than was allowed; and who reads it is told what nobody
    looked at.
    """
    from cursorkeeper_pipeline.transforms import audit as transforms

    busy = check(spark, (5, "open", 3, "unchecked"), (6, "open", 1, "checked"))
    none = ledger(spark, (1, 5, 3, "named", True, LONG_AGO)).limit(0)
    for allowed, expected in ((0, FAILED), (1, CLEAN)):
        out = Reporter("audit", str(tmp_path))
        found = transforms.damage(busy).unionByName(transforms.without_footer(none, busy, LONG_AGO))
        counts = transforms.counts(busy).first().asDict() | {"ours": 0, "others": 7}
        code = audit._tell(
            found,
            transforms.unchecked(busy),
            counts,
            Arguments(unchecked_max=allowed),
            LONG_AGO,
            out,
        )
        assert code == expected
        said = capsys.readouterr().out
        assert (
            "7 ledgers of this application name another deployment" in said
            and "1 cursors not checked" in said
        )
