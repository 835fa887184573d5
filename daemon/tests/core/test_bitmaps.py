"""Sets of entries against plain sets, and what is counted and cut with them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.window import Span, StateWindow
from daemon.tests.support.world import acks, partial, ranges

NEAR, FAR = st.integers(0, 200), st.integers(0, 2**32 - 1)
MEMBERS = st.one_of(st.lists(NEAR, max_size=60), st.lists(FAR, max_size=20))


@given(MEMBERS, st.one_of(NEAR, FAR), st.one_of(NEAR, FAR))
def test_sets_are_cut_and_counted_like_plain_sets(members: list[int], one: int, other: int) -> None:
    found = bitmaps.from_unsorted(np.array(members, dtype=np.uint32))
    assert list(found) == sorted(set(members))
    for first, last in ((one, other), (min(one, other), max(one, other))):
        assert list(bitmaps.between(found, first, last)) == [
            x for x in sorted(set(members)) if first <= x <= last
        ]
    assert bitmaps.count_runs(found) == sum(x - 1 not in members for x in set(members))
    assert list(found) == sorted(set(members)), "nothing of it was changed"


def test_few_members_far_apart_are_cut() -> None:
    """Where a window of the range would take more than the set does."""
    few = BitMap([5, 70_000, 1 << 20, 1 << 30, (1 << 32) - 1])
    assert list(bitmaps.between(few, 70_000, 1 << 30)) == [70_000, 1 << 20, 1 << 30]
    assert list(bitmaps.between(few, 70_001, (1 << 30) - 1)) == [1 << 20]


def test_an_empty_span_is_empty() -> None:
    assert not bitmaps.span(3, 2) and list(bitmaps.span(3, 3)) == [3]


def test_every_form_of_acks_counts() -> None:
    columns = (
        acks(10, 1, 2),
        ranges(11, (5, 9), (20, 20)),
        partial(12, 3, 8, {1}),
        LedgerColumns(13, bitmap=BitMap([1, 4, 9])),
    )
    assert count_acks(columns) == 2 + 6 + 1 + 3 == count_acks(columns, Position(9, 0)) - 1


def test_a_batch_that_is_acked_further_is_one_batch() -> None:
    state = AckState(Position(10, -1))
    for missing in ({1, 2, 3}, {1, 2}, {2}):
        state.apply([AckBatch(1, 1, None, (partial(10, 7, 4, missing),))])
    assert state.partial_count == 1


def test_a_window_begins_inside_its_first_ledger_and_ends_inside_its_last() -> None:
    window = StateWindow(first=Position(5, 7), end=Position(8, 3))
    assert [window.span(ledger) for ledger in range(4, 10)] == [
        None,
        Span(7, ENTRY_ID_MAX),
        Span(0, ENTRY_ID_MAX),
        Span(0, ENTRY_ID_MAX),
        Span(0, 2),
        None,
    ]
    assert StateWindow(first=Position(5, -1)).span(5) == Span(0, ENTRY_ID_MAX)
    assert StateWindow(first=Position(5, 7), end=Position(5, 7)).span(5) is None
