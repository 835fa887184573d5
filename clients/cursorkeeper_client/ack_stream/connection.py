"""How a client gets its session: it dials the daemon, or the daemon dials it. The only untyped
edges to grpc.

Owns: the connection, its two directions, its end. Does not own: what is said (`session`, `handle`).
Messages of a source leave as bytes that are serialised already; messages of the daemon arrive
parsed. Invariant: a session that was handed out always ends: with the stream, with its `hang_up`,
or with a violation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from cursorkeeper_client import tasks
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.channels import (
    SERVER_OPTIONS,
    Options,
    RpcFailed,
    connection_options,
    open_channel,
)
from cursorkeeper_client.errors import ConnectionLost, CursorKeeperError, call_ended
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.tls import TlsError

SESSIONS_WAITING_MAX = 16
UNIX = "unix:"
PATH_BYTES_MAX = 107
"""Of a socket of the file system: what the kernel has room for."""
SINK_METHOD = "/cursorkeeper.acks.v1.AckSink/Publish"


class Line(Protocol):
    """Where sessions come from, one after the other."""

    async def connect(self) -> SourceSession:
        """The next one. Raises `ConnectionLost`, `ConnectionRefused` or `AnswerTimeout`."""
        ...

    async def hang_up(self) -> None:
        """The session that was given last is not wanted any more."""
        ...

    def to_worker(self, number: int, address: str) -> Line:
        """The line to another worker of the same daemon, with the address that its Hello gives."""
        ...


class SourceConnection:
    """Dials the daemon's `AckSink` at `host:port`, or at `unix:` and an absolute path."""

    def __init__(self, address: str, settings: ClientSettings | None = None) -> None:
        """Raises ValueError for a path at which nothing can listen."""
        if address.startswith(UNIX):
            _check_path(address)
        self._address, self._settings = address, settings or ClientSettings()
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> SourceSession:
        """A session, when the daemon has said Hello."""
        session = SourceSession(self._settings)
        self._task = asyncio.get_running_loop().create_task(self._run(session), name="ack stream")
        try:
            await session.wait_ready()
        except BaseException:
            await self.hang_up()
            raise
        return session

    async def hang_up(self) -> None:
        """End the stream. Cursors stay open at the daemon for a while: close their handles first to
        give them back.
        """
        if self._task:
            await tasks.end(self._task)

    def to_worker(self, _number: int, address: str) -> SourceConnection:
        """Dials `address`; one without a host at the host that is dialled here."""
        if address.startswith(":"):
            is_local = self._address.startswith(UNIX)
            host = "127.0.0.1" if is_local else self._address.rpartition(":")[0]
            address = f"{host}{address}"
        return SourceConnection(address, self._settings)

    async def __aenter__(self) -> SourceSession:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def _run(self, session: SourceSession) -> None:
        settings = self._settings
        try:
            channel = open_channel(
                self._address, _options(settings), settings.tls, settings.tls_server_name
            )
        except TlsError as e:
            session.end(ConnectionLost(f"{e.file}: {e.reason}", e.remedy))
            return
        call = channel.stream_stream(
            SINK_METHOD, response_deserializer=pb.KeeperMessage.FromString
        )()
        sender = asyncio.get_running_loop().create_task(_send(session, call), name="ack sender")
        ended: CursorKeeperError = ConnectionLost("the connection was closed here")
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                session.receive(message)
            ended = call_ended("OK", "the daemon ended the stream")
        except RpcFailed as failed:
            rpc: Any = failed
            ended = call_ended(
                rpc.code().name, rpc.details() or "", is_tls=settings.tls is not None
            )
        except CursorKeeperError as violation:
            ended = violation
        finally:
            session.end(ended)
            call.cancel()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await channel.close()


class _DialledIn:
    """The sessions of the daemons' workers of one number, one after the other."""

    def __init__(self, server: SourceServer, number: int) -> None:
        self._source, self._number = server, number

    async def connect(self) -> SourceSession:
        """The next one that dialled in and said Hello."""
        sessions = self._source.sessions[self._number]
        while True:
            session = await sessions.get()
            if session.ended is None:
                return session

    async def hang_up(self) -> None:
        """Nothing: the stream belongs to the daemon that dialled, which ends it."""

    def to_worker(self, number: int, _address: str) -> Line:
        return _DialledIn(self._source, number)


