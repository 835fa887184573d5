"""A delta over the limit becomes several: each below it, together the original."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted, span
from cursorkeeper.core.delta_parts import cut_delta
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import (
    EXPANSION_MAX,
    cursor_properties_bytes,
    delta_body_bytes_ceiling,
    delta_body_bytes_max,
    delta_members,
    mark_delete_properties_bytes,
    partial_bytes_max,
    property_map_bytes_max,
    record_body_bytes_max,
)
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.format import delta
from daemon.tests.format.bounds import partial_bytes_limit
from daemon.tests.format.strategies import deltas, normal


def smallest_limit(value: Delta) -> int:
    """What its largest indivisible piece needs."""
    sizes = [30]
    if value.mark_delete_properties:
        sizes.append(mark_delete_properties_bytes(value.mark_delete_properties))
    if value.cursor_properties:
        sizes.append(cursor_properties_bytes(value.cursor_properties))
    sizes += [partial_bytes_max(partial) for partial in value.partials.values()]
    return max(sizes) + 6


@given(deltas(), st.integers(0, 200))
def test_parts_are_small_enough_and_join_to_the_original(value: Delta, more: int) -> None:
    limit = smallest_limit(value) + more
    parts = cut_delta(value, limit)
    assert all(
        min(delta_body_bytes_max(part), delta_body_bytes_ceiling(part, delta_members(part)))
        <= limit
        and len(delta.encode(part)) <= limit
        for part in parts
    )
    assert normal(join(parts)) == value


@given(deltas())
def test_what_fits_stays_one(value: Delta) -> None:
    (part,) = cut_delta(value, delta_body_bytes_max(value))
    assert part is value


def test_mark_delete_and_properties_come_first_and_the_rest_follows() -> None:
    md, cursor = (
        MarkDeleteProperties(Stamp(1, 1), {"a": 1}),
        CursorProperties(Stamp(1, 1), {"b": "c"}),
    )
    layout = tuple(LayoutItem(i, LayoutState.CLOSED, 50_000) for i in range(10, 110))
    batches = {PartialKey(20, i): Partial(10, BitMap([1])) for i in range(50)}
    value = Delta(
        Position(1, 2),
        md,
        cursor,
        layout,
        {i: BitMap(range(0, 3000, 7)) for i in range(20, 30)},
        batches,
    )
    parts = cut_delta(value, 400)
    assert (parts[0].mark_delete, parts[0].mark_delete_properties, parts[0].cursor_properties) == (
        Position(1, 2),
        md,
        cursor,
    )
    assert all(part.mark_delete is None and part.cursor_properties is None for part in parts[1:])
    assert len([part for part in parts if part.layout]) > 1
    assert len([part for part in parts if part.partials]) > 1
    assert all(delta_body_bytes_max(part) <= 400 for part in parts)


def test_one_ledger_is_cut_by_entry_ranges() -> None:
    entries = from_sorted(
        np.flatnonzero(np.random.default_rng(1).random(400_000) < 0.2).astype(np.uint32)
    )
    before = entries.copy()
    parts = cut_delta(Delta(acks={7: entries}), 4_000)
    assert len(parts) > 10
    assert [part.acks[7].min() for part in parts] == sorted(part.acks[7].min() for part in parts)
    assert sum(len(part.acks[7]) for part in parts) == len(entries)
    assert entries == before


def test_no_record_claims_more_than_a_reader_accepts() -> None:
    parts = cut_delta(Delta(acks={1: span(0, (1 << 32) - 1), 2: span(0, 9)}), 1 << 20)
    assert len(parts) == 2
    assert all(sum(map(len, part.acks.values())) <= EXPANSION_MAX for part in parts)
    assert all(delta.decode(delta.encode(part)) == part for part in parts)


def test_a_map_that_cannot_fit_is_named_with_its_numbers() -> None:
    value = Delta(
        mark_delete=Position(1, 1),
        mark_delete_properties=MarkDeleteProperties(Stamp(1, 1), {"k" * 500: 1}),
    )
    with pytest.raises(
        ValueError, match="mark_delete_properties may take 506 bytes, a record body has 400"
    ):
        cut_delta(value, 400)


@pytest.mark.parametrize("max_entry_bytes", [16_384, 1 << 20])
def test_what_intake_accepts_can_be_cut(max_entry_bytes: int) -> None:
    room = property_map_bytes_max(max_entry_bytes)
    md = MarkDeleteProperties(Stamp(1, 1), {"k" * (room - 9): 1})
    cursor = CursorProperties(Stamp(1, 1), {"k": "v" * (room - 12)})
    assert room - 8 <= mark_delete_properties_bytes(md) <= room
    assert room - 8 <= cursor_properties_bytes(cursor) <= room
    batch = Partial(65_536, span(0, 65_535) - BitMap([3]))
    assert partial_bytes_max(batch) <= partial_bytes_limit(max_entry_bytes)
    limit = record_body_bytes_max(max_entry_bytes)
    parts = cut_delta(
        Delta(Position(1, 1), md, cursor, (), {}, {PartialKey(9, i): batch for i in range(200)}),
        limit,
    )
    assert all(delta_body_bytes_max(part) <= limit for part in parts)
