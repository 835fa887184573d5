"""The fields that delta, segment and end record share: mark-delete, property maps, layout, partly
acked batches.

Owns `leb(field bits)` and what each bit announces. Invariants: fields stand in the order of their
bits; keys, ledgers and entries ascend, so one value has one encoding; an unknown bit refuses the
record (its length cannot be skipped).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.shape import direct
from cursorkeeper.core.sizes import RECORD_CONTAINERS_MAX, set_containers_max
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Segment,
    SnapshotEnd,
    Stamp,
)
from cursorkeeper.format import leb, sections

V = TypeVar("V")


@direct
class Field(IntEnum):
    """The values are bits. Sums of them are plain numbers, which cost a tenth of what an
    enumeration of flags costs.
    """

    MARK_DELETE = 1
    MARK_DELETE_PROPERTIES = 2
    CURSOR_PROPERTIES = 4
    LAYOUT = 8
    ACKS = 16
    PARTIALS = 32


def append_head(
    out: bytearray,
    more: int,
    body: Delta | Segment | SnapshotEnd,
    layout: tuple[LayoutItem, ...] = (),
) -> None:
    """Field bits (`more` = those of what the caller writes next), then fields 0 to 3."""
    mark_delete, cursor_properties = body.mark_delete, body.cursor_properties
    mark_delete_properties = body.mark_delete_properties
    if mark_delete is not None:
        more |= Field.MARK_DELETE
    if mark_delete_properties is not None:
        more |= Field.MARK_DELETE_PROPERTIES
    if cursor_properties is not None:
        more |= Field.CURSOR_PROPERTIES
    if layout:
        more |= Field.LAYOUT
    leb.append(out, more)
    if mark_delete is not None:
        leb.append(out, mark_delete.ledger)
        leb.append(out, mark_delete.entry + 1)
    if mark_delete_properties is not None:
        _append_map(
            out, mark_delete_properties.stamp, mark_delete_properties.values, _append_number
        )
    if cursor_properties is not None:
        _append_map(out, cursor_properties.stamp, cursor_properties.values, _append_text)
    if layout:
        _append_layout(out, layout)


class Head:
    """Fields 0 to 3 of a body, read, as `common`; `bits` and `pos` say what follows and where."""

    __slots__ = ("bits", "common", "pos")

    def __init__(self, data: bytes, pos: int, allowed: int) -> None:
        """Raises DamageError."""
        bits, pos = leb.read(data, pos)
        unknown = bits & ~allowed
        if unknown:
            raise DamageError(f"unknown field bits {unknown:#x}")
        mark_delete = mark_delete_properties = cursor_properties = None
        layout: tuple[LayoutItem, ...] = ()
        if bits & Field.MARK_DELETE:
            mark_delete, pos = read_mark_delete(data, pos)
        if bits & Field.MARK_DELETE_PROPERTIES:
            stamp, numbers, pos = _read_map(data, pos, _read_number)
            mark_delete_properties = MarkDeleteProperties(stamp, numbers)
        if bits & Field.CURSOR_PROPERTIES:
            stamp, texts, pos = _read_map(data, pos, _read_text)
            cursor_properties = CursorProperties(stamp, texts)
        if bits & Field.LAYOUT:
            layout, pos = _read_layout(data, pos)
        self.common = mark_delete, mark_delete_properties, cursor_properties, layout
        self.bits, self.pos = bits, pos


def read_count(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """A count of items that follow: each takes at least one byte."""
    count, pos = leb.read(data, pos)
    if count > len(data) - pos:
        raise DamageError(f"{count} {what} are announced in {len(data) - pos} bytes")
    return count, pos


def read_present(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """The count of a field whose bit is set, so it is not 0."""
    count, pos = read_count(data, pos, what)
    if count == 0:
        raise DamageError(f"the bit of {what} is set, but there are none")
    return count, pos


def read_ledger(data: bytes, pos: int, previous: int) -> tuple[int, int]:
    """A ledger id written as the distance from `previous` (0 before the first)."""
    gap, pos = leb.read(data, pos)
    ledger = previous + gap
    if ledger > LEDGER_ID_MAX:
        raise DamageError(f"{ledger} is no ledger id")
    return ledger, pos


class Containers:
    """How many containers the sets of a record may still name members of."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = RECORD_CONTAINERS_MAX

    def take(self, count: int) -> None:
        """Those of one more set. Raises DamageError."""
        self._left -= count
        if self._left < 0:
            raise DamageError(
                f"the sets of a record lie in more than {RECORD_CONTAINERS_MAX} containers of "
                f"65,536 entries"
            )


def check_end(data: bytes, pos: int) -> None:
    """Nothing may follow."""
    if pos != len(data):
        raise DamageError(f"{len(data) - pos} bytes follow the end of the body")


# --- mark-delete and properties -------------------------------------------------------------------


def read_mark_delete(data: bytes, pos: int) -> tuple[Position, int]:
    ledger, pos = read_ledger(data, pos, 0)
    entry, pos = leb.read(data, pos)
    if entry > ENTRY_ID_MAX + 1:
        raise DamageError(f"mark-delete entry {entry - 1} is no entry id")
    return Position(ledger, entry - 1), pos


def _append_map(
    out: bytearray, stamp: Stamp, values: Mapping[str, V], append: Callable[[bytearray, V], None]
) -> None:
    leb.append(out, len(values))
    leb.append(out, stamp.epoch)
    leb.append(out, stamp.sequence)
    for key, value in sorted((key.encode(), value) for key, value in values.items()):
        leb.append(out, len(key))
        out += key
        append(out, value)


