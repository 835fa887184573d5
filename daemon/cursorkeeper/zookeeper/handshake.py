"""From a host to a session.

Owns opening one TCP connection, the first exchange on it, and a login with SASL. Does not own which
host, how long, or what the answer means for the session. Invariant: when it does not return,
nothing it opened is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from dataclasses import dataclass

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.errors import ProtocolBroken
from cursorkeeper.zookeeper.sasl import Login

_LENGTH = struct.Struct("!i")
_ANSWER_BYTES_MAX = 64 * 1024
"""Tokens of Kerberos hold the groups of a user, which may be many."""
_LOGIN_STEPS_MAX = 8
NO_PASSWORD = bytes(16)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open connection, its first exchange done."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: codec.Welcome


async def shake_hands(
    host: str,
    port: int,
    hello: bytes,
    context: ssl.SSLContext | None = None,
    server_name: str = "",
    login: Login | None = None,
) -> Opened:
    """Connect and introduce ourselves; with `login` log in, too, unless the session has expired.
    Raises OSError, EOFError (closed without an answer), ProtocolBroken, AccessDenied. The caller
    bounds the time.
    """
    where = f"{host}:{port}"
    reader, writer = await asyncio.open_connection(
        host,
        port,
        limit=1024 * 1024,
        ssl=context,
        server_hostname=(server_name or host) if context is not None else None,
    )
    try:
        body = await _exchange(reader, writer, hello, where)
        try:
            welcome = codec.connected(body)
        except (struct.error, ValueError) as reason:
            raise ProtocolBroken(f"{where} answered the handshake with {body[:40]!r}") from reason
        if login is not None and not welcome.expired:
            await _log_in(reader, writer, login, where)
        return Opened(reader, writer, welcome)
    except ssl.SSLError:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            # it is told here: asyncio would print it as an error that nobody has looked at
            await writer.wait_closed()
        raise
    except BaseException:
        writer.transport.abort()
        raise


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes, where: str
) -> bytes:
    writer.write(_LENGTH.pack(len(frame)) + frame)
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not 0 < length <= _ANSWER_BYTES_MAX:
        raise ProtocolBroken(f"{where} answered the handshake with a frame of {length} bytes")
    return await reader.readexactly(length)


async def _log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login, where: str
) -> None:
    said = b""
    for xid in range(1, _LOGIN_STEPS_MAX + 1):
        token = await login.answer(said)
        if token is None:
            return
        try:
            body = await _exchange(reader, writer, codec.login(xid, token), where)
        except asyncio.IncompleteReadError as cut:
            raise login.refused(where, has_ended=True) from cut
        try:
            answered, code, said = codec.login_answer(body)
        except (struct.error, ValueError) as reason:
            raise ProtocolBroken(f"{where} answered the login with {body[:40]!r}") from reason
        if code or answered != xid:
            raise login.refused(where, has_ended=False)
    raise ProtocolBroken(f"{where} wants more than {_LOGIN_STEPS_MAX} steps of a login")
