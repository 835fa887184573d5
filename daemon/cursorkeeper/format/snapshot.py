"""Snapshot segments and the end record that makes a snapshot of them.

Owns `slice := u64 ledger, u32 first, u32 last, u8 flags (1 = holes), u32 length, portable roaring
bytes` and the list of segments. Portable roaring is what Java's RoaringBitmap reads. Invariants: a
bitmap holds nothing outside its slice; no bytes are left over anywhere; encoding never touches the
bitmap it was given.
"""

from __future__ import annotations

import struct
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import LEDGER_ID_MAX
from cursorkeeper.core.sizes import EXPANSION_MAX, slice_containers_max
from cursorkeeper.core.values import Partial, PartialKey, Segment, Slice, SnapshotEnd
from cursorkeeper.format import leb
from cursorkeeper.format.fields import (
    Containers,
    Field,
    Head,
    append_head,
    append_partials,
    check_end,
    read_count,
    read_partials,
)

_SLICE: Final = struct.Struct("<QIIBI")
_END: Final = struct.Struct("<QIIQI")
_HOLES: Final = 1
SEGMENTS_MAX: Final = 1 << 18
"""Segments of one snapshot. Each holds some 8,000,000 entries, or as many data ledgers as its bytes
have room for.
"""
_SEGMENT_FIELDS: Final = 63 & ~Field.ACKS
_END_FIELDS: Final = Field.MARK_DELETE | Field.MARK_DELETE_PROPERTIES | Field.CURSOR_PROPERTIES


def encode_segment(segment: Segment) -> bytes:
    """The uncompressed body. Raises ValueError when a bitmap reaches outside its slice."""
    out = bytearray()
    more = Field.PARTIALS if segment.partials else 0
    append_head(out, more, segment, segment.layout)
    if segment.partials:
        append_partials(out, segment.partials)
    leb.append(out, len(segment.slices))
    for item in segment.slices:
        _append_slice(out, item)
    return bytes(out)


def decode_segment(body: bytes) -> Segment:
    """The inverse of `encode_segment`. Raises DamageError."""
    head = Head(body, 0, _SEGMENT_FIELDS)
    pos, room = head.pos, Containers()
    partials: dict[PartialKey, Partial] = {}
    if head.bits & Field.PARTIALS:
        partials, pos = read_partials(body, pos, EXPANSION_MAX, room)
    count, pos = read_count(body, pos, "slices")
    slices: list[Slice] = []
    for _ in range(count):
        item, pos = _read_slice(body, pos)
        if slices and (item.ledger, item.first) <= (slices[-1].ledger, slices[-1].last):
            # as often as the range comes again, all of it is looked at again
            room.take((item.last >> 16) - (item.first >> 16) + 1)
        else:
            room.take(slice_containers_max(item.first, item.last, item.bitmap))
        slices.append(item)
    check_end(body, pos)
    return Segment(*head.common, partials, tuple(slices))


def _append_slice(out: bytearray, item: Slice) -> None:
    if item.first > item.last or (
        item.bitmap and (item.bitmap.min() < item.first or item.bitmap.max() > item.last)
    ):
        raise ValueError(
            f"the bitmap of slice {item.ledger}:{item.first}-{item.last} reaches outside of it"
        )
    # copy() run-optimises; the value itself must stay as it is
    raw = item.bitmap.copy().serialize()
    out += _SLICE.pack(item.ledger, item.first, item.last, _HOLES if item.holes else 0, len(raw))
    out += raw


def _read_slice(data: bytes, pos: int) -> tuple[Slice, int]:
    if len(data) - pos < _SLICE.size:
        raise DamageError(f"a slice header is cut off: {len(data) - pos} of {_SLICE.size} bytes")
    ledger, first, last, flags, size = _SLICE.unpack_from(data, pos)
    pos += _SLICE.size
    name = f"slice {ledger}:{first}-{last}"
    if ledger > LEDGER_ID_MAX or first > last:
        raise DamageError(f"{name} is no range of entries")
    if flags & ~_HOLES:
        raise DamageError(f"{name} has unknown flags {flags & ~_HOLES:#x}")
    if size > len(data) - pos:
        raise DamageError(f"{name} has {size} bytes where {len(data) - pos} are left")
    bitmap = _read_bitmap(data[pos : pos + size], name)
    if bitmap and (bitmap.min() < first or bitmap.max() > last):
        raise DamageError(f"the bitmap of {name} reaches outside of it")
    return Slice(ledger, first, last, bool(flags & _HOLES), bitmap), pos + size


def _read_bitmap(raw: bytes, name: str) -> BitMap:
    if not raw:
        raise DamageError(f"{name} has no bitmap")
    try:
        return containers.checked(raw)
    except ValueError as error:
        raise DamageError(f"the bitmap of {name} is no portable roaring bitmap: {error}") from None


def encode_end(end: SnapshotEnd) -> bytes:
    """The uncompressed body: fixed part, entry ids of the segments (ascending, as distances),
    fields 0 to 2.

    Raises ValueError without segments: there is always at least one.
    """
    if not end.segment_entries:
        raise ValueError("a snapshot has at least one segment")
    out = bytearray(
        _END.pack(end.snapshot_id, end.epoch, end.generation, end.length, end.segments_crc32c)
    )
    leb.append(out, len(end.segment_entries))
    previous = -1
    for entry in end.segment_entries:
        if entry <= previous:
            raise ValueError(f"segment entries must ascend: {entry} after {previous}")
        leb.append(out, entry - max(previous, 0))
        previous = entry
    append_head(out, 0, end)
    return bytes(out)


def decode_end(body: bytes) -> SnapshotEnd:
    """The inverse of `encode_end`. Raises DamageError."""
    if len(body) < _END.size:
        raise DamageError(f"an end record of {len(body)} bytes, at least {_END.size} are needed")
    snapshot_id, epoch, generation, length, checksum = _END.unpack_from(body)
    count, pos = read_count(body, _END.size, "segments")
    if count == 0:
        raise DamageError("an end record without segments")
    if count > SEGMENTS_MAX:
        raise DamageError(f"an end record of {count} segments, {SEGMENTS_MAX} are allowed")
    entries: list[int] = []
    for _ in range(count):
        gap, pos = leb.read(body, pos)
        if entries and gap == 0:
            raise DamageError("the entries of the segments do not ascend")
        entries.append(gap + (entries[-1] if entries else 0))
    head = Head(body, pos, _END_FIELDS)
    check_end(body, head.pos)
    mark_delete, mark_delete_properties, cursor_properties, _ = head.common
    if mark_delete is None:
        raise DamageError("an end record without mark-delete")
    return SnapshotEnd(
        snapshot_id,
        epoch,
        generation,
        tuple(entries),
        mark_delete,
        mark_delete_properties,
        cursor_properties,
        length,
        checksum,
    )
