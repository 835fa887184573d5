"""From a host to a session.

Owns opening one TCP connection and the first exchange on it. Does not own which host, how
long, or what the answer means for the session. Invariant: when it does not return, nothing it
opened is left.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from dataclasses import dataclass

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.errors import ProtocolBroken

_LENGTH = struct.Struct("!i")
_ANSWER_BYTES_MAX = 1024
NO_PASSWORD = bytes(16)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open connection, its first exchange done."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: codec.Welcome


async def shake_hands(
    host: str, port: int, hello: bytes, context: ssl.SSLContext | None = None, server_name: str = ""
) -> Opened:
    """Connect and introduce ourselves. Raises OSError, EOFError (closed without an answer),
    ProtocolBroken. The caller bounds the time.
    """
    reader, writer = await asyncio.open_connection(
        host,
        port,
        limit=1024 * 1024,
        ssl=context,
        server_hostname=(server_name or host) if context is not None else None,
    )
    try:
        writer.write(_LENGTH.pack(len(hello)) + hello)
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if not 0 < length <= _ANSWER_BYTES_MAX:
            raise ProtocolBroken(
                f"{host}:{port} answered the handshake with a frame of {length} bytes"
            )
        body = await reader.readexactly(length)
        try:
            return Opened(reader, writer, codec.connected(body))
        except (struct.error, ValueError) as reason:
            raise ProtocolBroken(
                f"{host}:{port} answered the handshake with {body[:40]!r}"
            ) from reason
    except BaseException:
        writer.transport.abort()
        raise
