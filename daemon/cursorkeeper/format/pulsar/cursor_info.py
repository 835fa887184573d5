"""ManagedCursorInfo, the cursor znode, and the compression header in front of it (PIP-146).

Owns the message's fields and their order, and the header `47 78 | i32 metadata size | metadata |
payload` (big-endian), which the topic znode shares. A value that begins with `47 78` can never be a
plain message (0x47 would be a tag of wire type 7), so where the header is broken there is nothing
to fall back to, although Pulsar tries.
"""

from __future__ import annotations

import struct
from typing import Final

from cursorkeeper.format.pulsar import acks, batches, ranges
from cursorkeeper.format.pulsar.acks import AcksReader
from cursorkeeper.format.pulsar.compression import compress, expand
from cursorkeeper.format.pulsar.errors import PulsarFormatError, too_new
from cursorkeeper.format.pulsar.messages import COMPRESSION_HEADER, CURSOR_INFO
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.format.pulsar.wire import read, write

MAGIC: Final = b"\x47\x78"
_HEADER: Final = struct.Struct(">2si")
_INT32_MAX: Final = (1 << 31) - 1
_KINDS: Final = frozenset(map(int, Compression))

RANGES, BATCHES = 4, 7


def encode(info: ManagedCursorInfo) -> bytes:
    """The message, without header. Acked entries become ranges. Raises ValueError: acks without a
    mark-delete.
    """
    if info.mark_delete is None and (info.acked or info.batches or info.crossing):
        raise ValueError("individual acks without a mark-delete position")
    head = write(CURSOR_INFO, (info.cursors_ledger, *(info.mark_delete or ())))
    others = (
        info.properties.items(),
        info.last_active_ms,
        batches.rows(info.batches),
        info.cursor_properties.items(),
    )
    tail = write(CURSOR_INFO, (None, None, None, None, *others))
    return b"".join([head, *ranges.encode(RANGES, info.acked, info.crossing), tail, info.unknown])


def decode(raw: bytes) -> ManagedCursorInfo:
    """Of the message, without header (`unwrap` first). Raises PulsarFormatError, TooNewError."""
    return decode_with_notes(raw)[0]


def decode_with_notes(raw: bytes) -> tuple[ManagedCursorInfo, tuple[str, ...]]:
    """`decode`, and what was odd but harmless."""
    reader = AcksReader(raw, CURSOR_INFO, RANGES, BATCHES)
    cursors_ledger, ledger, entry, _, properties, last_active, _, cursor_properties, unknown = (
        reader.rest.values()
    )
    if cursors_ledger < -1:
        raise PulsarFormatError(f"cursorsLedgerId {cursors_ledger}")
    if (ledger is None) != (entry is None):
        raise PulsarFormatError(
            f"ManagedCursorInfo.{'markDeleteLedgerId' if ledger is None else 'markDeleteEntryId'} "
            f"is missing"
        )
    mark_delete = (
        None if ledger is None or entry is None else acks.checked_mark_delete(ledger, entry)
    )
    if mark_delete is None and (cursors_ledger == -1 or reader.holds_acks):
        raise PulsarFormatError(
            "ManagedCursorInfo.markDeleteLedgerId is missing, and the state is in this message"
        )
    found = reader.finish(mark_delete) if mark_delete is not None else reader.nothing()
    info = ManagedCursorInfo(
        cursors_ledger,
        mark_delete,
        found.acked,
        found.batches,
        dict(properties),
        dict(cursor_properties),
        found.crossing,
        last_active,
        unknown,
    )
    return info, tuple(reader.notes)


def inline_state(info: ManagedCursorInfo) -> PositionInfo:
    """The state a znode holds itself. Raises ValueError unless `info.is_inline` with a
    mark-delete.
    """
    if not info.is_inline or info.mark_delete is None:
        raise ValueError(f"the state is in cursor ledger {info.cursors_ledger}, not in the znode")
    form = Form.RANGES if info.acked or info.crossing else None
    return PositionInfo(
        info.mark_delete, info.acked, info.batches, info.properties, info.crossing, form
    )


# ---- the header


def wrap(raw: bytes, compression: Compression, threshold_bytes: int) -> bytes:
    """The znode's value: with header and payload if compression is not NONE and `raw` is longer
    than the threshold.
    """
    if compression is Compression.NONE or len(raw) <= threshold_bytes:
        return raw
    metadata = write(COMPRESSION_HEADER, (compression.value, len(raw)))
    return _HEADER.pack(MAGIC, len(metadata)) + metadata + compress(raw, compression)


def unwrap(value: bytes, *, limit_bytes: int) -> tuple[bytes, Compression]:
    """The message and how it was compressed. Raises PulsarFormatError: a header that lies, or
    promises more than the limit; TooNewError: a codec this release does not know.
    """
    if value[:2] != MAGIC:
        return value, Compression.NONE
    if len(value) < _HEADER.size:
        raise PulsarFormatError("the compression header is cut off")
    _, size = _HEADER.unpack_from(value)
    payload = _HEADER.size + size
    if size < 0 or payload > len(value):
        raise PulsarFormatError(f"compression metadata of {size} bytes in a value of {len(value)}")
    newer: list[str] = []
    kind, size_bytes = read(value, _HEADER.size, payload, COMPRESSION_HEADER, newer)
    if newer:
        raise too_new(newer[-1])
    if kind not in _KINDS:
        raise too_new(f"compression type {kind}")
    if not 0 <= size_bytes <= min(limit_bytes, _INT32_MAX):
        raise PulsarFormatError(
            f"the compression header promises {size_bytes} bytes, {limit_bytes} are allowed"
        )
    return expand(value[payload:], Compression(kind), size_bytes), Compression(kind)
