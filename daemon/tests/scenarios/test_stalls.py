"""Stories in which nothing is lost and something else goes wrong: a source that waits for ever, an
owner that does not know that it is none any more, ledgers that nobody wants, a healthy cursor that
is refused.

A number in a name tells the stories apart; the rule that forbids each is in ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import ChainLedger, FooterState, InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.table import State
from cursorkeeper.core.values import LayoutItem, LayoutState, Segment
from cursorkeeper.core.writer import WriterPhase
from cursorkeeper.runtime.gc import Verdict, judge
from daemon.tests.fakes.zookeeper.faults import UnknownDone
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import Source, World, acks


def test_p01_a_repeated_ack_of_recovered_state_is_confirmed() -> None:
    """A's append of ack 1 is acknowledged, A dies before it confirms. B recovers it. The source
    sends it again: nothing is new, no record is written, and it is confirmed all the same, because
    recovered state is durable.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(1)
    append = a.hold(fx.Append)
    a.arrives(append)
    # A dies; B reads 1; the source sends 1 again
    b = bench.opened("B")
    seq = b.ack(1)
    b.go()
    assert b.durable == seq and b.machine.counters.duplicate_acks == 1
    assert not b.did(fx.CreateLedger), "no ledger is made for what is durable already"
    bench.ask()


def test_p01_a_duplicate_of_an_ack_in_flight_waits_for_that_record() -> None:
    """The same ack twice, the second while the first is on its way: the second is confirmed with
    the first, not before.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(1)
    append = a.hold(fx.Append)
    again = a.ack(1)
    a.go(lambda: not a.todo and a.machine.progress.oldest_unbound_s is None)
    assert a.durable < again - 1
    a.do(append)
    a.go()
    assert a.durable == again
    bench.ask()


def test_p02_an_idle_owner_learns_that_it_was_deposed() -> None:
    """B claims while A has nothing to write. A's watch fires (or the slow poll asks): A reads the
    footer and ends.
    """
    bench = Bench()
    a = bench.opened("A")
    b = bench.opened("B")
    assert a.state is State.READY
    a.step(ev.FooterChanged())
    a.go()
    assert a.state is State.DEPOSED
    assert a.did(fx.Ended)[-1].epoch == b.machine.epoch
    bench.ask()


def test_p03_ledgers_left_by_a_crash_wait_for_the_next_claim() -> None:
    """A crash between the switch and the deletion leaves ledgers of the current epoch. Nobody may
    take them while that epoch may still write; after the next claim their epoch is over.
    """
    bench = Bench()
    a = bench.opened(
        "A", snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0
    )
    left = None
    for entry in range(1, 6):
        a.ack(entry)
        if entry >= 3 and left is None:
            left = a.hold(fx.DeleteLedgers)  # the crash comes before this
        a.go()
    assert left is not None
    [ledger] = left.ledgers
    assert isinstance(bench.footer.base, SnapshotBase)
    assert judge(ledger, bench.ledgers[ledger].epoch, bench.footer) is Verdict.MAY_BE_NAMED
    bench.ask()
    assert judge(ledger, bench.ledgers[ledger].epoch, bench.footer) is Verdict.GARBAGE


def test_p04_gaps_and_repeats_across_ledgers_are_normal() -> None:
    """Recovery drops A's last record; the acks go again, merged with new ones, under a new sequence
    in a new ledger. The next owner sees a gap and a repeat of acks, and neither is damage.
    """
    bench = Bench()
    bench.keep_tail = False
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.ack(2)
    append = a.hold(fx.Append)
    a.applied_but_unknown(append)
    seq = a.ack(3)
    a.go()
    assert a.durable == seq
    again = a.did(fx.Append)[-1]
    assert again.record.sequence > append.record.sequence + 1, (
        "the open record of the new ledger lies between"
    )
    assert {2, 3} <= set(again.record.body.acks[DATA])
    bench.ask()


def test_p05_the_end_of_a_ledger_is_what_recovery_answered() -> None:
    """A counts two entries in L0, recovery drops the second. A footer with A's own count would make
    the next owner miss an entry and refuse a healthy cursor.
    """
    bench = Bench()
    bench.keep_tail = False
    a = bench.opened("A")
    a.ack(1)
    a.go()
    [left] = bench.chain
    a.ack(2)
    a.applied_but_unknown(a.hold(fx.Append))
    a.go()
    counted = len(a.bodies(left)) - 1
    [item] = [c for c in bench.footer.chain if c.ledger == left]
    assert item == ChainLedger(left, counted - 1)
    bench.ask()


async def test_p06_claims_are_decided_one_by_one() -> None:
    """Two keepers claim the same two cursors at once; the answer to one of the claims is lost
    although it was applied. Each claim is decided by its own nonce: every cursor has exactly one
    owner, and no claim fails because of another.
    """
    world = World()
    names = [
        CursorName("persistent://t/ns/topic", "one"),
        CursorName("persistent://t/ns/topic", "other"),
    ]
    first, second = await world.keeper("first"), await world.keeper("second")
    for name in names:
        source = Source(first, name)
        await source.open()
        source.ack(acks(DATA, 1))
        await source.durable()
    assert await first.close() == []
    third = await world.keeper("third")
    world.zookeeper.faults.next("set", UnknownDone(), names[0].path())
    claims = [Source(keeper, name) for name in names for keeper in (second, third)]
    await asyncio.gather(*(claim.open(takeover=False) for claim in claims))
    for name in names:
        [owner] = [c for c in claims if c.name == name and not c.told.ended]
        [loser] = [c for c in claims if c.name == name and c.told.ended]
        assert loser.told.refused is not None and loser.told.refused[0] == "OPEN_ELSEWHERE"
        assert owner.machine.acks.is_acked(DATA, 1)
        owner.ack(acks(DATA, 2))
        await owner.durable()
    for keeper in (second, third):
        assert keeper.failures == []
        assert await keeper.close() == []


def test_p07_a_ledger_whose_first_append_failed_is_dropped() -> None:
    """Bookies hiccup: again and again the first append to a new ledger fails. Such a ledger is in
    no footer; it is deleted, not chained, or the chain would grow with every hiccup.
    """
    bench = Bench()
    a = bench.opened("A")
    seq = a.ack(1)
    for deletions in range(1, 6):
        first = a.hold(fx.Append)
        assert first.entry == 0
        a.unknown(first)
        a.go(lambda wanted=deletions: len(a.did(fx.DeleteLedgers)) == wanted)  # type: ignore[misc]
    a.go()
    assert a.durable == seq
    assert len(bench.chain) == 1
    assert len(a.deletions()) == 5 and not a.deletions() & set(bench.chain)
    bench.ask()


def test_a_ledger_that_is_deleted_under_its_owner_ends_it() -> None:
    """The committed footer names it and a check says that no other owner has come: there is nothing
    to go on from.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    [ledger] = bench.chain
    del bench.ledgers[ledger]
    a.ack(2)
    a.go()
    assert a.state is State.REFUSED and a.refused is not None and a.refused.code is Refusal.DAMAGED
    assert f"ledger {ledger} was deleted under its owner" in a.refused.message
    assert len(a.did(fx.CheckFooter)) == 1 and bench.chain == [ledger], "nothing is touched"


