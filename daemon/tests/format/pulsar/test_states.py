"""Pulsar's states as ours and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.states import from_ack_state, to_ack_state
from cursorkeeper.format.pulsar.values import CrossingRange, Form, PositionInfo
from daemon.tests.format.pulsar.oracle import Plain
from daemon.tests.format.pulsar.strategies import FORMS, plains, value

STAMP = Stamp(3, 9)


def settled(plain: Plain) -> Plain:
    """Mark-delete takes what is acked right behind it, one entry at a time."""
    ledger, entry = plain.mark_delete
    acked = {key: set(entries) for key, entries in plain.acked.items()}
    while entry + 1 in acked.get(ledger, set()):
        entry += 1
        acked[ledger].discard(entry)
    return Plain(
        (ledger, entry),
        {key: entries for key, entries in acked.items() if entries},
        plain.batches,
        plain.properties,
    )


@given(plains(), FORMS)
def test_there_and_back(plain: Plain, form: Form) -> None:
    state = to_ack_state(value(plain, form), stamp=STAMP)
    assert from_ack_state(state, form=form) == value(settled(plain), form)


@given(plains(), FORMS)
def test_through_the_bytes(plain: Plain, form: Form) -> None:
    info = value(settled(plain), form)
    state = to_ack_state(position_info.decode(position_info.encode(info, form)), stamp=STAMP)
    assert position_info.encode(from_ack_state(state), form) == position_info.encode(info, form)


@given(plains())
def test_every_entry_is_what_it_was(plain: Plain) -> None:
    state = to_ack_state(value(plain, Form.RANGES), stamp=STAMP)
    for ledger in {plain.mark_delete[0], *plain.acked}:
        for entry in range(1_300):
            expected = (ledger, entry) <= plain.mark_delete or entry in plain.acked.get(ledger, ())
            assert state.is_acked(ledger, entry) == expected
    for (ledger, entry), missing in plain.batches.items():
        partial = state.partial(ledger, entry)
        assert partial == Partial(0, BitMap(missing))
    properties = state.mark_delete_properties
    assert (properties.values if properties else {}) == plain.properties
    assert properties is None or properties.stamp == STAMP


@given(plains(), FORMS)
def test_nothing_is_shared(plain: Plain, form: Form) -> None:
    info = value(plain, form)
    state = to_ack_state(info, stamp=STAMP)
    given_back = from_ack_state(state, form=form)
    before = position_info.encode(given_back, form)
    last = max([plain.mark_delete[0], *plain.acked])
    state.join_delta(Delta(mark_delete=Position(last, 4_000)))
    assert position_info.encode(info, form) == position_info.encode(value(plain, form), form)
    assert position_info.encode(given_back, form) == before


def test_the_layout_lets_mark_delete_cross() -> None:
    info = PositionInfo(
        Position(3, 4), {3: BitMap([5, 6]), 5: BitMap([0, 1, 9])}, form=Form.LONG_ARRAY
    )
    layout = (
        LayoutItem(1, LayoutState.CLOSED, 9),
        LayoutItem(3, LayoutState.CLOSED, 7),
        LayoutItem(5, LayoutState.OPEN, 0),
    )
    state = to_ack_state(info, layout, stamp=STAMP, cursor_properties={"a": "b"})
    assert state.mark_delete == Position(5, 1)
    assert state.layout.first == 5
    assert from_ack_state(state) == PositionInfo(
        Position(5, 1), {5: BitMap([9])}, form=Form.LONG_ARRAY
    )
    assert state.cursor_properties is not None and state.cursor_properties.values == {"a": "b"}


def test_trimmed_ledgers_have_no_word_in_pulsar() -> None:
    state = AckState(Position(3, 4))
    state.join_delta(
        Delta(
            acks={5: BitMap([1]), 7: BitMap([2])},
            partials={PartialKey(5, 9): Partial(3, BitMap([1]))},
        )
    )
    state.apply_layout([LayoutItem(3, LayoutState.OPEN, 0)])
    state.layout.join([LayoutItem(5, LayoutState.TRIMMED, 0)])
    assert from_ack_state(state) == PositionInfo(
        Position(3, 4), {7: BitMap([2])}, form=Form.LONG_ARRAY
    )


def test_ranges_across_ledgers_are_resolved_first() -> None:
    info = PositionInfo(
        Position(3, 4), crossing=(CrossingRange(Position(3, 5), Position(4, 1)),), form=Form.RANGES
    )
    with pytest.raises(ValueError, match="resolve"):
        to_ack_state(info, stamp=STAMP)


def test_entries_impossibly_far_up() -> None:
    acked = {ledger: BitMap([(1 << 32) - 1]) for ledger in range(65)}
    with pytest.raises(PulsarFormatError, match="65 ledgers"):
        to_ack_state(PositionInfo(Position(0, -1), acked, form=Form.RANGES), stamp=STAMP)


def test_properties_without_any_have_no_stamp() -> None:
    assert to_ack_state(PositionInfo(Position(3, 4)), stamp=STAMP).mark_delete_properties is None
    state = to_ack_state(PositionInfo(Position(3, 4), properties={"k": -7}), stamp=STAMP)
    assert state.mark_delete_properties == MarkDeleteProperties(STAMP, {"k": -7})


@given(
    st.lists(st.tuples(st.integers(3, 5), st.sets(st.integers(0, 300), max_size=40)), max_size=8)
)
def test_states_of_the_daemon(acks: list[tuple[int, set[int]]]) -> None:
    state = AckState(Position(3, 7))
    for ledger, entries in acks:
        state.join_delta(Delta(acks={ledger: BitMap(entries)} if entries else {}))
        state.settle()
    for form in Form:
        again = to_ack_state(
            position_info.decode(position_info.encode(from_ack_state(state), form)), stamp=STAMP
        )
        assert again.mark_delete == state.mark_delete
        for ledger in range(3, 6):
            assert again.acked_of(ledger) == state.acked_of(ledger)
