"""Records: they come back, and no other bytes are taken for one."""

from __future__ import annotations

import random
import struct

import lz4.block
import pytest
import zstandard
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.values import Delta, OpenRecord, Record, Segment, Slice
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec, compress
from cursorkeeper.format.record import EncodeSettings, Kind
from daemon.tests.format.strategies import OPENS, RECORDS

PLAIN = EncodeSettings(codec=Codec.NONE)
FIFTHS = Delta(acks={812: BitMap(range(0, 5000, 5))})
HASH = 0x0123456789ABCDEF


def sealed(entry: bytes) -> bytes:
    """The entry with a checksum that is right again."""
    crc = crc32c(entry[:36] + bytes(4) + entry[40:])
    return entry[:36] + struct.pack("<I", crc) + entry[40:]


def forged(stored: bytes, body_bytes: int, codec: int, kind: int = Kind.DELTA) -> bytes:
    """A well sealed record around any stored body."""
    return sealed(
        struct.pack("<2sBBB3xQIIQII", b"CK", 1, kind, codec, HASH, 1, 1, 0, body_bytes, 0) + stored
    )


NEWEST = EncodeSettings(codec=Codec.NONE, record_version=record.SEGMENT_VERSION)


@given(RECORDS, st.sampled_from(Codec), st.sampled_from([1, 2]))
def test_a_record_comes_back(value: Record, codec: Codec, version: int) -> None:
    entry = record.encode(value, EncodeSettings(codec=codec, record_version=version))
    assert record.decode(entry, value.cursor_hash) == value
    header = record.peek(entry)
    assert (header.cursor_hash, header.epoch, header.generation, header.sequence) == (
        value.cursor_hash,
        value.epoch,
        value.generation,
        value.sequence,
    )
    assert header.stored_bytes == len(entry) <= 40 + header.body_bytes


@given(RECORDS, st.integers(0, 1 << 30), st.sampled_from(Codec))
def test_a_flipped_bit_is_found(value: Record, bit: int, codec: Codec) -> None:
    entry = bytearray(record.encode(value, EncodeSettings(codec=codec)))
    entry[bit // 8 % len(entry)] ^= 1 << bit % 8
    with pytest.raises(DamageError):
        record.decode(bytes(entry), None)


def test_every_single_bit_of_a_record_matters() -> None:
    for codec in Codec:
        entry = record.encode(Record(HASH, 1, 2, 3, FIFTHS), EncodeSettings(codec=codec))
        for bit in range(8 * min(len(entry), 120)):
            flipped = bytearray(entry)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DamageError):
                record.decode(bytes(flipped), HASH)


@given(RECORDS, st.integers(0, 1 << 30), st.binary(min_size=1, max_size=5))
def test_cut_off_and_prolonged_records_are_found(value: Record, at: int, junk: bytes) -> None:
    entry = record.encode(value)
    for wrong in (entry[: at % len(entry)], entry + junk):
        with pytest.raises(DamageError):
            record.decode(wrong, None)


@given(st.binary(max_size=200), st.sampled_from(Kind), st.sampled_from(Codec), st.integers(0, 300))
def test_garbage_in_a_sealed_record_is_damage_or_a_value(
    stored: bytes, kind: Kind, codec: Codec, size: int
) -> None:
    for body_bytes in (size, len(stored)):
        try:
            value = record.decode(forged(stored, body_bytes, codec, kind), None)
        except DamageError:
            continue
        assert record.decode(record.encode(value), HASH) == value


@given(RECORDS, st.sampled_from([PLAIN, NEWEST]), st.randoms(use_true_random=False))
def test_a_changed_body_under_a_right_checksum_is_damage_or_a_value(
    value: Record, settings: EncodeSettings, chance: random.Random
) -> None:
    entry = bytearray(record.encode(value, settings))
    for _ in range(chance.randint(1, 4)):
        entry[chance.randrange(40, len(entry))] = chance.randrange(256)
    try:
        changed = record.decode(sealed(bytes(entry)), None)
    except DamageError:
        return
    assert record.decode(record.encode(changed, settings), None) == changed


# --- what is said ---------------------------------------------------------------------------------


