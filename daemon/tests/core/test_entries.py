"""A few entries as numbers say what the same set says."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.entries import (
    FEW,
    Entries,
    Sent,
    as_entries,
    as_set,
    beyond,
    count_of,
    first_of,
    highest_of,
    kept,
    last_of,
    of_few,
    union,
    united,
    unpacked,
)

U32_MAX = (1 << 32) - 1
NUMBERS = st.lists(st.integers(0, 40) | st.integers(0, U32_MAX), min_size=1, max_size=FEW)
EITHER = st.builds(
    lambda some, many: BitMap(some) if many else of_few(tuple(some)), NUMBERS, st.booleans()
)


@given(NUMBERS)
def test_numbers_ascend_and_each_stands_there_once(numbers: list[int]) -> None:
    found = of_few(tuple(numbers))
    assert list(found) == sorted(set(numbers))
    assert as_set(found) == BitMap(numbers)
    assert (first_of(found), last_of(found)) == (min(numbers), max(numbers))


@given(EITHER, st.integers(-1, 41))
def test_beyond_an_entry_are_those_above_it(entries: Entries, last: int) -> None:
    before = list(entries)
    assert list(beyond(entries, last)) == [entry for entry in entries if entry > last]
    assert list(entries) == before, "it is not changed"


@given(st.lists(EITHER, min_size=1, max_size=4))
def test_a_union_is_that_of_the_sets_and_changes_none(several: list[Entries]) -> None:
    before = [list(one) for one in several]
    found = union(several)
    assert as_set(found) == BitMap.union(BitMap(), *map(as_set, several))
    assert not isinstance(found, tuple) or len(found) <= FEW
    assert [list(one) for one in several] == before


def packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


SEVERAL = st.lists(st.integers(0, 40) | st.integers(0, U32_MAX), max_size=300)


@given(SEVERAL)
def test_what_came_packed_is_what_it_names(numbers: list[int]) -> None:
    sent = packed(numbers)
    assert count_of(sent) == len(numbers)
    if 0 < len(numbers) <= FEW:
        assert highest_of(sent) == max(numbers)
    assert isinstance(kept(sent), bytes) == (len(numbers) <= FEW)
    assert as_set(as_entries(kept(sent))) == BitMap(numbers)
    found = unpacked(sent)
    assert as_set(found) == BitMap(numbers)
    assert isinstance(found, tuple) == (len(numbers) <= FEW)
    assert list(found) == sorted(set(numbers))


@given(st.lists(EITHER | SEVERAL.map(packed), min_size=1, max_size=4))
def test_entries_are_united_however_they_came(several: list[Sent]) -> None:
    sets = [as_set(unpacked(one)) if isinstance(one, bytes) else as_set(one) for one in several]
    found = united(several)
    assert as_set(found) == BitMap.union(BitMap(), *sets)
    assert not isinstance(found, tuple) or len(found) <= FEW
