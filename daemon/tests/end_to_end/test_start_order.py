"""The daemon is started first and everything it needs comes later, piece by piece; and what a
daemon in a container must keep to.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import JavaProcess, LocalCluster, Standalone
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.readiness import TELL_INTERVAL_S
from daemon.tests.end_to_end.audited import WROTE
from daemon.tests.end_to_end.workload import driving

pytestmark = pytest.mark.jvm


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    yield made
    await asyncio.to_thread(made.kill)


async def said(daemon: DaemonProcess, text: str) -> None:
    """Until its log says it."""
    async with asyncio.timeout(180):
        while text not in daemon.log.read_text():
            assert daemon.running, daemon.tail()
            await asyncio.sleep(0.02)


async def listens(port: int) -> None:
    """Until somebody takes connections there."""
    async with asyncio.timeout(180):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@pytest.mark.slow
async def test_everything_comes_later_than_the_daemon(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    """ZooKeeper without a quorum, then with one; a gateway without bookies, then with them."""
    peers = ",".join(f"{n}=127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3))
    ports = [int(cluster.zookeeper_address.rpartition(":")[2]), free_port()]
    members = [
        JavaProcess(
            "zookeeper",
            [
                "--data-dir",
                str(tmp_path / f"zk{n}"),
                "--port",
                str(port),
                "--server-id",
                str(n),
                "--servers",
                peers,
            ],
            tmp_path / f"zk{n}.log",
            heap_mib=96,
        )
        for n, port in enumerate(ports, start=1)
    ]
    daemon = DaemonProcess(
        tmp_path, cluster.gateway, cluster.zookeeper_address, ["--start-timeout-s", "250"]
    )
    try:
        # ready only when there is a quorum
        first = asyncio.create_task(asyncio.to_thread(members[0].start))
        await listens(ports[0])
        began_s = time.monotonic()
        await daemon.launch()
        await said(daemon, "closed the connection: no quorum?")
        await asyncio.to_thread(members[1].start)
        await first
        await said(daemon, "waited")
        await said(daemon, '"what":"the gateway"')
        await asyncio.to_thread(cluster._init.start)
        await asyncio.to_thread(cluster.gateways[0].start)
        await said(daemon, "is there and cannot serve")
        await asyncio.gather(*(asyncio.to_thread(bookie.start) for bookie in cluster.bookies))
        assert (await daemon.line())["listen"] == daemon.address
        await daemon.stop()
        assert daemon._process is not None and daemon._process.returncode == 0, daemon.tail()
        told = [json.loads(line) for line in daemon.log.read_text().splitlines()]
        waits = [line["what"] for line in told if line["event"] == "waiting"]
        assert (
            waits == sorted(waits)
            and set(waits) == {"ZooKeeper", "the gateway"}
            and len(waits) < 12 + (time.monotonic() - began_s) / TELL_INTERVAL_S
        )
    finally:
        await daemon.kill()
        for member in members:
            await asyncio.to_thread(member.kill)


async def test_it_writes_nothing_to_a_file_system(tmp_path: Path, stack: Standalone) -> None:
    """A container's root file system is read-only. From its start over a flush to its end."""
    audited, address = str(Path(__file__).parent / "audited.py"), f"127.0.0.1:{free_port()}"
    where = [
        "--gateway",
        stack.gateway,
        "--zookeeper",
        stack.zookeeper,
        "--listen",
        address,
        "--metrics-listen",
        "127.0.0.1:0",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-B",
            audited,
            "run",
            *where,
            "--parent-pid",
            str(os.getpid()),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(180):
            ready = json.loads(await process.stdout.readline())
        source, driver = await driving(ready["listen"], "persistent://e2e/ns/read-only", 50)
        await driver.send_some(50)
        await driver.cursor.durable()
        await source.close()
        assert "cursorkeeper_" in await asyncio.to_thread(
            lambda: urlopen(f"http://{ready['metrics']}/metrics", timeout=60).read().decode()
        )
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(180):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    wrote = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith(WROTE)]
    assert [line for line in wrote if "/dev/null" not in line] == []
