"""A small cursor does not get one more ledger because its daemon was restarted: its first new acks
go into the footer with the whole state, and the ledgers of the owners before go.
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import DATA, Bench, restarted


def test_the_first_new_acks_go_into_the_footer_and_the_old_ledgers_go() -> None:
    bench = Bench()
    b = restarted(bench)
    old = bench.chain
    seq = b.ack(1)
    b.go()
    assert b.durable == seq and b.machine.counters.restart_states == 1
    assert not b.did(fx.CreateLedger) and not bench.chain
    assert isinstance(bench.footer.base, InlineBase) and b.deletions() == set(old)
    bench.ask()


def test_one_that_comes_too_late_confirms_nothing_and_deletes_nothing() -> None:
    bench = Bench()
    b = restarted(bench)
    b.ack(1)
    write = b.hold(fx.WriteFooter)
    c = bench.opened("C")
    b.do(write)
    b.go()
    assert b.state is State.DEPOSED and not b.durable and not b.deletions()
    seq = c.ack(5)
    c.go()
    assert c.durable == seq and not c.machine.acks.is_acked(DATA, 1)
    bench.ask()


def test_acks_that_were_recovered_cost_nothing() -> None:
    bench = Bench()
    b = restarted(bench)
    before = bench.footer
    seq = b.ack(0, 2)
    b.go()
    assert b.durable == seq and bench.footer == before and not b.did(fx.CreateLedger)


def test_a_state_that_is_too_large_for_it_gets_a_ledger() -> None:
    bench = Bench(Limits(restart_state_max_bytes=2_000))
    b = restarted(bench, range(0, 60_000, 3))
    seq = b.ack(1)
    b.go()
    assert b.durable == seq and not b.machine.counters.restart_states
    assert len(b.did(fx.CreateLedger)) == 1 and len(bench.chain) == 2
    bench.ask()


def test_a_cursor_without_ledgers_gets_its_first_one_as_ever() -> None:
    bench = Bench()
    bench.opened("A")
    b = bench.opened("B")
    seq = b.ack(1)
    b.go()
    assert b.durable == seq and len(bench.chain) == 1 and not b.machine.counters.restart_states
    bench.ask()


def test_what_is_damaged_stays_where_it_is() -> None:
    """The snapshot that mends it fails at first: until it is there, nothing of it may go."""
    bench = Bench(Limits(snapshot_bytes_min=1 << 30))
    a = bench.opened("A")
    a.ack(*range(0, 3_000, 3))
    a.go()
    a.snapshot()
    a.go()
    base = bench.footer.base
    assert isinstance(base, SnapshotBase)
    bench.damaged.add((base.ledger, base.first_entry))
    b = bench.owner("B").start()
    b.unknown(b.hold(fx.Append))
    assert b.machine.ownership.damaged
    seq = b.ack(1)
    b.go(horizon_s=300)
    assert b.durable == seq and not b.machine.counters.restart_states
    bench.ask()


def test_acks_that_come_while_a_ledger_is_created_wait_for_it() -> None:
    bench = Bench()
    b = restarted(bench)
    b.machine.snapshots.start("test")
    b.step(ev.Tick(0))
    create = b.hold(fx.CreateLedger)
    seq = b.ack(1)
    b.go(horizon_s=1)
    assert not b.machine.counters.restart_states and b.durable < seq
    b.do(create)
    b.go()
    assert b.durable == seq
    bench.ask()
