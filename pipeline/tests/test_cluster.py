"""On a real standalone cluster of two hosts, by Spark Connect: the source without our code at the
client, a speculative copy of a task that reads it, and jobs of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.keys import cursor_key
from pipeline.tests.cluster import SPECULATING, WORKER_HOSTS, SparkCluster
from pipeline.tests.migration_world import migration_world
from pipeline.tests.real_cursors import fleet

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
CLIENT_MAX_S = 200.0
NAMES = [CursorName(f"persistent://t/ns/topic-{at}", "sub") for at in range(6)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


@pytest.fixture(scope="module")
def remote(cluster: SparkCluster) -> str:
    """A Spark Connect server on it, which speculates."""
    return cluster.connect(SPECULATING)


@pytest.fixture(scope="module")
def place(stack: Standalone) -> dict[str, str]:
    """Six closed cursors: the one with number n has 4 (n + 1) deltas of 20 acks, each with 20
    holes.
    """
    root = f"/cluster-{os.getpid()}/cursors"

    async def make() -> None:
        async with fleet(stack, root) as made:
            for at, name in enumerate(NAMES):
                await made.closed(name, rounds=4 * (at + 1))

    asyncio.run(make())
    return {"zookeeper": stack.zookeeper, "gateway": stack.gateway, "root": root}


def client(script: str, *words: str) -> Any:
    """What a Python without any of our code prints as JSON: -S takes no .pth files, by which a
    checkout is installed.
    """
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=CLIENT_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


_CONNECTED = """
import importlib.util, json, sys
from pyspark.sql import SparkSession
found = importlib.util.find_spec
assert found("cursorkeeper") is found("cursorkeeper_pipeline") is None
remote, place = sys.argv[1], json.loads(sys.argv[2])
spark = SparkSession.builder.remote(remote).getOrCreate()

def table(name, **more):
    return spark.read.format("cursorkeeper").options(table=name, **place, **more).load()
"""

_READS = """
cursors, stats = table("cursors"), table("hole_stats")
joined = stats.join(cursors, "cursor_key").select(
    "cursor", "state", stats.acked_entries, stats.hole_entries, stats.status
)
print(json.dumps([row.asDict() for row in joined.collect()]))
"""


def test_tables_are_read_on_the_workers_by_a_client_without_our_code(
    remote: str, place: dict[str, str]
) -> None:
    rows = {row["cursor"]: row for row in client(_CONNECTED + _READS, remote, json.dumps(place))}
    expected = {
        name.display: {
            "cursor": name.display,
            "state": FooterState.CLOSED.value,
            "acked_entries": 80 * (at + 1),
            "hole_entries": 80 * (at + 1),
            "status": "OK",
        }
        for at, name in enumerate(NAMES)
    }
    assert rows == expected


_SPECULATES = """
marks = sys.argv[3]
stats = table("hole_stats", tasks="2")

def slow(batches):
    import os, pathlib, time
    from pyspark import TaskContext
    task = TaskContext.get()
    folder = pathlib.Path(marks)
    (folder / f"{task.partitionId()}-{task.attemptNumber()}").write_text(os.getcwd())
    read = list(batches)
    if (task.partitionId(), task.attemptNumber()) == (0, 0):
        deadline = time.monotonic() + 150
        while not (folder / "0-1").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    yield from read

rows = stats.mapInArrow(slow, stats.schema).collect()
found = [[row.cursor_key, row.acked_entries, row.hole_entries, row.status] for row in rows]
print(json.dumps(found))
"""


def test_a_slow_task_runs_twice_and_its_rows_come_once(
    remote: str, place: dict[str, str], tmp_path: Path
) -> None:
    """The first attempt has read its part and waits until the other host has begun on the same
    one.
    """
    rows = client(_CONNECTED + _SPECULATES, remote, json.dumps(place), str(tmp_path))
    ran = {mark.name: mark.read_text() for mark in tmp_path.iterdir()}
    assert {"0-0", "0-1", "1-0"} <= set(ran), "both attempts ran"
    hosts = [
        next(host for host in WORKER_HOSTS if f"/{host}/" in ran[mark]) for mark in ("0-0", "0-1")
    ]
    assert sorted(hosts) == sorted(WORKER_HOSTS), "on two hosts"
    expected = [
        [cursor_key(name), 80 * (at + 1), 80 * (at + 1), "OK"] for at, name in enumerate(NAMES)
    ]
    assert sorted(rows) == sorted(expected)


_IMPORTS = """
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
spark = session("speculation", remote=given["remote"])
settings = Settings.of(**given["settings"])
arguments = import_.Arguments(
    settings=settings, pulsar_zookeeper=given["pulsar"], claim_wait_s=120.0, jobs=1
)
source = Options.parse({
    **{name: given["settings"][name] for name in ("zookeeper", "gateway", "root")},
    "tasks": "2",
})
slow = migration_world.Slow(given["marks"])
run = migration_world.faulty(import_.run_of(source, arguments), slow)
sys.exit(run.execute(spark, Reporter("import", given["out"])))
"""


async def test_an_import_whose_slow_task_runs_twice_makes_every_cursor_once(
    remote: str, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """The first attempt stands in the middle of a cursor until the other host has begun on the same
    cursors.
    """
    (tmp_path / "marks").mkdir()
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(6))
        settings = {
            name: world.settings.given[name]
            for name in ("zookeeper", "gateway", "root", "inline_state_max_bytes")
        }
        given = {
            "remote": remote,
            "settings": settings,
            "pulsar": world.pulsar.systems.zookeeper,
            "marks": str(tmp_path / "marks"),
            "out": str(tmp_path / "out"),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", _IMPORTS, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=CLIENT_MAX_S,
            check=False,
            cwd=REPOSITORY,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        report = json.loads((tmp_path / "out" / "import.json").read_text())
        assert report["run"]["state"] == "DONE" and sum(report["statuses"].values()) == 6
        assert (tmp_path / "marks" / "0-1").exists(), "a second attempt ran at the same time"
        assert set(report["statuses"]) <= {"imported", "already there"}, (
            "the second attempt has waited, and redone nothing"
        )
        await world.are_whole(refs)
        assert [footer.epoch for footer in [await world.footer(ref) for ref in refs] if footer] == [
            1
        ] * 6


def test_a_job_of_ours_runs_on_a_remote_cluster(
    remote: str, place: dict[str, str], stack: Standalone
) -> None:
    """`audit`, with the command line: all is read by the workers, and what it says is exact."""
    where = [word for key, value in place.items() for word in (f"--{key}", value)]
    command = [
        *(sys.executable, "-m", "cursorkeeper_pipeline", "audit"),
        *("--remote", remote, *where, "--json", "--out", ""),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLIENT_MAX_S, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-4_000:])
    said = json.loads(done.stdout.splitlines()[-1])
    records = sum(4 * (at + 1) + 1 for at in range(len(NAMES)))  # of each round, and of the layout
    assert (said["cursors"], said["recordsRead"]) == (len(NAMES), records), said