def _read_map(
    data: bytes, pos: int, read: Callable[[bytes, int], tuple[V, int]]
) -> tuple[Stamp, dict[str, V], int]:
    count, pos = read_count(data, pos, "properties")
    epoch, pos = leb.read(data, pos)
    sequence, pos = leb.read(data, pos)
    values: dict[str, V] = {}
    previous = b""
    for index in range(count):
        key, pos = _read_bytes(data, pos)
        if index and key <= previous:
            raise DamageError("property keys do not ascend")
        values[_text(key)], pos = read(data, pos)
        previous = key
    return Stamp(epoch, sequence), values, pos


def _append_number(out: bytearray, value: int) -> None:
    leb.append(out, leb.zigzag(value))


def _read_number(data: bytes, pos: int) -> tuple[int, int]:
    number, pos = leb.read(data, pos)
    return leb.unzigzag(number), pos


def _append_text(out: bytearray, value: str) -> None:
    raw = value.encode()
    leb.append(out, len(raw))
    out += raw


def _read_text(data: bytes, pos: int) -> tuple[str, int]:
    raw, pos = _read_bytes(data, pos)
    return _text(raw), pos


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = leb.read(data, pos)
    if size > len(data) - pos:
        raise DamageError(f"a text of {size} bytes where {len(data) - pos} are left")
    return data[pos : pos + size], pos + size


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DamageError("a property is not UTF-8") from None


# --- layout ---------------------------------------------------------------------------------------


def _append_layout(out: bytearray, layout: tuple[LayoutItem, ...]) -> None:
    leb.append(out, len(layout))
    previous = -1
    for item in layout:
        if item.ledger <= previous:
            raise ValueError(f"layout ledgers must ascend: {item.ledger} after {previous}")
        if item.entries and item.state is not LayoutState.CLOSED:
            raise ValueError(
                f"ledger {item.ledger} is {item.state.name} and must have no entry count"
            )
        leb.append(out, item.ledger - max(previous, 0))
        leb.append(out, item.state)
        leb.append(out, item.entries)
        previous = item.ledger


def _read_layout(data: bytes, pos: int) -> tuple[tuple[LayoutItem, ...], int]:
    count, pos = read_present(data, pos, "layout items")
    items: list[LayoutItem] = []
    ledger = 0
    for index in range(count):
        previous = ledger
        ledger, pos = read_ledger(data, pos, previous)
        if index and ledger == previous:
            raise DamageError("layout ledgers do not ascend")
        state, pos = leb.read(data, pos)
        entries, pos = leb.read(data, pos)
        if state > LayoutState.TRIMMED:
            raise DamageError(f"unknown layout state {state}")
        if entries > (ENTRY_ID_MAX + 1 if state == LayoutState.CLOSED else 0):
            raise DamageError(
                f"ledger {ledger} cannot have {entries} entries in layout state {state}"
            )
        items.append(LayoutItem(ledger, LayoutState(state), entries))
    return tuple(items), pos


# --- partly acked batches -------------------------------------------------------------------------


def append_partials(out: bytearray, partials: Mapping[PartialKey, Partial]) -> None:
    """Count, then each batch: ledger gap, entry, batch size or 0, number of missing indexes, and
    their section.
    """
    leb.append(out, len(partials))
    previous = 0
    for key in sorted(partials):
        partial = partials[key]
        leb.append(out, key.ledger - previous)
        leb.append(out, key.entry)
        leb.append(out, partial.batch_size)
        leb.append(out, len(partial.missing))
        sections.append(out, partial.missing)
        previous = key.ledger


def read_partials(
    data: bytes, pos: int, room: int, containers: Containers
) -> tuple[dict[PartialKey, Partial], int]:
    """The inverse; at most `room` missing indexes altogether. Raises DamageError."""
    count, pos = read_present(data, pos, "partly acked batches")
    partials: dict[PartialKey, Partial] = {}
    key = PartialKey(0, -1)
    for _ in range(count):
        ledger, pos = read_ledger(data, pos, key.ledger)
        entry, pos = leb.read(data, pos)
        if entry > ENTRY_ID_MAX:
            raise DamageError(f"{entry} is no entry id")
        if (ledger, entry) <= key:
            raise DamageError("partly acked batches do not ascend")
        key = PartialKey(ledger, entry)
        partials[key], pos = _read_partial(data, pos, key, room)
        room -= len(partials[key].missing)
        containers.take(set_containers_max(partials[key].missing))
    return partials, pos


def _read_partial(data: bytes, pos: int, key: PartialKey, room: int) -> tuple[Partial, int]:
    batch_size, pos = leb.read(data, pos)
    announced, pos = leb.read(data, pos)
    missing, pos = sections.read(data, pos, room)
    if len(missing) != announced:
        raise DamageError(
            f"batch {key.ledger}:{key.entry} announces {announced} missing indexes and holds "
            f"{len(missing)}"
        )
    if batch_size > ENTRY_ID_MAX + 1:
        raise DamageError(f"batch {key.ledger}:{key.entry} of {batch_size} messages")
    if batch_size and missing.max() >= batch_size:
        raise DamageError(
            f"batch {key.ledger}:{key.entry} of {batch_size} misses index {missing.max()}"
        )
    return Partial(batch_size, missing), pos
