"""From a host to a session.

Owns opening one TCP (or TLS) connection and the first exchange on it. Does not own which host, how
long, or what the answer means for the session. Invariant: when it does not return, nothing it
opened is left.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass

from aiozk import protocol

from cursorkeeper.zookeeper.errors import ProtocolBroken

_LENGTH = struct.Struct("!i")
_ANSWER_BYTES_MAX = 1024
NO_PASSWORD = bytes(16)


@dataclass(frozen=True, slots=True)
class Hello:
    """What we ask for: session 0 is a new one; a server that has not seen `last_zxid` yet refuses
    us, and we go to the next.
    """

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the server gives. `expired`: it does not know the session any more."""

    session_id: int
    password: bytes
    timeout_s: float

    @property
    def expired(self) -> bool:
        return self.session_id == 0 or self.timeout_s <= 0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open connection, its first exchange done. `sent_at_s` is when we asked, by the clock
    given.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: Welcome
    sent_at_s: float


async def shake_hands(
    host: str, port: int, tls: ssl.SSLContext | None, hello: Hello, clock_s: Callable[[], float]
) -> Opened:
    """Connect and introduce ourselves. Raises OSError, EOFError (closed without an answer),
    ProtocolBroken. The caller bounds the time.
    """
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=1024 * 1024)
    try:
        request = protocol.ConnectRequest(
            protocol_version=0,
            last_seen_zxid=hello.last_zxid,
            timeout=hello.timeout_ms,
            session_id=hello.session_id,
            password=hello.password,
            read_only=False,
        ).serialize()
        sent_at_s = clock_s()
        writer.write(_LENGTH.pack(len(request)) + request)
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if not 0 < length <= _ANSWER_BYTES_MAX:
            raise ProtocolBroken(
                f"{host}:{port} answered the handshake with a frame of {length} bytes"
            )
        body = await reader.readexactly(length)
        try:
            answer = protocol.ConnectResponse.deserialize(body)
        except struct.error as reason:
            raise ProtocolBroken(
                f"{host}:{port} answered the handshake with {body[:40]!r}"
            ) from reason
        welcome = Welcome(
            int(answer.session_id), bytes(answer.password or b""), int(answer.timeout) / 1000
        )
        return Opened(reader, writer, welcome, sent_at_s)
    except BaseException:
        writer.transport.abort()
        raise
