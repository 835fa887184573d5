"""Serves every message of acks: one that names entries and nothing else is read from its bytes.

Nearly all are such. Protobuf would make an object for each data ledger and one for each column,
which is most of what reading them costs. Whatever is written in another way than protobuf's
libraries write it, or says more, is left to protobuf: nothing here has been concluded from it.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.limits import ACK_LEDGERS_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.format import leb
from cursorkeeper_client._proto import acks_pb2 as pb

_OF_BYTES: Final = 2
_HANDLE: Final[int] = pb.AckBatch.HANDLE_FIELD_NUMBER << 3
_SEQ: Final[int] = pb.AckBatch.SEQ_FIELD_NUMBER << 3
_MARK_DELETE: Final[int] = pb.AckBatch.MARK_DELETE_FIELD_NUMBER << 3 | _OF_BYTES
_LEDGERS: Final[int] = pb.AckBatch.LEDGERS_FIELD_NUMBER << 3 | _OF_BYTES
_GENERATION: Final[int] = pb.AckBatch.GENERATION_FIELD_NUMBER << 3
_LEDGER_ID: Final[int] = pb.LedgerAcks.LEDGER_ID_FIELD_NUMBER << 3
_ENTRIES: Final[int] = pb.LedgerAcks.ENTRIES_FIELD_NUMBER << 3 | _OF_BYTES
_U32_BYTES: Final = 4
_POSITION_BYTES_MAX: Final = 22
"""Two numbers of ten bytes, and a tag for each."""


@frozen
class PlainAcks:
    """An AckBatch that says no more. `entries`: of each data ledger, an array of u32 whose order
    and repeats mean nothing.
    """

    handle: int
    seq: int
    generation: int
    mark_delete: Position | None
    ledgers: list[int]
    entries: list[bytes]


def read(data: bytes) -> PlainAcks | None:
    """An AckBatch; None: protobuf must say what it is. Raises DecodeError."""
    try:
        return _read(data)
    except DamageError:
        return None


def _read(data: bytes) -> PlainAcks | None:
    """The fields in any order, each number at most once, none that is empty. Raises DamageError."""
    handle = seq = generation = 0
    mark_delete: Position | None = None
    ledgers: list[int] = []
    entries: list[bytes] = []
    pos, end = 0, len(data)
    while pos < end:
        tag = data[pos]
        number, pos = leb.read(data, pos + 1)
        if number == 0:
            return None
        if tag == _LEDGERS:
            stop = pos + number
            if stop > end or len(ledgers) >= ACK_LEDGERS_MAX:
                return None
            pos = _read_ledger(data, pos, stop, ledgers, entries)
            if pos != stop:
                return None
        elif tag == _SEQ and not seq:
            seq = number
        elif tag == _MARK_DELETE and mark_delete is None:
            if number > _POSITION_BYTES_MAX or pos + number > end:
                return None
            sent = pb.Position.FromString(data[pos : pos + number])
            if sent.ByteSize() != number:
                return None
            mark_delete = Position(sent.ledger, sent.entry)
            pos += number
        elif number > leb.U32_MAX:
            return None
        elif tag == _HANDLE and not handle:
            handle = number
        elif tag == _GENERATION and not generation:
            generation = number
        else:
            return None
    return PlainAcks(handle, seq, generation, mark_delete, ledgers, entries)


def _read_ledger(data: bytes, pos: int, stop: int, ledgers: list[int], entries: list[bytes]) -> int:
    """Where it stands behind what is known of a LedgerAcks. Raises DamageError."""
    ledger, column = 0, b""
    if data[pos] == _LEDGER_ID:
        ledger, pos = leb.read(data, pos + 1)
        if ledger == 0:
            return -1
    if pos < stop and data[pos] == _ENTRIES:
        size, pos = leb.read(data, pos + 1)
        if size == 0 or size % _U32_BYTES or pos + size > stop:
            return -1
        column = data[pos : pos + size]
        pos += size
    ledgers.append(ledger)
    entries.append(column)
    return pos
