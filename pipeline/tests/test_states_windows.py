"""Windows of a state: what readers that share a cursor find together is what one reader of the
whole finds, wherever they meet.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from pyroaring import BitMap

from cursorkeeper.core.footer import EntryAddress, SnapshotBase
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    Delta,
    LayoutItem,
    LayoutState,
    Partial,
    PartialKey,
    Segment,
    Slice,
)
from cursorkeeper.core.window import WHOLE, Span, StateWindow
from cursorkeeper_pipeline.decode.extents import carried, extents
from cursorkeeper_pipeline.decode.holes import Counts, hole_columns
from cursorkeeper_pipeline.decode.partials import living_partials

SEEDS = range(150)
BASE = SnapshotBase(ledger=9, first_entry=3, last_entry=99, num_parts=1, length=1, crc32c=1)
LEDGERS, ENTRIES = range(5, 9), 200_000
"""So that a ledger has several containers, and a snapshot of small segments several slices in
each.
"""


class Story:
    """The segments of a snapshot, with acks between them, and deltas behind it: what a ledger
    holds.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.state = AckState()
        self.deltas: list[Delta] = []
        self.segments: list[Segment] = []
        for _ in range(rng.randint(0, 8)):
            self._ack()
        self.deltas.clear()
        plan = SnapshotPlan(self.state, 9_000)
        while not plan.is_done:
            if rng.random() < 0.4:
                self._ack()
            self.segments.append(plan.take(self.state))
        for _ in range(rng.randint(0, 5)):
            self._ack()

    def _ack(self) -> None:
        rng = self._rng
        ledger = rng.choice(LEDGERS)
        first = rng.randrange(ENTRIES)
        entries = BitMap(range(first, first + rng.randint(1, 90_000), rng.choice([1, 1, 2, 1000])))
        delta = Delta(acks={ledger: entries})
        if rng.random() < 0.3:
            delta = Delta(
                partials={PartialKey(ledger, rng.randrange(ENTRIES)): Partial(8, BitMap({1, 5}))}
            )
        elif rng.random() < 0.2:
            delta = Delta(mark_delete=Position(rng.choice(LEDGERS), rng.randint(-1, ENTRIES)))
        elif rng.random() < 0.15:
            delta = Delta(
                layout=(
                    LayoutItem(
                        rng.choice(LEDGERS),
                        rng.choice([LayoutState.CLOSED, LayoutState.TRIMMED]),
                        ENTRIES,
                    ),
                )
            )
        self.state.join_delta(delta)
        self.deltas.append(delta)

    def read(self, window: StateWindow = WHOLE) -> AckState:
        """As `ChainReader` joins: the end record, then the ledger in order."""
        state = AckState()
        state.join_segment(Segment(self.state.mark_delete))
        entries = range(len(self.segments))
        for entry in window.wanted(BASE, entries):
            window.join_segment(state, self.segments[entry])
        for delta in self.deltas:
            window.join_delta(state, delta)
        state.settle()
        return state

    def starts(self) -> dict[Position, int]:
        """Where the first slice of a segment begins, and which segment that is."""
        return {
            Position(s.slices[0].ledger, s.slices[0].first): at
            for at, s in enumerate(self.segments)
            if s.slices
        }


def holes(pieces: Iterable[tuple[AckState, StateWindow]]) -> list[tuple[int, int, int]]:
    return [
        row
        for state, window in pieces
        for columns in hole_columns(1, extents(state, window))
        for row in zip(*(x.tolist() for x in columns[1:]), strict=True)
    ]


