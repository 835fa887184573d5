"""What the topic znode says of a topic's ledgers, and of ranges that go through several of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.layout import layout_items, resolve
from cursorkeeper.format.pulsar.values import (
    CrossingRange,
    Form,
    LedgerInfo,
    ManagedLedgerInfo,
    PositionInfo,
)


def topic(*rows: tuple[int, int | None]) -> ManagedLedgerInfo:
    return ManagedLedgerInfo(tuple(LedgerInfo(ledger, entries) for ledger, entries in rows))


def crossing(lower: tuple[int, int], upper: tuple[int, int]) -> CrossingRange:
    return CrossingRange(Position(*lower), Position(*upper))


def test_all_but_the_last_are_closed() -> None:
    assert layout_items(topic((3, 10), (5, 20), (9, None))) == (
        LayoutItem(3, LayoutState.CLOSED, 10),
        LayoutItem(5, LayoutState.CLOSED, 20),
        LayoutItem(9, LayoutState.OPEN, 0),
    )
    assert layout_items(topic((3, 10))) == (LayoutItem(3, LayoutState.OPEN, 0),)
    assert layout_items(topic()) == ()


@pytest.mark.parametrize(
    "rows",
    [((3, 1), (3, 2)), ((5, 1), (3, 2)), ((3, (1 << 32) + 1), (5, None)), ((3, -1), (4, None))],
)
def test_layouts_that_contradict_themselves(rows: tuple[tuple[int, int | None], ...]) -> None:
    with pytest.raises(PulsarFormatError):
        layout_items(topic(*rows))


def test_a_range_through_several_ledgers() -> None:
    info = PositionInfo(
        Position(3, 4), {9: BitMap([50])}, crossing=(crossing((3, 6), (9, 2)),), form=Form.RANGES
    )
    resolved, warnings = resolve(info, topic((3, 10), (5, 3), (7, 0), (9, None)))
    assert resolved == PositionInfo(
        Position(3, 4),
        {3: BitMap([7, 8, 9]), 5: BitMap([0, 1, 2]), 9: BitMap([0, 1, 2, 50])},
        form=Form.RANGES,
    )
    assert warnings == []
    assert info.acked == {9: BitMap([50])}


def test_from_the_last_entry_of_a_ledger() -> None:
    info = PositionInfo(Position(3, 4), crossing=(crossing((3, 9), (5, -1)),), form=Form.RANGES)
    assert resolve(info, topic((3, 10), (5, None))) == (PositionInfo(Position(3, 4)), [])


def test_a_ledger_that_is_gone_is_dropped_and_said() -> None:
    info = PositionInfo(Position(3, -1), crossing=(crossing((3, 6), (9, 2)),), form=Form.RANGES)
    resolved, warnings = resolve(info, topic((5, 3), (9, None)))
    assert resolved.acked == {5: BitMap([0, 1, 2]), 9: BitMap([0, 1, 2])}
    assert len(warnings) == 1 and "(3:6, 9:2]" in warnings[0] and "ledger 3" in warnings[0]


def test_a_count_that_is_not_known_is_said() -> None:
    info = PositionInfo(Position(3, -1), crossing=(crossing((3, 6), (9, 2)),), form=Form.RANGES)
    resolved, warnings = resolve(info, topic((3, None)))
    assert resolved.acked == {9: BitMap([0, 1, 2])}
    assert "not known" in warnings[0]
    resolved, warnings = resolve(info, topic((3, 8), (5, None)))
    assert resolved.acked == {3: BitMap([7]), 9: BitMap([0, 1, 2])}
    assert "ledger 5" in warnings[0]


def test_nothing_at_or_below_mark_delete_comes_of_it() -> None:
    info = PositionInfo(Position(5, 1), crossing=(crossing((3, 6), (9, 2)),), form=Form.RANGES)
    resolved, _ = resolve(info, topic((3, 10), (5, 4), (9, None)))
    assert resolved.acked == {5: BitMap([2, 3]), 9: BitMap([0, 1, 2])}


def test_batches_of_entries_that_come_to_be_acked_go() -> None:
    batches = {PartialKey(5, 1): BitMap([3]), PartialKey(9, 7): BitMap([3])}
    info = PositionInfo(
        Position(3, 4), {}, batches, crossing=(crossing((3, 6), (9, 2)),), form=Form.RANGES
    )
    resolved, _ = resolve(info, topic((3, 10), (5, 4), (9, None)))
    assert resolved.batches == {PartialKey(9, 7): BitMap([3])}


def test_impossibly_many_entries() -> None:
    rows = [(ledger, 1 << 32) for ledger in range(70)]
    info = PositionInfo(Position(0, -1), crossing=(crossing((0, -1), (70, 2)),), form=Form.RANGES)
    with pytest.raises(PulsarFormatError, match="impossibly many"):
        resolve(info, topic(*rows, (70, None)))


def test_without_such_ranges_nothing_changes() -> None:
    info = PositionInfo(Position(3, 4), {3: BitMap([7])}, form=Form.LONG_ARRAY)
    assert resolve(info, topic()) == (info, [])


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.data())
def test_against_positions_one_by_one(counts: list[int], data: st.DataObject) -> None:
    rows = [(3 * at + 1, count) for at, count in enumerate(counts)]
    low = data.draw(st.integers(0, len(rows) - 2))
    high = data.draw(st.integers(low + 1, len(rows) - 1))
    lower = (rows[low][0], data.draw(st.integers(-1, rows[low][1] - 1)))
    upper = (rows[high][0], data.draw(st.integers(-1, rows[high][1] - 1)))
    mark_delete = data.draw(
        st.sampled_from([(0, -1), lower, (rows[low][0], rows[low][1] - 1), (rows[high][0], -1)])
    )
    info = PositionInfo(
        Position(*mark_delete), crossing=(crossing(lower, upper),), form=Form.RANGES
    )
    resolved, warnings = resolve(info, topic(*rows[:-1], (rows[-1][0], None)))
    every = [(ledger, entry) for ledger, count in rows for entry in range(count)]
    expected = {at for at in every if lower < at <= upper and at > mark_delete}
    assert {
        (ledger, entry) for ledger, acked in resolved.acked.items() for entry in acked
    } == expected
    assert warnings == []