def test_what_was_asked_for_a_ledger_is_nothing_to_a_state_in_the_footer_meanwhile() -> None:
    """An append is unknown, and the footer is read, slowly, to see whether there is another owner.
    The state that could not wait is in the footer when the answer comes; the ledger was left for
    it.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.ack(2)
    a.unknown(a.hold(fx.Append))
    reading = a.hold(fx.ReadFooter)
    a.go()
    assert a.durable == a.seq and isinstance(bench.footer.base, InlineBase)
    sent = len(a.log)
    a.do(reading)
    assert a.log[sent:] == []
    a.ack(3)
    a.go()
    assert a.durable == a.seq
    bench.ask()


def test_a_full_ledger_is_left_though_records_wait_for_room() -> None:
    """The window is never empty; what waits goes to the next ledger."""
    bench = Bench(Limits(max_entry_bytes=400, appends_in_flight_max=2, ledger_bytes_max=500))
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(*range(1, 20_000, 7))
    closing = a.hold(fx.CloseLedger)
    assert a.machine.writer.outbox, "they are put back"
    a.do(closing)
    a.go()
    assert a.durable == a.seq
    bench.ask()


def test_a_chain_at_its_hard_limit_stays_there_whatever_happens_to_snapshots() -> None:
    """Every attempt at a snapshot is fenced at its first segment. One may add its ledger to the
    chain; the others are named by their end alone, come ever later, and the source is told why it
    waits.
    """
    soft, hard = 3, 5
    bench = Bench(
        Limits(chain_ledgers_max=soft, chain_ledgers_hard_max=hard, inline_state_max_bytes=0)
    )
    a = bench.opened("A")
    end = 600.0

    def is_segment(effect: fx.Effect) -> bool:
        return isinstance(effect, fx.Append) and isinstance(
            getattr(effect.record, "body", None), Segment
        )

    longest = 0
    while bench.now < end:
        seq = a.ack(int(bench.now * 10))
        a.go(lambda: any(map(is_segment, a.todo)), horizon_s=1.0)
        while any(map(is_segment, a.todo)):
            # the delta in front of it is kept: its ledger is one of the chain
            effect = a.todo.popleft()
            if is_segment(effect):
                a.unknown(effect)
            else:
                a.do(effect)
        a.step(ev.Roll())
        longest = max(longest, len(bench.chain))
        bench.now += 0.1
    assert longest == hard + 1
    attempts = a.machine.counters.snapshots_aborted
    assert 5 <= attempts <= 25, "it backs off"
    assert len(a.did(fx.CreateLedger)) <= attempts + 2 * hard
    assert (
        a.state is State.NOT_PERSISTABLE
        and a.durable < seq
        and a.machine.pause.paused_for == "chain"
    )
    assert (
        f"the chain has {hard + 1} ledgers, and" in a.did(fx.Pause)[-1].reason
        and "failed" in a.did(fx.Pause)[-1].reason
    )
    a.go(horizon_s=200.0)
    assert a.durable == seq and len(bench.chain) == 1 and a.state is State.READY
    bench.ask()


def test_cycles_of_open_ack_and_close_shorter_than_a_snapshot_do_not_make_the_chain_longer() -> (
    None
):
    """The state is too large for the footer, and no owner lives until its snapshot is due: at the
    limit the close takes it.
    """
    hard = 5
    bench = Bench(
        Limits(
            chain_ledgers_max=3,
            chain_ledgers_hard_max=hard,
            inline_state_max_bytes=0,
            snapshot_interval_min_s=1_000.0,
        )
    )
    longest = shortened = 0
    for cycle in range(3 * hard):
        before = len(bench.chain) if cycle else 0
        a = bench.opened("A")
        seq = a.ack(2 * cycle)
        a.step(ev.Close())
        a.go()
        assert (
            a.state is State.CLOSED
            and a.durable == seq
            and bench.footer.state is FooterState.CLOSED
        )
        longest, shortened = max(longest, len(bench.chain)), shortened + (len(bench.chain) < before)
    assert hard <= longest <= hard + 1 and shortened
    assert set(bench.ledgers) == bench.footer.named_ledgers()
    bench.ask()


def in_its_last_ledger(bench: Bench) -> Owner:
    """A live owner which may add no ledger to its chain, and which may take snapshots from now
    on.
    """
    a = bench.opened("A", snapshot_interval_min_s=1_000.0)
    for entry in range(bench.limits.chain_ledgers_hard_max):
        a.step(ev.Roll())
        a.go(horizon_s=1.0)
        a.ack(2 * entry)
        a.go(horizon_s=1.0)
    assert len(bench.chain) == bench.limits.chain_ledgers_hard_max
    a.machine.turn.limits = replace(
        bench.limits, chain_ledgers_max=bench.limits.chain_ledgers_hard_max + 1
    )
    return a


def at_its_hard_limit(bench: Bench) -> Owner:
    """The same, and it has left the last one."""
    a = in_its_last_ledger(bench)
    a.step(ev.Roll())
    a.go(horizon_s=1.0)
    assert a.machine.writer.phase is WriterPhase.IDLE
    a.machine.turn.limits = bench.limits
    return a


def test_a_close_that_has_a_ledger_at_the_hard_limit_takes_no_snapshot() -> None:
    bench = Bench(Limits(chain_ledgers_max=3, chain_ledgers_hard_max=5, inline_state_max_bytes=0))
    a = in_its_last_ledger(bench)
    chain = bench.chain
    a.ack(20)
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and a.durable == a.seq and bench.chain == chain
    bench.ask()


def hold_segment(owner: Owner) -> fx.Append:
    """What is asked before it happens."""
    while True:
        append = owner.hold(fx.Append)
        if isinstance(getattr(append.record, "body", None), Segment):
            return append
        owner.do(append)


@pytest.mark.parametrize("told", ["acks", "layout"])
def test_a_close_at_the_hard_limit_tries_a_snapshot_until_one_succeeds(told: str) -> None:
    """Its segments are lost again and again. No try but the one before the close adds a ledger,
    each waits longer than the one before, and what was accepted is durable in the end.
    """
    hard, failures = 5, 5
    bench = Bench(
        Limits(chain_ledgers_max=3, chain_ledgers_hard_max=hard, inline_state_max_bytes=0)
    )
    a = at_its_hard_limit(bench)
    a.ack(18)
    a.unknown(hold_segment(a))
    if told == "acks":
        a.ack(20)
    else:
        a.step(ev.Attach(2, (LayoutItem(DATA, LayoutState.OPEN, 0),)))  # no message waits for it
        a.go(lambda: bool(a.machine.flow.carried))
    a.step(ev.Close())
    began = bench.now
    for _ in range(failures):
        a.unknown(hold_segment(a))
        a.go(lambda: bool(a.machine.waiting_for))
        assert (
            len(bench.chain) == hard + 1
            and "snapshots in a row have failed" in a.machine.waiting_for
        )
    assert bench.now - began >= 2 ** (failures - 2), "it backs off"
    a.go(horizon_s=200.0)
    assert a.state is State.CLOSED and a.durable == a.seq and len(bench.chain) == 1
    bench.ask()


def test_a_close_that_has_nothing_to_write_names_no_ledger_of_a_snapshot_that_it_gives_up() -> None:
    hard = 5
    bench = Bench(
        Limits(chain_ledgers_max=3, chain_ledgers_hard_max=hard, inline_state_max_bytes=0)
    )
    a = at_its_hard_limit(bench)
    a.snapshot()
    a.unknown(hold_segment(a))  # its ledger stays in the chain
    a.go()
    assert a.machine.snapshots.run is None
    a.snapshot()
    segment = hold_segment(a)
    chain = bench.chain
    a.step(ev.Close())
    a.do(segment)
    a.go()
    assert (
        a.state is State.CLOSED
        and set(bench.chain) <= set(chain)
        and a.machine.counters.snapshots_aborted == 2
    )
    assert set(bench.ledgers) == bench.footer.named_ledgers()
    bench.ask()
