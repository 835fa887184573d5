"""Snapshot segments and the end record that makes a snapshot of them.

Owns `slice := u64 ledger, u32 first, u32 last, u8 flags (1 = holes, 2 = a set), u32 length, bytes`
and the list of segments. The bytes are portable roaring, which is what Java's RoaringBitmap reads,
or in version 2 a set as `golomb` has it, which is smaller where little is marked. Invariants: a
bitmap holds nothing outside its slice; no bytes are left over anywhere; encoding never touches the
bitmap it was given; a set is shorter than the roaring bytes would be, so their bound holds for it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import LEDGER_ID_MAX
from cursorkeeper.core.sizes import EXPANSION_MAX, slice_containers_max
from cursorkeeper.core.values import Partial, PartialKey, Segment, Slice, SnapshotEnd
from cursorkeeper.format import golomb, leb
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
_SET: Final = 2
_SET_ENTRIES_MIN: Final = 12
"""A set has at most a number for so many entries of its slice. Of more, roaring makes bitmaps,
which zstd brings within an eighth of the set's size, and which are read ten times faster.
"""
_SHORT_SET_NUMBERS: Final = 64
"""So short a set is written however dense it is: there is little to read."""
_SMALL_SET_BYTES: Final = 1 << 14
"""Sets below this are read together, until that many bytes of them make numbers."""
SEGMENTS_MAX: Final = 1 << 18
"""Segments of one snapshot. Each holds some 8,000,000 entries, or as many data ledgers as its bytes
have room for.
"""
_SEGMENT_FIELDS: Final = 63 & ~Field.ACKS
_END_FIELDS: Final = Field.MARK_DELETE | Field.MARK_DELETE_PROPERTIES | Field.CURSOR_PROPERTIES


def encode_segment(segment: Segment, version_max: int = 1) -> tuple[int, bytes]:
    """The version of the record, 2 only if a slice is a set, and its uncompressed body.

    Raises ValueError when a bitmap reaches outside its slice.
    """
    out = bytearray()
    more = Field.PARTIALS if segment.partials else 0
    append_head(out, more, segment, segment.layout)
    if segment.partials:
        append_partials(out, segment.partials)
    leb.append(out, len(segment.slices))
    version = 1
    for item in segment.slices:
        if _append_slice(out, item, version_max):
            version = 2
    return version, bytes(out)


def decode_segment(body: bytes, version: int = 1) -> Segment:
    """The inverse of `encode_segment`. Raises DamageError."""
    head = Head(body, 0, _SEGMENT_FIELDS)
    pos, room = head.pos, Containers()
    partials: dict[PartialKey, Partial] = {}
    if head.bits & Field.PARTIALS:
        partials, pos = read_partials(body, pos, EXPANSION_MAX, room)
    count, pos = read_count(body, pos, "slices")
    found: list[golomb.Stored] = []
    for _ in range(count):
        one, pos = _read_slice(body, pos, version)
        found.append(one)
    slices: list[Slice] = []
    for item in _decoded(found):
        if slices and (item.ledger, item.first) <= (slices[-1].ledger, slices[-1].last):
            # as often as the range comes again, all of it is looked at again
            room.take((item.last >> 16) - (item.first >> 16) + 1)
        else:
            room.take(slice_containers_max(item.first, item.last, item.bitmap))
        slices.append(item)
    check_end(body, pos)
    return Segment(*head.common, partials, tuple(slices))


def _append_slice(out: bytearray, item: Slice, version_max: int) -> bool:
    """Writes one slice; returns whether it is a set, which readers of version 1 refuse."""
    if item.first > item.last or (
        item.bitmap and (item.bitmap.min() < item.first or item.bitmap.max() > item.last)
    ):
        raise ValueError(
            f"the bitmap of slice {item.ledger}:{item.first}-{item.last} reaches outside of it"
        )
    # copy() run-optimises; the value itself must stay as it is
    raw = item.bitmap.copy().serialize()
    packed = _as_set(item, len(raw) - 1) if version_max > 1 else None
    flags = (_HOLES if item.holes else 0) | (_SET if packed else 0)
    stored = packed or raw
    out += _SLICE.pack(item.ledger, item.first, item.last, flags, len(stored))
    out += stored
    return bool(packed)


def _as_set(item: Slice, bytes_max: int) -> bytes | None:
    """The bitmap of a slice as a set; None if that would be longer, or slow to read."""
    entries = item.last - item.first + 1
    numbers_max = max(_SHORT_SET_NUMBERS, entries // _SET_ENTRIES_MIN)
    runs = count_runs(item.bitmap)
    numbers = golomb.numbers_of(item.bitmap, runs)
    if not 0 < numbers <= min(numbers_max, golomb.NUMBERS_MAX, 8 * bytes_max):
        return None
    coded = golomb.encode(item.bitmap, runs, item.first)
    return coded if len(coded) <= bytes_max else None


def _decoded(found: Sequence[golomb.Stored]) -> Iterator[Slice]:
    """In their order. Of small sets many are decoded at once, but never many bytes."""
    sets = deque(one for one in found if one.flags & _SET)
    ready: Iterator[BitMap] = iter(())
    for one in found:
        if one.flags & _SET:
            bitmap = next(ready, None)
            if bitmap is None:
                ready = golomb.decode(_next_sets(sets))
                bitmap = next(ready)
        else:
            bitmap = _read_bitmap(one)
        yield Slice(one.ledger, one.first, one.last, bool(one.flags & _HOLES), bitmap)


def _next_sets(sets: deque[golomb.Stored]) -> list[golomb.Stored]:
    some, size = [sets.popleft()], 0
    while sets and len(sets[0].raw) + (size := size + len(some[-1].raw)) <= _SMALL_SET_BYTES:
        some.append(sets.popleft())
    return some


def _read_slice(data: bytes, pos: int, version: int) -> tuple[golomb.Stored, int]:
    if len(data) - pos < _SLICE.size:
        raise DamageError(f"a slice header is cut off: {len(data) - pos} of {_SLICE.size} bytes")
    ledger, first, last, flags, size = _SLICE.unpack_from(data, pos)
    pos += _SLICE.size
    name = f"slice {ledger}:{first}-{last}"
    if ledger > LEDGER_ID_MAX or first > last:
        raise DamageError(f"{name} is no range of entries")
    unknown = flags & ~(_HOLES | _SET if version > 1 else _HOLES)
    if unknown:
        raise DamageError(f"{name} has unknown flags {unknown:#x}")
    if size > len(data) - pos:
        raise DamageError(f"{name} has {size} bytes where {len(data) - pos} are left")
    return golomb.Stored(ledger, first, last, flags, data[pos : pos + size]), pos + size


def _read_bitmap(one: golomb.Stored) -> BitMap:
    if not one.raw:
        raise DamageError(f"{one} has no bitmap")
    try:
        bitmap = containers.checked(one.raw)
    except ValueError as error:
        raise DamageError(f"the bitmap of {one} is no portable roaring bitmap: {error}") from None
    if bitmap and (bitmap.min() < one.first or bitmap.max() > one.last):
        raise DamageError(f"the bitmap of {one} reaches outside of it")
    return bitmap


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
