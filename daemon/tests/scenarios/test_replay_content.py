"""Stories about what a replay makes of segments and deltas that were taken at different instants.

A number in a name tells the stories apart; the rule that forbids each is in ARCHITECTURE.md. The
writer's state lives on while a snapshot is written; whatever the order in which a reader joins
segments and deltas, it has to come to the writer's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from cursorkeeper.core import effects as fx
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.snapshot_plan import EntryRange, SnapshotPlan, take_slice, whole_state
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, LayoutItem, LayoutState, Segment
from daemon.tests.core.described import seen
from daemon.tests.support.machine_bench import DATA, Bench
from daemon.tests.support.world import acks, closed, opened, partial

P, Q = 10, 11


def batch(*ledgers: LedgerColumns, mark_delete: Position | None = None) -> AckBatch:
    return AckBatch(1, 1, mark_delete, ledgers)


def replayed(parts: Iterable[Segment | Delta]) -> AckState:
    state = AckState(FIRST)
    for part in parts:
        if isinstance(part, Segment):
            state.join_segment(part)
        else:
            state.join_delta(part)
    state.settle()
    return state


def assert_any_order_gives(writer: AckState, parts: list[Segment | Delta]) -> None:
    """Nothing that the writer has is lost, nothing else appears, in no order and however often."""
    for order in permutations(parts):
        for repeated in (order, order + order[:1]):
            found = replayed(repeated)
            assert found.mark_delete == writer.mark_delete
            assert seen(found) == seen(writer)


def test_d01_a_mark_delete_that_no_ack_has_moved() -> None:
    """Q0 was acked before. Segment 1 is taken. The topic trims P: mark-delete goes over P and Q0,
    and memory forgets Q0. Segment 2 has no Q0, and a delta that says only "P is trimmed" would
    deliver Q0 again: the delta carries mark-delete.
    """
    writer = AckState(Position(P, -1), Layout([closed(P, 3), opened(Q)]))
    # Q0 acked before; slice 1 (of P)
    before = writer.apply([batch(acks(P, 1), acks(Q, 0))])
    assert before.acks.keys() == {P, Q}
    first = Segment(
        writer.mark_delete,
        layout=tuple(writer.layout),
        slices=(take_slice(EntryRange(P, 0, 1), writer),),
    )
    # P is trimmed
    trim = writer.apply_layout([LayoutItem(P, LayoutState.TRIMMED, 0), opened(Q)])
    assert writer.mark_delete == Position(Q, 0) == trim.mark_delete
    # slice 2 (of Q), as it is now
    second = Segment(slices=(take_slice(EntryRange(Q, 0, 0), writer),))
    assert_any_order_gives(writer, [first, trim, second])


def test_d02_a_batch_completed_between_bitmap_and_partials() -> None:
    """Index 0 of a batch was acked before; index 1 completes it while a snapshot is written. The
    delta says that the entry is acked (not only that index 1 is), and a range's bitmap and partial
    batches are taken at one instant: it is in one of the two, whichever way it went.
    """
    # idx 0 before
    writer = AckState(Position(P, -1))
    writer.apply([batch(acks(P, 3), partial(P, 1, 2, {1}))])
    plan = SnapshotPlan(writer, 60_000)
    # idx 1 completes after the segment: the delta holds the entry
    segment = plan.take(writer)
    assert plan.is_done
    assert (
        segment.partials and 1 not in segment.slices[0].bitmap
        if not segment.slices[0].holes
        else 1 in segment.slices[0].bitmap
    )
    completing = writer.apply([batch(partial(P, 1, 2, {0}))])
    assert set(completing.acks[P]) == {1} and not completing.partials
    assert_any_order_gives(writer, [segment, completing])
    # and before it: the bitmap holds it, and no partial is written any more
    later = whole_state(writer)
    assert not later.partials
    assert replayed([later]).is_acked(P, 1)


def test_d03_joining_partials_never_takes_an_ack_back() -> None:
    """A segment that replaced a partial batch would undo a delta. The join only goes up: un-acked,
    then fewer and fewer missing, then acked, in whatever order the parts come.
    """
    writer = AckState(Position(P, -1))
    # the segment's partial misses {1, 2}; the delta's, taken later or earlier, {0, 2}
    writer.apply([batch(acks(P, 5), partial(P, 1, 3, {1, 2}))])
    segment = whole_state(writer)
    first = writer.apply([batch(partial(P, 1, 3, {0, 2}))])
    assert_any_order_gives(writer, [segment, first])
    found = replayed([first, segment]).partial(P, 1)
    assert found is not None and set(found.missing) == {2}
    # acked wins over every partial
    last = writer.apply([batch(acks(P, 1))])
    assert_any_order_gives(writer, [segment, first, last])


def test_d04_a_reset_in_the_middle_of_a_snapshot() -> None:
    """Segments of the old generation are in a ledger when the source seeks back. The snapshot is
    aborted by the reset, and what it wrote is of a generation that nobody reads any more.
    """
    bench = Bench()
    a = bench.opened(
        "A", snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0
    )
    a.ack(1, 2)
    a.go(lambda: any(type(e.record.body).__name__ == "Segment" for e in a.did(fx.Append)))
    # the reset comes between segment and end record
    a.reset(Position(DATA, -1))
    a.go(lambda: bool(a.resets))
    assert a.machine.snapshots.run is None
    assert bench.footer.generation == 2 and bench.chain == []
    bench.new_generation()
    # a new snapshot, of the new generation
    a.ack(7)
    a.go()
    a.ack(8)
    a.go()
    state = bench.ask()
    assert not state.is_acked(DATA, 1)
