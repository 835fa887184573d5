"""The ack state against a model of plain sets, and its recovery from deltas and segments in any
order.
"""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import sizes
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.snapshot_plan import (
    SnapshotPlan,
    inline_bytes_max,
    whole_state,
    whole_state_bytes_estimate,
)
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Partial, PartialKey, Segment, Slice
from cursorkeeper.format import snapshot
from daemon.tests.core.described import seen
from daemon.tests.core.histories import HISTORIES, START, Acked, Played, Step
from daemon.tests.support.world import acks, closed, opened, partial, ranges

SEEDS = st.integers(0, 1 << 30)


def replayed(parts: list[Segment | Delta], start: Position = START) -> AckState:
    state = AckState(start)
    for part in parts:
        if isinstance(part, Segment):
            state.join_segment(part)
        else:
            state.join_delta(part)
    state.settle()
    return state


def batch(*ledgers: LedgerColumns, mark_delete: Position | None = None) -> AckBatch:
    return AckBatch(1, 1, mark_delete, ledgers)


# ---- the writer


@given(HISTORIES)
@settings(max_examples=200, deadline=None)
def test_a_state_is_what_plain_sets_say(history: list[Step]) -> None:
    played = Played()
    for _ in played.steps(history):
        played.model.assert_same(played.state)


@given(HISTORIES)
@settings(max_examples=100, deadline=None)
def test_a_delta_holds_what_is_new_and_nothing_else(history: list[Step]) -> None:
    played = Played()
    before = seen(played.state)
    for delta in played.steps(history):
        after = seen(played.state)
        # batch sizes learned without a change count as new
        assert bool(delta) == (before != after) or not delta.acks
        assert not any(key.entry in delta.acks.get(key.ledger, ()) for key in delta.partials)
        assert all(delta.acks.values()), "no empty bitmaps"
        if delta.mark_delete is not None:
            assert all(ledger >= delta.mark_delete.ledger for ledger in delta.acks)
        before = after


@given(HISTORIES)
@settings(max_examples=100, deadline=None)
def test_doing_it_again_changes_nothing(history: list[Step]) -> None:
    played = Played().all(history)
    again = [s for s in history if isinstance(s, Acked)]
    before = seen(played.state)
    delta = played.state.apply([s.batch() for s in again if _fits(s, played.state)])
    assert not delta.acks and delta.mark_delete is None
    assert seen(played.state)["acked"] == before["acked"]


def _fits(step: Acked, state: AckState) -> bool:
    """A refused step was not applied the first time."""
    return (
        not step.mark_delete
        and not step.partials
        and all(state.is_acked(*e) for e in step.entries)
        and not step.ranges
    )


@given(HISTORIES, SEEDS)
@settings(max_examples=100, deadline=None)
def test_batches_may_be_applied_together_or_one_by_one(history: list[Step], seed: int) -> None:
    """A flush applies what was queued in one go; the result is that of one after the other."""
    one, together = Played(), AckState(START)
    rng = random.Random(seed)
    queue: list[AckBatch] = []
    steps = iter(history)
    for step in steps:
        before = len(one.deltas)
        one.all([step])
        if len(one.deltas) == before:
            continue
        if isinstance(step, Acked):
            queue.append(step.batch())
            if rng.random() < 0.5:
                continue
        together.apply(queue)
        queue.clear()
        if not isinstance(step, Acked):
            together.apply_layout(one.last_run)
    together.apply(queue)
    assert seen(together)["mark_delete"] == seen(one.state)["mark_delete"]
    assert seen(together)["acked"] == seen(one.state)["acked"]
    assert {k: m for k, (_, m) in seen(together)["partials"].items()} == {  # type: ignore[attr-defined]
        k: m
        for k, (_, m) in seen(one.state)["partials"].items()  # type: ignore[attr-defined]
    }


# ---- recovery


