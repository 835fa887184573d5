"""What a daemon answers whose link to a real ZooKeeper stalls while its cursor goes to another
daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import (
    Acks,
    ClientSettings,
    CursorRefused,
    CursorState,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    Position,
)
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.session import SourceSession
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.zookeeper.proxy import FaultProxy

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

LEDGER = 11
LAYOUT = (LayoutItem(LEDGER, LayoutState.OPEN),)
SOURCE = ClientSettings(open_timeout_s=120.0, answer_timeout_s=120.0)


@pytest.fixture
async def link(stack: Standalone) -> AsyncIterator[FaultProxy]:
    """The way of one daemon to ZooKeeper."""
    proxy = FaultProxy(int(stack.zookeeper.rpartition(":")[2]))
    await proxy.listen()
    yield proxy
    await proxy.close()


async def confirms(handle: CursorHandle, *entries: int) -> None:
    await handle.durable(await handle.send(Acks([LedgerAcks(LEDGER, list(entries))])))


async def info(daemon: DaemonProcess, topic: str) -> pb.CursorInfo:
    async with grpc.aio.insecure_channel(daemon.address) as channel:
        store = rpc.CursorStoreStub(channel)  # type: ignore[no-untyped-call]
        found: pb.CursorInfo = await store.Get(
            pb.GetRequest(cursor=pb.CursorRef(topic=topic, subscription="s"))
        )
        return found


async def waits_for_zookeeper(daemon: DaemonProcess, topic: str) -> None:
    async with asyncio.timeout(120):
        while "ZooKeeper" not in (await info(daemon, topic)).waiting_for:
            await asyncio.sleep(0.02)
    page = await daemon.scrape()
    assert page["cursorkeeper_answers_waiting"] == 1, page


async def opened_when_it_may(
    session: SourceSession, topic: str, takeover: bool = True
) -> tuple[CursorHandle, CursorState]:
    """The daemon may need longer to find ZooKeeper again, or on a busy machine for an answer of it,
    than it lets anybody wait.
    """
    async with asyncio.timeout(120):
        while True:
            handle = session.open(topic, "s", layout=LAYOUT, takeover=takeover)
            try:
                return handle, await handle.opened()
            except CursorRefused as refused:
                assert refused.code == "UNAVAILABLE", refused


@pytest.mark.parametrize("reset", [False, True])
async def test_a_stale_daemon_answers_an_open_only_with_proof(
    stack: Standalone, daemons: Daemons, link: FaultProxy, reset: bool
) -> None:
    """A's stream breaks and its link stalls; at B acks are confirmed (after a reset, perhaps); an
    open with takeover at A is not answered before ZooKeeper is heard, and then shows everything
    that B confirmed.
    """
    topic = f"persistent://answers/ns/{reset}"
    a = await daemons.start(
        stack.gateway, f"127.0.0.1:{link.port}", "--answer-wait-max-ms", "120000"
    )
    b = await daemons.start(stack.gateway, stack.zookeeper)
    async with SourceConnection(a.address, SOURCE) as session:
        first = session.open(topic, "s", layout=LAYOUT)
        await first.opened()
        await confirms(first, *range(501))
    link.stall()
    async with SourceConnection(b.address, SOURCE) as session:
        moved = session.open(topic, "s", layout=LAYOUT, takeover=True)
        await moved.opened()
        if reset:
            await moved.reset(Position(LEDGER, -1))
        await confirms(moved, 600, 601)
    async with SourceConnection(a.address, SOURCE) as session:
        again = session.open(topic, "s", layout=LAYOUT, takeover=True)
        opening = asyncio.ensure_future(again.opened())
        await waits_for_zookeeper(a, topic)
        assert not opening.done() and again.epoch == 0, "nothing of the answer has left"
        link.flow()
        state = await opening
        assert state.is_acked(LEDGER, 600) and state.is_acked(LEDGER, 601)
        assert (state.generation, state.is_acked(LEDGER, 500)) == (
            (2, False) if reset else (1, True)
        )
        assert again.epoch > moved.epoch > first.epoch
        await confirms(again, 700)


async def test_a_broken_stream_is_resumed_while_the_link_is_stalled(
    stack: Standalone, daemons: Daemons, link: FaultProxy
) -> None:
    """The daemon is still the owner and cannot prove it: the source goes on, and its acks become
    durable. An ordinary open of another source waits, and is told in time that ZooKeeper is away.
    """
    topic = "persistent://answers/ns/resumed"
    a = await daemons.start(stack.gateway, f"127.0.0.1:{link.port}", "--answer-wait-max-ms", "1500")
    async with SourceConnection(a.address, SOURCE) as session:
        first, state = await opened_when_it_may(session, topic, takeover=False)
        await confirms(first, 1)
    link.stall()
    async with SourceConnection(a.address, SOURCE) as session:
        second = session.open(topic, "s", layout=LAYOUT, takeover=True, resume=state)
        await second.opened()
        assert second.resumed
        await confirms(second, 2)
    async with SourceConnection(a.address, ClientSettings(open_timeout_s=60.0)) as session:
        with pytest.raises(Exception, match="ZooKeeper") as caught:
            await session.open(topic, "s", layout=LAYOUT, takeover=True).opened()
        assert getattr(caught.value, "code", "") == "UNAVAILABLE"
        link.flow()
        _, shown = await opened_when_it_may(session, topic)
        assert shown.is_acked(LEDGER, 1) and shown.is_acked(LEDGER, 2)
        assert shown.epoch == state.epoch, "it was the owner all the time"