def unparted(rows: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The same runs, with those in one piece that a boundary of two windows parts."""
    made: list[tuple[int, int, int]] = []
    for ledger, first, last in rows:
        if made and made[-1][0] == ledger and made[-1][2] + 1 == first:
            first = made.pop()[1]
        made.append((ledger, first, last))
    return made


def between(boundaries: Sequence[Position]) -> list[tuple[Position, Position | None]]:
    return list(zip([FIRST, *boundaries], [*boundaries, None], strict=True))


def check(story: Story, windows: Sequence[StateWindow]) -> None:
    """Every hole and every number is that of the whole; where each window begins at an acked entry,
    as those of readers do, so is every run.
    """
    whole, reached, joined, counted = story.read(), FIRST, Counts(), Counts()
    states = [story.read(window) for window in windows]
    pieces = list(zip(states, windows, strict=True))
    for state, window in pieces:
        reached = carried(state, reached)
        joined.add(extents(state, window), cut=window.first)
    counted.add(extents(whole))
    found = holes(pieces)
    assert unparted(found) == holes([(whole, WHOLE)])
    if all(whole.is_acked(*window.first) or window.first.entry <= 0 for window in windows):
        assert found == unparted(found)
    else:
        joined.hole_runs -= len(found) - len(unparted(found))
        joined.longest_run = counted.longest_run
    assert reached == whole.mark_delete and joined == counted
    assert [x for s in states for x in living_partials(s)] == list(living_partials(whole))


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_of_any_boundaries_together_are_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    story = Story(rng)
    places = [
        Position(rng.choice([4, *LEDGERS, 9]), rng.choice([0, 1, 65_536, rng.randrange(ENTRIES)]))
        for _ in range(rng.randint(0, 5))
    ]
    whole = story.read()
    for chosen in (
        {*places, *story.starts()} if seed % 2 else set(places),
        {place for place in places if place.entry == 0 or whole.is_acked(*place)},
    ):
        check(story, [StateWindow(first, end) for first, end in between(sorted(chosen))])


@pytest.mark.parametrize("seed", SEEDS)
def test_planned_windows_read_their_segments_alone(seed: int) -> None:
    rng = random.Random(seed)
    story = Story(rng)
    starts = story.starts()
    leading = min(starts.values(), default=0)
    chosen = sorted(rng.sample(sorted(starts), min(len(starts), rng.randint(0, 6))))
    chosen = [place for place in chosen if starts[place] > leading]
    windows = []
    for first, end in between(chosen):
        own = range(starts.get(first, 0), len(story.segments) if end is None else starts[end])
        windows.append(
            StateWindow(
                first,
                end,
                EntryAddress(BASE.ledger, BASE.last_entry),
                frozenset([*range(leading + 1), *own]),
            )
        )
    check(story, windows)


def test_what_is_read_of_a_ledger() -> None:
    listed = [3, 5, 6, 9]
    window = StateWindow(snapshot=EntryAddress(9, 99), segments=frozenset({3, 9}))
    assert list(window.ranges(BASE, listed, 120)) == [Span(3, 4), Span(7, 120)] and window.wanted(
        BASE, listed
    ) == [3, 9]
    ends = StateWindow(snapshot=EntryAddress(9, 99), segments=frozenset({6}))
    assert list(ends.ranges(BASE, listed, 9)) == [Span(4, 4), Span(6, 8)]
    for other in (
        StateWindow(Position(5, 0)),
        StateWindow(snapshot=EntryAddress(9, 98), segments=frozenset({3})),
    ):
        assert (
            list(other.ranges(BASE, listed, 120)) == [Span(0, 120)]
            and other.wanted(BASE, listed) == listed
        )
    assert list(window.ranges(None, listed, -1)) == [Span(0, -1)]


@pytest.mark.parametrize("entry", [4, 5, 6])
@pytest.mark.parametrize("kind", ["ack", "partial", "slice"])
def test_what_lies_behind_the_end_says_that_all_before_it_is_described(
    entry: int, kind: str
) -> None:
    window, state = StateWindow(Position(7, 2), Position(7, 5)), AckState()
    if kind == "ack":
        window.join_delta(state, Delta(acks={7: BitMap([entry])}))
    elif kind == "partial":
        window.join_delta(state, Delta(partials={PartialKey(7, entry): Partial(2, BitMap({0}))}))
    else:
        window.join_segment(state, Segment(slices=(Slice(7, entry, entry + 9, True, BitMap()),)))
    last = {"ack": 3, "partial": 4, "slice": 3}[kind] if entry == 4 else 4
    assert (
        holes([(state, window)]) == [(7, 2, last)]
        and {ledger for ledger, _, _ in living_partials_of(state)} == set()
    )


def living_partials_of(state: AckState) -> list[tuple[int, int, int]]:
    return [(*key, p.batch_size) for key, p in living_partials(state) if key.entry >= 5]
