"""An import on a real Spark cluster of two hosts that speculates: a slow task runs twice, at the same time, on both of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cursorkeeper_clients.stack import Standalone

from pipeline.tests.cluster import SPECULATING, SparkCluster
from pipeline.tests.migration_world import migration_world

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]
REPOSITORY = Path(__file__).parents[2]
DRIVER_MAX_S = 240.0
DRIVER = """
import json, sys
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.jobs import import_
from cursorkeeper_pipeline.jobs.frame import Reporter
from cursorkeeper_pipeline.session import session
from cursorkeeper_pipeline.source.options import Options
from pyspark.cloudpickle import register_pickle_by_value
from pipeline.tests import migration_world

register_pickle_by_value(migration_world)
given = json.loads(sys.argv[1])
spark = session("speculation", master=given["master"], conf=given["conf"])
settings = Settings(**given["settings"])
arguments = import_.Arguments(settings=settings, pulsar_zookeeper=given["pulsar"], claim_wait_s=120.0, jobs=1)
source = Options.parse({"zookeeper": settings.zookeeper, "gateway": settings.gateway, "root": settings.root, "tasks": "2"})
slow = migration_world.Slow(given["marks"])
sys.exit(import_.run(spark, source, arguments, Reporter("import", given["out"]), slow))
"""


async def test_a_slow_task_runs_twice_and_every_cursor_is_made_once(stack: Standalone, root: str, tmp_path: Path) -> None:
    """The first attempt stands in the middle of a cursor, and holds its claim, until the other host has begun on the same cursors."""
    (tmp_path / "marks").mkdir()
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(6))
        settings = {name: getattr(world.settings, name) for name in ("zookeeper", "gateway", "root", "inline_state_max_bytes")}
        with SparkCluster(tmp_path / "spark") as cluster:
            given = {
                "master": cluster.master, "conf": {**cluster.driver_conf(), **SPECULATING, "spark.driver.memory": "512m"},
                "settings": settings, "pulsar": world.pulsar.zookeeper, "marks": str(tmp_path / "marks"), "out": str(tmp_path / "out"),
            }  # fmt: skip
            done = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", DRIVER, json.dumps(given)], capture_output=True, text=True, timeout=DRIVER_MAX_S,
                check=False, cwd=REPOSITORY, env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        report = json.loads((tmp_path / "out" / "import.json").read_text())
        assert report["run"]["state"] == "DONE" and sum(report["statuses"].values()) == 6
        assert (tmp_path / "marks" / "0-1").exists(), "a second attempt ran at the same time"
        assert set(report["statuses"]) <= {"imported", "already there"}, "the claim kept the second attempt from redoing anything"
        await world.are_whole(refs)
        assert [footer.epoch for footer in [await world.footer(ref) for ref in refs] if footer] == [1] * 6
