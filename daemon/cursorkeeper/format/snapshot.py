"""Snapshot segments and the end record that makes a snapshot of them.

Owns `slice := u64 ledger, u32 first, u32 last, u8 flags (1 = holes, 2 = a set), u32 length, bytes`
and the list of segments. The bytes are portable roaring, which is what Java's RoaringBitmap reads,
or in version 2 a set as deltas have it, which is smaller where little is marked. Invariants: a
bitmap holds nothing outside its slice; no bytes are left over anywhere; encoding never touches the
bitmap it was given; a set is shorter than the roaring bytes would be, so their bound holds for it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import LEDGER_ID_MAX
from cursorkeeper.core.sizes import EXPANSION_MAX, slice_containers_max
from cursorkeeper.core.values import Partial, PartialKey, Segment, Slice, SnapshotEnd
from cursorkeeper.format import leb, sections
from cursorkeeper.format.columns import BIG_SECTION_BYTES
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
"""A set has at most a byte for so many entries of its slice. Of more, roaring makes bitmaps, which
zstd brings within an eighth of the set's size, and which are read ten times faster.
"""
_SHORT_SET_BYTES: Final = 64
"""So short a set is written however dense it is: there is little to read."""
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
    found: list[_Stored] = []
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
    bytes_max = min(bytes_max, max(_SHORT_SET_BYTES, entries // _SET_ENTRIES_MIN))
    bitmap = item.bitmap
    # it takes a byte a member, or two a run
    if not bitmap or (len(bitmap) > bytes_max and 2 * count_runs(bitmap) > bytes_max):
        return None
    out = bytearray()
    sections.append(out, bitmap)
    return bytes(out) if len(out) <= bytes_max else None


class _Stored(NamedTuple):
    """A slice whose bitmap is not decoded yet."""

    ledger: int
    first: int
    last: int
    flags: int
    raw: bytes

    def __str__(self) -> str:
        return f"slice {self.ledger}:{self.first}-{self.last}"

    @property
    def gaps(self) -> tuple[int, bytes] | None:
        """First member and body, if it is a set of gaps that is read together with others."""
        if not self.flags & _SET:
            return None
        mode, size, first, at = sections.read_head(self.raw, 0)
        if at + size != len(self.raw):
            raise DamageError(f"the set of {self} has {len(self.raw) - at} bytes instead of {size}")
        small = mode == sections.Mode.GAPS and size < BIG_SECTION_BYTES
        return (first, self.raw[at:]) if small else None


def _decoded(found: Sequence[_Stored]) -> Iterator[Slice]:
    """In their order. Of small ones many are decoded at once, but never many bytes."""
    gaps = [one.gaps for one in found]
    ready: deque[BitMap] = deque()
    for at, (one, small) in enumerate(zip(found, gaps, strict=True)):
        if small and not ready:
            some, size = [], 0
            for body in filter(None, islice(gaps, at, None)):
                some.append(body)
                size += len(body[1]) + 1
                if size >= sections.PIECE_BYTES:
                    break
            ready.extend(sections.decode_gaps(some))
        bitmap = ready.popleft() if small else _read_bitmap(one)
        if bitmap and (bitmap.min() < one.first or bitmap.max() > one.last):
            raise DamageError(f"the bitmap of {one} reaches outside of it")
        yield Slice(one.ledger, one.first, one.last, bool(one.flags & _HOLES), bitmap)


def _read_slice(data: bytes, pos: int, version: int) -> tuple[_Stored, int]:
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
    return _Stored(ledger, first, last, flags, data[pos : pos + size]), pos + size


def _read_bitmap(one: _Stored) -> BitMap:
    if one.flags & _SET:
        return sections.read(one.raw, 0, one.last - one.first + 1)[0]
    if not one.raw:
        raise DamageError(f"{one} has no bitmap")
    try:
        return containers.checked(one.raw)
    except ValueError as error:
        raise DamageError(f"the bitmap of {one} is no portable roaring bitmap: {error}") from None


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
