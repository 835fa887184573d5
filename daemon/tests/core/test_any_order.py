"""Records join in any order: also those that contradict each other, which no writer makes and a
reader may meet all the same.
"""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Segment,
    Slice,
    Stamp,
)
from daemon.tests.core.described import seen

LEDGERS = st.integers(1, 4)
ENTRIES = st.sets(st.integers(0, 6), min_size=1, max_size=5).map(BitMap)
POSITIONS = st.builds(Position, LEDGERS, st.integers(-1, 6))
STAMPS = st.builds(Stamp, st.integers(0, 1), st.integers(0, 1))
NUMBERS = st.builds(
    MarkDeleteProperties, STAMPS, st.dictionaries(st.sampled_from("ab"), st.integers(-1, 1))
)
TEXTS = st.builds(
    CursorProperties, STAMPS, st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
)
PARTIALS = st.dictionaries(
    st.builds(PartialKey, LEDGERS, st.integers(0, 6)),
    st.builds(
        lambda missing, size: Partial(size and max(size, missing.max() + 1), missing),
        ENTRIES,
        st.sampled_from([0, 3, 9]),
    ),
    max_size=3,
)
LAYOUTS = st.dictionaries(
    LEDGERS, st.tuples(st.sampled_from(LayoutState), st.integers(0, 7)), max_size=4
).map(
    lambda told: tuple(
        LayoutItem(x, state, n if state is LayoutState.CLOSED else 0)
        for x, (state, n) in sorted(told.items())
    )
)


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    first = draw(st.integers(0, 5))
    last = draw(st.integers(first, 7))
    return Slice(
        draw(LEDGERS), first, last, draw(st.booleans()), bitmaps.between(draw(ENTRIES), first, last)
    )


SHARED = (st.none() | POSITIONS, st.none() | NUMBERS, st.none() | TEXTS, LAYOUTS)
DELTAS = st.builds(Delta, *SHARED, st.dictionaries(LEDGERS, ENTRIES), PARTIALS)
SEGMENTS = st.builds(Segment, *SHARED, PARTIALS, st.lists(slices(), max_size=3).map(tuple))


def settled(parts: list[Segment | Delta]) -> dict[str, object]:
    state = AckState(FIRST)
    for part in parts:
        if isinstance(part, Segment):
            state.join_segment(part)
        else:
            state.join_delta(part)
    state.settle()
    high_waters = {
        ledger: acks.high_water for ledger, acks in state.ledgers.items() if acks.high_water
    }
    holes = {ledger: set(acks.holes) for ledger, acks in state.ledgers.items() if acks.holes}
    return {**seen(state), "high_waters": high_waters, "holes": holes}


@given(st.lists(DELTAS | SEGMENTS, min_size=2, max_size=7), st.integers(0, 1 << 30))
@settings(max_examples=400)
def test_any_records_in_any_order_and_any_grouping_settle_to_one_state(
    parts: list[Segment | Delta], seed: int
) -> None:
    rng = random.Random(seed)
    expected = settled(parts)
    shuffled = [*parts, *rng.sample(parts, len(parts) // 2)]
    rng.shuffle(shuffled)
    assert settled(shuffled) == expected
    deltas = [part for part in shuffled if isinstance(part, Delta)]
    cuts = sorted({0, len(deltas), *(rng.randint(0, len(deltas)) for _ in range(2))})
    grouped: list[Segment | Delta] = [join(deltas[a:b]) for a, b in pairwise(cuts)]
    grouped += [part for part in shuffled if isinstance(part, Segment)]
    rng.shuffle(grouped)
    assert settled(grouped) == expected


def test_of_two_closed_lengths_the_longer_one_counts_so_that_no_entry_is_crossed_over() -> None:
    short, long = (LayoutItem(1, LayoutState.CLOSED, n) for n in (3, 4))
    after = Delta(
        layout=(LayoutItem(2, LayoutState.OPEN, 0),), acks={1: BitMap([0, 1, 2]), 2: BitMap([0])}
    )
    for run in ([short, long], [long, short]):
        state = AckState(Position(1, -1))
        for part in (after, *(Delta(layout=(item,)) for item in run)):
            state.join_delta(part)
        state.settle()
        assert state.mark_delete == Position(1, 2)