class SourceServer(_DialledIn):
    """Serves `AckSource`, for daemons that dial in (their setting `sources`): a `Client` is made
    of it in place of an address. As a line it is that to the first worker of a daemon, which is
    the daemon itself if it has no others.
    """

    def __init__(
        self, address: str = "127.0.0.1:0", settings: ClientSettings | None = None
    ) -> None:
        super().__init__(self, 0)
        self._wanted, self._settings = address, settings or ClientSettings()
        self.sessions: defaultdict[int, asyncio.Queue[SourceSession]] = defaultdict(
            lambda: asyncio.Queue(SESSIONS_WAITING_MAX)
        )
        """Of daemons that dialled in, by the worker's number."""
        self._server: Any = None
        self.address = ""

    async def start(self) -> str:
        """Listen; returns host:port."""
        self._server, port = serve_subscribe(self._wanted, self._settings, self._subscribe)
        self.address = (
            self._wanted
            if self._wanted.startswith(UNIX)
            else f"{self._wanted.rpartition(':')[0]}:{port}"
        )
        await self._server.start()
        return self.address

    async def close(self) -> None:
        """End all streams and stop listening."""
        if self._server:
            await self._server.stop(grace=0)
            self._server = None

    async def __aenter__(self) -> SourceServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _subscribe(self, requests: AsyncIterator[pb.KeeperMessage], context: Any) -> None:
        session = SourceSession(self._settings)
        sender = asyncio.get_running_loop().create_task(_send(session, context), name="ack sender")
        ended: CursorKeeperError = ConnectionLost("the daemon's stream broke")
        offered = False
        try:
            async for message in requests:
                session.receive(message)
                if not offered and session.keeper is not None:
                    offered = True
                    self.sessions[session.keeper.worker].put_nowait(session)
            ended = ConnectionLost("the daemon ended the stream")
        except asyncio.QueueFull:
            ended = ConnectionLost(f"{SESSIONS_WAITING_MAX} daemons wait to be taken already")
        except CursorKeeperError as violation:
            ended = violation
        finally:
            session.end(ended)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


def _check_path(address: str) -> None:
    rest = address.removeprefix(UNIX)
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(
            f"{address!r} has no absolute path; write it as unix:/run/cursorkeeper/acks.sock"
        )
    if (size := len(os.fsencode(path))) > PATH_BYTES_MAX:
        raise ValueError(
            f"{address!r} has a path of {size} bytes, a socket's has at most {PATH_BYTES_MAX}; let "
            f"the daemon listen at a shorter one"
        )


async def _send(session: SourceSession, call: Any) -> None:
    # A write on a stream that has ended raises one of these; why it ended is the reader's to say.
    with contextlib.suppress(RpcFailed, asyncio.InvalidStateError):
        while True:
            await call.write(await session.outbox.take())


def _options(settings: ClientSettings) -> Options:
    return connection_options(
        settings.receive_bytes_max, settings.keepalive_time_ms, settings.keepalive_timeout_ms
    )


def serve_subscribe(
    address: str,
    settings: ClientSettings,
    subscribe: Callable[[AsyncIterator[pb.KeeperMessage], Any], Awaitable[None]],
) -> tuple[Any, int]:
    """A server with `AckSource.Subscribe`, not started yet, and the port it got (0 if it could not
    bind).
    """
    server = grpc.aio.server(options=[*_options(settings), *SERVER_OPTIONS])
    method = grpc.stream_stream_rpc_method_handler(
        subscribe, request_deserializer=pb.KeeperMessage.FromString
    )
    service = grpc.method_handlers_generic_handler(
        "cursorkeeper.acks.v1.AckSource", {"Subscribe": method}
    )
    server.add_generic_rpc_handlers((service,))
    return server, server.add_insecure_port(address)