def patched(at: int, byte: int) -> bytes:
    entry = bytearray(record.encode(Record(HASH, 1, 2, 3, FIFTHS)))
    entry[at] = byte
    return sealed(bytes(entry))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (b"", "begins with nothing instead of 434b"),
        (b"AB" + bytes(60), "begins with 4142"),
        (b"CK\x01", "cut off: 3 of at least 40"),
        (patched(2, 0), "unknown record version 0"),
        (patched(3, 9), "unknown record kind 9"),
        (patched(4, 3), "unknown record codec 3"),
        (patched(4, 0x81), "unknown record flags 0x80"),
        (forged(b"\x00", 2, 0), "1 bytes where 2 are announced"),
        (forged(b"\x00\x00", 1, 0), "2 bytes where 1 are announced"),
        (forged(b"\x00\x00", 2, 0), "1 bytes follow"),
        (forged(b"", (4 << 20) + 1, 0), "4194305 bytes is announced, 4194304 are allowed"),
        (
            forged(zstandard.compress(bytes(1 << 20)), 1, 1),
            "zstd frame of 1048576 bytes where 1 are announced",
        ),
        (
            forged(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(9000)), 1, 1),
            "zstd",
        ),
        (forged(zstandard.compress(bytes(9)) + b"x", 9, 1), "zstd"),
        (forged(b"no frame", 9, 1), "zstd"),
        (forged(lz4.block.compress(bytes(1 << 20), store_size=False), 1, 2), "lz4"),
        (
            forged(lz4.block.compress(bytes(9), store_size=False), 10, 2),
            "9 bytes where 10 are announced",
        ),
        (forged(lz4.block.compress(bytes(9), store_size=False) + b"\x00", 9, 2), "lz4"),
        (forged(b"\xff" * 9, 9, 2), "lz4"),
        (forged(b"{", 1, 0, Kind.OPEN), "not JSON"),
        (forged(b"[" * 100_000, 100_000, 0, Kind.OPEN), "not JSON"),
        (forged(b"[]", 2, 0, Kind.OPEN), "not a JSON object"),
        (forged(b'{"cursor":1}', 12, 0, Kind.OPEN), "without a text 'cursor'"),
        (forged(b'{"cursor":"c","epoch":true}', 27, 0, Kind.OPEN), "without a number 'epoch'"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_damage_is_named(entry: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words) as caught:
        record.decode(entry, None)
    assert not isinstance(caught.value, TooNewError)


def test_a_newer_version_is_not_damage_to_be_repaired() -> None:
    for entry in (patched(2, 2), b"CK\x02"):
        with pytest.raises(TooNewError, match="a record of version 2, this program reads up to 1"):
            record.peek(entry)
    segment = sealed(
        struct.pack("<2sBBB3xQIIQII", b"CK", 3, Kind.SEGMENT, 0, HASH, 1, 1, 0, 2, 0) + b"\0\0"
    )
    with pytest.raises(TooNewError, match="a record of version 3, this program reads up to 2"):
        record.decode(segment, HASH)
    of_two = sealed(segment[:2] + b"\x02" + segment[3:])
    assert record.decode(of_two, HASH).body == Segment()


def test_another_cursor_and_a_wrong_checksum() -> None:
    entry = record.encode(Record(HASH, 1, 2, 3, FIFTHS))
    with pytest.raises(
        DamageError, match="another cursor: hash 0123456789abcdef instead of 0123456789abcdee"
    ):
        record.decode(entry, HASH ^ 1)
    with pytest.raises(DamageError, match="crc32c is"):
        record.decode(entry[:-1] + bytes([entry[-1] ^ 1]), HASH)


def test_a_frame_without_its_size_can_be_read() -> None:
    """Other writers may stream; only the record's own length counts."""
    body = record.encode(Record(HASH, 1, 1, 0, FIFTHS), PLAIN)[40:]
    stored = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    assert record.decode(forged(stored, len(body), 1), HASH).body == FIFTHS


# --- when a body is compressed --------------------------------------------------------------------


def codec_of(body: Delta | Segment | OpenRecord, codec: Codec = Codec.ZSTD) -> Codec:
    return record.peek(
        record.encode(Record(HASH, 1, 1, 0, body), EncodeSettings(codec=codec))
    ).codec


def test_only_what_becomes_smaller_is_compressed() -> None:
    assert codec_of(FIFTHS) is Codec.ZSTD
    assert codec_of(FIFTHS, Codec.LZ4) is Codec.LZ4
    assert codec_of(FIFTHS, Codec.NONE) is Codec.NONE
    assert codec_of(Delta(acks={1: BitMap(range(0, 250, 5))})) is Codec.NONE  # below 64 bytes
    assert (
        codec_of(Delta(acks={1: BitMap(random.Random(1).sample(range(2000), 1000))})) is Codec.NONE
    )


def test_a_segment_must_save_an_eighth() -> None:
    body = random.Random(1).randbytes(900) + bytes(100)
    assert compress(body, Codec.ZSTD, 1)[0] is Codec.ZSTD
    assert compress(body, Codec.ZSTD, 1, saving=8) == (Codec.NONE, body)
    assert compress(body + bytes(100), Codec.ZSTD, 1, saving=8)[0] is Codec.ZSTD
    tenth = BitMap(n for n in range(65_536) if random.Random(n).random() < 0.1)
    hundredth = BitMap(n for n in range(65_536) if random.Random(n).random() < 0.01)
    assert codec_of(Segment(slices=(Slice(1, 0, 65_535, True, tenth),))) is Codec.ZSTD
    assert codec_of(Segment(slices=(Slice(1, 0, 65_535, True, hundredth),))) is Codec.NONE


@given(OPENS)
def test_an_open_record_is_for_eyes(value: OpenRecord) -> None:
    assert codec_of(value) is Codec.NONE


def test_a_record_over_the_limit_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="a DELTA record of 672 bytes, 671 are allowed"):
        record.encode(Record(HASH, 1, 1, 0, FIFTHS), EncodeSettings(max_entry_bytes=671))
    assert record.encode(Record(HASH, 1, 1, 0, FIFTHS), EncodeSettings(max_entry_bytes=672))
