"""A snapshot as a run of segments: fixed ranges planned at one instant, each taken from the state
at its own.

The plan is made after the writer has moved to the snapshot's ledger (ARCHITECTURE rule 15): what a
later segment misses of an earlier instant lies in a delta of the same ledger, so the join is
complete whatever the interleaving. A range's worst-case size is known before it is encoded; only
partial batches can outgrow it, and then the range is split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pyroaring import BitMap

from cursorkeeper.core import bitmaps, sizes
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, Partial, PartialKey, Segment, Slice

CONTAINER = 65_536
_FIXED_BYTES = 64


class EntryRange(NamedTuple):
    """Entries first..last (inclusive) of one ledger."""

    ledger: int
    first: int
    last: int


class SnapshotPlan:
    """The ranges that are still to be taken, and the layout that goes with the leading segments."""

    def __init__(self, state: AckState, body_bytes_max: int) -> None:
        self._limit = body_bytes_max
        self._layout: deque[LayoutItem] = deque(state.layout)
        self._ranges: deque[EntryRange] = deque(_ranges(state, body_bytes_max))
        self._leading = True

    @property
    def is_done(self) -> bool:
        """Every range was taken; there is always at least one segment."""
        return not self._ranges and not self._layout and not self._leading

    def take(self, state: AckState) -> Segment:
        """The next segment, from the state as it is now.

        The first carries mark-delete and properties, the leading ones the layout.
        """
        room = self._limit - _FIXED_BYTES
        mark_delete = md_properties = cursor_properties = None
        if self._leading:
            self._leading = False
            mark_delete, md_properties, cursor_properties = (
                state.mark_delete,
                state.mark_delete_properties,
                state.cursor_properties,
            )
            room -= sizes.segment_body_bytes_max(
                Segment(mark_delete, md_properties, cursor_properties)
            )
        layout = self._take_layout(room)
        room -= sizes.layout_bytes_max(layout)
        slices: list[Slice] = []
        partials: dict[PartialKey, Partial] = {}
        while self._ranges and not self._layout:
            area = self._ranges[0]
            if not _is_alive(area, state):
                self._ranges.popleft()
                continue
            inside = dict(_partials_of(area, state))
            need = sizes.slice_bytes_max(area.first, area.last) + sizes.partials_bytes_max(
                inside.values()
            )
            if need > room:
                if (
                    slices
                    or layout
                    or need <= self._limit - _FIXED_BYTES
                    or mark_delete is not None
                ):
                    break
                self._split(area)
                continue
            self._ranges.popleft()
            room -= need
            slices.append(take_slice(area, state))
            partials.update(inside)
        return Segment(
            mark_delete, md_properties, cursor_properties, layout, partials, tuple(slices)
        )

    def _take_layout(self, room: int) -> tuple[LayoutItem, ...]:
        count = min(len(self._layout), max(0, (room - 16) // sizes.LAYOUT_ITEM_BYTES_MAX))
        return tuple(self._layout.popleft() for _ in range(count))

    def _split(self, area: EntryRange) -> None:
        self._ranges.popleft()
        if area.first == area.last:
            raise AssertionError(
                f"one entry does not fit a record: {area}; intake must refuse such a batch"
            )
        middle = (area.first + area.last) // 2
        self._ranges.appendleft(EntryRange(area.ledger, middle + 1, area.last))
        self._ranges.appendleft(EntryRange(area.ledger, area.first, middle))


def whole_state(state: AckState) -> Segment:
    """Everything in one segment: for the inline base, whose limit the caller checks."""
    areas = [
        EntryRange(ledger, 0, high_water - 1)
        for ledger in state.ledgers
        if (high_water := state.ledgers.high_water(ledger))
    ]
    return Segment(
        state.mark_delete,
        state.mark_delete_properties,
        state.cursor_properties,
        tuple(state.layout),
        dict(state.iter_partials()),
        tuple(take_slice(a, state) for a in areas if _is_alive(a, state)),
    )


def whole_state_bytes_estimate(state: AckState) -> int:
    """A cheap lower bound of the encoded state: tells that it is hopeless to try inline."""
    return (
        2 * min(state.hole_count, 8 * len(state.ledgers))
        + 21 * len(state.ledgers)
        + 3 * len(state.layout)
        + 4 * state.partial_count
    )


def take_slice(area: EntryRange, state: AckState) -> Slice:
    """One range as a bitmap: of holes or of acks, whichever is smaller."""
    acks = state.ledgers[area.ledger]
    is_whole = area.first == 0 and area.last == acks.high_water - 1
    holes = acks.holes if is_whole else bitmaps.between(acks.holes, area.first, area.last)
    entries = area.last - area.first + 1
    if entries <= CONTAINER and 2 * len(holes) > entries:
        # of about as many runs, and of fewer members
        acked = bitmaps.span(area.first, area.last) - holes
        acked.run_optimize()
        return Slice(area.ledger, area.first, area.last, False, acked)
    if is_whole:
        holes = holes.copy()
    holes.run_optimize()
    if entries <= CONTAINER:
        return Slice(area.ledger, area.first, area.last, True, holes)
    acked = bitmaps.span(area.first, area.last) - holes
    acked.run_optimize()
    if _stored_bytes(holes) <= _stored_bytes(acked):
        return Slice(area.ledger, area.first, area.last, True, holes)
    return Slice(area.ledger, area.first, area.last, False, acked)


def _stored_bytes(bitmap: BitMap) -> int:
    return int(bitmap.__sizeof__())


def _ranges(state: AckState, limit: int) -> Iterator[EntryRange]:
    step = max(1, sizes.containers_per_segment(limit + sizes.RECORD_HEADER_BYTES)) * CONTAINER
    for ledger in state.ledgers:
        high_water = state.ledgers[ledger].high_water
        start = 0
        if ledger == state.mark_delete.ledger:
            start = (state.mark_delete.entry + 1) // CONTAINER * CONTAINER
        while start < high_water:
            yield EntryRange(ledger, start, min(high_water, start + step) - 1)
            start += step


def _is_alive(area: EntryRange, state: AckState) -> bool:
    """Mark-delete may have passed the range since it was planned; then nothing of it needs to be
    written.
    """
    return area.ledger in state.ledgers and Position(area.ledger, area.last) > state.mark_delete


def _partials_of(area: EntryRange, state: AckState) -> Iterator[tuple[PartialKey, Partial]]:
    for entry, partial in state.partials.get(area.ledger, {}).items():
        if area.first <= entry <= area.last:
            yield PartialKey(area.ledger, entry), partial


def inline_bytes_max(state: Segment) -> int:
    """A close bound of one encoded segment: bitmaps count what they really take, the rest by its
    worst case.
    """
    slices = sum(sizes.SLICE_HEADER_BYTES + _stored_bytes(s.bitmap) for s in state.slices)
    rest = sizes.segment_body_bytes_max(replace(state, slices=()))
    return sizes.RECORD_HEADER_BYTES + rest + slices
