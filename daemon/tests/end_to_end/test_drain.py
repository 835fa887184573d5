"""SIGTERM in the middle of traffic: every cursor is closed in time, what was confirmed is there,
and nothing else is claimed.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import Driver, check, driving

pytestmark = pytest.mark.jvm
CLOSE_TIMEOUT_S = 60
CURSORS = 3


async def send_without_end(driver: Driver) -> None:
    while True:
        await driver.send_some(10)


async def test_sigterm_while_acks_flow(stack: Standalone, daemons: Daemons) -> None:
    daemon = await daemons.start(
        stack.gateway, stack.zookeeper, "--close-timeout-s", str(CLOSE_TIMEOUT_S)
    )
    topics = [f"persistent://e2e/ns/drain-{number}" for number in range(CURSORS)]
    driven = [
        await driving(daemon.address, topic, 30 + number) for number, topic in enumerate(topics)
    ]
    drivers = [driver for _, driver in driven]
    flow = [asyncio.create_task(send_without_end(driver)) for driver in drivers]
    for driver in drivers:
        while driver.cursor.durable_seq < 30:
            await asyncio.sleep(0.01)
    sent_before = [driver.cursor.last_seq for driver in drivers]
    began = time.monotonic()
    await daemon.stop(3 * CLOSE_TIMEOUT_S)
    assert daemon._process is not None
    assert daemon._process.returncode == 0, daemon.tail()
    assert time.monotonic() - began < CLOSE_TIMEOUT_S
    assert all(
        driver.cursor.last_seq > before for driver, before in zip(drivers, sent_before, strict=True)
    ), "acks flowed on"
    sent_at_the_end = [driver.cursor.last_seq for driver in drivers]
    async with asyncio.timeout(60):
        while any(
            driver.cursor.last_seq == sent
            for driver, sent in zip(drivers, sent_at_the_end, strict=True)
        ):
            await asyncio.sleep(0.01)
    for task in flow:
        task.cancel()
    await asyncio.gather(*flow, return_exceptions=True)
    for source, _ in driven:
        await source.close()
    assert all(driver.cursor.durable_seq < driver.cursor.last_seq for driver in drivers), (
        "not everything was confirmed"
    )

    other = await daemons.start(stack.gateway, stack.zookeeper)
    async with SourceConnection(other.address) as session:
        for topic, driver in zip(topics, drivers, strict=True):  # closed: no takeover is needed
            check(await session.open(topic, "sub", create=False).opened(), driver.truth)


async def test_sigterm_without_bookkeeper_ends_in_time_and_says_what_was_left(
    stack: Standalone, daemons: Daemons
) -> None:
    """The last flush cannot succeed: exit code 1, the cursor named, and what was confirmed before
    is durable all the same.
    """
    daemon = await daemons.start(stack.gateway, stack.zookeeper, "--close-timeout-s", "2")
    topic = "persistent://e2e/ns/drain-alone"
    source, driver = await driving(daemon.address, topic, 40)
    await driver.send_some(20)
    await driver.cursor.durable()
    stack.kill()
    await driver.send_some(20)
    began = time.monotonic()
    await daemon.stop(120)
    assert daemon._process is not None
    assert daemon._process.returncode == 1, daemon.tail()
    assert time.monotonic() - began < 100
    assert "drain-alone" in daemon.tail()
    await source.close()
    stack.restart()
    other = await daemons.start(stack.gateway, stack.zookeeper)
    async with SourceConnection(other.address) as session:
        check(
            await session.open(topic, "sub", create=False, takeover=True).opened(),
            driver.truth,
        )
