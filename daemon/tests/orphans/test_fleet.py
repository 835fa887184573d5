"""Who is an orphan, which may go, and when a search is not believed."""

from __future__ import annotations

import pytest

from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.fleet import ORPHANS_KEPT_MAX, Ages, Fleet, Orphan, Why

DAY_S = 86_400.0
NOW_MS = 1_800_000_000_000


def orphan(
    number: int = 0,
    *,
    state: FooterState = FooterState.CLOSED,
    idle_s: float = 2 * DAY_S,
    version: int = 3,
) -> Orphan:
    """One of many."""
    name = CursorName(f"persistent://t/ns/topic-{number}", "sub")
    return Orphan(
        name, Why.TOPIC, state, "host/1/w", version, NOW_MS - round(idle_s * 1000), 1, 1000
    )


@pytest.mark.parametrize(
    ("state", "idle_s", "stays"),
    [
        (FooterState.CLOSED, DAY_S, ""),
        (FooterState.CLOSED, DAY_S - 1, "young"),
        (FooterState.CLOSED, -5, "young"),
        (FooterState.OPEN, 100 * DAY_S, "open"),
    ],
)
def test_only_what_is_closed_and_idle_may_go(state: FooterState, idle_s: float, stays: str) -> None:
    assert orphan(state=state, idle_s=idle_s).stays(NOW_MS, DAY_S) == stays


def fleet(orphans: int, cursors: int, with_topic: int) -> Fleet:
    """After a search."""
    found = Fleet(cursors=cursors, with_topic=with_topic)
    for number in range(orphans):
        found.add(orphan(number))
    return found


@pytest.mark.parametrize(
    ("found", "percent_max", "doubt"),
    [
        (fleet(0, 0, 0), 25, ""),
        (fleet(0, 7, 7), 0, ""),
        (fleet(25, 100, 80), 25, ""),
        (fleet(26, 100, 80), 25, "26 of 100 cursors are orphans, 26.0 percent"),
        (fleet(26, 100, 80), 26, ""),
        (fleet(10, 10, 0), 99, "no topic of any of the 10 cursors"),
        (fleet(10, 10, 1), 99, "10 of 10"),
        (fleet(10, 10, 0), 100, ""),
    ],
)
def test_too_many_orphans_are_not_believed(found: Fleet, percent_max: float, doubt: str) -> None:
    said = found.doubt(percent_max)
    assert doubt in said and bool(said) == bool(doubt)


def test_what_is_more_than_can_be_kept_is_counted() -> None:
    count = ORPHANS_KEPT_MAX + 2
    found = fleet(count, 2 * count, count)
    assert (len(found.orphans), found.orphans_count, found.percent) == (count - 2, count, 50.0)


def test_an_age_is_of_searches_without_a_gap() -> None:
    ages, one, other = Ages(), orphan(1), orphan(2)
    ages.found([one, other], 100.0)
    assert ages.age_s(one, 150.0) == 50.0
    ages.found([one], 200.0)
    ages.found([one, other], 300.0)
    assert (ages.age_s(one, 310.0), ages.age_s(other, 310.0)) == (210.0, 10.0), (
        "what came back begins anew"
    )
    written = orphan(1, version=4)
    assert ages.age_s(written, 310.0) == 0.0
    ages.found([written], 400.0)
    assert ages.age_s(written, 410.0) == 10.0 and len(ages) == 1, "somebody had it open"
    assert Ages().age_s(one, 410.0) == 0.0, "and so does everything with the daemon"
