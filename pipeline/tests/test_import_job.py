"""The job `import` in Spark on the real stack: tasks whose processes end after any step, a driver
that is killed, two runs at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.cloudpickle import register_pickle_by_value

from cursorkeeper.core.events import Delete
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.jobs import import_
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter
from cursorkeeper_pipeline.sinks.record import Record, State, folder_of
from cursorkeeper_pipeline.sinks.tasks import LEFT
from pipeline.tests import migration_world as module
from pipeline.tests.migration_world import (
    LAST,
    Exits,
    MigrationWorld,
    Slow,
    faulty,
    migration_world,
    newest_report,
    ref_of,
    state,
)
from pipeline.tests.spark_jvm import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def by_value() -> None:
    """Workers cannot import what tests put between them and their systems."""
    register_pickle_by_value(module)


class Job:
    """Runs of the job on one world."""

    def __init__(self, spark: SparkSession, world: MigrationWorld, folder: Path) -> None:
        self.spark, self.world, self.folder = spark, world, folder

    async def run(
        self, *, code: int = CLEAN, between: Any = None, tasks: str = "3", **arguments: Any
    ) -> dict[str, Any]:
        """Its report."""
        reporter = Reporter("import", str(self.folder))
        given = import_.Arguments(
            **{"settings": self.world.settings, "claim_wait_s": 60.0, **arguments}
        )
        source = self.world.options(tasks=tasks)
        done = await asyncio.to_thread(import_.before, source, given, reporter)
        if done is None:
            made = faulty(import_.run_of(source, given), between)
            done = await asyncio.to_thread(made.execute, self.spark, reporter)
        report: dict[str, Any] = newest_report(self.folder)
        assert done == code, report
        return report

    def rows(self, table: str = "cursors") -> list[dict[str, Any]]:
        return [row.asDict() for row in self.spark.read.parquet(str(self.folder / table)).collect()]


async def test_a_fleet_comes_over_is_compared_and_costs_nothing_again(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(12))
        job = Job(spark, world, tmp_path)
        dry = await job.run(dry_run=True)
        assert dry["statuses"] == {"would be imported": 12} and dry["run"] is None
        assert [await world.footer(ref) for ref in refs] == [None] * 12
        first = await job.run()
        assert (first["statuses"], first["run"]["state"], first["run"]["runs"]) == (
            {"imported": 12},
            "DONE",
            1,
        )
        rows = job.rows()
        assert {row["cursor"] for row in rows} == {str(ref) for ref in refs} and len(rows) == 12
        assert all(
            row["ok"]
            and row["epoch"] == 1
            and row["acked_entries"] == 36
            and row["partial_batches"] == 2
            for row in rows
        )
        assert len({row["attempt"] for row in rows}) == 3
        await world.are_whole(refs)
        same = await job.run(verify=True)
        compared = job.rows("cursors-verify")
        assert (
            same["statuses"] == {"same": 12}
            and sum(row["missing_entries"] + row["extra_entries"] for row in compared) == 0
        )
        again = await job.run()
        assert (
            again["before"]
            and again["run"]["id"] == first["run"]["id"]
            and again["statuses"] == {"imported": 12}
        )
        assert json.loads((tmp_path / "import.json").read_text()) == first and {
            row["status"] for row in job.rows()
        } == {"imported"}
        other = await job.run(id="another")
        assert other["statuses"] == {"already there": 12} and other["run"]["id"] == "another"


async def test_some_are_refused_and_the_run_stays_open(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(4))
        live = await world.acked(refs[1], 905)
        await world.put(refs[2].path, b"\xff\xff\xff not a cursor")
        job = Job(spark, world, tmp_path)
        report = await job.run(code=FINDINGS, id="partly")
        assert (
            report["statuses"] == {"imported": 2, "refused": 1, "failed": 1}
            and report["run"]["state"] == "OPEN"
        )
        said = {row["cursor"]: row for row in report["problems"]}
        assert (
            "it exists and is open (epoch 1, by daemon/1/" in said[str(refs[1])]["problem"]
            and said[str(refs[2])]["remedy"]
        )
        assert await live.keeper.close() == [] and 905 in (await world.state(refs[1])).acked_of(
            LAST
        )
        await world.cursor(refs[2], state(seed=2), "closed")
        report = await job.run(code=FINDINGS, id="partly")
        assert (
            report["statuses"] == {"already there": 2, "refused": 1, "imported": 1}
            and report["run"]["runs"] == 2
        )
        report = await job.run(id="partly", abort=True)
        assert report["run"]["state"] == "ABORTED"


async def test_processes_that_end_after_any_step(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """Each task's process is ended twice, each time after another change; the third attempt is the
    last that Spark allows.
    """
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(14))
        deaths = tmp_path / "deaths"
        deaths.mkdir()
        report = await Job(spark, world, tmp_path / "out").run(
            between=Exits(str(deaths)), tasks="8", jobs=2
        )
        assert report["run"]["state"] == "DONE" and sum(report["statuses"].values()) == 14
        assert set(report["statuses"]) <= {"imported", "redone", "already there"}
        assert len(list(deaths.iterdir())) >= 8, "they did end"
        await world.are_whole(refs)


# ---- drivers


def command(world: MigrationWorld, folder: Path) -> list[str]:
    config = folder / "ours.toml"
    config.write_text(
        f"inline_state_max_bytes = 0\nflush_interval_ms = 5\n"
        f'root = "{world.settings.systems.root}"\n'
    )
    where = [
        "--zookeeper",
        world.settings.systems.zookeeper,
        "--gateway",
        world.settings.systems.gateway,
        "--config",
        str(config),
    ]
    spark = ["--master", "local[1,3]"]  # slow enough to be killed in the middle
    for setting in ("spark.driver.memory=512m", f"spark.driver.extraJavaOptions={QUICK_JVM}"):
        spark += ["--conf", setting]
    more = [
        "--pulsar-zookeeper",
        world.pulsar.systems.zookeeper,
        "--option",
        "tasks=4",
        "--jobs",
        "1",
        "--claim-wait-s",
        "60",
    ]
    return [
        sys.executable,
        "-m",
        "cursorkeeper_pipeline",
        "import",
        *where,
        *spark,
        *more,
        "--out",
        str(folder / "out"),
        "--json",
    ]


def start(world: MigrationWorld, folder: Path) -> subprocess.Popen[bytes]:
    """In a process group of its own: a driver, its JVM, its workers."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command(world, folder), stdout=log, stderr=log, cwd=folder, start_new_session=True
        )


