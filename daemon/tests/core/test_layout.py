"""The layout: runs that join, positions that mean the same, ledgers that are forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core.layout import Layout, LayoutContradiction
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState
from daemon.tests.support.world import closed, opened

TRIMMED = LayoutState.TRIMMED


def test_decision_07_progress_only_goes_up() -> None:
    layout = Layout([opened(10)])
    assert layout.join([closed(10, 4), opened(20)]) == (closed(10, 4), opened(20))
    assert layout.join([opened(10)]) == ()
    assert layout.join([LayoutItem(10, TRIMMED, 4)]) == (LayoutItem(10, TRIMMED, 0),), (
        "a count means nothing when trimmed"
    )
    assert layout.join([closed(10, 4)]) == ()
    assert list(layout) == [LayoutItem(10, TRIMMED, 0), opened(20)]


def test_decision_07_a_run_overlaps_what_is_known() -> None:
    layout = Layout([closed(10, 4), closed(20, 4), opened(30)])
    for run in (
        [closed(20, 4), opened(30)],
        [closed(5, 1), closed(10, 4)],
        [opened(30)],
        [closed(30, 9), opened(44)],
        [],
    ):
        layout.check(run, 100)
    with pytest.raises(LayoutContradiction, match="does not touch"):
        layout.check([opened(31)], 100)
    Layout().check([closed(7, 0), opened(9)], 100)


def test_decision_04_comparison_normalises_by_the_layout() -> None:
    layout = Layout(
        [closed(10, 4), closed(20, 0), LayoutItem(30, TRIMMED, 0), closed(40, 2), opened(50)]
    )
    assert layout.normalised(Position(10, 2)) == Position(10, 2)
    assert layout.normalised(Position(10, 3)) == Position(40, -1)
    assert layout.normalised(Position(40, 1)) == Position(50, -1)
    assert layout.normalised(Position(50, 9)) == Position(50, 9)
    assert layout.normalised(Position(60, 9)) == Position(60, 9)
    assert Layout([closed(10, 4)]).normalised(Position(10, 3)) == Position(10, 3), (
        "nobody named the next ledger"
    )


def test_successors_are_known_only_for_known_ledgers() -> None:
    layout = Layout([closed(10, 4), opened(20)])
    assert layout.successor(10) == 20
    assert layout.successor(20) is None and layout.successor(11) is None
    assert (layout.first, layout.last, 10 in layout, len(layout)) == (10, 20, True, 2)
    assert (Layout().first, Layout().last) == (None, None)


@given(st.lists(st.integers(0, 30), unique=True, max_size=12), st.integers(0, 31))
def test_forgetting_what_lies_below(ids: list[int], below: int) -> None:
    layout = Layout([closed(i, i) for i in ids])
    kept = layout.items_from(below)
    layout.drop_below(below)
    assert tuple(layout) == kept == tuple(closed(i, i) for i in sorted(ids) if i >= below)
