"""The job `compact`: its choice on small frames, and all of it on the real stack, with processes
that are killed in the middle.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cursorkeeper.core.footer import FooterState, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.inspection import checks, reader
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.jobs import compact, compacting
from cursorkeeper_pipeline.jobs.frame import CLEAN, Reporter
from cursorkeeper_pipeline.source.options import OptionError, Options
from cursorkeeper_pipeline.transforms.cold import Rule, choose
from daemon.tests.support.world import Source, acks
from pipeline.tests.real_cursors import LEDGERS, Fleet, fleet, options_of
from pipeline.tests.test_transforms import NOW, expect, frame, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm
DAY = timedelta(days=1)
HEAVY = {
    "state": "closed",
    "delta_bytes": 200_000,
    "snapshot_bytes": 100_000,
    "footer_modified": NOW - DAY,
    "writer": "host/12/00ff",
}


def test_cold_heavy_and_unfinished_ones_are_chosen(spark: SparkSession) -> None:
    rows = [
        row(1, **HEAVY),
        row(2, **{**HEAVY, "state": "open"}),
        row(3, **{**HEAVY, "footer_modified": NOW - DAY + timedelta(seconds=1)}),
        row(4, **{**HEAVY, "delta_bytes": 100_000}),
        row(5, **{**HEAVY, "delta_bytes": 65_535, "snapshot_bytes": 0}),
        row(6, **{**HEAVY, "format": "pulsar"}),
        row(7, **{**HEAVY, "status": "DAMAGED"}),
        row(8, **{**HEAVY, "state": "deleted"}),
        # what a compaction left: in the middle, behind its first claim, and at its end
        row(9, state="open", writer="host/12/compact/00ff", footer_modified=NOW),
        row(10, state="closed", writer="host/12/compact/00ff", footer_modified=NOW),
        row(11, state="open", writer="host/12/compacted/00ff", footer_modified=NOW),
        row(12, state="closed", writer="host/12/compacted/00ff", footer_modified=NOW),
        # a daemon whose name looks like one
        row(13, state="open", writer="a/7/compact/12/00ff", footer_modified=NOW),
        row(14, **{**HEAVY, "delta_bytes": 65_536, "snapshot_bytes": 65_535}),
    ]
    found = choose(frame(spark, rows), Rule()).orderBy("cursor_key")
    wanted = [(1, "cold"), (9, "unfinished"), (10, "unfinished"), (11, "unfinished"), (14, "cold")]
    expect(found, schemas.CHOSEN, [{"cursor_key": key, "why": why} for key, why in wanted])


@pytest.mark.parametrize(
    "wrong",
    [
        {"cold_hours": -1.0},
        {"ratio": -0.5},
        {"ratio": float("nan")},
        {"limit": 0},
        {"limit": 1_000_000},
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="What to do"):
        compact.before(
            Options(zookeeper="z:1", gateway="g:1"), compact.Arguments(**wrong), Reporter("compact")
        )


# --- the real stack -------------------------------------------------------------------------------


def name(what: str) -> CursorName:
    return CursorName(f"persistent://t/ns/{what}", "sub")


async def stored(made: Fleet, what: str) -> AckState:
    """The state of a closed cursor, which must be whole."""
    report = await checks.check(made.ports.footers, made.ports.ledgers, name(what))
    assert report.is_good and report.previous in ("same", "none"), report
    footer = await made.footer(name(what))
    assert footer.state is FooterState.CLOSED
    answer = await reader.replay(
        made.ports.ledgers,
        name(what),
        reader.pinned(footer, await reader.ends_of(made.ports.ledgers, footer)),
    )
    state: AckState = answer.state  # type: ignore[union-attr]
    return state


def settings_of(stack: Standalone, root: str, **more: Any) -> Settings:
    return Settings(
        zookeeper=stack.zookeeper, gateway=stack.gateway, root=root, name="compactor", **more
    )


@pytest.fixture
def arguments(stack: Standalone, root: str) -> Iterator[compact.Arguments]:
    """Everything that is closed is cold, and small things are worth it; no state is small enough
    for a footer.
    """
    yield compact.Arguments(
        cold_hours=0.0,
        min_delta_bytes=200,
        settings=settings_of(stack, root, inline_state_max_bytes=0),
    )


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


async def test_a_fleet_is_compacted_beside_a_live_owner(
    spark: SparkSession,
    stack: Standalone,
    root: str,
    arguments: compact.Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    heavy = ["heavy-0", "heavy-1", "heavy-2"]
    async with fleet(stack, root) as made:
        for what in heavy:
            await made.closed(name(what), rounds=25)
        await made.closed(name("light"), rounds=1)
        live = await made.source(name("live"))
        await made.acked(live, 25)
        states = {what: await stored(made, what) for what in heavy}
        footers = {what: await made.footer(name(what)) for what in [*heavy, "light", "live"]}
        source, out = options_of(stack, root), Reporter("compact", str(tmp_path), as_json=True)

        dry = compact.Arguments(**{**_fields(arguments), "dry_run": True})
        assert (
            await asyncio.to_thread(
                compact.run, spark, source, dry, Reporter("compact", as_json=True)
            )
            == CLEAN
        )
        assert told(capsys)["chosen"] == 3
        assert {what: await made.footer(name(what)) for what in footers} == footers, (
            "nothing was changed"
        )

        assert await asyncio.to_thread(compact.run, spark, source, arguments, out) == CLEAN
        said = told(capsys)
        assert (
            said["outcomes"] == {"COMPACTED": 3}
            and 0 < said["readBytesAfter"] < said["readBytesBefore"]
        )
        for what in heavy:
            now = await made.footer(name(what))
            assert isinstance(now.base, SnapshotBase) and now.stats.delta_bytes == 0
            assert not compacting.differences(
                states[what], await stored(made, what), ("before", "now")
            )
            assert not await made.exist(footers[what].named_ledgers())
        rows = {r["cursor"]: r for r in spark.read.parquet(str(tmp_path / "compacted")).collect()}
        assert {r["outcome"] for r in rows.values()} == {"COMPACTED"} and set(rows) == {
            name(what).display for what in heavy
        }

        assert (
            await made.footer(name("light")) == footers["light"]
            and await made.footer(name("live")) == footers["live"]
        )
        live.ack(acks(8, 1, 3))
        await live.durable()
        assert not live.told.ended, "unharmed"

        assert await asyncio.to_thread(compact.run, spark, source, arguments, out) == CLEAN
        assert told(capsys)["chosen"] == 0


def _fields(arguments: compact.Arguments) -> dict[str, Any]:
    return {
        key: getattr(arguments, key)
        for key in ("cold_hours", "ratio", "min_delta_bytes", "limit", "settings")
    }


KILLED = """
import asyncio, os, signal, sys
from cursorkeeper import connections
from cursorkeeper.core.names import CursorName
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.jobs.compacting import Chosen, compact
from cursorkeeper_pipeline.transforms.cold import Rule

