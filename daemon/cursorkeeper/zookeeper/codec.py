"""Requests to bytes, answers to values: as much of ZooKeeper's protocol as is used here.

Owns one function per operation that makes a `Request`: how it is written and how its answer is
read. Does not own xids, connections, chroots or limits. Pure.

Invariant: a decoder consumes what it understands and raises `struct.error`, `ValueError` or
`IndexError` on anything else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cursorkeeper.zookeeper.acl import OPEN, Acl, Entry
from cursorkeeper.zookeeper.errors import (
    MultiFailed,
    NoNode,
    RolledBack,
    ValueTooLarge,
    ZooKeeperError,
    error_from_code,
)
from cursorkeeper.zookeeper.values import (
    Check,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SetData,
    Stat,
    Version,
    version_on_wire,
)

T = TypeVar("T")

OP_CREATE: Final = 1
OP_DELETE: Final = 2
OP_EXISTS: Final = 3
OP_GET_DATA: Final = 4
OP_SET_DATA: Final = 5
OP_GET_ACL: Final = 6
OP_SET_ACL: Final = 7
OP_GET_CHILDREN: Final = 8
OP_SYNC: Final = 9
OP_PING: Final = 11
OP_CHECK: Final = 13
OP_MULTI: Final = 14
OP_MULTI_READ: Final = 22
OP_AUTH: Final = 100
OP_SET_WATCHES: Final = 101
OP_SASL: Final = 102
OP_CLOSE: Final = -11
_OP_ERROR: Final = -1
XID_PING: Final = -2
XID_WATCH: Final = -1
XID_AUTH: Final = -4
EVENT_CHILDREN_CHANGED: Final = 4

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!ii")  # xid, operation
_REPLY = struct.Struct("!iqi")  # xid, zxid, error
_CONNECT = struct.Struct("!iqiq")  # protocol version, last zxid, timeout, session
_CONNECTED = struct.Struct("!iiq")  # protocol version, timeout, session
_STAT = struct.Struct("!qqqqiiiqiiq")
_MULTI_HEADER = struct.Struct("!i?i")
# a multi header and, behind it, the size of the data or the code of the error
_READ_HEAD = struct.Struct("!i?ii")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_NO_WATCH = b"\0"
PING: Final = _HEADER.pack(XID_PING, OP_PING)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One request: `decode(body)` reads the answer behind the reply header.

    `path` is the server's, for errors. `decode` may return an error instead of raising: a multi
    answers its failure as a result.
    """

    path: str | None
    operation: int
    body: bytes
    decode: Callable[[bytes], T | ZooKeeperError]
    none_if_missing: bool = False
    """NoNode is an answer, None."""

    @property
    def size_bytes(self) -> int:
        """Of the frame, without its length."""
        return _HEADER.size + len(self.body)

    def encode(self, xid: int) -> bytes:
        """The frame, without its length."""
        return _HEADER.pack(xid, self.operation) + self.body

    def read(self, code: int, body: bytes) -> T | ZooKeeperError | None:
        """The answer, or the error of the server."""
        if code == 0:
            return self.decode(body)
        error = error_from_code(code, self.path)
        return None if self.none_if_missing and isinstance(error, NoNode) else error


def check_size(request: Request[Any], bytes_max: int) -> None:
    """Raises ValueTooLarge if the request is above the limit."""
    if request.size_bytes > bytes_max:
        raise ValueTooLarge(
            f"request of {request.size_bytes} bytes, at most {bytes_max}", path=request.path
        )


def _nothing(body: bytes) -> None:
    return None


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _name(path: str) -> bytes:
    return _buffer(path.encode())


def acl_bytes(acl: Acl) -> bytes:
    """A list as `write` and `multi` take it."""
    entries = (_INT.pack(one.permissions) + _name(one.scheme) + _name(one.id) for one in acl)
    return _INT.pack(len(acl)) + b"".join(entries)


EVERYBODY: Final = acl_bytes(OPEN)


# --- the session ----------------------------------------------------------------------------------


class Welcome(NamedTuple):
    """What the server gives. `expired`: it does not know the session any more."""

    session_id: int
    password: bytes
    timeout_s: float

    @property
    def expired(self) -> bool:
        return self.session_id == 0 or self.timeout_s <= 0


def connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The first frame. Session 0 is a new one; a server that has not seen `last_zxid` yet refuses
    us, and we go to the next.
    """
    return _CONNECT.pack(0, last_zxid, timeout_ms, session_id) + _buffer(password) + b"\0"


def connected(body: bytes) -> Welcome:
    """The server's answer to `connect`. Raises ValueError for one that is cut off."""
    _, timeout_ms, session_id = _CONNECTED.unpack_from(body)
    (length,) = _INT.unpack_from(body, _CONNECTED.size)
    start = _CONNECTED.size + _INT.size
    if len(body) < start + length:
        raise ValueError(f"password of {length} bytes in an answer of {len(body)}")
    return Welcome(session_id, body[start : start + max(length, 0)], timeout_ms / 1000)


