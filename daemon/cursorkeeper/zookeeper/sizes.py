"""How many bytes a request takes on the wire, known before it is encoded.

Owns the arithmetic behind `ValueTooLarge`, shared by the client and the fake. Does not own the
bytes (`codec`). Pure. Invariant, tested: `request_bytes(op)` equals the length of the frame that
`codec` makes of it, without its length prefix.
"""

from __future__ import annotations

from cursorkeeper.zookeeper.errors import ValueTooLarge
from cursorkeeper.zookeeper.values import Check, Create, Delete, Op, SetData

HEADER_BYTES = 8  # xid, opcode
MULTI_HEADER_BYTES = 9  # type, done, error; also once at the end
_ACL_BYTES = 4 + 4 + (4 + len("world")) + (4 + len("anyone"))  # one entry: permissions, scheme, id


def op_bytes(op: Op) -> int:
    """Bytes of one operation's record, without header."""
    path_bytes = 4 + len(op.path.encode())
    match op:
        case Create():
            return path_bytes + 4 + len(op.data) + _ACL_BYTES + 4
        case SetData():
            return path_bytes + 4 + len(op.data) + 4
        case Delete() | Check():
            return path_bytes + 4


def request_bytes(op: Op) -> int:
    """Bytes of a request with this one operation."""
    return HEADER_BYTES + op_bytes(op)


def multi_bytes(ops: list[Op]) -> int:
    return HEADER_BYTES + sum(MULTI_HEADER_BYTES + op_bytes(op) for op in ops) + MULTI_HEADER_BYTES


def check_size(bytes_asked: int, bytes_max: int, path: str | None) -> None:
    """Raises ValueTooLarge if the request is above the limit."""
    if bytes_asked > bytes_max:
        raise ValueTooLarge(f"request of {bytes_asked} bytes, at most {bytes_max}", path=path)
