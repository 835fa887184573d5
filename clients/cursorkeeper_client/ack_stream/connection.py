"""How a source gets its session: it dials the daemon, or the daemon dials it.

Owns: the connection, its two directions, its end. Does not own: what is said (`session`, `handle`).
Invariant: a session that was handed out always ends: with the stream, with its `close`, or with a
violation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from cursorkeeper_client import tasks
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.ack_stream.transport import (
    END,
    PublishCall,
    RpcFailed,
    SubscribeContext,
    open_publish,
    serve_subscribe,
    why_ended,
)
from cursorkeeper_client.errors import AckStreamError, SessionLost, stream_ended
from cursorkeeper_client.settings import SourceSettings

SESSIONS_WAITING_MAX = 16


class SourceConnection:
    """A stream that this source dialled. `connect` returns it when the keeper has said Hello."""

    def __init__(self, address: str, settings: SourceSettings | None = None) -> None:
        self._address, self._settings = address, settings or SourceSettings()
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> SourceSession:
        """A session. Raises `SessionLost`, `SessionRefused` or `KeeperTimeout`."""
        session = SourceSession(self._settings)
        self._task = asyncio.get_running_loop().create_task(self._run(session), name="ack stream")
        try:
            await session.wait_ready()
        except BaseException:
            await self.close()
            raise
        return session

    async def close(self) -> None:
        """End the stream. Cursors stay open at the daemon for a while: close their handles first to
        give them back.
        """
        if self._task:
            await tasks.end(self._task)

    async def __aenter__(self) -> SourceSession:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, session: SourceSession) -> None:
        channel, call = open_publish(self._address, self._settings)
        sender = asyncio.get_running_loop().create_task(_send(session, call), name="ack sender")
        ended: AckStreamError = SessionLost("the connection was closed here")
        try:
            while (message := await call.read()) is not END:
                assert isinstance(message, pb.KeeperMessage)
                session.receive(message)
            ended = stream_ended("OK", "the keeper ended the stream")
        except RpcFailed as failed:
            ended = why_ended(failed)
        except AckStreamError as violation:
            ended = violation
        finally:
            session.end(ended)
            call.cancel()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await channel.close()


async def _send(session: SourceSession, call: PublishCall) -> None:
    # A write on a stream that has ended raises one of these; why it ended is the reader's to say.
    with contextlib.suppress(RpcFailed, asyncio.InvalidStateError):
        while True:
            await call.write(await session.outbox.take())


class SourceServer:
    """Serves `AckSource`: a daemon that dials in becomes a session; `accept` hands it out."""

    def __init__(
        self, address: str = "127.0.0.1:0", settings: SourceSettings | None = None
    ) -> None:
        self._wanted, self._settings = address, settings or SourceSettings()
        self._sessions: asyncio.Queue[SourceSession] = asyncio.Queue(SESSIONS_WAITING_MAX)
        self._server: Any = None
        self.address = ""

    async def start(self) -> str:
        """Listen; returns host:port."""
        self._server, port = serve_subscribe(self._wanted, self._settings, self._subscribe)
        self.address = (
            self._wanted
            if self._wanted.startswith("unix:")
            else f"{self._wanted.rpartition(':')[0]}:{port}"
        )
        await self._server.start()
        return self.address

    async def accept(self) -> SourceSession:
        """The next keeper that dialled in and said Hello."""
        while True:
            session = await self._sessions.get()
            if session.ended is None:
                return session

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

    async def _subscribe(
        self, requests: AsyncIterator[pb.KeeperMessage], context: SubscribeContext
    ) -> None:
        session = SourceSession(self._settings)

        async def send() -> None:
            while True:
                await context.write(await session.outbox.take())

        sender = asyncio.get_running_loop().create_task(send(), name="ack sender")
        ended: AckStreamError = SessionLost("the keeper's stream broke")
        offered = False
        try:
            async for message in requests:
                session.receive(message)
                if not offered and session.keeper is not None:
                    offered = True
                    self._sessions.put_nowait(session)
            ended = SessionLost("the keeper ended the stream")
        except asyncio.QueueFull:
            ended = SessionLost(f"{SESSIONS_WAITING_MAX} keepers wait to be accepted already")
        except AckStreamError as violation:
            ended = violation
        finally:
            session.end(ended)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
