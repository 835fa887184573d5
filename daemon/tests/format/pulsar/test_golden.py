"""Bytes that were worked out by hand from the message definitions."""

from __future__ import annotations

import zlib

import pytest
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import chunks, cursor_info, position_info
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo

AT = Position(12, 4)
MINUS_ONE = "ff ff ff ff ff ff ff ff ff 01"

STATES = {
    "mark-delete alone": ("08 0c 10 04", PositionInfo(AT), Form.RANGES),
    "before the first entry": (
        f"08 0c 10 {MINUS_ONE}",
        PositionInfo(Position(12, -1)),
        Form.LONG_ARRAY,
    ),
    "long array": (
        "08 0c 10 04 32 05 08 0c 10 c0 05",
        PositionInfo(AT, {12: BitMap([6, 7, 9])}, form=Form.LONG_ARRAY),
        Form.LONG_ARRAY,
    ),
    "ranges": (
        "08 0c 10 04 1a 0c 0a 04 08 0c 10 05 12 04 08 0c 10 07 1a 0c 0a 04 08 0c 10 08 12 04 08 "
        "0c 10 09",
        PositionInfo(AT, {12: BitMap([6, 7, 9])}, form=Form.RANGES),
        Form.RANGES,
    ),
    "a range from the first entry": (
        f"08 0c 10 04 1a 15 0a 0d 08 0d 10 {MINUS_ONE} 12 04 08 0d 10 00",
        PositionInfo(AT, {13: BitMap([0])}, form=Form.RANGES),
        Form.RANGES,
    ),
    "leading zero words": (
        "08 0c 10 04 32 06 08 0d 10 00 10 40",
        PositionInfo(AT, {13: BitMap([70])}, form=Form.LONG_ARRAY),
        Form.LONG_ARRAY,
    ),
    "a full word": (
        f"08 0c 10 04 32 0d 08 0d 10 {MINUS_ONE}",
        PositionInfo(AT, {13: BitMap(range(64))}, form=Form.LONG_ARRAY),
        Form.LONG_ARRAY,
    ),
    "the last bit of a word": (
        "08 0c 10 04 32 0d 08 0d 10 80 80 80 80 80 80 80 80 80 01",
        PositionInfo(AT, {13: BitMap([63])}, form=Form.LONG_ARRAY),
        Form.LONG_ARRAY,
    ),
    "a batch of 10 with indexes 0 and 3 acked": (
        "08 0c 10 04 2a 09 0a 04 08 0c 10 0b 10 f6 07",
        PositionInfo(AT, batches={PartialKey(12, 11): BitMap([1, 2, 4, 5, 6, 7, 8, 9])}),
        Form.LONG_ARRAY,
    ),
    "a property": (
        "08 0c 10 04 22 05 0a 01 6b 10 07",
        PositionInfo(AT, properties={"k": 7}),
        Form.RANGES,
    ),
    "idleSince of Pulsar 5.0.1": (
        "08 0c 10 04 38 07",
        PositionInfo(AT, unknown=b"\x38\x07"),
        Form.RANGES,
    ),
}

INLINE = (
    f"08 {MINUS_ONE} 10 0c 18 04 22 0c 0a 04 08 0c 10 05 12 04 08 0c 10 07 2a 05 0a 01 6b "
    f"10 07 42 06 0a 01 61 12 01 62"
)
ZNODES = {
    "an open cursor ledger": ("08 4d 10 0c 18 04", ManagedCursorInfo(77, AT)),
    "the state inline": (
        INLINE,
        ManagedCursorInfo(
            -1, AT, {12: BitMap([6, 7])}, properties={"k": 7}, cursor_properties={"a": "b"}
        ),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_has_these_bytes(name: str) -> None:
    told, value, form = STATES[name]
    data = bytes.fromhex(told)
    assert position_info.encode(value, form) == data
    assert position_info.encoded_bytes(value, form) == len(data)
    assert position_info.decode_with_notes(data) == (value, ())


@pytest.mark.parametrize("name", ZNODES)
def test_a_znode_has_these_bytes(name: str) -> None:
    told, value = ZNODES[name]
    assert cursor_info.encode(value) == bytes.fromhex(told)
    assert cursor_info.decode_with_notes(bytes.fromhex(told)) == (value, ())


def test_the_compression_header() -> None:
    raw = bytes.fromhex(INLINE)
    header = bytes.fromhex("47 78 00 00 00 04 08 02 10 2c")
    wrapped = cursor_info.wrap(raw, Compression.ZLIB, 43)
    assert wrapped[:10] == header
    assert zlib.decompress(wrapped[10:]) == raw
    assert cursor_info.unwrap(header + zlib.compress(raw), limit_bytes=44) == (
        raw,
        Compression.ZLIB,
    )


def test_the_footer() -> None:
    told = bytes.fromhex(
        "7b 22 6e 75 6d 50 61 72 74 73 22 3a 33 2c 22 6c 65 6e 67 74 68 22 3a 32 35 30 30 30 30 "
        "30 7d"
    )
    entries = chunks.entries_of(
        bytes(2_500_000), compression=None, max_entry_bytes=1_000_000, multiple=True
    )
    assert entries[-1] == told
    assert chunks.parse_footer(told) == (3, 2_500_000)
    assert list(map(len, entries[:-1])) == [1_000_000, 1_000_000, 500_000]
