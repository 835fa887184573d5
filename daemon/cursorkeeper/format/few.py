"""Delta bodies of little read number by number: what a cursor that just ended left in its ledger.

Serves an opening: columns cost more than they save where all bodies together hold some thousand
numbers. As in `columns`, whatever is not plain raises `Unusual`, and the caller reads the bodies
one by one. Invariant: what this accepts, `delta.decode` accepts with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.values import Delta
from cursorkeeper.format import leb, sections
from cursorkeeper.format.columns import Unusual
from cursorkeeper.format.fields import Field, read_mark_delete
from cursorkeeper.format.sections import Mode

BYTES_MAX: Final = 1 << 13
"""A byte is an ack at most, except in runs and bitmaps, which are counted."""
_ACKS_MAX: Final = 1 << 16
_MARK_DELETE: Final = int(Field.MARK_DELETE)
_ACKS: Final = int(Field.ACKS)
_GAPS: Final = int(Mode.GAPS)


def read(bodies: Sequence[bytes]) -> Delta:
    """The join of bodies that hold mark-delete and acks and nothing else, together at most
    `BYTES_MAX`. Raises Unusual.
    """
    if sum(map(len, bodies)) > BYTES_MAX:
        raise Unusual
    members: dict[int, list[int]] = {}
    ranges: dict[int, BitMap] = {}
    mark_delete: Position | None = None
    room = _ACKS_MAX
    try:
        for body in bodies:
            bits, pos = leb.read(body, 0)
            if bits & ~(_MARK_DELETE | _ACKS):
                raise Unusual
            if bits & _MARK_DELETE:
                found, pos = read_mark_delete(body, pos)
                mark_delete = found if mark_delete is None else max(mark_delete, found)
            if bits & _ACKS:
                room, pos = _take(body, pos, members, ranges, room)
            if pos != len(body):
                raise Unusual
    except DamageError:
        raise Unusual from None
    acks: dict[int, BitMap] = {}
    for ledger in sorted({*members, *ranges}):
        acks[ledger] = BitMap(members.get(ledger, []))
        if ledger in ranges:
            acks[ledger] |= ranges[ledger]
    return Delta(mark_delete, acks=acks)


def _take(
    body: bytes, pos: int, members: dict[int, list[int]], ranges: dict[int, BitMap], room: int
) -> tuple[int, int]:
    """Adds the acks of one body; returns the room that is left, and the place after them."""
    end = len(body)
    count, pos = leb.read(body, pos)
    if count == 0 or count > end:
        raise Unusual
    ledger = 0
    for index in range(count):
        gap, pos = leb.read(body, pos)
        mode, size, entry, pos = sections.read_head(body, pos)
        ledger += gap
        last = pos + size
        if ledger > LEDGER_ID_MAX or last > end or (gap == 0 and index > 0):
            raise Unusual
        if mode != _GAPS:
            found = sections.decode(mode, entry, body[pos:last], room)
            room -= len(found)
            if ledger in ranges:
                ranges[ledger] |= found
            else:
                ranges[ledger] = found
            pos = last
            continue
        known = members.get(ledger)
        if known is None:
            known = members[ledger] = []
        known.append(entry)
        while pos < last:
            byte = body[pos]
            if byte < 0x80:
                entry += byte + 1
                pos += 1
            else:
                gap, pos = leb.read(body, pos)
                entry += gap + 1
            known.append(entry)
        if pos != last or entry > ENTRY_ID_MAX:
            raise Unusual
    return room, pos
