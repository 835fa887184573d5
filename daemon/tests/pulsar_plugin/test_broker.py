"""A whole broker with the plugin's jar, killed: what was confirmed does not come again, and what was not acked comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.pulsar.traffic import SUBSCRIPTION, Consumed, Counted, Produced, Topic, last_line
from cursorkeeper_clients._proto import acks_pb2 as pb
from cursorkeeper_clients._proto import acks_pb2_grpc as rpc
from cursorkeeper_clients.stack import PulsarCluster, Standalone
from grpc import aio

from daemon.tests.pulsar_plugin.jar import JAR, LINES

pytestmark = pytest.mark.jvm
T = TypeVar("T")
MESSAGES, ENTRIES_PER_LEDGER = 20_000, 4_000
DURABLE_MAX_S = 60


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Standalone]:
    """Of the test's own: a ZooKeeper has one Pulsar cluster."""
    with Standalone(tmp_path / "stack", bookies=2) as running:
        yield running


async def traffic(topic: Topic, command: str, shape: type[T], then: Callable[[], object] | None = None) -> T:
    """Runs it to its last line; then, while its client is still connected, `then`."""
    process = topic.process(command)
    await process.start()
    try:
        last = await last_line(process, shape, lambda count: None)
        if then is not None:
            await asyncio.to_thread(then)
        return last
    finally:
        await process.kill()


async def all_durable(daemon: DaemonProcess, topic: str) -> None:
    """Waits until the keeper has every ack of the play: what remains un-acked is known. Brokers before 5.0 do not say it."""
    cursor = pb.CursorRef(topic=topic, subscription=SUBSCRIPTION)
    async with aio.insecure_channel(daemon.address) as channel:
        store = rpc.CursorStoreStub(channel)
        before: tuple[int, ...] = ()
        async with asyncio.timeout(DURABLE_MAX_S):
            while True:
                info = await store.Get(pb.GetRequest(cursor=cursor))
                known = (info.accepted_acks, info.acked_entries, info.partial_batches, info.holes)
                if info.pending_bytes == 0 and info.appends_in_flight == 0 and known == before:
                    return
                before = known
                await asyncio.sleep(1)


@pytest.mark.parametrize("version", LINES.values())
@pytest.mark.timeout(400)
async def test_a_broker_that_is_killed_delivers_nothing_again(
    stack: Standalone, daemon: DaemonProcess, version: str, tmp_path: Path
) -> None:
    conf = {
        "managedLedgerStorageClassName": "io.cursorkeeper.pulsar.CursorKeeperStorage",
        "cursorKeeperAddress": daemon.address,
        "managedLedgerMaxEntriesPerLedger": str(ENTRIES_PER_LEDGER),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }
    cluster = PulsarCluster(tmp_path / "pulsar", stack.zookeeper, version=version, name=f"killed-{version}")
    await asyncio.to_thread(cluster.set_up)
    try:
        broker = cluster.broker(conf=conf, extra_class_path=[JAR])
        await asyncio.to_thread(broker.start)
        name = f"killed-{version}"
        topic = Topic(version, broker.service_url, f"persistent://public/default/{name}", MESSAGES, tmp_path / "traffic.log")
        await traffic(topic, "produce", Produced)
        if version.startswith("4."):
            consumed = await traffic(topic, "consume", Consumed)
            await all_durable(daemon, topic.name)
            await asyncio.to_thread(broker.kill)
        else:
            consumed = await traffic(topic, "consume", Consumed, broker.kill)
        await asyncio.to_thread(broker.start)
        counted = await traffic(topic, "count", Counted)
    finally:
        await asyncio.to_thread(cluster.kill)
    assert consumed.acked > MESSAGES // 2
    assert counted.confirmed_again == 0
    assert counted.unacked == MESSAGES - consumed.acked
    assert counted.unacked_not_delivered == 0
