"""The job `export` in Spark on the real stack: there and back, and tasks whose processes end after
any step.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from cursorkeeper.demo.stack import Standalone
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_pipeline.jobs import export
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter
from pipeline.tests import migration_world as module
from pipeline.tests.migration_world import (
    Exits,
    MigrationWorld,
    faulty,
    migration_world,
    newest_report,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


async def run(
    spark: SparkSession,
    world: MigrationWorld,
    folder: Path,
    code: int = CLEAN,
    between: Any = None,
    tasks: str = "2",
    **arguments: Any,
) -> dict[str, Any]:
    """The job's report."""
    given = export.Arguments(**{"settings": world.settings, "claim_wait_s": 60.0, **arguments})
    reporter = Reporter("export", str(folder))
    source = world.options(tasks=tasks)
    done = await asyncio.to_thread(export.before, source, given, reporter)
    if done is None:
        made = faulty(export.run_of(source, given), between)
        done = await asyncio.to_thread(made.execute, spark, reporter)
    report: dict[str, Any] = newest_report(folder)
    assert done == code, report
    return report


async def test_there_and_back_whatever_dies(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """Imported, acked on, exported by tasks whose processes are ended twice each; then both sides
    are the same.
    """
    register_pickle_by_value(module)
    async with migration_world(stack, root) as world:
        refs = await world.with_acks_of_its_own(range(10))
        before = await world.pulsar_ledgers()
        olds = {(await read_cursor(world.theirs, ref)).znode.cursors_ledger for ref in refs}
        dry = await run(spark, world, tmp_path, dry_run=True, replace=True)
        assert (
            dry["statuses"] == {"would be replaced": 10} and await world.pulsar_ledgers() == before
        )
        refused = await run(spark, world, tmp_path, FINDINGS)
        assert (
            refused["statuses"] == {"refused": 10}
            and "1 acked entries are missing" in refused["problems"][0]["problem"]
        )
        wrong = await run(spark, world, tmp_path, FINDINGS, verify=True)
        assert wrong["statuses"] == {"differs": 10}
        deaths = tmp_path / "deaths"
        deaths.mkdir()
        report = await run(
            spark,
            world,
            tmp_path,
            between=Exits(str(deaths), stride=3),
            tasks="8",
            jobs=2,
            replace=True,
        )
        assert report["run"]["state"] == "DONE" and sum(report["statuses"].values()) == 10
        assert (
            set(report["statuses"]) <= {"replaced", "already there"}
            and len(list(deaths.iterdir())) >= 6
        )
        same = await run(spark, world, tmp_path, verify=True)
        assert same["statuses"] == {"same": 10}
        await world.are_pulsars(refs, before)
        assert len(olds) == 10 and not olds & await world.pulsar_ledgers(), "the old ones are gone"
        with pytest.raises(zk.NoNode):
            await world.ports.zookeeper.children(
                f"{world.record(report['run']['id'], 'export').path}/pins"
            )
        again = await run(spark, world, tmp_path, replace=True)
        assert again["before"] and again["run"]["runs"] == report["run"]["runs"]
