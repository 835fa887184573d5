"""Messages that are legal and strange: what is made of them, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import TooNewError
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import cursor_info, ledger_info, position_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import CrossingRange, Form, ManagedCursorInfo, PositionInfo
from daemon.tests.format.pulsar.oracle import MESSAGES

MD = b"\x08\x0c\x10\x04"


def state(**at: int) -> Any:
    return MESSAGES["PositionInfo"](ledgerId=12, entryId=4)


def put_range(
    message: Any, ledger: int, lower: int, upper: int, upper_ledger: int | None = None
) -> None:
    made = message.individualDeletedMessages.add()
    made.lowerEndpoint.ledgerId, made.lowerEndpoint.entryId = ledger, lower
    made.upperEndpoint.ledgerId, made.upperEndpoint.entryId = (
        ledger if upper_ledger is None else upper_ledger,
        upper,
    )


def put_batch(message: Any, ledger: int, entry: int, words: list[int]) -> None:
    made = message.batchedEntryDeletionIndexInfo.add(deleteSet=words)
    made.position.ledgerId, made.position.entryId = ledger, entry


def read(message: Any) -> tuple[PositionInfo, tuple[str, ...]]:
    return position_info.decode_with_notes(message.SerializeToString())


@given(
    st.permutations(
        [
            (12, 9, 20),
            (12, 15, 30),
            (12, 30, 31),
            (14, -1, 5),
            (13, 7, 8),
            (12, 100, 200),
            (14, 3, 4),
        ]
    )
)
def test_ranges_out_of_order_and_overlapping_are_their_union(
    rows: list[tuple[int, int, int]],
) -> None:
    message = state()
    for row in rows:
        put_range(message, *row)
    info, notes = read(message)
    assert info.acked == {
        12: BitMap([*range(10, 32), *range(101, 201)]),
        13: BitMap([8]),
        14: BitMap(range(6)),
    }
    assert list(info.acked) == [12, 13, 14]
    assert notes == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-1, 300), st.integers(0, 80)),
        min_size=1,
        max_size=200,
    )
)
def test_any_ranges_are_their_union(rows: list[tuple[int, int, int]]) -> None:
    message = MESSAGES["PositionInfo"](ledgerId=0, entryId=-1)
    expected: dict[int, set[int]] = {}
    for ledger, lower, more in rows:
        put_range(message, ledger, lower, lower + more)
        expected.setdefault(ledger, set()).update(range(lower + 1, lower + more + 1))
    info, _ = read(message)
    assert info.acked == {
        ledger: BitMap(entries) for ledger, entries in expected.items() if entries
    }


def test_ranges_that_cover_nothing() -> None:
    message = state()
    put_range(message, 12, 9, 9)
    put_range(message, 12, 10, 11)
    info, notes = read(message)
    assert info.acked == {12: BitMap([11])}
    assert notes == ("1 ranges that cover nothing",)


def test_entries_at_or_below_mark_delete_are_dropped() -> None:
    message = state()
    message.individualDeletedMessageRanges.add(key=11, values=[3])
    message.individualDeletedMessageRanges.add(key=12, values=[0b1110011])
    put_batch(message, 12, 4, [1])
    put_batch(message, 12, 7, [1])
    info, notes = read(message)
    assert info == PositionInfo(
        Position(12, 4),
        {12: BitMap([5, 6])},
        {PartialKey(12, 7): BitMap([0])},
        form=Form.LONG_ARRAY,
    )
    assert notes == (
        "5 entries at or below mark-delete 12:4 are named again: dropped",
        "1 partly acked batches of entries that are acked as a whole: dropped",
    )


def test_a_batch_of_an_entry_that_is_acked_is_dropped() -> None:
    message = state()
    put_range(message, 12, 8, 9)
    put_batch(message, 12, 9, [1])
    put_batch(message, 12, 10, [1])
    info, notes = read(message)
    assert info.batches == {PartialKey(12, 10): BitMap([0])}
    assert notes == ("1 partly acked batches of entries that are acked as a whole: dropped",)


def test_where_everything_is_below_mark_delete_nothing_is_left() -> None:
    message = state()
    put_range(message, 3, 0, 100)
    assert read(message)[0] == PositionInfo(Position(12, 4))


def test_a_ledger_that_is_there_twice_is_joined() -> None:
    message = state()
    for values in ([1 << 10], [1 << 20], [], [0, 1]):
        message.individualDeletedMessageRanges.add(key=12, values=values)
    info, notes = read(message)
    assert info.acked == {12: BitMap([10, 20, 64])}
    assert len(notes) == 1 and "[12]" in notes[0] and "Pulsar would lose" in notes[0]


def test_ranges_win_over_long_arrays_and_it_is_said() -> None:
    message = state()
    put_range(message, 12, 9, 10)
    message.individualDeletedMessageRanges.add(key=12, values=[1 << 40])
    info, notes = read(message)
    assert info.acked == {12: BitMap([10])}
    assert info.form is Form.RANGES
    assert notes == ("1 long arrays beside 1 ranges: ignored, as Pulsar does",)


def test_trailing_zero_words_and_empty_arrays() -> None:
    message = state()
    message.individualDeletedMessageRanges.add(key=13, values=[1, 0, 0])
    message.individualDeletedMessageRanges.add(key=14, values=[0, 0])
    message.individualDeletedMessageRanges.add(key=15, values=[])
    assert read(message)[0].acked == {13: BitMap([0])}


def test_batches_without_a_bit_are_ignored() -> None:
    message = state()
    put_batch(message, 12, 9, [])
    put_batch(message, 12, 10, [0, 0])
    put_batch(message, 12, 11, [5])
    info, notes = read(message)
    assert info.batches == {PartialKey(12, 11): BitMap([0, 2])}
    assert info.acked == {}
    assert notes == ("2 batch elements without a bit: ignored, as Pulsar does",)


def test_two_elements_of_one_batch_meet() -> None:
    message = state()
    for words in ([0b0110], [0b0011]):
        put_batch(message, 12, 11, words)
    for words in ([0b10], [0b01]):
        put_batch(message, 12, 13, words)
    info, notes = read(message)
    assert info.batches == {PartialKey(12, 11): BitMap([1])}
    assert info.acked == {12: BitMap([13])}
    assert "2 batch elements for an entry that has one already" in notes[0]


def test_an_entry_that_is_there_twice_is_no_word() -> None:
    with pytest.raises(PulsarFormatError, match="entryId is there twice"):
        position_info.decode(MD + bytes.fromhex("2a 0b 0a 06 08 0c 10 0b 10 05 10 f6 07"))


def test_the_longest_batch_and_one_index_more() -> None:
    message = state()
    put_batch(message, 12, 11, [0] * 1_023 + [-(1 << 63)])
    assert read(message)[0].batches == {PartialKey(12, 11): BitMap([65_535])}
    message = state()
    put_batch(message, 12, 11, [0] * 1_024 + [1])
    with pytest.raises(PulsarFormatError, match="12:11: a deleteSet of 1025 words"):
        read(message)


def test_ranges_across_ledgers_are_kept_apart() -> None:
    message = state()
    put_range(message, 11, 3, 7, upper_ledger=12)
    put_range(message, 12, 8, -1, upper_ledger=15)
    put_range(message, 12, 5, 6)
    put_range(message, 9, 5, 4, upper_ledger=12)
    info, _ = read(message)
    assert info.crossing == (
        CrossingRange(Position(11, 3), Position(12, 7)),
        CrossingRange(Position(12, 8), Position(15, -1)),
    )
    assert info.acked == {12: BitMap([6])}
    again = position_info.encode(info, Form.RANGES)
    assert position_info.decode(again) == info
    assert position_info.encoded_bytes(info, Form.RANGES) == len(again)
    with pytest.raises(ValueError, match="across ledgers"):
        position_info.encode(info, Form.LONG_ARRAY)


def test_crossing_ranges_are_written_in_the_order_of_positions() -> None:
    info = PositionInfo(
        Position(1, -1),
        {2: BitMap([1]), 5: BitMap([1]), 9: BitMap([1])},
        crossing=(
            CrossingRange(Position(9, 4), Position(10, 1)),
            CrossingRange(Position(2, 4), Position(4, 1)),
        ),
        form=Form.RANGES,
    )
    got = MESSAGES["PositionInfo"].FromString(position_info.encode(info, Form.RANGES))
    lowers = [
        (r.lowerEndpoint.ledgerId, r.lowerEndpoint.entryId) for r in got.individualDeletedMessages
    ]
    assert lowers == [(2, 0), (2, 4), (5, 0), (9, 0), (9, 4)]


# ---- newer writers


NEWER = {
    "bitmap of a long array": MD + bytes.fromhex("32 07 08 0c 1a 03 61 62 63"),
    "field 4 of a long array": MD + bytes.fromhex("32 06 08 0c 10 40 20 01"),
    "field 3 of a range": MD + bytes.fromhex("1a 0e 0a 04 08 0c 10 05 12 04 08 0c 10 07 18 01"),
    "field 3 of an end of a range": MD
    + bytes.fromhex("1a 0e 0a 06 08 0c 10 05 18 01 12 04 08 0c 10 07"),
    "field 3 of a batch": MD + bytes.fromhex("2a 0a 0a 04 08 0c 10 0b 10 01 18 01"),
    "field 3 of a property": MD + bytes.fromhex("22 07 0a 01 6b 10 07 18 01"),
    "a part of a state": MD + bytes.fromhex("3a 06 08 00 10 02 1a 00"),
}


@pytest.mark.parametrize("name", NEWER)
def test_what_a_newer_writer_left_where_acks_are_is_refused(name: str) -> None:
    with pytest.raises(TooNewError, match="acks would be lost"):
        position_info.decode(NEWER[name])


@pytest.mark.parametrize("name", NEWER)
def test_a_damaged_message_is_damaged_before_it_is_newer(name: str) -> None:
    with pytest.raises(PulsarFormatError):
        position_info.decode(NEWER[name] + b"\x1a\x09")


def test_newer_cursor_and_topic_znodes() -> None:
    with pytest.raises(TooNewError):
        cursor_info.decode(bytes.fromhex("08 4d 10 0c 18 04 42 08 0a 01 61 12 01 62 18 01"))
    with pytest.raises(TooNewError):
        ledger_info.decode(bytes.fromhex("12 06 08 0c 10 04 18 01"))
    with pytest.raises(TooNewError, match="compression type 5"):
        cursor_info.unwrap(bytes.fromhex("47 78 00 00 00 04 08 05 10 01 00"), limit_bytes=100)


# ---- numbers that cannot be


BAD_RANGES = {
    "upside down": (12, 9, 8, None),
    "ledgers upside down": (13, 0, 5, 12),
    "a negative ledger": (-1, 0, 5, None),
    "below -1": (12, -2, 5, None),
    "upper end below -1": (12, 0, -2, 13),
    "beyond 32 bits": (12, 4, ENTRY_ID_MAX + 1, None),
    "far beyond": (12, 4, (1 << 63) - 1, None),
}


@pytest.mark.parametrize("name", BAD_RANGES)
def test_impossible_ranges(name: str) -> None:
    for others in (0, 500):
        message = state()
        for n in range(others):
            put_range(message, 12, 10 * n + 20, 10 * n + 25)
        put_range(message, *BAD_RANGES[name])
        with pytest.raises(PulsarFormatError, match="the range"):
            read(message)


def test_impossible_positions() -> None:
    for ledger, entry in ((-1, 5), (3, -2), (3, ENTRY_ID_MAX + 1), (-1, -1)):
        with pytest.raises(PulsarFormatError, match="mark-delete"):
            position_info.decode(
                MESSAGES["PositionInfo"](ledgerId=ledger, entryId=entry).SerializeToString()
            )
        with pytest.raises(ValueError, match="mark-delete"):
            position_info.encode(PositionInfo(Position(ledger, entry)), Form.RANGES)
    for ledger, entry in ((-1, 5), (12, -1), (12, ENTRY_ID_MAX + 1)):
        message = state()
        put_batch(message, ledger, entry, [1])
        with pytest.raises(PulsarFormatError, match="partly acked batch"):
            read(message)
    message = state()
    message.individualDeletedMessageRanges.add(key=-5, values=[1])
    with pytest.raises(PulsarFormatError, match="ledger -5"):
        read(message)


def test_required_fields() -> None:
    for data, missing in (
        (b"", "ledgerId"),
        (b"\x08\x0c", "entryId"),
        (b"\x10\x0c", "ledgerId"),
        (MD + b"\x1a\x06\x0a\x04\x08\x0c\x10\x05", "upperEndpoint"),
        (MD + b"\x1a\x06\x12\x04\x08\x0c\x10\x05", "lowerEndpoint"),
        (MD + b"\x1a\x0a\x0a\x02\x10\x05\x12\x04\x08\x0c\x10\x07", "ledgerId"),
        (MD + b"\x2a\x02\x10\x01", "position"),
        (MD + b"\x32\x02\x10\x01", "key"),
        (MD + b"\x22\x02\x10\x01", "name"),
        (MD + b"\x22\x03\x0a\x01k", "value"),
    ):
        with pytest.raises(PulsarFormatError, match=f"{missing} is missing"):
            position_info.decode(data)
    for data in (b"", b"\x10\x0c\x18\x04", b"\x08\x4d\x10\x0c", b"\x08" + b"\xff" * 9 + b"\x01"):
        with pytest.raises(PulsarFormatError, match="is missing"):
            cursor_info.decode(data)


def test_a_znode_of_an_open_ledger_needs_no_position() -> None:
    assert cursor_info.decode(b"\x08\x4d") == ManagedCursorInfo(77)
    with pytest.raises(ValueError, match="77"):
        cursor_info.inline_state(ManagedCursorInfo(77, Position(12, 4)))


@pytest.mark.parametrize(
    "tail",
    [
        "18 05",
        "20 05",
        "28 05",
        "30 05",
        "0a 01 78",
        "08 0c",
        "10 05",
        "3b",
        "07 01",
        "80 80 80 80 80 80 80 80 80 80 01",
        "0b 0c",
        "00 01",
    ],
)
def test_wrong_wire_types_and_second_positions_are_damage(tail: str) -> None:
    with pytest.raises(PulsarFormatError):
        position_info.decode(MD + bytes.fromhex(tail))


@pytest.mark.parametrize(
    "word", ["ff ff ff ff ff ff ff ff ff 02", "ff ff ff ff ff ff ff ff ff ff 01"]
)
def test_numbers_of_more_than_64_bits_are_damage(word: str) -> None:
    number = bytes.fromhex(word)
    element = b"\x08\x0c\x10" + number
    with pytest.raises(PulsarFormatError, match="more than"):
        position_info.decode(MD + b"\x32" + bytes([len(element)]) + element)
    upper = b"\x08\x0c\x10" + number
    content = b"\x0a\x04\x08\x0c\x10\x05\x12" + bytes([len(upper)]) + upper
    with pytest.raises(PulsarFormatError, match="more than"):
        position_info.decode(MD + b"\x1a" + bytes([len(content)]) + content)
    with pytest.raises(PulsarFormatError, match="more than"):
        position_info.decode(b"\x08" + number + b"\x10\x04")


def test_a_word_that_is_cut_off_takes_none_of_the_next_element() -> None:
    """`10` without a word, and an element whose bytes would read as pairs after it."""
    for others in (b"", bytes.fromhex("32 05 08 0d 10 c0 05")):
        with pytest.raises(PulsarFormatError, match="cut off"):
            position_info.decode(
                MD + others + bytes.fromhex("32 03 08 05 10 32 06 08 06 10 10 10 07") + others
            )


def test_ranges_over_impossibly_many_entries() -> None:
    """A few bytes must not ask for gigabytes."""
    message = MESSAGES["PositionInfo"](ledgerId=0, entryId=-1)
    for ledger in range(16):
        put_range(message, ledger, -1, ENTRY_ID_MAX)
    assert len(read(message)[0].acked) == 16
    put_range(message, 16, -1, ENTRY_ID_MAX)
    with pytest.raises(PulsarFormatError, match="ranges over more than"):
        read(message)


def test_texts_that_are_not_utf_8() -> None:
    with pytest.raises(PulsarFormatError, match="UTF-8"):
        position_info.decode(MD + bytes.fromhex("22 05 0a 01 ff 10 07"))