@given(HISTORIES, SEEDS)
@settings(max_examples=250, deadline=None)
def test_deltas_in_any_order_and_repeated_give_the_writers_state(
    history: list[Step], seed: int
) -> None:
    played = Played().all(history)
    rng = random.Random(seed)
    parts: list[Segment | Delta] = [
        *played.deltas,
        *rng.sample(played.deltas, len(played.deltas) // 2),
    ]
    rng.shuffle(parts)
    found = replayed(parts)
    assert seen(found) == seen(played.state)
    played.model.assert_same(found)


@given(HISTORIES, SEEDS)
@settings(max_examples=200, deadline=None)
def test_joined_deltas_are_worth_as_much_as_the_deltas(history: list[Step], seed: int) -> None:
    """What a roll puts back is joined with what is new; groups of any size, in any order."""
    played = Played().all(history)
    rng = random.Random(seed)
    rng.shuffle(played.deltas)
    cuts = sorted({0, len(played.deltas), *(rng.randint(0, len(played.deltas)) for _ in range(3))})
    parts: list[Segment | Delta] = [join(played.deltas[a:b]) for a, b in pairwise(cuts)]
    rng.shuffle(parts)
    assert seen(replayed(parts)) == seen(played.state)


@given(HISTORIES, SEEDS, st.sampled_from([300, 500, 4_000]))
@settings(max_examples=250, deadline=None)
def test_a_snapshot_taken_while_acks_go_on_gives_the_writers_state(
    history: list[Step], seed: int, body_bytes_max: int
) -> None:
    """Segments are taken between the steps; deltas of before the plan are not read. In any
    order.
    """
    rng = random.Random(seed)
    cut = rng.randint(0, len(history))
    played = Played().all(history[:cut])
    played.deltas.clear()
    plan = SnapshotPlan(played.state, body_bytes_max)
    parts: list[Segment | Delta] = []
    for _ in played.steps(history[cut:]):
        if rng.random() < 0.5 and not plan.is_done:
            parts.append(plan.take(played.state))
    while not plan.is_done:
        parts.append(plan.take(played.state))
    segments = [p for p in parts if isinstance(p, Segment)]
    assert segments, "always at least one"
    for segment in segments:
        assert sizes.segment_body_bytes_max(segment) <= body_bytes_max
        assert len(snapshot.encode_segment(segment)[1]) <= body_bytes_max
    parts += played.deltas
    rng.shuffle(parts)
    found = replayed(parts, FIRST)
    assert seen(found) == seen(played.state)
    played.model.assert_same(found)


@given(HISTORIES)
@settings(max_examples=100, deadline=None)
def test_the_whole_state_in_one_segment(history: list[Step]) -> None:
    state = Played().all(history).state
    whole = whole_state(state)
    assert seen(replayed([whole], FIRST)) == seen(state)
    stored = sizes.RECORD_HEADER_BYTES + len(snapshot.encode_segment(whole)[1])
    assert stored <= inline_bytes_max(whole) + 64
    assert whole_state_bytes_estimate(state) <= inline_bytes_max(whole)


# ---- single stories


def test_an_empty_state_is_one_segment() -> None:
    plan = SnapshotPlan(AckState(Position(7, 3)), 60_000)
    assert not plan.is_done
    segment = plan.take(AckState(Position(7, 3)))
    assert plan.is_done and segment.mark_delete == Position(7, 3)


def test_ranges_of_millions_of_entries_are_planned_on_container_borders() -> None:
    state = AckState(Position(5, -1))
    state.apply([batch(ranges(5, (1, 20_000_000)))])
    plan = SnapshotPlan(state, 1 << 20)
    slices = []
    while not plan.is_done:
        segment = plan.take(state)
        assert sizes.segment_body_bytes_max(segment) <= 1 << 20
        slices += list(segment.slices)
    assert [s.first % 65_536 for s in slices] == [0] * len(slices)
    assert [(s.first, s.last) for s in slices][-1][1] == 20_000_000
    assert all(b.first == a.last + 1 for a, b in pairwise(slices))


def test_partial_batches_that_outgrow_their_range_split_it() -> None:
    """The plan was made when there was none; then every entry of the range becomes a partly acked
    batch.
    """
    state = AckState(Position(5, -1))
    state.apply([batch(acks(5, 199))])
    plan = SnapshotPlan(state, 900)
    state.apply([batch(*(partial(5, e, 64, set(range(0, 64, 2))) for e in range(190)))])
    segments = []
    while not plan.is_done:
        segments.append(plan.take(state))
        assert sizes.segment_body_bytes_max(segments[-1]) <= 900
    assert sum(len(s.partials) for s in segments) == 190
    ends = [(s.first, s.last) for segment in segments for s in segment.slices]
    assert (
        ends[0][0] == 0 and ends[-1][1] == 199 and all(b[0] == a[1] + 1 for a, b in pairwise(ends))
    )
    assert seen(replayed(list(segments), FIRST)) == seen(state)


def test_a_range_that_mark_delete_has_passed_is_not_written() -> None:
    state = AckState(Position(5, -1))
    state.apply([batch(acks(5, 9), acks(6, 9))])
    plan = SnapshotPlan(state, 60_000)
    state.apply([batch(mark_delete=Position(6, 2))])
    segment = plan.take(state)
    assert [s.ledger for s in segment.slices] == [6]


def test_a_slice_holds_whichever_is_smaller() -> None:
    state = AckState(Position(5, -1))
    state.apply(
        [batch(acks(5, *range(3, 900, 3), *range(4, 900, 3))), batch(acks(6, *range(0, 1_000, 7)))]
    )
    by_ledger = {s.ledger: s for s in whole_state(state).slices}
    assert by_ledger[5].holes and set(by_ledger[5].bitmap) == {0, 1, *range(2, 899, 3)}
    assert not by_ledger[6].holes and set(by_ledger[6].bitmap) == set(range(0, 1_000, 7))


def test_a_hole_in_a_segment_never_takes_an_ack_back() -> None:
    state = AckState(Position(5, -1))
    state.join_delta(Delta(acks={5: BitMap([3])}))
    state.join_segment(Segment(slices=(Slice(5, 0, 9, True, BitMap(range(10))),)))
    state.settle()
    assert state.is_acked(5, 3) and not state.is_acked(5, 4)


def test_values_inside_deltas_are_never_changed_by_joining() -> None:
    delta = Delta(acks={5: BitMap([1, 2])}, partials={PartialKey(5, 7): Partial(3, BitMap([0, 1]))})
    other = Delta(acks={5: BitMap([4])}, mark_delete=Position(5, 1))
    join([delta, other])
    state = AckState(Position(5, -1))
    state.join_delta(delta)
    state.join_delta(other)
    assert set(delta.acks[5]) == {1, 2} and set(other.acks[5]) == {4}


def test_decision_03_mark_delete_and_the_dict() -> None:
    state = AckState(Position(5, -1))
    state.apply_layout([closed(5, 3), closed(6, 0), opened(7)])
    state.apply([batch(acks(5, 0, 2), acks(7, 0, 4), partial(5, 1, 4, {2}))])
    assert state.mark_delete == Position(5, 0)
    # at or below mark-delete: duplicates, dropped before the dict is touched
    delta = state.apply([batch(acks(5, 0), acks(4, 3), partial(5, 0, 4, {1}))])
    assert not delta and 4 not in state.ledgers
    # over the empty ledger, only where the layout names the next one
    delta = state.apply([batch(partial(5, 1, 4, set()))])
    assert delta.mark_delete == Position(7, 0) == state.mark_delete
    assert list(state.ledgers) == [7] and not state.partials
    assert state.ledgers[7].high_water == 5 and set(state.ledgers[7].holes) == {1, 2, 3}
    # below mark-delete all is acked, above without an entry nothing is
    assert state.is_acked(6, 12) and not state.is_acked(8, 0)


def test_decision_04_a_stored_position_is_not_moved_to_the_next_ledger_by_itself() -> None:
    state = AckState(Position(5, -1))
    state.apply_layout([closed(5, 2), opened(6)])
    state.apply([batch(acks(5, 0, 1))])
    assert state.mark_delete == Position(5, 1)
    # the same place all the same
    assert state.layout.normalised(Position(5, 1)) == Position(6, -1)
    # a given (next, -1) is kept
    state.apply([batch(mark_delete=Position(6, -1))])
    assert state.mark_delete == Position(6, -1)


def test_decision_04_a_cumulative_ack_inside_a_batch() -> None:
    """Mark-delete e - 1 and a partial for e, in one batch."""
    state = AckState(Position(5, -1))
    delta = state.apply([batch(partial(5, 4, 8, set(range(3, 8))), mark_delete=Position(5, 3))])
    assert delta.mark_delete == Position(5, 3)
    assert set(delta.partials[PartialKey(5, 4)].missing) == {3, 4, 5, 6, 7}


def test_decision_05_partial_batches_only_lose_indexes() -> None:
    state = AckState(Position(5, -1))
    first = state.apply([batch(partial(5, 1, 0, {0, 1, 5}))])
    assert first.partials[PartialKey(5, 1)].batch_size == 0
    # the size becomes known, and indexes do not come back
    second = state.apply([batch(partial(5, 1, 6, {1, 5, 4}))])
    assert second.partials[PartialKey(5, 1)] == Partial(6, BitMap([1, 5]))
    # the last ones complete the entry: it is recorded as acked
    third = state.apply([batch(partial(5, 1, 6, {0}))])
    assert set(third.acks[5]) == {1} and not third.partials
    # an entry below its high water is a hole until then
    assert set(state.ledgers[5].holes) == {0}
