"""Snapshots one after the other: the second drops what the first one kept to fall back to; and what
comes of one when the cursor ends meanwhile, is deposed, is reset, or leaves the ledger.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import DATA, Bench, Owner

NO_INLINE = Limits(inline_state_max_bytes=0)


def _begun() -> tuple[Bench, Owner]:
    """An owner that begins a snapshot behind one delta."""
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.snapshot()
    return bench, a


def test_the_second_drops_what_the_first_one_kept() -> None:
    bench = Bench(NO_INLINE)
    a = bench.opened("A")
    for entry in range(0, 40, 2):
        a.ack(entry)
        a.go()
    before = set(bench.chain)
    assert not isinstance(bench.footer.base, SnapshotBase), "the cost rule wants none"
    a.snapshot()
    a.go()
    base = bench.footer.base
    assert isinstance(base, SnapshotBase) and a.machine.counters.snapshots == 1
    assert a.machine.flow.cost.records == 0, "a reader needs none of the deltas before it"
    assert (
        bench.footer.previous is not None
        and {c.ledger for c in bench.footer.previous.chain} == before
    )
    a.snapshot()
    a.go()
    assert a.machine.counters.snapshots == 2 and bench.footer.previous.base == base
    assert before <= set(a.deletions()) and not before & set(bench.footer.named_ledgers())
    a.step(ev.Close())
    a.go()
    assert bench.footer.state is FooterState.CLOSED and bench.footer.stats.delta_bytes == 0
    bench.ask()


def test_one_after_a_roll_that_aborted_one_is_in_a_ledger_of_its_own() -> None:
    """The append of its second segment is unknown: A leaves the ledger."""
    bench = Bench(NO_INLINE)
    a = bench.opened("A", max_entry_bytes=1_200, inline_state_max_bytes=0)
    for ledger in range(DATA, DATA + 4):
        a.ack(*range(0, 400, 2), ledger=ledger)
        a.go()
    a.snapshot()
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
    assert a.machine.counters.snapshots_aborted == 1 and a.machine.counters.snapshots == 0
    a.snapshot()
    a.go()
    assert (
        isinstance(bench.footer.base, SnapshotBase) and bench.footer.base.ledger != segment.ledger
    )
    bench.ask()


def test_acks_go_on_meanwhile() -> None:
    bench, a = _begun()
    seq = a.ack(2)
    a.go()
    assert a.durable == seq and a.machine.counters.snapshots == 1
    bench.ask()


@pytest.mark.parametrize("end", [ev.Close(), ev.Delete()])
def test_a_cursor_that_ends_meanwhile_ends(end: ev.Event) -> None:
    _, a = _begun()
    a.step(end)
    a.go()
    assert a.state in (State.CLOSED, State.DELETED) and a.machine.counters.snapshots == 0


def test_a_deposed_owner_takes_none() -> None:
    """B has claimed the cursor while A's snapshot is on its way: A's switch does not fit."""
    bench, a = _begun()
    a.go(
        lambda: any(
            isinstance(e, fx.WriteFooter) and isinstance(e.footer.base, SnapshotBase)
            for e in a.todo
        )
    )
    b = bench.opened("B")
    a.go()
    assert a.state is State.DEPOSED and a.machine.counters.snapshots == 0
    assert bench.footer.writer == b.machine.turn.writer
    bench.ask()


def test_a_reset_ends_it() -> None:
    bench, a = _begun()
    a.reset(Position(DATA, -1))
    a.go()
    bench.new_generation()
    assert a.machine.counters.snapshots_aborted == 1 and a.machine.counters.snapshots == 0
    assert bench.footer.generation == a.machine.generation == 2
    bench.ask()
