"""Segments and end records: the worst case holds whatever the bitmaps hold, and the sizes are the
promised ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import count_runs, from_sorted, span
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import (
    containers_per_segment,
    partial_bytes_max,
    property_map_bytes_max,
    record_body_bytes_max,
    segment_body_bytes_max,
    slice_bytes_max,
)
from cursorkeeper.core.values import (
    CursorProperties,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Record,
    Segment,
    Slice,
    SnapshotEnd,
    Stamp,
)
from cursorkeeper.format import record, sections, snapshot
from cursorkeeper.format.codec import Codec, compress
from daemon.tests.format.bounds import (
    CONTAINERS_PER_SEGMENT,
    partial_bytes_limit,
    snapshot_end_body_bytes_max,
)
from daemon.tests.format.reference import coded
from daemon.tests.format.strategies import ENDS, SEGMENTS

CONTAINER = 65_536


VERSIONS = (record.VERSION, record.SEGMENT_VERSION)


@given(SEGMENTS)
def test_a_segment_comes_back_and_keeps_its_bound(value: Segment) -> None:
    sizes = []
    for version_max in VERSIONS:
        version, body = snapshot.encode_segment(value, version_max)
        assert version <= version_max
        assert snapshot.decode_segment(body, version) == value
        assert len(body) <= segment_body_bytes_max(value)
        sizes.append(len(body))
    assert (version > 1) == (sizes[1] < sizes[0]), "a set is shorter, or it is none"


@given(ENDS)
def test_an_end_record_comes_back_and_keeps_its_bound(value: SnapshotEnd) -> None:
    body = snapshot.encode_end(value)
    assert snapshot.decode_end(body) == value
    assert len(body) <= snapshot_end_body_bytes_max(value)


def test_encoding_leaves_the_bitmap_alone() -> None:
    bitmap = BitMap(range(3000))
    before = bitmap.serialize()
    snapshot.encode_segment(Segment(slices=(Slice(1, 0, 4095, False, bitmap),)))
    assert bitmap.serialize() == before


def test_a_bitmap_is_stored_in_its_smallest_form() -> None:
    one_by_one = BitMap()
    for n in range(3000):
        one_by_one.add(n)
    assert len(one_by_one.serialize()) > 6000
    assert (
        len(snapshot.encode_segment(Segment(slices=(Slice(1, 0, 4095, False, one_by_one),)))[1])
        < 60
    )


# --- the bound ------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)


def of(members: np.ndarray) -> BitMap:
    return from_sorted(members.astype(np.uint32))


def eaten(entries: int) -> BitMap:
    """Made of ranges and then full of holes: run containers that must be turned back."""
    out = span(0, entries - 1)
    out -= of(np.arange(0, entries, 2))
    return out


ADVERSARIES: dict[str, Callable[[int], BitMap]] = {
    "random half": lambda n: of(np.flatnonzero(RNG.random(n) < 0.5)),
    "alternate": lambda n: of(np.arange(0, n, 2)),
    "pairs": lambda n: of(np.flatnonzero(np.arange(n) % 4 < 2)),
    "4,096 per container": lambda n: of(np.flatnonzero(np.arange(n) % 16 == 0)),
    "4,097 per container": lambda n: of(
        np.flatnonzero((np.arange(n) % 16 == 0) | (np.arange(n) % CONTAINER == 1))
    ),
    "2,047 runs": lambda n: of(np.flatnonzero(np.arange(n) % 32 < 31)),
    "2,048 runs": lambda n: of(np.flatnonzero(np.arange(n) % 32 < 16)),
    "alternating kinds": lambda n: of(
        np.flatnonzero((np.arange(n) // CONTAINER % 2 == 0) | (np.arange(n) % 3 == 0))
    ),
    "ranges eaten away": eaten,
    "full": lambda n: span(0, n - 1),
    "one": lambda n: BitMap([n - 1]),
    "none": lambda n: BitMap(),
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_127_full_containers_always_fit_a_mebibyte(name: str) -> None:
    assert containers_per_segment(1 << 20) == CONTAINERS_PER_SEGMENT == 127
    last = CONTAINERS_PER_SEGMENT * CONTAINER - 1
    value = Segment(slices=(Slice(1 << 62, 0, last, True, ADVERSARIES[name](last + 1)),))
    for version_max in VERSIONS:
        version, body = snapshot.encode_segment(value, version_max)
        assert len(body) <= segment_body_bytes_max(value) <= record_body_bytes_max(1 << 20) - 7_000
        assert snapshot.decode_segment(body, version) == value


WIDTHS = st.sampled_from([1, 2, 100, 5_000, CONTAINER - 1, CONTAINER, CONTAINER + 1, 200_000])


@settings(max_examples=60)
@given(
    st.integers(0, CONTAINER * 3),
    WIDTHS,
    st.sampled_from(sorted(ADVERSARIES)),
)
def test_slices_of_any_width_keep_their_bound(first: int, width: int, name: str) -> None:
    bitmap = BitMap.shift(ADVERSARIES[name](width), first)
    value = Segment(slices=(Slice(0, first, first + width - 1, False, bitmap),))
    for version_max in VERSIONS:
        _, body = snapshot.encode_segment(value, version_max)
        assert len(body) - 2 <= slice_bytes_max(first, first + width - 1)


@pytest.mark.parametrize("max_entry_bytes", [12_000, 16_384, 100_000, 1 << 20, 4 << 20])
def test_what_is_said_to_fit_does(max_entry_bytes: int) -> None:
    limit = record_body_bytes_max(max_entry_bytes)
    containers = containers_per_segment(max_entry_bytes)
    for fits, count in ((True, containers), (False, containers + 2)):
        value = Segment(slices=(Slice((1 << 63) - 1, 0, count * CONTAINER - 1, True, BitMap()),))
        assert (segment_body_bytes_max(value) <= limit) == fits
    room = property_map_bytes_max(max_entry_bytes)
    md, cursor = (
        MarkDeleteProperties(Stamp(1, 1), {"k" * (room - 9): 1}),
        CursorProperties(Stamp(1, 1), {"k": "v" * (room - 12)}),
    )
    segments = tuple(range(1, limit // 4, 12))
    assert (
        snapshot_end_body_bytes_max(
            SnapshotEnd(1, 1, 1, segments, Position(1 << 62, 5), md, cursor)
        )
        <= limit
    )


def test_an_entry_alone_fits_with_its_batch() -> None:
    batch = Partial(65_536, BitMap(range(0, 65_536, 2)))
    assert partial_bytes_max(batch) <= partial_bytes_limit(20_000)
    value = Segment(partials={PartialKey(1, 9): batch}, slices=(Slice(1, 9, 9, True, BitMap([9])),))
    assert segment_body_bytes_max(value) <= record_body_bytes_max(20_000)


# --- the sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "plain_max", "stored_max"),
    [(0.1, 1_256_000, 645_000), (0.01, 206_000, 206_000), (0.001, 22_000, 22_000), (0.0, 200, 200)],
)
def test_ten_million_entries_take_a_tenth_of_the_promise(
    part: float, plain_max: int, stored_max: int
) -> None:
    """100 M entries: 12.5 MB plain and 6.4 MB with zstd at 10 % random holes, 2.0 at 1 %, 0.21 at
    0.1 %.
    """
    rng = np.random.default_rng(1)
    plain = stored = 0
    for ledger in range(2):
        holes = of(np.flatnonzero(rng.random(5_000_000) < part))
        value = Segment(slices=(Slice(ledger, 0, 4_999_999, True, holes),))
        plain += len(snapshot.encode_segment(value)[1])
        stored += len(record.encode(Record(1, 1, 1, 0, value))) - 40
    assert plain <= plain_max
    assert stored <= stored_max


WITH_SETS = record.EncodeSettings(record_version=record.SEGMENT_VERSION)


def scattered(part: float, entries: int) -> BitMap:
    return of(np.flatnonzero(np.random.default_rng(1).random(entries) < part))


def in_runs(part: float, entries: int, shortest: int, longest: int) -> BitMap:
    """Runs of any length between the two, anywhere."""
    rng = np.random.default_rng(1)
    count = int(entries * part / ((shortest + longest) / 2))
    sizes = rng.integers(shortest, longest + 1, count)
    gaps = rng.geometric(count / (entries - int(sizes.sum())), count)
    out = BitMap()
    for first, size in zip((np.cumsum(gaps + sizes) - sizes).tolist(), sizes.tolist(), strict=True):
        out.add_range(first, min(first + size, entries))
    return out


def entropy(part: float, entries: int) -> float:
    return float(-entries * (part * np.log2(part) + (1 - part) * np.log2(1 - part))) / 8


@pytest.mark.parametrize(
    ("part", "most"),
    [(0.0001, 1.1), (0.001, 1.05), (0.01, 1.05), (0.03, 1.05), (0.05, 1.05), (0.08, 1.05)],
)
def test_few_holes_take_little_more_than_their_entropy(part: float, most: float) -> None:
    holes = scattered(part, 5_000_000)
    value = Record(1, 1, 1, 0, Segment(slices=(Slice(1, 0, 4_999_999, True, holes),)))
    was, entry = record.encode(value), record.encode(value, WITH_SETS)
    assert record.decode(entry, None) == value
    assert (record.peek(was).version, record.peek(entry).version) == (1, 2)
    assert len(entry) <= most * entropy(len(holes) / 5_000_000, 5_000_000) + 61
    assert len(entry) < len(was)


@pytest.mark.parametrize("part", [0.001, 0.01, 0.1, 0.3])
@pytest.mark.parametrize(("shortest", "longest"), [(5, 500), (5, 20), (10, 10)])
def test_clustered_holes_take_little_more_than_their_entropy(
    part: float, shortest: int, longest: int
) -> None:
    holes = in_runs(part, 5_000_000, shortest, longest)
    value = Record(1, 1, 1, 0, Segment(slices=(Slice(1, 0, 4_999_999, True, holes),)))
    entry = record.encode(value, WITH_SETS)
    assert record.decode(entry, None) == value
    count, between = count_runs(holes), 5_000_000 - len(holes)
    least = entropy(count / between, between) + count * np.log2(longest - shortest + 1) / 8
    assert len(entry) <= 1.2 * least + 61
    assert len(entry) < 0.9 * len(record.encode(value))


def test_bursts_take_no_more_than_the_gaps_as_bytes() -> None:
    """Many near gaps among few far ones: no one width fits both."""
    rng = np.random.default_rng(1)
    holes = BitMap()
    for first in rng.integers(0, 4_990_000, 500).tolist():
        holes |= of(first + np.flatnonzero(rng.random(100) < 0.2))
    value = Record(1, 1, 1, 0, Segment(slices=(Slice(1, 0, 4_999_999, True, holes),)))
    entry = record.encode(value, WITH_SETS)
    out = bytearray()
    sections.append(out, holes)
    assert len(entry) <= len(compress(bytes(out), Codec.ZSTD, 1)[1]) + 61
    assert len(entry) < 0.4 * len(record.encode(value))


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5])
def test_many_holes_stay_what_they_were_byte_for_byte(part: float) -> None:
    holes = scattered(part, 500_000)
    value = Record(1, 1, 1, 0, Segment(slices=(Slice(1, 0, 499_999, True, holes),)))
    assert record.encode(value, WITH_SETS) == record.encode(value)


def test_the_slices_of_a_segment_choose_each_for_itself() -> None:
    parts = (0.01, 0.3, 0.0)
    slices = tuple(
        Slice(ledger, 0, 99_999, True, scattered(part, 100_000))
        for ledger, part in enumerate(parts)
    )
    version, body = snapshot.encode_segment(Segment(slices=slices), 2)
    assert version == 2 and snapshot.decode_segment(body, 2).slices == slices
    flags, at = [], 2
    for _ in slices:
        *_, flag, size = snapshot._SLICE.unpack_from(body, at)
        flags.append(flag)
        at += snapshot._SLICE.size + size
    assert flags == [3, 1, 1]


@pytest.mark.parametrize("version_max", VERSIONS)
def test_very_many_slices_of_all_kinds_come_back(version_max: int) -> None:
    rng = np.random.default_rng(3)
    kinds = [
        BitMap(),
        BitMap([70_000]),
        BitMap([0, 99_999]),
        scattered(0.01, 100_000),
        scattered(0.1, 100_000),
        in_runs(0.05, 100_000, 5, 90),
        span(3, 90_000),
        of(np.arange(0, 5_000, 2)),
    ]
    chosen = [kinds[at] for at in rng.integers(0, len(kinds), 2_000)]
    slices = [
        Slice(ledger, 0, 99_999, bool(ledger % 3), bitmap) for ledger, bitmap in enumerate(chosen)
    ]
    slices.append(Slice(9_999, 0, 9_999_999, True, scattered(0.04, 10_000_000)))
    value = Segment(slices=tuple(slices))
    version, body = snapshot.encode_segment(value, version_max)
    assert version == version_max and snapshot.decode_segment(body, version) == value


# --- damage ---------------------------------------------------------------------------------------


def one_slice(
    bitmap: bytes,
    first: int = 0,
    last: int = 9,
    flags: int = 0,
    size: int | None = None,
    ledger: int = 1,
) -> bytes:
    return (
        b"\x00\x01"
        + snapshot._SLICE.pack(ledger, first, last, flags, len(bitmap) if size is None else size)
        + bitmap
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x10\x00", "unknown field bits 0x10"),
        (b"\x00\x01\x00", "slice header is cut off: 1 of 21 bytes"),
        (one_slice(BitMap([1]).serialize(), first=9, last=8), "no range of entries"),
        (one_slice(BitMap([1]).serialize(), ledger=1 << 63), "no range of entries"),
        (one_slice(BitMap([1]).serialize(), flags=2), "unknown flags 0x2"),
        (one_slice(BitMap([1]).serialize(), size=99), "has 99 bytes where 18 are left"),
        (one_slice(b""), "has no bitmap"),
        (one_slice(b"\x00" * 8), "no portable roaring bitmap"),
        (one_slice(BitMap([1, 2, 3]).serialize()[:-1]), "no portable roaring bitmap"),
        (one_slice(BitMap([1]).serialize() + b"x"), "1 bytes too many"),
        (one_slice(BitMap([10]).serialize()), "reaches outside"),
        (one_slice(BitMap([1]).serialize(), first=2), "reaches outside"),
        (one_slice(BitMap([1]).serialize()) + b"x", "1 bytes follow"),
        (b"\x00\x7f\x00", "127 slices are announced in 1 bytes"),
    ],
)
def test_damage_of_a_segment_is_named(body: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        snapshot.decode_segment(body)


GOOD = coded([[1, 2]], [1])
"""1 and 4."""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (one_slice(GOOD, flags=4), "unknown flags 0x4"),
        (one_slice(b"", flags=2), "cut off"),
        (one_slice(GOOD + b"x", flags=2), "more or fewer bytes"),
        (one_slice(coded([[10]], [0]), flags=2), "reaches outside"),
        (one_slice(coded([[5], [5]], [0, 0]), flags=3), "reaches outside"),
        (one_slice(GOOD, flags=2, first=6), "reaches outside"),
    ],
)
def test_damage_of_a_slice_that_is_a_set_is_named(body: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        snapshot.decode_segment(body, 2)


def test_damage_in_one_of_many_sets_is_found() -> None:
    def segment(*raws: bytes) -> bytes:
        return bytes([0, len(raws)]) + b"".join(
            snapshot._SLICE.pack(ledger, 0, 999, 2, len(raw)) + raw
            for ledger, raw in enumerate(raws)
        )

    assert len(snapshot.decode_segment(segment(GOOD, GOOD, coded([[5]], [0])), 2).slices) == 3
    for bad, words in (
        (GOOD[:-1], "more or fewer bytes"),
        (coded([[1_000]], [7]), "slice 1:0-999 reaches"),
    ):
        with pytest.raises(DamageError, match=words):
            snapshot.decode_segment(segment(GOOD, bad, GOOD), 2)


def test_a_set_in_a_segment_of_version_1_is_damage() -> None:
    body = one_slice(GOOD, flags=2)
    assert snapshot.decode_segment(body, 2).slices == (Slice(1, 0, 9, False, BitMap([1, 4])),)
    with pytest.raises(DamageError, match="unknown flags 0x2"):
        snapshot.decode_segment(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"x" * 27, "27 bytes, at least 28"),
        (bytes(28) + b"\x02\x05\x00\x01\x01\x01", "do not ascend"),
        (bytes(28) + b"\x00\x01\x01\x01", "without segments"),
        (bytes(28) + b"\x01\x00\x00", "without mark-delete"),
        (bytes(28) + b"\x01\x00\x09\x01\x01", "unknown field bits 0x8"),
    ],
)
def test_damage_of_an_end_record_is_named(body: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        snapshot.decode_end(body)


def test_values_that_break_the_contract_are_not_written() -> None:
    with pytest.raises(ValueError, match="outside"):
        snapshot.encode_segment(Segment(slices=(Slice(1, 5, 9, True, BitMap([4])),)))
    with pytest.raises(ValueError, match="ascend"):
        snapshot.encode_end(SnapshotEnd(1, 1, 1, (3, 3), Position(1, 1), None, None))
    with pytest.raises(ValueError, match="at least one segment"):
        snapshot.encode_end(SnapshotEnd(1, 1, 1, (), Position(1, 1), None, None))
