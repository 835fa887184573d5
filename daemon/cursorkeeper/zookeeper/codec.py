"""Requests to bytes, answers to values.

Owns one function per operation that makes a `Request`: how it is written and how its answer is
read. Requests are rendered by `aiozk.protocol`; so are the small answers. What carries a stat, an
operation of a multi, or op 22 (which aiozk does not know) is read here with `struct`: aiozk makes a
struct per field (20 us for a stat) and prints error codes it does not know. Does not own xids,
connections, chroots or sizes. Pure.

Invariant: a decoder consumes what it understands and raises `struct.error`, `ValueError` or
`IndexError` on anything else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from aiozk import protocol

from cursorkeeper.zookeeper.errors import (
    MultiFailed,
    NoNode,
    RolledBack,
    ZooKeeperError,
    error_from_code,
)
from cursorkeeper.zookeeper.values import (
    Check,
    Checked,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    Node,
    Op,
    OpResult,
    SetData,
    Stat,
    version_on_wire,
)

T = TypeVar("T")

OP_CREATE: Final = protocol.CreateRequest.opcode
OP_DELETE: Final = protocol.DeleteRequest.opcode
OP_GET_DATA: Final = protocol.GetDataRequest.opcode
OP_SET_DATA: Final = protocol.SetDataRequest.opcode
OP_CHECK: Final = protocol.CheckVersionRequest.opcode
OP_MULTI_READ: Final = 22
_OP_ERROR: Final = -1

_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_MULTI_HEADER = struct.Struct("!i?i")
# a multi header and, behind it, the size of the data or the code of the error
_READ_HEAD = struct.Struct("!i?ii")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_NO_WATCH = b"\0"


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One request: `encode(xid)` is the frame without its length, `decode(body)` reads the answer
    behind the reply header.

    `path` is the server's, for errors. `decode` may return an error instead of raising: a multi
    answers its failure as a result.
    """

    path: str | None
    encode: Callable[[int], bytes]
    decode: Callable[[bytes], T | ZooKeeperError]
    none_if_missing: bool = False
    """NoNode is an answer, None."""

    def read(self, code: int, body: bytes) -> T | ZooKeeperError | None:
        """The answer, or the error of the server."""
        if code == 0:
            return self.decode(body)
        error = error_from_code(code, self.path)
        return None if self.none_if_missing and isinstance(error, NoNode) else error


def _nothing(body: bytes) -> None:
    return None


def _request(
    path: str | None, message: Any, decode: Callable[[bytes], T | ZooKeeperError]
) -> Request[T]:
    return Request(path, lambda xid: bytes(message.serialize(xid=xid)), decode)


# --- single operations ----------------------------------------------------------------------------


def get(path: str, watch: bool) -> Request[Node]:
    return _request(
        path, protocol.GetDataRequest(path=path, watch=watch), lambda body: _node(body, 0)[0]
    )


def exists(path: str, watch: bool) -> Request[Stat | None]:
    message = protocol.ExistsRequest(path=path, watch=watch)
    return Request(
        path,
        lambda xid: bytes(message.serialize(xid=xid)),
        lambda body: Stat._make(_STAT.unpack_from(body)),
        True,
    )


def create(op: Create) -> Request[str]:
    def decode(body: bytes) -> str:
        return _string(body, 0)[0]

    return _request(op.path, _create_message(op), decode)


def set_data(op: SetData) -> Request[int]:
    return _request(op.path, _message(op), lambda body: Stat._make(_STAT.unpack_from(body)).version)


def delete(op: Delete) -> Request[None]:
    return _request(op.path, _message(op), _nothing)


def children(path: str) -> Request[list[str]]:
    def decode(body: bytes) -> list[str]:
        count, names, offset = _INT.unpack_from(body)[0], [], _INT.size
        for _ in range(count):
            name, offset = _string(body, offset)
            names.append(name)
        names.sort()
        return names

    return _request(path, protocol.GetChildrenRequest(path=path, watch=False), decode)


def sync(path: str) -> Request[None]:
    return _request(path, protocol.SyncRequest(path=path), _nothing)


def close() -> Request[None]:
    return _request(None, protocol.CloseRequest(), _nothing)


def set_watches(relative_zxid: int, data: Sequence[str], exist: Sequence[str]) -> Request[None]:
    message = protocol.SetWatchesRequest(
        relative_zxid=relative_zxid, data_watches=data, exist_watches=exist, child_watches=[]
    )
    return _request(None, message, _nothing)


# --- multi ----------------------------------------------------------------------------------------


def multi(ops: Sequence[Op]) -> Request[list[OpResult]]:
    """The answer is the list of results, or a MultiFailed."""
    message = protocol.TransactionRequest()
    for op in ops:
        message.add(_message(op))

    def decode(body: bytes) -> list[OpResult] | ZooKeeperError:
        return _multi_answer(body, ops)

    return _request(None, message, decode)


def _message(op: Op) -> Any:
    match op:
        case Create():
            return _create_message(op)
        case SetData():
            return protocol.SetDataRequest(
                path=op.path, data=op.data, version=version_on_wire(op.version)
            )
        case Delete():
            return protocol.DeleteRequest(path=op.path, version=version_on_wire(op.version))
        case Check():
            return protocol.CheckVersionRequest(path=op.path, version=version_on_wire(op.version))


def _create_message(op: Create) -> Any:
    message = protocol.CreateRequest(path=op.path, data=op.data, acl=[protocol.UNRESTRICTED_ACCESS])
    message.set_flags(ephemeral=op.ephemeral, sequential=op.sequential)
    return message


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
        path, offset = _string(body, offset)
        return Created(path), offset
    if kind == OP_SET_DATA:
        return DataSet(Stat._make(_STAT.unpack_from(body, offset)).version), offset + _STAT.size
    if kind == OP_DELETE:
        return Deleted(), offset
    if kind == OP_CHECK:
        return Checked(), offset
    raise ValueError(f"multi answered with operation {kind}")


# --- multi read -----------------------------------------------------------------------------------


def multi_read_path_bytes(path: str) -> int:
    """Bytes of one path in a multiRead."""
    return _MULTI_HEADER.size + _INT.size + len(path.encode()) + len(_NO_WATCH)


def multi_read(paths: Sequence[str]) -> Request[list[Node | None]]:
    """multiRead (op 22, ZooKeeper 3.6): many getData in one request. The answer is an error if one
    but NoNode came.
    """

    def encode(xid: int) -> bytes:
        header = _MULTI_HEADER.pack(OP_GET_DATA, False, -1)
        parts = [_INT.pack(xid), _INT.pack(OP_MULTI_READ)]
        for path in paths:
            name = path.encode()
            parts += (header, _INT.pack(len(name)), name, _NO_WATCH)
        return b"".join([*parts, _MULTI_END])

    def decode(body: bytes) -> list[Node | None] | ZooKeeperError:
        return _multi_read_answer(body, paths)

    return Request(None, encode, decode)


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


def _node(body: bytes, offset: int) -> tuple[Node, int]:
    size = _INT.unpack_from(body, offset)[0]
    start = offset + 4
    end = start + max(size, 0)  # -1: data that was never set
    stat = Stat._make(_STAT.unpack_from(body, end))
    return Node(body[start:end], stat.version, stat), end + _STAT.size


def _string(body: bytes, offset: int) -> tuple[str, int]:
    size = _INT.unpack_from(body, offset)[0]
    start = offset + 4
    if not 0 <= size <= len(body) - start:
        raise ValueError(f"string of {size} bytes in an answer of {len(body)}")
    return body[start : start + size].decode(), start + size
