"""A daemon of several processes on real systems: killed one by one, stopped as a whole, and killed
as a whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.probe import ask
from cursorkeeper_client import Client, CursorStore, SourceServer
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.names import worker_of
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import Driver, check, driving
from daemon.tests.source.random_acks import LAYOUT, START

pytestmark = pytest.mark.jvm
WORKERS = 2
FLAGS = ("--workers", str(WORKERS), "--worker-port", "0", "--close-timeout-s", "60")
CURSORS = 6


async def until_status(address: str, status: str) -> None:
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(ask, address, "", 2.0)).status != status:
            await asyncio.sleep(0.02)


def pids(daemon: DaemonProcess) -> list[int]:
    """Of the workers, as each said it last."""
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line[0] == "{"]
    found: dict[int, int] = {}
    for line in lines:
        if line["event"] == "ready" and "worker" in line:
            found[line["worker"]] = line["pid"]
    return [found[number] for number in sorted(found)]


def topics(story: str) -> list[str]:
    return [f"persistent://e2e/ns/{story}-{number}" for number in range(CURSORS)]


async def drivers_of(daemon: DaemonProcess, story: str) -> tuple[list[Client], list[Driver]]:
    driven = [
        await driving(daemon.address, topic, 50 + number)
        for number, topic in enumerate(topics(story))
    ]
    return [source for source, _ in driven], [driver for _, driver in driven]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/fd/0").exists()


def total(metrics: dict[str, float], name: str) -> float:
    return metrics[f"cursorkeeper_{name}"]


async def test_a_killed_worker_costs_only_its_cursors_a_moment(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *FLAGS)
    await until_status(daemon.address, "SERVING")
    sources, drivers = await drivers_of(daemon, "killed")
    shares = [
        [driver for driver in drivers if worker_of(driver.cursor.topic, "sub", WORKERS) == number]
        for number in range(WORKERS)
    ]
    assert all(shares)
    for driver in drivers:
        await driver.send_some(20)
        await driver.cursor.durable()
    before = await daemon.scrape()
    killed = pids(daemon)
    for number in reversed(range(WORKERS)):
        opens = {driver: driver.cursor.opens for driver in drivers}
        os.kill(killed[number], signal.SIGKILL)
        if number:
            await until_status(daemon.address, "NOT_SERVING")
        for driver in drivers:
            await driver.send_some(20)
            await driver.cursor.durable(timeout_s=60)
        await until_status(daemon.address, "SERVING")
        again = {driver for driver in drivers if driver.cursor.opens > opens[driver]}
        assert again == set(shares[number])
    assert not set(pids(daemon)) & set(killed)
    after = await daemon.scrape()
    assert total(after, "new_acks_total") >= total(before, "new_acks_total") > 0
    for number in range(WORKERS):
        assert total(after, f'worker_restarts_total{{worker="{number}"}}') == 1
        assert total(after, f'worker_up{{worker="{number}"}}') == 1
    for driver in drivers:
        check(await driver.cursor.state(), driver.truth)
    assert sorted([i.topic async for i in sources[0].store.list()]) == topics("killed")
    for source in sources:
        await source.close()


async def test_sigterm_closes_the_cursors_of_all_workers(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *FLAGS)
    sources, drivers = await drivers_of(daemon, "closed")
    for driver in drivers:
        await driver.send_some(10)
    await daemon.stop(120)
    assert daemon._process is not None
    assert daemon._process.returncode == 0, daemon.tail()
    for source in sources:
        await source.close()
    other = await daemons.start(stack.gateway, stack.zookeeper)
    async with SourceConnection(other.address) as session:
        for driver in drivers:  # closed: no takeover is needed
            opened = session.open(driver.cursor.topic, "sub", create=False)
            check(await opened.opened(), driver.truth)
    await other.stop()


async def test_a_killed_supervisor_leaves_no_worker_and_nothing_is_lost(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *FLAGS)
    workers = pids(daemon)
    sources, drivers = await drivers_of(daemon, "orphaned")
    for driver in drivers:
        await driver.send_some(10)
    await daemon.kill()
    await daemon.start()  # on the first worker's port
    for driver in drivers:
        await driver.send_some(10)
        await driver.cursor.durable(timeout_s=60)
        check(await driver.cursor.state(), driver.truth)
    async with asyncio.timeout(90):
        while any(map(runs, workers)):
            await asyncio.sleep(0.05)
    log = daemon.log.read_text()
    assert log.count('"event":"the supervisor is gone"') == WORKERS
    assert '"event":"stopping"' not in log, "they close nothing that the successor opens"
    for source in sources:
        await source.close()


async def test_a_worker_that_stands_still_is_said_by_health(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *FLAGS)
    await until_status(daemon.address, "SERVING")
    still = pids(daemon)[1]
    os.kill(still, signal.SIGSTOP)
    try:
        await until_status(daemon.address, "NOT_SERVING")
        assert (await daemon.scrape())['cursorkeeper_worker_up{worker="1"}'] == 0
    finally:
        os.kill(still, signal.SIGCONT)
    await until_status(daemon.address, "SERVING")
    assert pids(daemon)[1] == still, "it was not started again"


async def test_every_worker_dials_a_source_that_serves(stack: Standalone, daemons: Daemons) -> None:
    async with SourceServer() as server:
        daemon = await daemons.start(
            stack.gateway, stack.zookeeper, *FLAGS, "--sources", server.address
        )
        async with Client(server) as source:
            drivers = [
                Driver(source.cursor(topic, "sub", layout=LAYOUT, start=START), 70 + number)
                for number, topic in enumerate(topics("dialled"))
            ]
            for driver in drivers:
                await driver.cursor.opened()
                await driver.send_some(10)
            os.kill(pids(daemon)[1], signal.SIGKILL)
            for driver in drivers:
                await driver.send_some(10)
                await driver.cursor.durable(timeout_s=60)
        async with CursorStore(daemon.address) as store:
            for driver in drivers:
                check(await store.export(driver.cursor.topic, "sub"), driver.truth)
