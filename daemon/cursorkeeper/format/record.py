"""A record: one BookKeeper entry. A header of 40 bytes, then the body.

Owns the header and the checks that come before any body is believed. Invariants: nothing is decoded
before the checksum over header and stored body was right; nothing is expanded beyond
`BODY_BYTES_MAX`; whatever the bytes are, reading them raises DamageError (or its kind TooNewError)
or returns what was written.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from google_crc32c import value as crc32c

from cursorkeeper.core.errors import DamageError, ForeignRecordError, TooNewError
from cursorkeeper.core.shape import direct, frozen
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.values import Delta, OpenRecord, Record, RecordBody, Segment, SnapshotEnd
from cursorkeeper.format import delta, open_record, snapshot
from cursorkeeper.format.codec import SEGMENT_SAVING, Codec, compress, expand

MAGIC: Final[bytes] = b"CK"
VERSION: Final = 1
SEGMENT_VERSION: Final = 2
"""Of a snapshot segment that has slices which are sets; everything else is of version 1."""
BODY_BYTES_MAX: Final = 4 << 20
"""What readers accept, uncompressed; writers stay below `max_entry_bytes`."""

HEADER: Final = struct.Struct("<2sBBB3xQIIQII")
CRC_AT: Final = 36
BODY_BYTES_AT: Final = 32
"""Where an entry has its checksum, and how large it is unpacked; four bytes each."""
_CRC: Final = struct.Struct("<I")
_NO_CRC: Final = bytes(4)
_CODEC_BITS: Final = 3


@direct
class Kind(IntEnum):
    OPEN = 1
    DELTA = 2
    SEGMENT = 3
    SNAPSHOT_END = 4


@frozen
class EncodeSettings:
    """How records are written. `max_entry_bytes` = stored header + uncompressed body."""

    max_entry_bytes: int = 1 << 20
    codec: Codec = Codec.ZSTD
    zstd_level: int = 1
    record_version: int = VERSION
    """The newest that is written."""


@frozen
class RecordHeader:
    """The header of a record. `body_bytes` uncompressed, `stored_bytes` the whole entry."""

    version: int
    kind: Kind
    codec: Codec
    cursor_hash: int
    epoch: int
    generation: int
    sequence: int
    body_bytes: int
    crc32c: int
    stored_bytes: int


DEFAULTS: Final[EncodeSettings] = EncodeSettings()


def encode(record: Record, settings: EncodeSettings = DEFAULTS) -> bytes:
    """The entry. Raises ValueError when it is over `max_entry_bytes`: `core.sizes` cuts before
    that.
    """
    kind, version, body = _encode_body(record.body, settings.record_version)
    if RECORD_HEADER_BYTES + len(body) > settings.max_entry_bytes:
        raise ValueError(
            f"a {kind.name} record of {RECORD_HEADER_BYTES + len(body)} bytes, "
            f"{settings.max_entry_bytes} are allowed"
        )
    wanted = Codec.NONE if kind is Kind.OPEN else settings.codec  # an open record is for eyes
    codec, stored = compress(
        body,
        wanted,
        settings.zstd_level,
        SEGMENT_SAVING if kind is Kind.SEGMENT and version == VERSION else 0,
    )
    head = HEADER.pack(
        MAGIC,
        version,
        kind,
        codec,
        record.cursor_hash,
        record.epoch,
        record.generation,
        record.sequence,
        len(body),
        0,
    )
    return head[:CRC_AT] + _CRC.pack(crc32c(head + stored)) + stored


def peek(data: bytes) -> RecordHeader:
    """The header alone: nothing but its own fields is checked.

    Raises TooNewError, DamageError.
    """
    if data[:2] != MAGIC:
        raise DamageError(
            f"no record: begins with {data[:2].hex() or 'nothing'} instead of {MAGIC.hex()}"
        )
    newest = SEGMENT_VERSION if data[3:4] == _SEGMENT else VERSION
    if len(data) > 2 and data[2] > newest:
        raise TooNewError(
            f"a record of version {data[2]}, this program reads up to {newest}: upgrade it first"
        )
    if len(data) < RECORD_HEADER_BYTES:
        raise DamageError(
            f"a record is cut off: {len(data)} of at least {RECORD_HEADER_BYTES} bytes"
        )
    _, version, kind, flags, cursor_hash, epoch, generation, sequence, body_bytes, crc = (
        HEADER.unpack_from(data)
    )
    if not version:
        raise DamageError(f"unknown record version {version}")
    if kind not in _KINDS:
        raise DamageError(f"unknown record kind {kind}")
    if flags & ~_CODEC_BITS:
        raise DamageError(f"unknown record flags {flags & ~_CODEC_BITS:#x}")
    if flags not in _CODECS:
        raise DamageError(f"unknown record codec {flags}")
    return RecordHeader(
        version,
        _KINDS[kind],
        _CODECS[flags],
        cursor_hash,
        epoch,
        generation,
        sequence,
        body_bytes,
        crc,
        len(data),
    )


def announced_bytes(data: bytes) -> int:
    """What the header says of the expanded body; 0 without a header. Nothing is checked."""
    return (
        int.from_bytes(data[BODY_BYTES_AT : BODY_BYTES_AT + 4], "little")
        if len(data) >= RECORD_HEADER_BYTES
        else 0
    )


def split_body(data: bytes, cursor_hash: int | None) -> tuple[RecordHeader, bytes]:
    """The checked header and the uncompressed body, not yet decoded. `cursor_hash` None: any
    cursor.

    Raises TooNewError, DamageError.
    """
    header = peek(data)
    if cursor_hash is not None and header.cursor_hash != cursor_hash:
        raise ForeignRecordError(
            f"a record of another cursor: hash {header.cursor_hash:016x} instead of "
            f"{cursor_hash:016x}"
        )
    stored = data[RECORD_HEADER_BYTES:]
    crc = crc32c(data[:CRC_AT] + _NO_CRC + stored)
    if crc != header.crc32c:
        raise DamageError(f"crc32c is {crc:08x} where the record says {header.crc32c:08x}")
    if header.body_bytes > BODY_BYTES_MAX:
        raise DamageError(
            f"a body of {header.body_bytes} bytes is announced, {BODY_BYTES_MAX} are allowed"
        )
    return header, expand(stored, header.codec, header.body_bytes)


def decode(data: bytes, cursor_hash: int | None) -> Record:
    """The record. `cursor_hash` = `CursorName.record_hash` of the cursor it is read for; None: any
    cursor.

    Raises TooNewError, DamageError.
    """
    header, body = split_body(data, cursor_hash)
    return Record(
        header.cursor_hash,
        header.epoch,
        header.generation,
        header.sequence,
        _decode_body(header, body),
    )


def _decode_body(header: RecordHeader, body: bytes) -> RecordBody:
    if header.kind is Kind.DELTA:
        return delta.decode(body)
    if header.kind is Kind.SEGMENT:
        return snapshot.decode_segment(body, header.version)
    if header.kind is Kind.SNAPSHOT_END:
        return snapshot.decode_end(body)
    return open_record.decode(body)


def _encode_body(body: RecordBody, version_max: int) -> tuple[Kind, int, bytes]:
    if isinstance(body, Segment):
        return Kind.SEGMENT, *snapshot.encode_segment(body, version_max)
    if isinstance(body, Delta):
        return Kind.DELTA, VERSION, delta.encode(body)
    if isinstance(body, SnapshotEnd):
        return Kind.SNAPSHOT_END, VERSION, snapshot.encode_end(body)
    assert isinstance(body, OpenRecord)
    return Kind.OPEN, VERSION, open_record.encode(body)


_SEGMENT: Final = bytes([Kind.SEGMENT])
_KINDS: Final = {int(kind): kind for kind in Kind}
_CODECS: Final = {int(codec): codec for codec in Codec}

assert HEADER.size == RECORD_HEADER_BYTES
