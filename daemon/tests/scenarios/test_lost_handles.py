"""The gateway ends, and with it the handles of all ledgers at once: a small cursor's state goes
into its footer, in place of a recovery and a new ledger, and whether there is a gateway again does
not matter for that.
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core.footer import InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.table import State
from cursorkeeper.core.values import Record, Segment
from daemon.tests.support.machine_bench import DATA, Bench, working


def test_the_state_goes_into_the_footer_and_the_ledger_goes() -> None:
    bench = Bench()
    a = working(bench)
    old = bench.chain
    seq = a.ack(1)
    a.handle_lost(a.hold(fx.Append))
    a.go()
    assert a.durable == seq and a.machine.counters.lost_handle_states == 1
    assert isinstance(bench.footer.base, InlineBase) and not bench.chain
    assert a.deletions() == set(old) and not a.did(fx.FenceLedger)
    assert len(a.did(fx.CreateLedger)) == 1, "the next one is created when there is more to write"
    bench.ask()


def test_an_append_that_arrives_all_the_same_changes_nothing() -> None:
    bench = Bench()
    a = working(bench)
    seq = a.ack(1)
    append = a.hold(fx.Append)
    a.arrives(append, acknowledged=False)
    a.handle_lost(append)
    a.go()
    assert a.durable == seq
    bench.ask()


def test_a_new_owner_that_came_before_it_keeps_the_cursor() -> None:
    bench = Bench()
    a = working(bench)
    confirmed = a.durable
    a.ack(1)
    append = a.hold(fx.Append)
    b = bench.opened("B")
    a.handle_lost(append)
    a.go()
    assert a.state is State.DEPOSED and a.durable == confirmed and not a.deletions()
    seq = b.ack(5)
    b.go()
    assert b.durable == seq and not b.machine.acks.is_acked(DATA, 1)
    bench.ask()


def test_a_footer_write_that_is_not_decided_is_waited_for() -> None:
    """The write that names the ledger is on its way when the handle is lost."""
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    name = a.hold(fx.WriteFooter)
    assert isinstance(name, fx.WriteFooter) and name.footer.chain
    a.go()
    seq = a.ack(1)
    a.handle_lost(a.hold(fx.Append))
    assert a.did(fx.WriteFooter)[-1] is name, "one footer write at a time"
    a.do(name)
    a.go()
    assert a.durable == seq and a.machine.counters.lost_handle_states == 1
    bench.ask()


def test_a_state_that_is_too_large_for_it_is_recovered() -> None:
    bench = Bench(Limits(restart_state_max_bytes=2_000))
    a = working(bench, range(0, 60_000, 3))
    seq = a.ack(1)
    a.handle_lost(a.hold(fx.Append))
    a.go()
    assert a.durable == seq and not a.machine.counters.lost_handle_states
    assert len(a.did(fx.FenceLedger)) == 1 and len(bench.chain) == 2
    bench.ask()


def test_a_ledger_that_took_nothing_is_recovered_and_the_next_one_waits() -> None:
    """A gateway that ends at every append must not get one ledger after the other at once."""
    bench = Bench()
    a = bench.opened("A")
    seq = a.ack(1)
    a.handle_lost(a.hold(fx.Append))
    assert a.machine.writer.phase.name in ("FAILED", "CHECKING")
    a.go()
    assert a.durable == seq and not a.machine.counters.lost_handle_states
    bench.ask()


def test_a_ledger_that_fails_by_itself_is_recovered() -> None:
    bench = Bench()
    a = working(bench)
    seq = a.ack(1)
    a.unknown(a.hold(fx.Append))
    a.go()
    assert a.durable == seq and not a.machine.counters.lost_handle_states
    assert len(a.did(fx.FenceLedger)) == 1
    bench.ask()


def test_what_is_damaged_stays_where_it_is() -> None:
    """The handle is lost while the snapshot that mends it is written: until that is there, nothing
    of it may go.
    """
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
    append = b.hold(fx.Append)
    b.ack(1)
    while not (isinstance(append.record, Record) and isinstance(append.record.body, Segment)):
        b.do(append)
        append = b.hold(fx.Append)
    assert b.machine.ownership.damaged and b.durable
    seq = b.ack(3)
    b.handle_lost(append)
    b.go(horizon_s=300)
    assert b.durable == seq and not b.machine.counters.lost_handle_states
    bench.ask()
