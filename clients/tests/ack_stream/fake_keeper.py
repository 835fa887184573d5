"""A keeper in memory that serves `AckSink`, and dials sources that serve `AckSource`: for testing
sources.

Owns: cursors that survive `kill`, when accepted becomes durable, what is refused on purpose. Does
not own: one stream (`fake_stream`), one cursor (`fake_cursor`). Invariants: confirmed = durable;
after a kill only the durable part is there; everything else may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import grpc.aio

from clients.tests.ack_stream.fake_cursor import FakeCursor
from clients.tests.ack_stream.fake_stream import FakeStream
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX

_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.http2.max_ping_strikes", 0),  # else a quiet source's keepalive ends its stream
]
_BROKEN = "the stream is broken on purpose"


def _limits() -> pb.Hello:
    return pb.Hello(
        ack_ledgers_max=1_000,
        ack_partials_max=1_000,
        unconfirmed_parts_max=65_536,
        layout_ledgers_max=10_000,
    )


@dataclass
class KeeperFaults:
    """May be changed while it runs."""

    durable_delay_s: float = 0.0  # between accepting and confirming
    hold_durable: bool = False  # nothing becomes durable; `FakeKeeper.release` ends it
    credit_bytes: int = 4 << 20
    limits: pb.Hello = field(default_factory=_limits)  # of a batch, as Hello says
    group_messages_max: int = GROUP_MESSAGES_MAX  # 0: as release 0.1, which knows no groups
    refuse_opens: int = 0  # so many opens are refused as UNAVAILABLE
    silent: bool = False  # no Hello is answered
    zookeeper_away: bool = False  # opens are refused as UNAVAILABLE, but for those that resume


class FakeKeeper:
    """`address` stays the same over `kill` and `start`."""

    def __init__(self, faults: KeeperFaults | None = None) -> None:
        self.faults = faults or KeeperFaults()
        self.cursors: dict[str, FakeCursor] = {}
        self.holders: dict[str, tuple[FakeStream, int]] = {}
        self.fencing_tokens: dict[str, int] = {}
        """The highest that was seen of each cursor, a deleted one, too."""
        self.shown: dict[str, str] = {}
        """Of the cursors that are held: the source that got the state last."""
        self.streams: set[FakeStream] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.incarnation = self.batches = 0
        """How often it was started; batches of acks that came."""
        self.address = ""
        self._server: Any = None

    async def start(self) -> str:
        """Serve; returns host:port."""
        self.incarnation += 1
        self._server = grpc.aio.server(options=_SERVER_OPTIONS)
        method = grpc.stream_stream_rpc_method_handler(
            self._publish,
            request_deserializer=pb.SourceMessage.FromString,
            response_serializer=pb.KeeperMessage.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "cursorkeeper.acks.v1.AckSink", {"Publish": method}
                ),
            )
        )
        self.address = self.address or f"127.0.0.1:{free_port()}"
        self._server.add_insecure_port(self.address)
        await self._server.start()
        return self.address

    async def kill(self) -> None:
        """Gone at once: what was accepted and not durable is lost."""
        for cursor in self.cursors.values():
            cursor.pending.clear()
        self.holders.clear()
        self.shown.clear()
        self._cancel("killed")
        if self._server:
            await self._server.stop(grace=0)
            self._server = None

    def break_streams(self) -> None:
        """Every stream ends; the cursors stay held."""
        self._cancel(_BROKEN)

    def _cancel(self, why: str) -> None:
        for task in list(self.tasks):
            task.cancel(why)

    async def dial(self, address: str) -> None:
        """Subscribe to a source that serves `AckSource`; runs until the stream ends."""
        async with grpc.aio.insecure_channel(address) as channel:
            method = channel.stream_stream(
                "/cursorkeeper.acks.v1.AckSource/Subscribe",
                request_serializer=pb.KeeperMessage.SerializeToString,
                response_deserializer=pb.SourceMessage.FromString,
            )
            call = method()
            stream = FakeStream(self)
            stream.hello()
            sender = asyncio.get_running_loop().create_task(_write(stream, call))
            try:
                async for message in call:
                    stream.receive(message)
            finally:
                stream.left()
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)

    def release(self) -> None:
        """End `hold_durable`: everything accepted becomes durable now."""
        self.faults.hold_durable = False
        for stream in list(self.streams):
            stream.confirm_all()

    def pause(self, reason: str) -> None:
        """Every open cursor is NOT_PERSISTABLE."""
        for stream, handle in self.holders.values():
            stream.send(pb.KeeperMessage(pause=pb.Pause(handle=handle, reason=reason)))

    def resume(self) -> None:
        for stream, handle in self.holders.values():
            stream.send(pb.KeeperMessage(resume=pb.Resume(handle=handle)))

    async def _publish(self, requests: AsyncIterator[pb.SourceMessage], context: Any) -> None:
        stream = FakeStream(self)
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self.tasks.add(task)
        sender = asyncio.get_running_loop().create_task(_write(stream, context))
        try:
            async for message in requests:
                if message.WhichOneof("message") == "hello" and not self.faults.silent:
                    stream.hello()
                if problem := stream.receive(message):
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (_BROKEN,):
                raise
            # a handler that is only cancelled tells its client nothing: the stream would end with
            # the client's patience
            await context.abort(grpc.StatusCode.UNAVAILABLE, _BROKEN)
        finally:
            self.tasks.discard(task)
            stream.left()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


async def _write(stream: FakeStream, writer: Any) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await writer.write(await stream.next())
