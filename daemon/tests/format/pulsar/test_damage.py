"""Bytes that cannot be trusted: an error of ours, or the same state; never a smaller one, never
another kind of exception.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import cursor_info, ledger_info, position_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import (
    Compression,
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from daemon.tests.format.pulsar import oracle
from daemon.tests.format.pulsar.oracle import Plain, field_edges
from daemon.tests.format.pulsar.strategies import FORMS, plains, value

Flips = list[tuple[int, int]]
FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), min_size=1, max_size=3)


def flipped(data: bytes, flips: Flips) -> bytes:
    out = bytearray(data)
    for at, bit in flips:
        out[at % len(out)] ^= 1 << bit
    return bytes(out)


def survives(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Whether it was read. Anything but a DamageError goes through."""
    try:
        decode(data)
    except DamageError as error:
        assert error.message
        return False
    return True


@given(plains(), FORMS, st.data())
def test_a_truncated_state_reads_only_where_it_is_cut_between_fields(
    plain: Plain, form: Form, data: st.DataObject
) -> None:
    """There it is a legal message: only the entry's own length tells, which BookKeeper's checksum
    covers.
    """
    whole = position_info.encode(value(plain, form), form)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert survives(position_info.decode, cut) == (len(cut) in sorted(field_edges(whole))[1:])


@given(plains(), FORMS, FLIPS)
def test_flipped_bits_in_a_state(plain: Plain, form: Form, flips: Flips) -> None:
    survives(position_info.decode, flipped(position_info.encode(value(plain, form), form), flips))


@given(plains(), FORMS, FLIPS)
def test_what_is_read_of_flipped_bits_is_what_protobuf_reads(
    plain: Plain, form: Form, flips: Flips
) -> None:
    """No checksum tells that these bytes are others; but nothing of what they say is left out."""
    data = flipped(position_info.encode(value(plain, form), form), flips)
    try:
        info, notes = position_info.decode_with_notes(data)
    except DamageError:
        return
    widest = max((len(acked) for acked in info.acked.values()), default=0)
    if widest > 1 << 20 or info.crossing or any("has one already" in note for note in notes):
        return
    said = oracle.plain(data)
    at = said.mark_delete
    acked = {
        ledger: {e for e in entries if (ledger, e) > at} for ledger, entries in said.acked.items()
    }
    assert info.mark_delete == at
    assert {ledger: set(entries) for ledger, entries in info.acked.items()} == {
        k: v for k, v in acked.items() if v
    }
    assert {tuple(key): set(missing) for key, missing in info.batches.items()} == {
        key: missing
        for key, missing in said.batches.items()
        if missing and key > at and key[1] not in acked.get(key[0], ())
    }
    assert info.properties == said.properties


@given(st.binary(max_size=400))
def test_anything_at_all(data: bytes) -> None:
    for decode in (
        position_info.decode,
        cursor_info.decode,
        ledger_info.decode,
    ):
        survives(decode, data)
        survives(decode, b"\x08\x01\x10\x02" + data)


@given(
    st.lists(
        st.sampled_from(
            [
                bytes.fromhex(t)
                for t in (
                    "08",
                    "10",
                    "1a",
                    "0a",
                    "12",
                    "32",
                    "2a",
                    "04",
                    "0c",
                    "ff",
                    "01",
                    "80",
                    "00",
                    "22 05 0a 01 6b 10 07",
                    "3a 02",
                )
            ]
        ),
        max_size=60,
    )
)
def test_things_that_look_like_fields(parts: list[bytes]) -> None:
    survives(position_info.decode, b"\x08\x01\x10\x02" + b"".join(parts))
    survives(cursor_info.decode, b"".join(parts))


@given(plains(), st.sampled_from(Compression), FLIPS, st.integers(0, 200))
def test_flipped_bits_and_cuts_in_a_compressed_znode(
    plain: Plain, compression: Compression, flips: Flips, cut: int
) -> None:
    state = value(plain, Form.RANGES)
    info = ManagedCursorInfo(-1, state.mark_delete, state.acked, state.batches, state.properties)
    whole = cursor_info.wrap(cursor_info.encode(info), compression, 0)

    def decode(data: bytes) -> ManagedCursorInfo:
        return cursor_info.decode(cursor_info.unwrap(data, limit_bytes=1 << 20)[0])

    assert decode(whole) == info
    survives(decode, flipped(whole, flips))
    survives(decode, whole[: max(0, len(whole) - cut)])
    survives(decode, whole + b"\0" * cut)


@given(st.sampled_from(Compression), FLIPS)
def test_flipped_bits_in_a_topic_znode(compression: Compression, flips: Flips) -> None:
    topic = ManagedLedgerInfo(
        tuple(LedgerInfo(n, 50_000, 1 << 20, 1_700_000_000_000) for n in range(40)),
        Position(39, 7),
        {"k": "v"},
    )
    whole = ledger_info.encode(topic, compression)
    assert ledger_info.decode(whole) == topic
    survives(ledger_info.decode, flipped(whole, flips))


@given(st.integers(0, 40), st.integers(0, 255))
def test_a_flipped_byte_among_many_ranges(at: int, byte: int) -> None:
    """In the middle of what is read as columns: the row is an error, or is another row; the others
    stay.
    """
    whole = bytearray(MANY)
    whole[len(whole) // 2 + at] ^= byte
    try:
        info = position_info.decode(bytes(whole))
    except DamageError:
        return
    read = sum(map(len, info.acked.values())) + len(info.unknown)
    assert len(info.acked.get(7, ())) >= 3 * 20_000 - 6
    assert read


MANY = position_info.encode(
    PositionInfo(
        Position(7, 0), {7: BitMap(4 * n + k for n in range(1, 20_001) for k in range(3))}
    ),
    Form.RANGES,
)


def test_memory_is_bounded_by_the_bytes() -> None:
    """All-zero words are the worst: two bytes stand for 64 entries. Nothing near eight bytes an
    entry may appear.
    """
    words = b"\x10\x00" * 4_000_000 + b"\x10\x01"
    content = b"\x08\x05" + words
    size = len(content)
    length = bytes(
        [size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21]
    )
    data = b"\x08\x05\x10\x00\x32" + length + content
    tracemalloc.start()
    try:
        info = position_info.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert info.acked == {5: BitMap([256_000_000])}
    assert peak < 6 * len(data)


def test_dense_states_take_no_memory_per_entry() -> None:
    acked = {1: BitMap(), 2: BitMap()}
    for ledger in acked:
        acked[ledger].add_range(1, 40_000_000)
    info = PositionInfo(Position(1, 0), acked, form=Form.LONG_ARRAY)
    tracemalloc.start()
    try:
        data = position_info.encode(info, Form.LONG_ARRAY)
        wrote = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert position_info.decode(data) == info
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data) > 13_000_000
    assert wrote < 2 * len(data) + (16 << 20)
    assert read < 2 * len(data) + (32 << 20)


def test_a_range_over_everything_costs_nothing() -> None:
    data = position_info.encode(
        PositionInfo(Position(1, -1), {1: _all()}, form=Form.RANGES), Form.RANGES
    )
    assert len(data) < 60
    assert len(position_info.decode(data).acked[1]) == 1 << 32


def _all() -> BitMap:
    out = BitMap()
    out.add_range(0, 1 << 32)
    return out


def test_errors_take_a_place() -> None:
    with pytest.raises(PulsarFormatError) as caught:
        position_info.decode(b"\x08\x0c")
    placed = caught.value.at("ledger 7 entry 3")
    assert isinstance(placed, PulsarFormatError)
    assert str(placed) == "ledger 7 entry 3: PositionInfo.entryId is missing"
