"""Compression of record bodies: none, zstd or lz4.

Owns when a body is compressed (never below 64 bytes, a small one only where it repeats itself,
never when it does not become smaller, a snapshot segment only when it saves an eighth) and that
expanding never makes more than was announced. Compressed bytes differ between library versions:
compare and hash uncompressed bodies only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import lz4.block
import zstandard

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.shape import direct
from cursorkeeper.format.coders import CODERS

COMPRESS_FROM_BYTES: Final = 64
SMALL_BYTES: Final = 320
"""Of acks here and there a body below this saves nothing, or a few bytes, and trying takes as long
as encoding them. Of acks at equal distances it saves most.
"""
_SAMPLE_BYTES: Final = 3
_SAMPLES_MIN: Final = 3
SEGMENT_SAVING: Final = 8
"""A segment is stored compressed only if that saves one part in this many."""


@direct
class Codec(IntEnum):
    """Bits 0 and 1 of the record's flags."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


def compress(body: bytes, codec: Codec, level: int, saving: int = 0) -> tuple[Codec, bytes]:
    """The stored form and its codec. `saving`: keep it only if it saves 1/saving; 0: if it is
    smaller at all.
    """
    size = len(body)
    if codec is Codec.NONE or size < COMPRESS_FROM_BYTES:
        return Codec.NONE, body
    if size < SMALL_BYTES and not _repeats(body):
        return Codec.NONE, body
    packed = (
        CODERS.compressor(level).compress(body)
        if codec is Codec.ZSTD
        else lz4.block.compress(body, store_size=False)
    )
    allowed = len(body) - len(body) // saving if saving else len(body) - 1
    return (codec, packed) if len(packed) <= allowed else (Codec.NONE, body)


def _repeats(body: bytes) -> bool:
    """Whether some of what is in the middle, or in the middle of the halves, stands there three
    times. Of a form that comes again and again a part may count up, so several places are looked
    at; that two ledgers begin alike is chance.
    """
    half, quarter = len(body) // 2, len(body) // 4
    for at in (half, half + 1, half + 2, half + 3, quarter, half + quarter):
        if body.count(body[at : at + _SAMPLE_BYTES]) >= _SAMPLES_MIN:
            return True
    return False


def expand(stored: bytes, codec: Codec, body_bytes: int) -> bytes:
    """The body, which must have exactly `body_bytes` (bounded by the caller). Raises
    DamageError.
    """
    if codec is Codec.NONE:
        body = stored
    elif codec is Codec.ZSTD:
        body = _expand_zstd(stored, body_bytes)
    else:
        body = _expand_lz4(stored, body_bytes)
    if len(body) != body_bytes:
        raise DamageError(f"a body of {len(body)} bytes where {body_bytes} are announced")
    return body


def _expand_zstd(stored: bytes, body_bytes: int) -> bytes:
    try:
        announced = zstandard.frame_content_size(stored)
        # the library would allocate what the frame says
        if announced >= 0 and announced != body_bytes:
            raise DamageError(f"a zstd frame of {announced} bytes where {body_bytes} are announced")
        return CODERS.expander.decompress(
            stored, max_output_size=max(1, body_bytes), allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DamageError(f"zstd: {error}") from None


def _expand_lz4(stored: bytes, body_bytes: int) -> bytes:
    try:
        return bytes(lz4.block.decompress(stored, uncompressed_size=body_bytes))
    except lz4.block.LZ4BlockError as error:
        raise DamageError(f"lz4: {error}") from None