def watch_event(body: bytes) -> tuple[int, str]:
    """What happened, `EVENT_CHILDREN_CHANGED` or another number, and the path to which."""
    kind, _state = _HEADER.unpack_from(body)
    if _INT.unpack_from(body, _HEADER.size)[0] == -1:
        return kind, ""  # of no node: nobody watches it
    return kind, _string(body, _HEADER.size)[0]


def authentication(scheme: str, secret: bytes) -> bytes:
    """The frame that says who we are, without its length. It is answered under `XID_AUTH`."""
    return _HEADER.pack(XID_AUTH, OP_AUTH) + _INT.pack(0) + _name(scheme) + _buffer(secret)


def login(xid: int, token: bytes) -> bytes:
    """A frame of a login with SASL, without its length."""
    return _HEADER.pack(xid, OP_SASL) + _buffer(token)


def login_answer(frame: bytes) -> tuple[int, int, bytes]:
    """The xid, an error or 0, and the server's token. Raises ValueError for one that is cut off."""
    xid, _zxid, code = _REPLY.unpack_from(frame)
    if code or len(frame) == _REPLY.size:
        return xid, code, b""
    (length,) = _INT.unpack_from(frame, _REPLY.size)
    token = frame[_REPLY.size + _INT.size :]
    if max(length, 0) != len(token):
        raise ValueError(f"a token of {length} bytes in an answer of {len(frame)}")
    return xid, code, token


def close() -> Request[None]:
    return Request(None, OP_CLOSE, b"", _nothing)


def set_watches(relative_zxid: int, paths: Sequence[str]) -> Request[None]:
    """Of nodes that were there: none for the creation of one, nor for children."""
    head = struct.pack("!qi", relative_zxid, len(paths))
    body = b"".join([head, *map(_name, paths), _INT.pack(0), _INT.pack(0)])
    return Request(None, OP_SET_WATCHES, body, _nothing)


# --- single operations ----------------------------------------------------------------------------


def get(path: str, watch: bool) -> Request[Node]:
    return Request(path, OP_GET_DATA, _name(path) + bytes([watch]), _node)


def exists(path: str) -> Request[Stat | None]:
    def decode(body: bytes) -> Stat:
        return Stat._make(_STAT.unpack_from(body))

    return Request(path, OP_EXISTS, _name(path) + _NO_WATCH, decode, none_if_missing=True)


def children(path: str) -> Request[list[str]]:
    def decode(body: bytes) -> list[str]:
        count, names, offset = _INT.unpack_from(body)[0], [], _INT.size
        for _ in range(count):
            name, offset = _string(body, offset)
            names.append(name)
        names.sort()
        return names

    return Request(path, OP_GET_CHILDREN, _name(path) + _NO_WATCH, decode)


def get_acl(path: str) -> Request[tuple[Acl, Stat]]:
    def decode(body: bytes) -> tuple[Acl, Stat]:
        count, entries, offset = _INT.unpack_from(body)[0], [], _INT.size
        for _ in range(count):
            permissions = _INT.unpack_from(body, offset)[0]
            scheme, offset = _string(body, offset + _INT.size)
            user, offset = _string(body, offset)
            entries.append(Entry(permissions, scheme, user))
        return tuple(entries), Stat._make(_STAT.unpack_from(body, offset))

    return Request(path, OP_GET_ACL, _name(path), decode)


def set_acl(path: str, acl: Acl, version: Version) -> Request[Stat]:
    """`version`: of the list, which has its own. ValueError for a version that is none."""
    body = _name(path) + acl_bytes(acl) + _INT.pack(version_on_wire(version))
    return Request(path, OP_SET_ACL, body, lambda answer: Stat._make(_STAT.unpack_from(answer)))


def sync(path: str) -> Request[None]:
    return Request(path, OP_SYNC, _name(path), _nothing)


def write(op: Op, acl: bytes = EVERYBODY) -> Request[OpResult]:
    """`acl`: of a node that it makes. ValueError for a version that is none."""
    kind, body = _record(op, acl)
    return Request(op.path, kind, body, lambda answer: _op_result(kind, answer, 0)[0])


def _record(op: Op, acl: bytes) -> tuple[int, bytes]:
    name = _name(op.path)
    match op:
        case Create():
            return OP_CREATE, name + _buffer(op.data) + acl + _INT.pack(op.ephemeral)
        case SetData():
            version = _INT.pack(version_on_wire(op.version))
            return OP_SET_DATA, name + _buffer(op.data) + version
        case Delete():
            return OP_DELETE, name + _INT.pack(version_on_wire(op.version))
        case Check():
            return OP_CHECK, name + _INT.pack(version_on_wire(op.version))


