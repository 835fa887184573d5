"""Both directions against protobuf's own library, on random states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.format.pulsar import cursor_info, ledger_info, long_array, position_info, ranges
from cursorkeeper.format.pulsar.values import (
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from daemon.tests.format.pulsar import oracle
from daemon.tests.format.pulsar.oracle import MESSAGES, Plain
from daemon.tests.format.pulsar.strategies import FORMS, INT64, LEDGERS, TEXTS, WIDE, plains, value


@given(plains(), FORMS)
def test_we_write_what_protobuf_writes(plain: Plain, form: Form) -> None:
    ours = value(plain, form)
    data = position_info.encode(ours, form)
    assert data == plain.message(form.value).SerializeToString()
    assert position_info.encoded_bytes(ours, form) == len(data)


@given(plains(), FORMS)
def test_we_read_what_protobuf_wrote(plain: Plain, form: Form) -> None:
    assert position_info.decode_with_notes(plain.message(form.value).SerializeToString()) == (
        value(plain, form),
        (),
    )


@given(plains(), FORMS)
def test_protobuf_reads_what_we_wrote(plain: Plain, form: Form) -> None:
    assert oracle.plain(position_info.encode(value(plain, form), form)) == plain


@given(
    plains(),
    FORMS,
    st.sampled_from([b"", b"\x38\x07", b"\x38\x01\x42\x02ab\x4d0123\x51" + bytes(8)]),
)
def test_unknown_fields_come_back(plain: Plain, form: Form, unknown: bytes) -> None:
    ours = replace(value(plain, form), unknown=unknown)
    data = position_info.encode(ours, form)
    assert position_info.decode(data) == ours
    assert position_info.encoded_bytes(ours, form) == len(data)
    front = unknown + position_info.encode(replace(ours, unknown=b""), form)
    assert position_info.decode(front) == ours


@given(
    plains(), st.dictionaries(TEXTS, TEXTS, max_size=3), st.none() | INT64, st.integers(-1, 1 << 40)
)
def test_the_cursor_znode(
    plain: Plain, texts: dict[str, str], active: int | None, ledger: int
) -> None:
    state = value(plain, Form.RANGES)
    ours = ManagedCursorInfo(
        ledger,
        state.mark_delete,
        state.acked,
        state.batches,
        state.properties,
        texts,
        last_active_ms=active,
        unknown=b"\x48\x05",
    )
    message = MESSAGES["ManagedCursorInfo"](
        cursorsLedgerId=ledger,
        markDeleteLedgerId=plain.mark_delete[0],
        markDeleteEntryId=plain.mark_delete[1],
    )
    oracle.add_ranges(message, plain.acked)
    oracle.add_properties(message, plain.properties)
    oracle.add_batches(message, plain.batches)
    if active is not None:
        message.lastActive = active
    for name, text in texts.items():
        message.cursorProperties.add(name=name, value=text)
    data = message.SerializeToString() + b"\x48\x05"
    assert cursor_info.encode(ours) == data
    assert cursor_info.decode_with_notes(data) == (ours, ())
    if ours.is_inline:
        assert cursor_info.inline_state(ours) == state


OPTIONAL = st.none() | st.integers(0, (1 << 63) - 1)


@given(
    st.lists(st.tuples(LEDGERS, OPTIONAL, OPTIONAL, OPTIONAL, st.booleans()), max_size=5),
    st.none() | st.tuples(LEDGERS, INT64),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
)
def test_the_topic_znode(
    rows: list[tuple[int, int | None, int | None, int | None, bool]],
    end: tuple[int, int] | None,
    texts: dict[str, str],
) -> None:
    message = MESSAGES["ManagedLedgerInfo"]()
    ledgers = []
    for ledger, entries, size, stamp, offloaded in rows:
        made = message.ledgerInfo.add(ledgerId=ledger)
        for name, number in (("entries", entries), ("size", size), ("timestamp", stamp)):
            if number is not None:
                setattr(made, name, number)
        if offloaded:
            made.offloadContext.anything = "x"
            made.properties.add(key="k", value="v")
        unknown = b"\x2a\x03\x2a\x01x\x32\x06\x0a\x01k\x12\x01v" if offloaded else b""
        ledgers.append(LedgerInfo(ledger, entries, size, stamp, unknown))
    if end is not None:
        message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = end
    for name, text in texts.items():
        message.properties.add(key=name, value=text)
    data = message.SerializeToString() + b"\x22\x01z"
    ours = ManagedLedgerInfo(
        tuple(ledgers), None if end is None else Position(*end), texts, b"\x22\x01z"
    )
    assert ledger_info.encode(ours) == data
    assert ledger_info.decode(data) == ours


@given(st.sets(WIDE, min_size=1, max_size=40))
def test_entries_anywhere_in_32_bits_as_ranges(members: set[int]) -> None:
    ours = PositionInfo(Position(1, -1), {7: BitMap(members)}, form=Form.RANGES)
    data = position_info.encode(ours, Form.RANGES)
    assert position_info.decode(data) == ours
    assert ranges.encoded_bytes(ours.acked) == len(data) - 13


@pytest.mark.parametrize("members", [4_095, 4_096, 4_097, 65_535, 65_536])
@pytest.mark.parametrize("step", [1, 2, 3, 16])
def test_containers_around_their_limits(members: int, step: int) -> None:
    """An array container has at most 4,096 values."""
    for first in (0, 1, 64, 65_535, 65_536):
        one = (
            BitMap(range(first, first + step * members, step))
            if step * members <= 65_536
            else BitMap(range(first, first + members))
        )
        for form in Form:
            ours = PositionInfo(Position(1, -1), {7: one, 8: BitMap([3])}, form=form)
            assert position_info.decode(position_info.encode(ours, form)) == ours


@given(st.integers(0, 1 << 22), st.sets(st.integers(0, 300_000), min_size=1, max_size=40))
def test_sparse_long_arrays_over_many_containers(base: int, members: set[int]) -> None:
    ours = PositionInfo(
        Position(1, -1), {7: BitMap(base + n for n in members)}, form=Form.LONG_ARRAY
    )
    data = position_info.encode(ours, Form.LONG_ARRAY)
    assert position_info.decode(data) == ours
    assert position_info.encoded_bytes(ours, Form.LONG_ARRAY) == len(data)


@pytest.mark.slow
def test_the_largest_entry_as_long_array() -> None:
    """67 M words, all zero but the last: two bytes each, and nowhere as many in memory."""
    ours = PositionInfo(
        Position(1, -1), {7: BitMap([ENTRY_ID_MAX - 2_000_000_000])}, form=Form.LONG_ARRAY
    )
    assert position_info.decode(position_info.encode(ours, Form.LONG_ARRAY)) == ours
    assert (
        position_info.encoded_bytes(
            PositionInfo(Position(1, -1), {7: BitMap([ENTRY_ID_MAX])}), Form.LONG_ARRAY
        )
        > 2 << 26
    )


@pytest.mark.parametrize(
    "share", [0.0003, 0.03, pytest.param(0.5, marks=pytest.mark.slow), 0.97, 1.0]
)
@pytest.mark.parametrize("sizes", [[5_000_000], [30_000] * 40, [70_000, 9, 4_400_000, 1, 131_072]])
@pytest.mark.parametrize("form", list(Form))
def test_large_states(sizes: list[int], share: float, form: Form) -> None:
    """Larger than every piece that is worked on at once; protobuf's library agrees on the
    numbers.
    """
    acked = {}
    for at, size in enumerate(sizes):
        members = np.flatnonzero(np.random.default_rng(at).random(size) < share).astype(np.uint32)
        if members.size:
            acked[500 + at] = from_sorted(members)
    ours = PositionInfo(Position(500, -1), acked, properties={"x": -1}, form=form)
    data = position_info.encode(ours, form)
    assert position_info.encoded_bytes(ours, form) == len(data)
    assert position_info.decode(data) == ours
    got = MESSAGES["PositionInfo"].FromString(data)
    if form is Form.RANGES:
        assert len(got.individualDeletedMessages) == ranges.count(acked)
        for made in (got.individualDeletedMessages[0], got.individualDeletedMessages[-1]):
            span = made.lowerEndpoint.entryId + 1, made.upperEndpoint.entryId + 1
            assert acked[made.lowerEndpoint.ledgerId].contains_range(*span)
        assert sum(
            m.upperEndpoint.entryId - m.lowerEndpoint.entryId for m in got.individualDeletedMessages
        ) == sum(map(len, acked.values()))
    else:
        for made in got.individualDeletedMessageRanges:
            words = np.array(made.values, np.int64).view(np.uint8)
            assert np.array_equal(
                np.flatnonzero(np.unpackbits(words, bitorder="little")), acked[made.key].to_array()
            )
        assert len(got.individualDeletedMessageRanges) == len(acked)


@given(
    st.lists(
        st.tuples(LEDGERS, st.sets(st.integers(0, 500), min_size=1, max_size=30)),
        min_size=1,
        max_size=6,
        unique_by=lambda x: x[0],
    )
)
def test_other_legal_spellings_say_the_same(rows: list[tuple[int, set[int]]]) -> None:
    """Packed words; key last; numbers longer than they need to be."""
    plain = Plain((0, -1), dict(rows))
    expected = value(plain, Form.LONG_ARRAY)
    for spell in (_packed, _key_last, _stretched, _long_tags):
        data = (
            b"\x08\x00\x10"
            + b"\xff" * 9
            + b"\x01"
            + b"".join(spell(ledger, plain.acked[ledger]) for ledger in sorted(plain.acked))
        )
        assert position_info.decode_with_notes(data) == (expected, ())


def _element(content: bytes) -> bytes:
    return b"\x32" + _varint(len(content)) + content


def _varint(number: int, least: int = 1) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F or len(out) < least - 1:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _packed(ledger: int, acked: set[int]) -> bytes:
    return _element(
        MESSAGES["PackedLongListMap"](key=ledger, values=oracle.words(acked)).SerializeToString()
    )


def _key_last(ledger: int, acked: set[int]) -> bytes:
    return _element(
        b"".join(b"\x10" + _varint(word) for word in oracle.words(acked))
        + b"\x08"
        + _varint(ledger)
    )


def _stretched(ledger: int, acked: set[int]) -> bytes:
    return _element(
        b"\x08"
        + _varint(ledger, 10)
        + b"".join(b"\x10" + _varint(word, 7) for word in oracle.words(acked))
    )


def _long_tags(ledger: int, acked: set[int]) -> bytes:
    """Some words one by one, among others that are pairs."""
    tags = (b"\x10", b"\x90\x00", b"\x10", b"\x10", b"\x90\x80\x00")
    words = b"".join(tags[at % 5] + _varint(word) for at, word in enumerate(oracle.words(acked)))
    return _element(b"\x08" + _varint(ledger) + words)


def test_an_element_that_is_not_plain_does_not_spoil_its_neighbours() -> None:
    acked = {ledger: set(range(ledger % 60 + 1)) for ledger in range(100, 160)}
    parts = [
        _packed(ledger, acked[ledger]) if ledger % 7 == 0 else long_array_of(ledger, acked[ledger])
        for ledger in sorted(acked)
    ]
    assert position_info.decode(b"\x08\x01\x10\x00" + b"".join(parts)) == value(
        Plain((1, 0), acked), Form.LONG_ARRAY
    )


def test_many_words_in_mixed_spellings() -> None:
    acked = {7: {n for n in range(60_000) if n % 7 or n > 30_000}}
    assert position_info.decode(b"\x08\x01\x10\x00" + _long_tags(7, acked[7])) == value(
        Plain((1, 0), acked), Form.LONG_ARRAY
    )


def long_array_of(ledger: int, acked: set[int]) -> bytes:
    return b"".join(long_array.encode(6, {ledger: BitMap(acked)}))


def test_ranges_in_other_legal_spellings_among_plain_ones() -> None:
    """The upper end first, and lengths of two bytes: read one by one, between columns."""
    message = MESSAGES["PositionInfo"](ledgerId=1, entryId=0)
    acked = {5: {n for n in range(20_000) if n % 3}}
    oracle.add_ranges(message, acked)
    plain_ranges = [
        b"\x1a" + _varint(len(m)) + m
        for m in (r.SerializeToString() for r in message.individualDeletedMessages)
    ]
    for at in (0, 1, 100, 5_000, len(plain_ranges) - 1):
        made = message.individualDeletedMessages[at]
        lower, upper = (
            made.lowerEndpoint.SerializeToString(),
            made.upperEndpoint.SerializeToString(),
        )
        content = b"\x12" + _varint(len(upper), 2) + upper + b"\x0a" + _varint(len(lower)) + lower
        plain_ranges[at] = b"\x1a" + _varint(len(content), 3) + content
    assert position_info.decode(b"\x08\x01\x10\x00" + b"".join(plain_ranges)) == value(
        Plain((1, 0), acked), Form.RANGES
    )
