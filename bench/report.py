"""`cursorkeeper pipeline report` over 100,000 cursors on local[2]: the whole command, from its
start to its end, as people wait for it.

Owns a fleet of footers whose states are spread evenly over the decades of backlog and of hole
density. The same command on a root without a cursor says how much of it is Spark's start and its
many small queries. Wall seconds of one run each: they belong to one moment.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rows import Row
from cursorkeeper.core.footer import Footer, Stats
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from pipeline.tests.fleet_maker import footer_of, write_footers

CURSORS = 100_000
WRITTEN_AT_ONCE = 10_000
AIM_S = 60
WAIT_MAX_S = 1_800
RUNS_COUNTED_MAX = 1_000_000


def run(stack: Standalone) -> list[Row]:
    """Writes the fleet, then reports on it."""
    asyncio.run(_write(stack))
    empty_s, none = _report(stack, "/bench-report-none")
    took_s, found = _report(stack, "/bench-report")
    assert (none, found) == (0, CURSORS)
    case = f"{CURSORS:,} cursors, local[2]"
    return [
        Row("report", "no cursor, local[2]", "pipeline report", empty_s, "s"),
        Row(
            "report",
            case,
            "pipeline report",
            took_s,
            "s",
            took_s / empty_s,
            "no cursor",
            f"{AIM_S} s",
        ),
    ]


def footer(at: int, dice: random.Random) -> Footer:
    """Backlogs of 1 to 30 M entries, 0.01 to 50 % of them holes, 50,000 entries in a data
    ledger.
    """
    span = int(10 ** dice.uniform(0, 7.5))
    holes = max(1, int(span * 10 ** dice.uniform(-4, -0.3)))
    runs = max(1, int(holes * dice.uniform(0.7, 1.0))) if holes <= RUNS_COUNTED_MAX else 0
    name = CursorName(f"persistent://tenant-{at % 50}/ns-{at % 3}/topic-{at}", f"sub-{at % 5}")
    return footer_of(
        name,
        at,
        stats=Stats(span // 50_000 + 1, span, holes, runs, dice.choice((0, 0, 0, 3)), 70_000),
    )


async def _write(stack: Standalone) -> None:
    client, dice = (
        ZooKeeperClient(ZooKeeperSettings(servers=parse_servers(stack.zookeeper)[0])),
        random.Random(25985),
    )
    await client.start()
    for root in ("/bench-report-none", "/bench-report"):
        await FooterStore(client, EncodeSettings(), root=root).deployment()  # as a daemon makes it
    for start in range(0, CURSORS, WRITTEN_AT_ONCE):
        await write_footers(
            client,
            "/bench-report",
            [footer(at, dice) for at in range(start, start + WRITTEN_AT_ONCE)],
        )
    await client.close()


def _report(stack: Standalone, root: str) -> tuple[float, int]:
    """(seconds that the job took, cursors that it saw)."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        told = [
            "report",
            "--zookeeper",
            stack.zookeeper,
            "--root",
            root,
            "--master",
            "local[2]",
            "--out",
            folder,
            "--json",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "cursorkeeper_pipeline", *told],
            capture_output=True,
            timeout=WAIT_MAX_S,
        )
        took_s = time.perf_counter() - began_s
        assert done.returncode == 0, done.stderr.decode()
        facts = json.loads(done.stdout)
        assert (Path(folder) / "report.html").exists()
        return took_s, facts["cursors"]["total"]
