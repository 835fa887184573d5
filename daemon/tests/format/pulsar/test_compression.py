"""Codecs, sizes that lie, and the header of the znode."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.format.pulsar.compression import compress, expand
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Compression

CODECS = st.sampled_from(Compression)


@given(st.binary(max_size=300), CODECS, st.integers(1, 60))
def test_there_and_back(raw: bytes, codec: Compression, times: int) -> None:
    raw *= times
    assert expand(compress(raw, codec), codec, len(raw)) == raw


@given(st.binary(max_size=300), CODECS, st.integers(1, 60), st.integers(-40, 40).filter(bool))
def test_a_size_that_lies_is_told(raw: bytes, codec: Compression, times: int, lie: int) -> None:
    raw *= times
    with pytest.raises(PulsarFormatError):
        expand(compress(raw, codec), codec, len(raw) + lie)


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_payloads_are_cut_off_or_go_on(codec: Compression) -> None:
    raw = b"PositionInfo" * 400
    payload = compress(raw, codec)
    for cut in range(1, len(payload)):
        with pytest.raises(PulsarFormatError):
            expand(payload[:-cut], codec, len(raw))
    with pytest.raises(PulsarFormatError):
        expand(payload + b"\0", codec, len(raw))


def test_payloads_are_plain_blocks_and_streams() -> None:
    raw = b"PositionInfo" * 400
    assert lz4.block.decompress(compress(raw, Compression.LZ4), uncompressed_size=len(raw)) == raw
    assert zlib.decompress(compress(raw, Compression.ZLIB)) == raw
    assert zstandard.ZstdDecompressor().decompress(compress(raw, Compression.ZSTD)) == raw
    assert bytes(cramjam.snappy.decompress_raw(compress(raw, Compression.SNAPPY))) == raw


def test_zlib_that_was_flushed_and_never_ended() -> None:
    """As Pulsar writes it."""
    raw = b"PositionInfo" * 400
    stream = zlib.compressobj()
    payload = stream.compress(raw) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert expand(payload, Compression.ZLIB, len(raw)) == raw
    for size in (len(raw) - 1, len(raw) + 1):
        with pytest.raises(PulsarFormatError):
            expand(payload, Compression.ZLIB, size)
    with pytest.raises(PulsarFormatError):
        expand(payload[:-1], Compression.ZLIB, len(raw))


def test_zstd_frames_that_do_not_say_their_size() -> None:
    raw = b"PositionInfo" * 4_000
    stream = zstandard.ZstdCompressor(write_content_size=False)
    payload = stream.compress(raw)
    assert zstandard.frame_content_size(payload) == -1
    assert expand(payload, Compression.ZSTD, len(raw)) == raw
    for size in (0, len(raw) - 1, len(raw) + 1):
        with pytest.raises(PulsarFormatError):
            expand(payload, Compression.ZSTD, size)


BOMB = bytes(300_000_000)


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_a_bomb_never_goes_off(codec: Compression) -> None:
    """300 MB of zeros, under a promise of 1,000 bytes, of the limit, and of their real size."""
    payload = compress(BOMB, codec)
    tracemalloc.start()
    try:
        for promise in (1_000, 1 << 20, len(BOMB)):
            metadata = b"\x08" + bytes([codec]) + b"\x10" + _varint(promise)
            value = b"\x47\x78" + struct.pack(">i", len(metadata)) + metadata + payload
            with pytest.raises(PulsarFormatError):
                cursor_info.unwrap(value, limit_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < (8 << 20) + 3 * len(payload)
    finally:
        tracemalloc.stop()


def test_lz4_promises_beyond_its_ratio_are_not_even_allocated() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PulsarFormatError):
            expand(compress(b"x" * 500, Compression.LZ4), Compression.LZ4, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_the_threshold_is_exceeded_not_reached() -> None:
    raw = b"\x08\x4d" * 50
    assert cursor_info.wrap(raw, Compression.ZSTD, 100) == raw
    assert cursor_info.wrap(raw, Compression.ZSTD, 99)[:2] == b"\x47\x78"
    assert cursor_info.wrap(raw, Compression.NONE, 0) == raw


@given(st.binary(max_size=50))
def test_a_value_without_header_is_the_message(raw: bytes) -> None:
    if raw[:2] != b"\x47\x78":
        assert cursor_info.unwrap(raw, limit_bytes=10) == (raw, Compression.NONE)


@pytest.mark.parametrize(
    "value",
    [
        "47 78",
        "47 78 00 00 00",
        "47 78 00 00 00 04",
        "47 78 00 00 00 04 08 02 10",
        "47 78 ff ff ff ff 08 02 10 2c",
        "47 78 7f ff ff ff 08 02 10 2c",
        "47 78 00 00 00 00 78 9c",
        "47 78 00 00 00 02 08 02 78 9c",
        "47 78 00 00 00 02 10 02 78 9c",
        "47 78 00 00 00 0d 08 00 10 ff ff ff ff ff ff ff ff ff 01",
        "47 78 00 00 00 04 08 00 10 01",
        "47 78 00 00 00 04 08 00 10 65 00",
        "47 78 00 00 00 06 08 00 10 01 10 01 00",
        "47 78 08 4d 10 0c 18 04",
    ],
)
def test_broken_headers(value: str) -> None:
    """Never read as a message without header: 0x47 begins none."""
    with pytest.raises(PulsarFormatError):
        cursor_info.unwrap(bytes.fromhex(value), limit_bytes=100)
    with pytest.raises(PulsarFormatError):
        cursor_info.decode(bytes.fromhex(value))
