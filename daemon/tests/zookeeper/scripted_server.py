"""A server that says what a test tells it to say.

Owns the frames and the handshake of ZooKeeper's protocol, from the server's side, and answers pings
and simple requests by itself. For what a real server cannot be made to do: lag behind, wrong xids,
answers cut between two frames.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

_LENGTH = struct.Struct("!i")
_HELLO = struct.Struct("!iqiqi")  # version, zxid, timeout, session id, length of the password
PASSWORD = b"p" * 16
PING = -2
EVENT = -1


@dataclass
class Hello:
    """What a client asked for."""

    zxid: int
    timeout_ms: int
    session_id: int


@dataclass
class Peer:
    """One connection, seen from the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    hello: Hello | None = None
    requests: list[tuple[int, int]] = field(default_factory=list)
    pings: int = 0

    async def frame(self) -> bytes:
        (length,) = _LENGTH.unpack(await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    def send(self, frame: bytes) -> None:
        self.writer.write(_LENGTH.pack(len(frame)) + frame)

    async def hear_hello(self) -> Hello:
        frame = await self.frame()
        _, zxid, timeout_ms, session_id, _ = _HELLO.unpack_from(frame)
        self.hello = Hello(zxid, timeout_ms, session_id)
        return self.hello

    def welcome(self, session_id: int, timeout_ms: int) -> None:
        self.send(struct.pack("!iiqi", 0, timeout_ms, session_id, len(PASSWORD)) + PASSWORD + b"\0")

    def reply(self, xid: int, body: bytes = b"", *, zxid: int = 1, code: int = 0) -> None:
        self.send(struct.pack("!iqi", xid, zxid, code) + body)

    async def request(self) -> tuple[int, int, bytes]:
        """The next request that is not a ping (those are answered): xid, opcode, body."""
        while True:
            frame = await self.frame()
            xid, opcode = struct.unpack_from("!ii", frame)
            if xid != PING:
                self.requests.append((xid, opcode))
                return xid, opcode, frame[8:]
            self.pings += 1
            self.reply(PING)


Handler = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """Runs `handler` for each connection; when it returns, the connection is closed."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.peers: list[Peer] = []
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> ScriptedServer:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.handler(peer)
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


def stat(mzxid: int = 1, version: int = 0) -> bytes:
    """The bytes of a stat."""
    return struct.pack("!qqqqiiiqiiq", 1, mzxid, 0, 0, version, 0, 0, 0, 0, 0, 1)


def node(data: bytes = b"", mzxid: int = 1, version: int = 0) -> bytes:
    """The body of an answer to getData."""
    return _LENGTH.pack(len(data)) + data + stat(mzxid, version)


def event(kind: int, path: str) -> bytes:
    """The body of a watch event."""
    return struct.pack("!iii", kind, 3, len(path)) + path.encode()