zookeeper, gateway, root, topic, version, steps = sys.argv[1:]
left = int(steps)

def say(step):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    settings = Settings(zookeeper=zookeeper, gateway=gateway, root=root, inline_state_max_bytes=0)
    async with connections.ports(settings, "writer") as ports:
        chosen = Chosen(CursorName(topic, "sub"), int(version), "cold")
        print(await compact(ports, settings, chosen, Rule(0.0, 1.0, 1), say=say))

asyncio.run(main())
"""
"""Kills itself with SIGKILL when it has done so many steps: 1 claimed, 2 snapshot, 3 closed, 4
compared, 5 claimed again, ...
"""
POINTS = {
    1: FooterState.OPEN,
    2: FooterState.OPEN,
    4: FooterState.CLOSED,
    5: FooterState.OPEN,
    6: FooterState.OPEN,
}


@pytest.mark.slow
async def test_processes_are_killed_in_the_middle_and_the_job_goes_on(
    spark: SparkSession,
    stack: Standalone,
    root: str,
    arguments: compact.Arguments,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with fleet(stack, root) as made:
        states = {}
        for point in POINTS:
            await made.closed(name(f"killed-{point}"), rounds=10)
            states[point] = await stored(made, f"killed-{point}")
        processes = [await _killed_at(made, stack, root, point) for point in POINTS]
        try:
            for process in processes:
                async with asyncio.timeout(240):
                    _, errors = await process.communicate()
                assert process.returncode == -signal.SIGKILL, errors.decode()
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
        for point, state in POINTS.items():
            assert (await made.footer(name(f"killed-{point}"))).state is state
        # whoever comes next recovers all of it; this one does so before the job does
        owner = await made.source(name("killed-2"), LEDGERS)
        assert not compacting.differences(states[2], owner.machine.acks, ("before", "recovered"))
        assert await owner.keeper.close() == []

        assert (
            await asyncio.to_thread(
                compact.run,
                spark,
                options_of(stack, root),
                arguments,
                Reporter("compact", as_json=True),
            )
            == CLEAN
        )
        said = told(capsys)
        assert said["outcomes"] == {"COMPACTED": len(POINTS) - 1}, said
        for point in POINTS:
            assert not compacting.differences(
                states[point], await stored(made, f"killed-{point}"), ("before", "now")
            )


async def _killed_at(
    made: Fleet, stack: Standalone, root: str, point: int
) -> asyncio.subprocess.Process:
    _, version = await reader.read_footer(made.ports.footers, name(f"killed-{point}"))
    words = [
        stack.zookeeper,
        stack.gateway,
        root,
        name(f"killed-{point}").topic,
        str(version),
        str(point),
    ]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, *words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


async def test_somebody_opens_it_in_the_middle_and_wins(stack: Standalone, root: str) -> None:
    """With takeover, as a source does whose daemon died. Its acks are durable, and what was there
    is there.
    """
    async with fleet(stack, root) as made:
        footer = await made.closed(name("race"), rounds=10)
        before = await stored(made, "race")
        _, version = await reader.read_footer(made.ports.footers, name("race"))
        came: list[asyncio.Task[Source]] = []

        def say(step: str) -> None:
            if step == "snapshot" and not came:
                came.append(asyncio.get_running_loop().create_task(made.source(name("race"))))

        chosen = compacting.Chosen(name("race"), version, "cold")
        row = await compacting.compact(
            made.ports,
            settings_of(stack, root, inline_state_max_bytes=0),
            chosen,
            Rule(0.0, 1.0, 1),
            say=say,
        )
        owner = await came[0]
        assert (
            row["outcome"] == "BUSY" and owner.machine.epoch > footer.epoch and not owner.told.ended
        )
        assert not compacting.differences(before, owner.machine.acks, ("before", "recovered"))
        owner.ack(acks(8, 1, 3))
        await owner.durable()
        assert await owner.keeper.close() == []
        assert {1, 3} <= set((await stored(made, "race")).acked_of(8))


def test_a_task_gives_a_row_for_each_cursor(stack: Standalone, root: str) -> None:
    """In the task's own loop: one that is there, one that is gone."""
    import pyarrow as pa

    async def make() -> int:
        async with fleet(stack, root) as made:
            await made.closed(name("there"), rounds=10)
            return (await reader.read_footer(made.ports.footers, name("there")))[1]

    version = asyncio.run(make())
    rows = [
        {
            "cursor_key": key,
            "cursor": what,
            "topic": name(what).topic,
            "subscription": "sub",
            "footer_version": version,
            "why": "cold",
            "snapshot_bytes": 0,
            "delta_bytes": 1,
        }
        for key, what in enumerate(["there", "gone"])
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schemas.CHOSEN)
    [done] = compact.compact_batches(iter([batch]), Rule(0.0, 1.0, 1), settings_of(stack, root))
    assert done.schema == schemas.COMPACTED
    found = {r["cursor_key"]: r for r in done.to_pylist()}
    assert (
        found[0]["outcome"] == "COMPACTED"
        and found[0]["base_after"] == "inline"
        and found[0]["stored_bytes_after"] == 0
    )
    assert found[1]["outcome"] == "GONE"
