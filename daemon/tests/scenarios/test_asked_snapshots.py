"""A snapshot that an event asks for: taken at once although the cost rule sees no need, told when
it is committed, begun again after an abort; and what a second one does: it drops what the first one
kept to fall back to.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.snapshots import TAKEN
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import DATA, Bench, Owner

NO_INLINE = Limits(inline_state_max_bytes=0)


def _told(owner: Owner) -> list[fx.Report]:
    return [e for e in owner.did(fx.Report) if e.event == TAKEN]


def test_a_few_deltas_become_a_snapshot_when_it_is_asked_for() -> None:
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    for entry in range(0, 40, 2):
        a.ack(entry)
        a.go()
    before = set(bench.chain)
    assert not isinstance(bench.footer.base, SnapshotBase), "the cost rule wants none"
    a.step(ev.Snapshot())
    a.go()
    [told] = _told(a)
    base = bench.footer.base
    assert isinstance(base, SnapshotBase) and told.fields == {
        "ledger": base.ledger,
        "bytes": base.length,
    }
    assert a.machine.flow.cost.records == 0, "a reader needs none of the deltas before it"
    assert (
        bench.footer.previous is not None
        and {c.ledger for c in bench.footer.previous.chain} == before
    )
    # nothing was acked since: the cost rule would never take the second one
    a.step(ev.Snapshot())
    a.go()
    assert len(_told(a)) == 2 and bench.footer.previous.base == base
    assert before <= set(a.deletions()) and not before & set(bench.footer.named_ledgers())
    a.step(ev.Close())
    a.go()
    assert bench.footer.state is FooterState.CLOSED and bench.footer.stats.delta_bytes == 0
    bench.ask()


def test_it_is_begun_again_when_a_roll_aborts_it() -> None:
    """The append of its second segment is unknown: A leaves the ledger, and whoever asked still
    gets one.
    """
    bench = Bench(NO_INLINE)
    a = bench.opened("A", max_entry_bytes=1_200, inline_state_max_bytes=0)
    for ledger in range(DATA, DATA + 4):
        a.ack(*range(0, 400, 2), ledger=ledger)
        a.go()
    a.step(ev.Snapshot())
    a.go(
        lambda: (
            "Segment" in [type(e.record.body).__name__ for e in a.todo if isinstance(e, fx.Append)]
        )
    )
    segment = next(
        e for e in a.todo if isinstance(e, fx.Append) and type(e.record.body).__name__ == "Segment"
    )
    a.todo.remove(segment)
    a.unknown(segment)
    a.go()
    assert a.machine.counters.snapshots_aborted == 1 and len(_told(a)) == 1
    assert (
        isinstance(bench.footer.base, SnapshotBase) and bench.footer.base.ledger != segment.ledger
    )
    bench.ask()


def test_two_wishes_are_one_and_acks_go_on_meanwhile() -> None:
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.step(ev.Snapshot())
    a.step(ev.Snapshot())
    seq = a.ack(2)
    a.go()
    assert a.durable == seq and len(_told(a)) == 1 and a.machine.counters.snapshots == 1
    bench.ask()


@pytest.mark.parametrize("end", [ev.Close(), ev.Delete()])
def test_a_cursor_that_ends_meanwhile_ends(end: ev.Event) -> None:
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.step(ev.Snapshot())
    a.step(end)
    a.go()
    assert a.state in (State.CLOSED, State.DELETED) and not _told(a)
    late = a.machine.counters.late_events
    a.step(ev.Snapshot())
    assert a.machine.counters.late_events == late + 1


def test_a_deposed_owner_takes_none() -> None:
    """B has claimed the cursor while A's snapshot is on its way: A's switch does not fit."""
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.step(ev.Snapshot())
    a.go(
        lambda: any(
            isinstance(e, fx.WriteFooter) and isinstance(e.footer.base, SnapshotBase)
            for e in a.todo
        )
    )
    b = bench.opened("B")
    a.go()
    assert a.state is State.DEPOSED and not _told(a)
    assert bench.footer.writer == b.machine.turn.writer
    bench.ask()


def test_after_a_reset_it_is_of_the_new_generation() -> None:
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    a.ack(1, 2, 3)
    a.go()
    a.step(ev.Snapshot())
    a.reset(Position(DATA, -1))
    a.go()
    bench.new_generation()
    assert len(_told(a)) == 1 and bench.footer.generation == a.machine.generation == 2
    bench.ask()
