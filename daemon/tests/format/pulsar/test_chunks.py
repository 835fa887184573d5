"""PIP-381: what is written, and every way a ledger can look when it is read again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted
from cursorkeeper.core.errors import TooNewError
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import chunks, position_info
from cursorkeeper.format.pulsar.chunks import Found, Skipped
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.slices import is_beginning
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from daemon.tests.format.pulsar.oracle import Plain, field_edges
from daemon.tests.format.pulsar.strategies import FORMS, plains, value

LIMIT = 1 << 20
M = 100
CODECS = st.none() | st.sampled_from(Compression)
OLD = PositionInfo(Position(12, 4))
OLD_BYTES = position_info.encode(OLD, Form.RANGES)


def big(seed: int = 1, ledgers: int = 3) -> PositionInfo:
    """About 2,000 bytes."""
    acked = {
        12 + at: from_sorted(
            np.flatnonzero(np.random.default_rng(seed + at).random(4_000) < 0.5).astype(np.uint32)
        )
        for at in range(ledgers)
    }
    acked[12].remove_range(0, 6)
    return PositionInfo(
        Position(12, 4),
        acked,
        {PartialKey(13, 5_000): BitMap([1, 9])},
        {"k": 7},
        form=Form.LONG_ARRAY,
    )


BIG = big()
BIG_BYTES = position_info.encode(BIG, Form.LONG_ARRAY)


def written(raw: bytes, size: int = M, codec: Compression | None = None) -> list[bytes]:
    return chunks.entries_of(raw, compression=codec, max_entry_bytes=size, multiple=True)


def read(
    entries: Sequence[bytes], size: int | None, codec: Compression | None = None, limit: int = LIMIT
) -> Found:
    reading = chunks.newest_state(
        len(entries) - 1, compression=codec, max_entry_bytes=size, limit_bytes=limit
    )
    asked, held = 0, None
    while True:
        try:
            wanted = reading.send(held)  # type: ignore[arg-type]
        except StopIteration as done:
            assert isinstance(done.value, Found)
            return done.value
        assert 0 <= wanted.first <= wanted.last < len(entries)
        assert wanted.last - wanted.first < 8
        held = list(entries[wanted.first : wanted.last + 1])
        asked += 1
        assert asked <= 3 * len(entries) + 3


# ---- writing


@given(st.binary(max_size=700), st.integers(64, 300), CODECS)
def test_parts_are_counted_as_pulsar_counts_them(
    raw: bytes, size: int, codec: Compression | None
) -> None:
    entries = written(raw, size, codec)
    whole = b"".join(entries[:-1]) if len(entries) > 1 else entries[0]
    if codec is None:
        assert whole == raw
    else:
        assert struct.unpack(">i", whole[:4]) == (len(raw),)
    parts = 1 + len(whole) // size
    if parts == 1:
        assert entries == [whole]
    else:
        assert len(entries) == parts + 1
        assert all(len(part) == size for part in entries[: parts - 1])
        assert len(entries[parts - 1]) == len(whole) % size
        assert entries[-1] == b'{"numParts":%d,"length":%d}' % (parts, len(whole))
    assert chunks.entries_of(raw, compression=codec, max_entry_bytes=size, multiple=False) == [
        whole
    ]


def test_an_exact_multiple_ends_with_an_empty_slice() -> None:
    assert list(map(len, written(bytes(300)))) == [
        100,
        100,
        100,
        0,
        len(b'{"numParts":4,"length":300}'),
    ]
    assert written(bytes(300))[-1] == b'{"numParts":4,"length":300}'
    assert list(map(len, written(bytes(99)))) == [99]
    assert list(map(len, written(bytes(100)))) == [100, 0, len(b'{"numParts":2,"length":100}')]


# ---- reading what was finished


@given(plains(), FORMS, st.integers(64, 400), CODECS, st.booleans())
def test_there_and_back(
    plain: Plain, form: Form, size: int, codec: Compression | None, known: bool
) -> None:
    state = value(plain, form)
    before = written(OLD_BYTES, size, codec)
    entries = before + written(position_info.encode(state, form), size, codec)
    found = read(entries, size if known else None, codec)
    assert found == Found(
        state, len(before), len(entries) - 1, (), sum(map(len, entries[len(before) :]))
    )


@pytest.mark.parametrize("codec", [None, *Compression])
@pytest.mark.parametrize("known", [True, False])
def test_sizes_around_the_threshold(codec: Compression | None, known: bool) -> None:
    whole = sum(map(len, written(BIG_BYTES, 1 << 20, codec)))
    for size in (
        whole - 1,
        whole,
        whole + 1,
        whole // 2 - 1,
        whole // 2,
        whole // 2 + 1,
        whole // 3,
    ):
        entries = written(BIG_BYTES, size, codec)
        assert read(entries, size if known else None, codec).info == BIG


def test_the_key_decides_not_the_codec() -> None:
    """NONE still has a length in front; without the key there is none."""
    assert read([struct.pack(">i", len(OLD_BYTES)) + OLD_BYTES], M, Compression.NONE).info == OLD
    with pytest.raises(PulsarFormatError):
        read([OLD_BYTES], M, Compression.NONE)
    with pytest.raises(PulsarFormatError):
        read([struct.pack(">i", len(OLD_BYTES)) + OLD_BYTES], M, None)


# ---- crashes: a state whose writing was not finished


@pytest.mark.parametrize("codec", [None, *Compression])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("before", ["single", "chunked"])
def test_every_unfinished_tail_is_stepped_over(
    codec: Compression | None, known: bool, before: str
) -> None:
    older = OLD if before == "single" else big(50)
    first = written(position_info.encode(older, Form.LONG_ARRAY), M, codec)
    tail = written(BIG_BYTES, M, codec)
    for cut in range(1, len(tail)):
        found = read(first + tail[:cut], M if known else None, codec)
        assert found.info == older
        assert found.last_entry == len(first) - 1
        assert [s.entry for s in found.skipped] == list(
            range(len(first) + cut - 1, len(first) - 1, -1)
        )
        assert all(s.reason for s in found.skipped)


@pytest.mark.parametrize("known", [True, False])
def test_a_ledger_with_nothing_but_slices_has_no_state(known: bool) -> None:
    tail = written(BIG_BYTES)
    with pytest.raises(
        PulsarFormatError, match=r"none of the entries 0\.\.4 ends a state; the newest, entry 4"
    ):
        read(tail[:5], M if known else None)
    with pytest.raises(PulsarFormatError, match="empty"):
        read([], M if known else None)


def accidental(filler: int = 80) -> tuple[bytes, list[bytes], int]:
    """A state that a size cuts exactly at the content of its long array, so that the second slice
    reads like a state of its own.
    """
    acked = {20: BitMap([6]), 21: BitMap([7]), 300: BitMap([70, 200])}
    state = PositionInfo(Position(12, 4), acked, properties={"x" * filler: 1}, form=Form.LONG_ARRAY)
    raw = position_info.encode(state, Form.LONG_ARRAY)
    size = raw.index(b"\x32") + 2
    assert position_info.decode(raw[size:]).mark_delete == Position(20, 64)
    return raw, [raw[:size], raw[size:]], size


def test_a_slice_that_reads_like_a_state_is_still_a_slice() -> None:
    raw, slices, size = accidental()
    found = read([OLD_BYTES, *slices], None)
    assert found.info == OLD
    assert [s.entry for s in found.skipped] == [2, 1]
    assert "goes on where entry 1 was cut" in found.skipped[0].reason
    raw, _, size = accidental(116)
    assert size % 2 == 0
    half = size // 2
    assert (
        read([OLD_BYTES, *(raw[n : n + half] for n in range(0, len(raw), half))], None).info == OLD
    )


def test_a_range_that_reads_like_a_state_is_still_a_slice() -> None:
    """Cut at the content of an upper end: `08 ledger 10 entry` and more ranges."""
    state = PositionInfo(
        Position(12, 4), {12: BitMap(range(6, 60, 3)), 14: BitMap([1])}, form=Form.RANGES
    )
    raw = position_info.encode(state, Form.RANGES)
    size = [n for n in range(len(raw)) if raw.startswith(b"\x12\x04", n)][-3] + 2
    assert position_info.decode(raw[size:]).mark_delete == Position(12, 54)
    assert read([OLD_BYTES, raw[:size], raw[size:]], None).info == OLD


def test_a_known_writer_tells_such_a_slice_by_the_sizes() -> None:
    raw, slices, size = accidental()
    entries = written(raw, size)
    assert entries[:-1] == slices
    found = read([OLD_BYTES, *entries[:-1]], size)
    assert found.info == OLD
    assert len(found.skipped) == len(entries) - 1


@pytest.mark.parametrize("cut", range(8, 60))
@pytest.mark.parametrize("form", list(Form))
def test_a_state_after_orphans_is_a_state(cut: int, form: Form) -> None:
    """A foreign writer that went on after a failure: what follows the orphan is no continuation of
    it.
    """
    orphan = position_info.encode(BIG, form)[:cut]
    if orphan == BIG_BYTES[: BIG_BYTES.index(b"\x32") + 3]:
        orphan += b"\x08"  # see the next test: one byte more, and the bytes tell again
    for state in (
        PositionInfo(Position(1 << 40, 4)),
        PositionInfo(
            Position(1 << 40, 900), {1 << 41: BitMap([3, 70])}, properties={"a": 1}, form=form
        ),
    ):
        found = read([OLD_BYTES, orphan, position_info.encode(state, form)], None)
        assert found.info == state
        assert found.skipped == ()


def test_where_bytes_cannot_tell_it_is_a_slice() -> None:
    """An orphan that ends where the two numbers of a position are due, and a state that is just
    these. Taking a slice for a state could acknowledge what nobody did; the other way round
    messages come again, and it is said.
    """
    raw = position_info.encode(
        PositionInfo(Position(12, 4), {12: BitMap([6, 9])}, form=Form.RANGES), Form.RANGES
    )
    orphan = raw[: raw.index(b"\x12\x04") + 2]
    newest = position_info.encode(PositionInfo(Position(12, 5)), Form.RANGES)
    found = read([OLD_BYTES, orphan, newest], None)
    assert found.info == OLD
    assert [s.entry for s in found.skipped] == [2, 1]
    longer = position_info.encode(
        PositionInfo(Position(12, 5), properties={"too long for a last slice": 1}), Form.RANGES
    )
    assert read([OLD_BYTES, orphan, longer], None).info.mark_delete == Position(12, 5)


def test_every_cut_and_every_end() -> None:
    state = PositionInfo(
        Position(12, 4),
        {12: BitMap([6, 9]), 13: BitMap([70])},
        {PartialKey(13, 99): BitMap([1, 70])},
        {"k": 300},
    )
    for form in Form:
        raw = position_info.encode(state, form) + b"\x38\x80\x01"
        edges = field_edges(raw)
        for boundary in range(1, len(raw)):
            for stop in range(boundary, len(raw) + 1):
                assert is_beginning(raw[:stop], boundary) == (boundary not in edges)


@given(plains(), FORMS, st.data())
def test_every_cut_is_recognised(plain: Plain, form: Form, data: st.DataObject) -> None:
    raw = position_info.encode(value(plain, form), form)
    boundary = data.draw(st.integers(1, len(raw)))
    inside = boundary not in field_edges(raw)
    assert is_beginning(raw, boundary) == inside
    stop = data.draw(st.integers(boundary, len(raw)))
    assert is_beginning(raw[:stop], boundary) == inside


# ---- slices and footers that look like each other


def test_a_slice_that_looks_like_a_footer() -> None:
    """A property can hold any text, and a slice can be exactly that text."""
    text = '{"numParts":1,"length":4,"more":"' + "x" * 40 + '"}'
    size = len(text)

    def state(filler: int) -> PositionInfo:
        return PositionInfo(Position(12, 4), properties={"p" * filler: 7, text: 1})

    at = position_info.encode(state(1), Form.RANGES).index(text.encode())
    aligned = state(1 + -at % size)
    entries = written(position_info.encode(aligned, Form.RANGES), size)
    assert chunks.parse_footer(entries[1]) == (1, 4)
    for known in (size, None):
        assert read([OLD_BYTES, *entries], known).info == aligned
        for cut in range(1, len(entries)):
            assert read([OLD_BYTES, *entries[:cut]], known).info == OLD


def test_the_last_slice_may_look_like_a_footer() -> None:
    found = read([OLD_BYTES, bytes(M), b'{"numParts":1,"length":4}'], M)
    assert found.info == OLD
    assert [s.entry for s in found.skipped] == [2, 1]


def test_slices_are_longer_than_footers() -> None:
    longest = b'{"numParts":2147483647,"length":2147483647}'
    assert len(longest) < chunks.MAX_ENTRY_BYTES_MIN
    with pytest.raises(ValueError, match="64 are needed"):
        written(BIG_BYTES, 63)


# ---- damage


FOOTERS = {
    "too few parts": (-1, 0),
    "too many parts": (1, 0),
    "too few bytes": (0, -1),
    "too many bytes": (0, 1),
    "a part's worth more": (1, M),
    "a part's worth less": (-1, -M),
}


@pytest.mark.parametrize("name", FOOTERS)
def test_footers_that_disagree_with_the_slices(name: str) -> None:
    parts_more, bytes_more = FOOTERS[name]
    entries = written(BIG_BYTES)
    parts, length = chunks.parse_footer(entries[-1]) or (0, 0)
    wrong = [
        OLD_BYTES,
        *entries[:-1],
        b'{"numParts":%d,"length":%d}' % (parts + parts_more, length + bytes_more),
    ]
    with pytest.raises(PulsarFormatError, match=f"entry {len(entries)}: "):
        read(wrong, M)
    found = read(wrong, None)
    assert found.info == OLD
    assert found.skipped[0].entry == len(entries)
    assert len(found.skipped) == len(entries)


@pytest.mark.parametrize(
    "parts, length", [(0, 0), (-1, 5), (3, -1), (1 << 31, 1 << 31), (2, LIMIT + 5), (1, 10**30)]
)
def test_impossible_footers(parts: int, length: int) -> None:
    entries = [OLD_BYTES, OLD_BYTES, b'{"numParts":%d,"length":%d}' % (parts, length)]
    with pytest.raises(PulsarFormatError, match="entry 2: "):
        read(entries, M)
    assert read(entries, None).info == OLD


def test_a_footer_does_not_make_one_read_more_than_it_says() -> None:
    entries = [OLD_BYTES, *[bytes(1_000)] * 200, b'{"numParts":200,"length":3000}']
    reading = chunks.newest_state(
        len(entries) - 1, compression=None, max_entry_bytes=None, limit_bytes=LIMIT
    )
    wanted = next(reading)
    assert wanted == (201, 201)
    wanted = reading.send(entries[201:])
    while wanted.last < 200:
        assert wanted.first < 16
        wanted = reading.send(entries[wanted.first : wanted.last + 1])
    assert wanted == (200, 200)


def test_missing_slices() -> None:
    entries = [OLD_BYTES, *written(BIG_BYTES)]
    for gone in range(1, len(entries) - 1):
        broken = entries[:gone] + entries[gone + 1 :]
        with pytest.raises(PulsarFormatError):
            read(broken, M)
        found = read(broken, None)
        assert found.info == OLD
        assert found.skipped[0].entry == len(broken) - 1


def test_slices_in_another_order() -> None:
    entries = [OLD_BYTES, *written(BIG_BYTES)]
    entries[2], entries[5] = entries[5], entries[2]
    with pytest.raises(PulsarFormatError):
        read(entries, M)
    assert read(entries, None).info == OLD


def test_a_known_writers_damaged_state_is_never_replaced_by_an_older_one() -> None:
    for damaged in (
        OLD_BYTES[:-1],
        b"\xff" + OLD_BYTES[1:],
        b"",
        b'{"numParts":2',
        b"{}",
        bytes(M + 1),
    ):
        with pytest.raises(PulsarFormatError, match="entry 1"):
            read([OLD_BYTES, damaged], M)
        found = read([OLD_BYTES, damaged], None)
        assert found.info == OLD
        assert [s.entry for s in found.skipped] == [1]


def test_a_newer_state_is_never_replaced_by_an_older_one() -> None:
    newer = OLD_BYTES + bytes.fromhex("32 07 08 0c 1a 03 61 62 63")
    for size in (M, None):
        with pytest.raises(TooNewError, match="entry 1"):
            read([OLD_BYTES, newer], size)


def test_a_writer_without_slices_is_told_by_a_large_size() -> None:
    assert read([OLD_BYTES, BIG_BYTES], 1 << 20).info == BIG
    with pytest.raises(PulsarFormatError, match="entry 1"):
        read([OLD_BYTES, BIG_BYTES[:-1]], 1 << 20)


@pytest.mark.parametrize("size", [M, 1 << 20])
def test_a_length_that_lies_is_bounded_before_it_is_believed(size: int) -> None:
    (honest,) = chunks.entries_of(
        bytes(50_000_000), compression=Compression.ZSTD, max_entry_bytes=1 << 30, multiple=True
    )
    for promise in (10, LIMIT, LIMIT + 1, 50_000_000, -1):
        entry = struct.pack(">i", promise) + honest[4:]
        entries = (
            [entry]
            if len(entry) < size
            else [*(entry[n : n + size] for n in range(0, len(entry), size))]
        )
        if len(entries) > 1:
            entries.append(b'{"numParts":%d,"length":%d}' % (1 + len(entry) // size, len(entry)))
        # not even tried
        said = (
            "entry"
            if 0 <= promise <= LIMIT
            else "uncompressed length of -?[0-9]+ bytes, [0-9]+ are allowed"
        )
        with pytest.raises(PulsarFormatError, match=said):
            read(entries, size, Compression.ZSTD)


def test_a_state_beyond_the_limit() -> None:
    with pytest.raises(PulsarFormatError, match="are allowed"):
        read([BIG_BYTES], 1 << 20, limit=len(BIG_BYTES) - 1)
    with pytest.raises(PulsarFormatError, match="are allowed"):
        read(written(BIG_BYTES), M, limit=len(BIG_BYTES) - 5)


def test_a_reader_that_was_given_too_little() -> None:
    reading = chunks.newest_state(3, compression=None, max_entry_bytes=M, limit_bytes=LIMIT)
    next(reading)
    with pytest.raises(ValueError, match="were asked for"):
        reading.send([OLD_BYTES])


@given(
    st.lists(
        st.sampled_from(
            [
                OLD_BYTES,
                b"",
                b"{}",
                bytes(M),
                BIG_BYTES[:M],
                b'{"numParts":1,"length":4}',
                b'{"numParts":2,"length":104}',
                b"\x08",
            ]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_ledger_ends_in_a_state_or_an_error(entries: list[bytes]) -> None:
    for size in (M, None):
        try:
            found = read(entries, size)
        except PulsarFormatError:
            continue
        assert found.skipped == tuple(Skipped(s.entry, s.reason) for s in found.skipped)
        assert [s.entry for s in found.skipped] == list(
            range(len(entries) - 1, found.last_entry, -1)
        )


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"{",
        b"{}",
        b'{"numParts":1}',
        b'{"numParts":"1","length":4}',
        b'{"numParts":1.0,"length":4}',
        b'{"numParts":true,"length":4}',
        b"{" * 200,
        b"[1]",
        b"{\xff}",
    ],
)
def test_what_is_no_footer(entry: bytes) -> None:
    assert chunks.parse_footer(entry) is None


def test_footers_of_other_writers_of_json() -> None:
    assert chunks.parse_footer(b'{ "length": 5, "numParts": 2, "more": null }') == (2, 5)