def kill(driver: subprocess.Popen[bytes]) -> None:
    """All of its group, at once."""
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(60)


async def made(world: MigrationWorld, refs: list[Any]) -> int:
    """Cursors that have a footer."""
    return sum(
        footer is not None
        for _, footer, _ in await world.ports.footers.read_stored([ref.name for ref in refs])
    )


async def until_made(
    world: MigrationWorld,
    refs: list[Any],
    count: int,
    driver: subprocess.Popen[bytes],
    folder: Path,
) -> None:
    until = time.monotonic() + 120.0
    while await made(world, refs) < count:
        assert driver.poll() is None, (driver.returncode, (folder / "log").read_text()[-3000:])
        assert time.monotonic() < until, f"{await made(world, refs)} of {count} cursors are made"
        await asyncio.sleep(0.05)  # each look costs a processor that the driver needs


async def only_record(world: MigrationWorld) -> Record:
    folder = folder_of(world.settings.systems.root, "import")
    (run,) = await world.ports.zookeeper.children(folder)
    return msgspec.json.decode(
        (await world.ports.zookeeper.get(f"{folder}/{run}")).data, type=Record
    )


async def until_begun(world: MigrationWorld, runs: int, limit_s: float = 120.0) -> None:
    until = time.monotonic() + limit_s
    while (await only_record(world)).runs < runs:
        assert time.monotonic() < until, f"run {runs} has not begun"
        await asyncio.sleep(0.05)  # as above


async def test_a_driver_that_is_killed_and_two_runs_that_go_on_at_once(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """One of the two stands in the middle of a cursor until the other has begun; each has a slot of
    its own.
    """
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(40))
        # it waits for this one, and cannot come to the end, however fast it is
        other = await world.source(refs[-1], "elsewhere/1/import-pulsar")
        driver = start(world, tmp_path / "killed")
        try:
            await until_made(world, refs, 10, driver, tmp_path / "killed")
        finally:
            kill(driver)
        assert (await only_record(world)).state is State.OPEN, "it was killed in the middle"
        other.send(Delete())
        await other.told.until(lambda: other.told.ended == "deleted")
        marks = tmp_path / "marks"
        marks.mkdir()
        first = asyncio.create_task(
            Job(spark, world, tmp_path / "first").run(between=Slow(str(marks)), tasks="1", jobs=1)
        )
        second: asyncio.Task[dict[str, Any]] | None = None
        try:
            await until_begun(world, 2)
            second = asyncio.create_task(
                Job(spark, world, tmp_path / "second").run(tasks="1", jobs=1)
            )
            await until_begun(world, 3)
            assert not first.done()
        finally:
            (marks / "0-1").touch()
            reports = await asyncio.gather(*filter(None, (first, second)))
        assert {report["run"]["state"] for report in reports} == {"DONE"} and len(
            {report["run"]["id"] for report in reports}
        ) == 1
        assert all(
            set(report["statuses"]) <= {"imported", "redone", "already there", LEFT}
            for report in reports
        )
        record = await only_record(world)
        assert (record.id, record.state, record.runs) == (reports[0]["run"]["id"], State.DONE, 3)
        await world.are_whole(refs)
        assert await world.footer(ref_of(0)) is not None
