"""Pulsar's payload codecs: what `compress` makes `expand` takes back, and never more than it was
promised.

The size of the expanded bytes always stands next to the payload (PIP-146's header, PIP-381's
prefix), and it may lie. So it is compared with what the payload itself says before anything is
expanded, the expansion stops at it, and the result must have exactly that size. Whoever calls
bounds the promised size first.

LZ4 and SNAPPY are raw blocks (no frame, no size in front), ZLIB a zlib stream (Pulsar's own never
ends), ZSTD one frame.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam
import lz4.block
import zstandard

from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Compression

LZ4_RATIO_MAX: Final = 255
"""A byte of an LZ4 block stands for at most so many: a higher promise is a lie, and its buffer need
not be allocated.
"""

_ZLIB_FLUSHED: Final = b"\x00\x00\xff\xff"
"""Pulsar flushes its zlib stream and never ends it: no final block, no checksum, this marker
last.
"""

_ZSTD_LEVEL: Final = 3
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27


def compress(raw: bytes, compression: Compression) -> bytes:
    """The payload of `raw`, without any size in front; NONE gives `raw` itself."""
    match compression:
        case Compression.NONE:
            return raw
        case Compression.LZ4:
            return bytes(lz4.block.compress(raw, store_size=False))
        case Compression.ZLIB:
            return zlib.compress(raw)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(raw)
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(raw))


def expand(data: bytes, compression: Compression, size_bytes: int) -> bytes:
    """The bytes that `data` stands for, exactly `size_bytes` of them.

    Raises PulsarFormatError: the payload is damaged, or is not of that size.
    """
    if size_bytes < 0:
        raise PulsarFormatError(f"an expanded size of {size_bytes} bytes")
    try:
        raw = _EXPAND[compression](data, size_bytes)
    except (
        lz4.block.LZ4BlockError,
        zlib.error,
        zstandard.ZstdError,
        cramjam.DecompressionError,
        ValueError,
    ) as error:
        raise PulsarFormatError(
            f"{compression.name} payload of {len(data)} bytes does not expand to {size_bytes}: "
            f"{error}"
        ) from None
    if len(raw) != size_bytes:
        raise _lie(compression, len(raw), size_bytes)
    return raw


def _lie(compression: Compression, real: int, promised: int) -> PulsarFormatError:
    return PulsarFormatError(
        f"the {compression.name} payload holds {real} bytes, {promised} were promised"
    )


def _expand_none(data: bytes, size_bytes: int) -> bytes:
    return data


def _expand_lz4(data: bytes, size_bytes: int) -> bytes:
    if size_bytes > LZ4_RATIO_MAX * len(data):
        raise ValueError(f"an LZ4 block of {len(data)} bytes cannot hold so many")
    if size_bytes == 0:
        return b"" if data == b"\0" else b"?"
    return bytes(lz4.block.decompress(data, uncompressed_size=size_bytes))


def _expand_zlib(data: bytes, size_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    raw = stream.decompress(data, size_bytes + 1)
    if len(raw) > size_bytes:
        raise ValueError("it holds more")
    if not stream.eof and not (len(raw) == size_bytes and data.endswith(_ZLIB_FLUSHED)):
        raise ValueError("the stream is cut off")
    if stream.unused_data:
        raise ValueError(f"{len(stream.unused_data)} bytes follow the stream")
    return raw


def _expand_zstd(data: bytes, size_bytes: int) -> bytes:
    frame = zstandard.get_frame_parameters(data)
    if frame.content_size not in (size_bytes, zstandard.CONTENTSIZE_UNKNOWN):
        raise _lie(Compression.ZSTD, frame.content_size, size_bytes)
    if frame.window_size > _ZSTD_WINDOW_BYTES_MAX and frame.content_size != size_bytes:
        raise ValueError(f"a window of {frame.window_size} bytes")
    # one byte of room for an empty frame without a content size: a limit of 0 would mean none
    return zstandard.ZstdDecompressor().decompress(
        data, max_output_size=max(1, size_bytes), allow_extra_data=False
    )


def _expand_snappy(data: bytes, size_bytes: int) -> bytes:
    promised = cramjam.snappy.decompress_raw_len(data)
    if promised != size_bytes:
        raise _lie(Compression.SNAPPY, promised, size_bytes)
    return bytes(cramjam.snappy.decompress_raw(data))


_EXPAND = {
    Compression.NONE: _expand_none,
    Compression.LZ4: _expand_lz4,
    Compression.ZLIB: _expand_zlib,
    Compression.ZSTD: _expand_zstd,
    Compression.SNAPPY: _expand_snappy,
}
