"""A whole broker with the plugin's jar: a receipt waits for the daemon, and after a kill nothing
that was confirmed comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.demo.processes import DaemonProcess, LineProcess
from cursorkeeper.demo.stack import QUICK, StackError, Standalone
from daemon.tests.pulsar_plugin.jar import JAR, LINES, jar_of
from daemon.tests.pulsar_plugin.one_topic import CONF, MESSAGES, consumed, traffic
from daemon.tests.support.frozen import freeze, thaw
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.play import plugin_conf
from tools.brokers.traffic import Counted, Produced, Topic

pytestmark = pytest.mark.jvm
ACKS_IN_FLIGHT_MAX = 1_000
"""So many acks Traffic.java sends without a receipt."""
RECEIVED_MAX = 2 * ACKS_IN_FLIGHT_MAX
"""So many messages have not been received when no receipt has come: few of them are not acked."""
QUIET_LINES = 10
"""Lines of progress: so long no receipt comes, which is seen if it does."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Standalone]:
    """Of the test's own: a ZooKeeper has one Pulsar cluster."""
    with Standalone(tmp_path / "stack", bookies=2) as running:
        yield running


async def progress(consumer: LineProcess) -> dict[str, Any]:
    line = await consumer.line()
    assert not line.get("done"), "all receipts came, though the daemon stands still"
    return line


async def no_receipt_comes(consumer: LineProcess, daemon: DaemonProcess) -> None:
    """Starts a consumer while the daemon stands still: it acks as far as it may without a receipt.
    Then the daemon goes on.
    """
    freeze(daemon.pid)
    try:
        await consumer.start()
        while (await progress(consumer))["waiting"] < ACKS_IN_FLIGHT_MAX:
            pass
        later = [await progress(consumer) for _ in range(QUIET_LINES)]
        assert all(
            line["waiting"] == ACKS_IN_FLIGHT_MAX and line["count"] < RECEIVED_MAX for line in later
        ), later
    finally:
        thaw(daemon.pid)


@pytest.mark.parametrize(("line", "version"), LINES.items())
@pytest.mark.timeout(400)
async def test_receipts_wait_for_the_daemon_and_a_killed_broker_delivers_nothing_again(
    stack: Standalone, daemon: DaemonProcess, line: str, version: str, tmp_path: Path
) -> None:
    cluster = PulsarCluster(
        tmp_path / "pulsar",
        stack.zookeeper,
        version=version,
        name=f"killed-{version}",
        java_options=QUICK,
    )
    await asyncio.to_thread(cluster.set_up)
    try:
        broker = PulsarBroker(
            cluster,
            conf=CONF | plugin_conf(version, daemon.address),
            extra_class_path=[jar_of(line)],
        )
        await asyncio.to_thread(broker.start)
        name = f"persistent://public/default/killed-{version}"
        topic = Topic(version, broker.service_url, name, MESSAGES, tmp_path / "traffic.log")
        await traffic(topic, "produce", Produced)
        async with consumed(topic, lambda consumer: no_receipt_comes(consumer, daemon)) as receipts:
            await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        counted = await traffic(topic, "count", Counted)
    finally:
        await asyncio.to_thread(cluster.kill)
    assert receipts.acked > MESSAGES // 2
    assert counted.confirmed_again == 0
    assert counted.unacked == MESSAGES - receipts.acked
    assert counted.unacked_not_delivered == 0


@pytest.mark.timeout(400)
async def test_a_pulsar_that_waits_by_itself_does_not_start_with_the_gate_of_receipts(
    stack: Standalone, daemon: DaemonProcess, tmp_path: Path
) -> None:
    version = LINES["5.0"]
    with PulsarCluster(
        tmp_path / "pulsar", stack.zookeeper, version=version, java_options=QUICK
    ) as cluster:
        broker = PulsarBroker(
            cluster, conf=plugin_conf("4.2.4", daemon.address), extra_class_path=[JAR]
        )
        with pytest.raises(StackError):
            await asyncio.to_thread(broker.start)
        assert (
            "broker.conf: brokerInterceptors=cursorkeeper-receipts: this Pulsar makes receipts "
            "wait by itself" in broker.log.read_text()
        )
