"""Ends the ZooKeeper session of a broker that was killed, at once, as if its time had run out.

Sessions of stories can so be as long as ZooKeeper lets them: a machine that stands still for half a
minute ends no broker, and nobody waits for the end of one that is gone. A session belongs to
whoever knows its number and its password; ZooKeeper makes the one from the other, by Java's
`Random`, so an ephemeral node's owner is enough to know.
"""

from __future__ import annotations

import socket
import struct

_LIMIT_S = 30.0
_SECRET = 0xB3415C00
_EXISTS, _CLOSE = 3, -11
_STAT_OWNER = struct.Struct(">qqqqiiiqiiq")
_REPLY = struct.Struct(">iqi")


def password(session: int) -> bytes:
    """What ZooKeeper gave to the client of this session."""
    seed = ((session ^ _SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    out = b""
    while len(out) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        out += struct.pack("<I", seed >> 16)
    return out


class _Link:
    """One connection; of a session of its own, or of one that exists."""

    def __init__(self, zookeeper: str, session: int = 0) -> None:
        host, _, port = zookeeper.partition("/")[0].split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _LIMIT_S)
        secret = password(session) if session else bytes(16)
        self._send(struct.pack(">iqiqi", 0, 0, 10_000, session, 16) + secret + b"\0")
        _, self.timeout_ms = struct.unpack_from(">ii", self._receive())

    def __enter__(self) -> _Link:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, kind: int, body: bytes = b"") -> bytes | None:
        """The answer's body; None: an error."""
        self._send(struct.pack(">ii", 1, kind) + body)
        answer = self._receive()
        return None if _REPLY.unpack_from(answer)[2] else answer[_REPLY.size :]

    def _send(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        out = b""
        while len(out) < size:
            part = self._socket.recv(size - len(out))
            if not part:
                raise ConnectionError("ZooKeeper closed the connection")
            out += part
        return out


def end_session_of(zookeeper: str, path: str) -> bool:
    """Ends the session that owns the node; False: there is none."""
    name = path.encode()
    with _Link(zookeeper) as link:
        stat = link.ask(_EXISTS, struct.pack(">i", len(name)) + name + b"\0")
        link.ask(_CLOSE)
    if stat is None:
        return False
    owner: int = _STAT_OWNER.unpack_from(stat)[7]
    assert owner, f"{path} is not ephemeral"
    with _Link(zookeeper, owner) as link:
        assert link.timeout_ms > 0, f"the session of {path} was not taken over"
        link.ask(_CLOSE)
    return True