# --- multi ----------------------------------------------------------------------------------------


def multi(ops: Sequence[Op], acl: bytes = EVERYBODY) -> Request[list[OpResult]]:
    """The answer is the list of results, or a MultiFailed. `acl`: of nodes that it makes.
    ValueError for a version that is none.
    """
    records = [_record(op, acl) for op in ops]
    parts = [part for kind, body in records for part in (_header(kind), body)]
    return Request(
        None, OP_MULTI, b"".join([*parts, _MULTI_END]), lambda body: _multi_answer(body, ops)
    )


def _header(kind: int) -> bytes:
    return _MULTI_HEADER.pack(kind, False, -1)


def _multi_answer(body: bytes, ops: Sequence[Op]) -> list[OpResult] | ZooKeeperError:
    results: list[OpResult] = []
    errors: list[ZooKeeperError] = []
    offset = 0
    for op in ops:
        kind, done, _ = _MULTI_HEADER.unpack_from(body, offset)
        offset += _MULTI_HEADER.size
        if done:
            raise ValueError(
                f"multi of {len(ops)} answered with {len(results) + len(errors)} results"
            )
        if kind == _OP_ERROR:
            errors.append(
                error_from_code(_INT.unpack_from(body, offset)[0], op.path, in_multi=True)
            )
            offset += _INT.size
        else:
            result, offset = _op_result(kind, body, offset)
            results.append(result)
    if not errors:
        return results
    if results:
        raise ValueError("multi answered with both results and errors")
    return MultiFailed(
        errors,
        next((index for index, error in enumerate(errors) if not isinstance(error, RolledBack)), 0),
    )


def _op_result(kind: int, body: bytes, offset: int) -> tuple[OpResult, int]:
    if kind == OP_CREATE:
        return None, _string(body, offset)[1]
    if kind == OP_SET_DATA:
        return Stat._make(_STAT.unpack_from(body, offset)).version, offset + _STAT.size
    if kind not in (OP_DELETE, OP_CHECK):
        raise ValueError(f"multi answered with operation {kind}")
    return None, offset


# --- multi read -----------------------------------------------------------------------------------


def multi_read_path_bytes(path: str) -> int:
    """Bytes of one path in a multiRead."""
    return _MULTI_HEADER.size + _INT.size + len(path.encode()) + len(_NO_WATCH)


def multi_read(paths: Sequence[str]) -> Request[list[Node | None]]:
    """multiRead (op 22, ZooKeeper 3.6): many getData in one request. The answer is an error if one
    but NoNode came.
    """

    header = _header(OP_GET_DATA)
    parts = [part for path in paths for part in (header, _name(path), _NO_WATCH)]
    return Request(
        None,
        OP_MULTI_READ,
        b"".join([*parts, _MULTI_END]),
        lambda body: _multi_read_answer(body, paths),
    )


def _multi_read_answer(body: bytes, paths: Sequence[str]) -> list[Node | None] | ZooKeeperError:
    # The one loop here that runs a million times: locals, one unpack for header and size, no calls
    # that are not needed.
    nodes: list[Node | None] = []
    offset = 0
    head_from, head_bytes, stat_from, stat_bytes, stat_of = (
        _READ_HEAD.unpack_from,
        _READ_HEAD.size,
        _STAT.unpack_from,
        _STAT.size,
        Stat._make,
    )
    for path in paths:
        kind, done, _, size_or_code = head_from(body, offset)
        offset += head_bytes
        if kind == OP_GET_DATA:
            # -1: data that was never set
            end = offset + size_or_code if size_or_code > 0 else offset
            stat = stat_of(stat_from(body, end))
            nodes.append(Node(body[offset:end], stat.version, stat))
            offset = end + stat_bytes
        elif kind == _OP_ERROR and not done:
            error = error_from_code(size_or_code, path)
            if not isinstance(error, NoNode):
                return error
            nodes.append(None)
        else:
            raise ValueError(f"multiRead of {len(paths)} answered with {len(nodes)} results")
    return nodes


# --- pieces ---------------------------------------------------------------------------------------


def _node(body: bytes) -> Node:
    size = _INT.unpack_from(body)[0]
    end = _INT.size + max(size, 0)  # -1: data that was never set
    stat = Stat._make(_STAT.unpack_from(body, end))
    return Node(body[_INT.size : end], stat.version, stat)


def _string(body: bytes, offset: int) -> tuple[str, int]:
    size = _INT.unpack_from(body, offset)[0]
    start = offset + 4
    if not 0 <= size <= len(body) - start:
        raise ValueError(f"string of {size} bytes in an answer of {len(body)}")
    return body[start : start + size].decode(), start + size
