"""Both directions when something breaks: a stream always ends with a status, a subscription is
always tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pytest
import structlog

from clients.tests.support.pings import pings_answered
from cursorkeeper.stream.servers import Subscriber
from cursorkeeper.stream.session import Session
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from daemon.tests.stream.served import ServedKeeper
from daemon.tests.stream.test_bad_input import Wire
from daemon.tests.support.guards import guard
from daemon.tests.support.world import World


def broken(*_: object) -> Iterator[pb.KeeperMessage]:
    raise KeyError("on purpose")
    yield


class SilentSource(rpc.AckSourceServicer):
    """Greets, or does not even that, and then says nothing for ever."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[int] = asyncio.Queue()
        self.greets = True

    async def Subscribe(  # noqa: N802
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[pb.SourceMessage]:
        self.calls.put_nowait(1)
        if self.greets:
            yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1]))
        await asyncio.Event().wait()


@pytest.fixture
async def source() -> AsyncIterator[tuple[SilentSource, str]]:
    made, server = SilentSource(), grpc.aio.server()
    rpc.add_AckSourceServicer_to_server(made, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield made, f"127.0.0.1:{port}"
    await server.stop(grace=0)


async def sessions(kind: type[Session] = Session) -> Callable[[], Session]:
    return partial(kind, await World().keeper(), guard(), name="k", incarnation="1")


async def dialled(source: SilentSource, times: int, subscriber: Subscriber) -> None:
    running = asyncio.create_task(subscriber.run())
    try:
        async with asyncio.timeout(60):
            for _ in range(times):
                await source.calls.get()
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_bug_in_one_attempt_does_not_end_a_subscription(
    source: tuple[SilentSource, str],
) -> None:
    class Defective(Session):
        def receive(self, message: object) -> None:
            raise ValueError("on purpose")

    await dialled(source[0], 3, Subscriber(source[1], await sessions(Defective), 4 << 20))


async def test_an_attempt_whose_writer_fails_ends(
    source: tuple[SilentSource, str],
) -> None:
    class Defective(Session):
        def hello(self) -> pb.KeeperMessage:
            self.outbox.put_state(1, broken())
            return pb.KeeperMessage()

    await dialled(source[0], 3, Subscriber(source[1], await sessions(Defective), 4 << 20))


async def test_a_source_that_never_says_hello_is_named_and_dialled_again(
    source: tuple[SilentSource, str],
) -> None:
    source[0].greets = False
    with structlog.testing.capture_logs() as lines:
        await dialled(
            source[0], 3, Subscriber(source[1], await sessions(), 4 << 20, hello_timeout_s=0.2)
        )
    told = [line for line in lines if line["event"] == "source refused"]
    assert told and told[0]["source"] == source[1] and "no Hello in 0.2 s" in told[0]["problem"]


async def test_a_stream_whose_writer_fails_ends_with_a_status() -> None:
    class DefectiveOnce(Session):
        is_defective = True

        def hello(self) -> pb.KeeperMessage:
            if DefectiveOnce.is_defective:
                DefectiveOnce.is_defective = False
                self.outbox.put_state(1, broken())
            return super().hello()

    keeper = ServedKeeper()
    keeper.session = DefectiveOnce
    await keeper.start()
    wire = Wire(keeper.address)
    with pytest.raises(EOFError, match=r"INTERNAL.*report this"):
        await wire.open()
    await wire.close()
    again = Wire(keeper.address)
    await again.open()
    await again.close()
    await keeper.kill()


async def test_a_source_that_only_pings_keeps_its_stream(keeper: ServedKeeper) -> None:
    assert await pings_answered(keeper.address, 20) == 20
