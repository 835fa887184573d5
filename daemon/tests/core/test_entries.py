"""A few entries as numbers say what the same set says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.entries import FEW, Entries, as_set, beyond, first_of, last_of, of_few, union

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
