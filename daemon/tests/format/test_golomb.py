"""Sets of slices: what is written is what the slow code writes, comes back, and whatever the bytes
are, they are damage or say one set that no other bytes of their orders say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import count_runs, from_sorted, span
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.format import golomb, leb
from daemon.tests.format.reference import coded, columns_of

NUMBERS = st.integers(0, 3) | st.integers(0, 1_000) | st.integers(0, 1 << 27)
COLUMN = st.lists(NUMBERS, min_size=1, max_size=20)
FIRST = st.sampled_from([0, 5, 65_536, (1 << 31) + 1])
ORDERS = st.sampled_from([0, 1, 5, 8, 17, 31])


def members_of(columns: Sequence[Sequence[int]], first: int) -> BitMap:
    out, at = BitMap(), first - len(columns)
    for gap, more in zip(columns[0], columns[-1], strict=True):
        at += gap + len(columns)
        out.add(at)
        if len(columns) == 2:
            out.add_range(at, at + more + 1)
            at += more
    return out


@st.composite
def sets(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """The first of its slice, and gaps, or gaps and lengths."""
    gaps = draw(COLUMN)
    runs = st.lists(st.integers(0, 70_000), min_size=len(gaps), max_size=len(gaps))
    columns = [gaps, draw(runs)] if draw(st.booleans()) else [gaps]
    first = draw(FIRST)
    # the members of the largest one would not be entry ids
    if first + sum(map(sum, columns)) + 2 * len(gaps) > ENTRY_ID_MAX:
        columns[0] = [gap % 1_000 for gap in gaps]
    return first, columns


def stored(raw: bytes, first: int = 0, last: int = ENTRY_ID_MAX) -> golomb.Stored:
    return golomb.Stored(1, first, last, 2, raw)


def read(raw: bytes, first: int = 0, last: int = ENTRY_ID_MAX) -> BitMap:
    (found,) = golomb.decode([stored(raw, first, last)])
    return found


def orders_of(raw: bytes) -> tuple[int, bytes]:
    """How many columns, and their orders."""
    head, pos = leb.read(raw, 0)
    return 1 + (head & 1), raw[pos : pos + 1 + (head & 1)]


@given(sets())
def test_a_set_is_written_as_the_slow_code_does_and_comes_back(
    one: tuple[int, list[list[int]]],
) -> None:
    first, columns = one
    members = members_of(columns, first)
    raw = golomb.encode(members, count_runs(members), first)
    count, orders = orders_of(raw)
    assert raw == coded(columns_of(list(members), first, count == 2), orders)
    assert read(raw, first, members.max()) == members
    assert raw == golomb.encode(members.copy(), count_runs(members), first)


@given(sets(), ORDERS, ORDERS)
def test_any_orders_are_read(one: tuple[int, list[list[int]]], order: int, other: int) -> None:
    first, columns = one
    raw = coded([[x % (1 << 12) for x in c] for c in columns], [order, other][: len(columns)])
    wanted = members_of([[x % (1 << 12) for x in c] for c in columns], first)
    assert read(raw, first) == wanted


@given(st.lists(sets(), min_size=1, max_size=30))
def test_many_sets_are_read_together(some: list[tuple[int, list[list[int]]]]) -> None:
    members = [members_of(columns, first) for first, columns in some]
    raws = [
        stored(golomb.encode(one, count_runs(one), first), first)
        for one, (first, _) in zip(members, some, strict=True)
    ]
    assert list(golomb.decode(raws)) == members


@pytest.mark.parametrize("part", [0.001, 0.03, 0.3])
@pytest.mark.parametrize("longest", [1, 40])
def test_large_sets_come_back(part: float, longest: int) -> None:
    rng = np.random.default_rng(7)
    starts = np.flatnonzero(rng.random(2_000_000) < part / longest).astype(np.uint32)
    members = BitMap()
    for at in range(longest):
        members |= from_sorted(starts + np.uint32(at % rng.integers(1, longest + 1)))
    raw = golomb.encode(members, count_runs(members), 0)
    assert read(raw) == members


@given(sets(), st.data())
def test_other_bytes_are_damage_or_another_set(
    one: tuple[int, list[list[int]]], data: st.DataObject
) -> None:
    first, columns = one
    last = min(members_of(columns, first).max() + 70_000, ENTRY_ID_MAX)
    raw = bytearray(coded(columns, [data.draw(ORDERS) for _ in columns]))
    with pytest.raises(DamageError):
        read(bytes(raw[: data.draw(st.integers(0, len(raw) - 1))]), first, last)
    with pytest.raises(DamageError):
        read(bytes(raw) + b"\x00", first, last)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(bytes(raw), first, last)
    except DamageError:
        return
    assert found.min() >= first and found.max() <= last
    if len(found) < 100_000:
        count, orders = orders_of(bytes(raw))
        assert coded(columns_of(list(found), first, count == 2), orders) == raw


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cut off"),
        (b"\x02", "is a set of 1 bytes, at least 3 are needed"),
        (b"\x00\x00", "do not end in a byte with one of them"),
        (b"\x04\x00\x01\x00", "do not end in a byte with one of them"),
        (b"\x03\x00\x00\x01", "in the middle of a run"),
        (b"\x02\x21\x01\x00\x00\x00\x00\x00", "2\\^32 or more"),
        (b"\x02\xff\x01", "2\\^32 or more"),
        (b"\x02\x00\x02", "more or fewer bytes"),
        (b"\x02\x00\x02\x00\x00", "more or fewer bytes"),
        (b"\x02\x00\x02\x02", "bits are set behind"),
        (coded([[10]], [2]), "slice 1:0-9 reaches outside"),
        (coded([[5], [5]], [2, 2]), "slice 1:0-9 reaches outside"),
        (coded([[ENTRY_ID_MAX]], [31]), "slice 1:0-9 reaches outside"),
    ],
)
def test_damage_is_named(raw: bytes, words: str) -> None:
    good = bytes.fromhex("02010501")  # the page's example
    assert read(good, 0, 9) == BitMap([1, 4])
    for some in ([raw], [good, raw], [raw, good], [good, raw, good]):
        with pytest.raises(DamageError, match=words):
            list(golomb.decode([stored(one, 0, 9) for one in some]))


def test_a_set_has_no_more_numbers_than_are_read_at_once() -> None:
    most = golomb.NUMBERS_MAX
    head = bytearray()
    leb.append(head, most // 8 << 1)
    assert read(bytes(head) + b"\x00" + b"\xff" * (most // 8)) == span(0, most - 1)
    head.clear()
    leb.append(head, most // 8 + 1 << 1)
    with pytest.raises(DamageError, match="more than 1048576 numbers"):
        read(bytes(head) + b"\x00" + b"\xff" * (most // 8) + b"\x01")
