"""From a host to a session.

Owns opening one TCP connection, the first exchange on it, and a login with SASL. Does not own which
host, how long, or what the answer means for the session. Invariant: when it does not return,
nothing it opened is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import struct
from dataclasses import dataclass

from cursorkeeper.zookeeper import codec, digest_md5
from cursorkeeper.zookeeper.errors import AccessDenied, ProtocolBroken

_LENGTH = struct.Struct("!i")
_ANSWER_BYTES_MAX = 4096
_LOGIN_XIDS = (1, 2)
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
    login: tuple[str, str] | None = None,
) -> Opened:
    """Connect and introduce ourselves; with `login`, user and password, by DIGEST-MD5, too, unless
    the session has expired. Raises OSError, EOFError (closed without an answer), ProtocolBroken,
    AccessDenied. The caller bounds the time.
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
            await _log_in(reader, writer, *login, where)
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
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    user: str,
    password: str,
    where: str,
) -> None:
    token, expected = b"", None
    for xid in _LOGIN_XIDS:
        try:
            body = await _exchange(reader, writer, codec.login(xid, token), where)
        except asyncio.IncompleteReadError as cut:
            raise AccessDenied(
                f"{where} ended the login of {user!r}: the password of zookeeper_auth_file is "
                f"wrong, or ZooKeeper knows no such user"
            ) from cut
        try:
            answered, code, said = codec.login_answer(body)
        except (struct.error, ValueError) as reason:
            raise ProtocolBroken(f"{where} answered the login with {body[:40]!r}") from reason
        if code or answered != xid:
            raise AccessDenied(
                f"{where} refuses the login of {user!r} (zookeeper_auth_file): its password is "
                f"wrong, ZooKeeper knows no such user, or has no login at all"
            )
        if expected is None:
            expected = digest_md5.answer(said, user, password, secrets.token_hex(16).encode())
            token = expected.response
        else:
            digest_md5.check(said, expected)
