"""BookKeeper answers less than it had acknowledged: the owner says so, and writes the state, which
it still has, at once.
"""

from __future__ import annotations

from typing import Any

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import Bench, Owner
from daemon.tests.support.whole import writer

NO_INLINE = Limits(inline_state_max_bytes=0)
EVENT = "acknowledged entries lost"


def acked(bench: Bench, *entries: int, **limits: Any) -> Owner:
    """An owner with a record for each ack, all confirmed, in one ledger."""
    a = bench.opened("A", **limits)
    for entry in entries:
        a.ack(entry)
        a.go()
    assert a.durable == len(entries)
    return a


def lose(bench: Bench, ledger: int, entries: int) -> None:
    """All copies of the newest ones."""
    held = bench.ledgers[ledger]
    del held.entries[len(held.entries) - entries :]
    held.acked = len(held.entries) - 1


def told(owner: Owner) -> list[dict[str, object]]:
    return [dict(report.fields) for report in owner.reports if report.event == EVENT]


@pytest.mark.parametrize("leaves", ["failed append", "planned roll"])
def test_what_was_confirmed_is_written_again(leaves: str) -> None:
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3, 5)
    [ledger] = bench.chain
    expected = len(bench.ledgers[ledger].entries) - 1
    if leaves == "failed append":
        a.ack(7)
        a.unknown(a.hold(fx.Append))
    else:
        a.step(ev.Roll())
    lose(bench, ledger, 2)
    a.go()
    answered = expected - 2
    assert told(a) == [
        {
            "ledger": ledger,
            "expected_last_entry": expected,
            "answered_last_entry": answered,
            "confirmed": "perhaps",
        }
    ]
    assert a.machine.counters.lost_entries == 2
    assert isinstance(bench.footer.base, SnapshotBase) and a.state is State.READY
    state = bench.ask()
    assert all(state.is_acked(10, entry) for entry in (1, 3, 5))


def test_a_ledger_that_ends_as_it_should_is_no_news() -> None:
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3)
    a.ack(5)
    a.unknown(a.hold(fx.Append))
    a.go()
    assert not told(a) and not isinstance(bench.footer.base, SnapshotBase)
    bench.ask()


def test_the_end_of_the_newest_snapshot_is_lost() -> None:
    """Until the next one is there, the footer leads to the one before: an owner that comes
    meanwhile is not refused.
    """
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3)
    a.snapshot()
    a.go()
    base = bench.footer.base
    assert isinstance(base, SnapshotBase)
    a.ack(5)
    a.unknown(a.hold(fx.Append))
    lose(bench, base.ledger, len(bench.ledgers[base.ledger].entries) - base.last_entry)
    naming = a.hold(fx.CreateLedger)
    a.do(naming)
    a.go(lambda: bench.chain[-1] != base.ledger)
    between = bench.footer
    assert between.base != base and between.previous is None
    a.go()
    assert isinstance(bench.footer.base, SnapshotBase) and bench.footer.base != base
    bench.ask()


def test_a_handle_that_comes_meanwhile_waits_until_all_is_stored_again() -> None:
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3)
    a.step(ev.Roll())
    lose(bench, bench.chain[0], 1)
    a.go(lambda: bool(told(a)))
    a.attach = 2
    a.step(ev.Attach(2))
    streamed = a.streamed
    a.go(
        lambda: any(
            isinstance(e, fx.WriteFooter) and isinstance(e.footer.base, SnapshotBase)
            for e in a.todo
        )
    )
    assert a.streamed == streamed
    a.go()
    assert a.streamed == streamed + 1
    bench.ask()


def test_a_repeated_ack_is_not_confirmed_before_it_is_stored_again() -> None:
    """It is in memory, and in no ledger: whoever recovers the cursor now does not find it."""
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3)
    a.step(ev.Roll())
    lose(bench, bench.chain[0], 1)
    a.go(lambda: bool(told(a)))
    before = a.durable
    a.ack(3)
    last = a.ack(3, 5)
    a.go(
        lambda: any(
            isinstance(e, fx.WriteFooter) and isinstance(e.footer.base, SnapshotBase)
            for e in a.todo
        )
    )
    assert a.durable == before
    a.go()
    assert a.durable == last
    bench.ask()


@pytest.mark.parametrize("end", [ev.Close(), ev.Delete(), None])
def test_what_decides_everything_confirms_it(end: ev.Close | ev.Delete | None) -> None:
    """While the snapshots that would store it again fail: a small state goes into the footer, a
    tombstone ends all questions.
    """
    bench = Bench()
    a = acked(bench, 1, 3)
    a.step(ev.Roll())
    lose(bench, bench.chain[0], 1)
    a.go(lambda: bool(told(a)))
    last = a.ack(3)
    for _ in range(20):
        if a.durable == last:
            break
        if end is not None and a.state is not State.CLOSING:
            a.step(end)
        refuse_a_ledger(a)
    assert a.durable == last


def refuse_a_ledger(owner: Owner) -> None:
    """Everything else happens."""
    owner.go(lambda: any(isinstance(e, fx.CreateLedger) for e in owner.todo))
    for effect in list(owner.todo):
        if isinstance(effect, fx.CreateLedger):
            owner.todo.remove(effect)
            owner.step(ev.LedgerCreateFailed(effect.token, "too few bookies"))


def test_a_close_stores_it_first() -> None:
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3, 5)
    a.step(ev.Close(1))
    lose(bench, bench.chain[0], 2)
    a.go()
    assert a.state is State.CLOSED and told(a) and bench.footer.state is FooterState.CLOSED
    bench.ask()


def test_a_failed_attempt_to_store_it_is_repeated() -> None:
    bench = Bench(NO_INLINE)
    a = acked(bench, 1, 3, 5)
    a.step(ev.Roll())
    lose(bench, bench.chain[0], 2)
    a.go(lambda: bool(told(a)))
    for _ in range(2):
        a.unknown(a.hold(fx.Append))
    a.go()
    assert isinstance(bench.footer.base, SnapshotBase)
    bench.ask()


@pytest.mark.parametrize("ends", [False, True])
def test_whole_states_are_written_again(ends: bool) -> None:
    bench = Bench(NO_INLINE, state_writer=writer())
    a = acked(bench, 1, 3, 5, whole_state_interval_ms=10)
    [ledger] = bench.chain
    a.step(ev.Close(1) if ends else ev.Roll())
    lose(bench, ledger, 2)
    a.go()
    assert told(a) and bench.chain != [ledger]
    assert a.state is (State.CLOSED if ends else State.READY)
    bench.ask()
