"""A reset, an inline state and a close are each one footer write that holds the whole answer: what
was under way when it was sent is decided by it, and is neither kept for later nor forgotten.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import ChainLedger, FooterState, InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.core.values import Delta, LayoutItem, Record
from cursorkeeper.format import footer as footer_bytes
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import closed, opened, partial

ONE_AT_A_TIME = Limits(max_entry_bytes=400, appends_in_flight_max=2, inline_state_max_bytes=0)
LAYOUT = (*(closed(DATA + i, 10) for i in range(200)), opened(DATA + 200))
"""More than `NO_ROOM` lets into a footer."""
NO_ROOM = Limits(inline_state_max_bytes=100)


def _busy(bench: Bench) -> tuple[Owner, list[fx.Append]]:
    """An owner that has taken more records than its window holds, and the appends that nobody
    answers.
    """
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(*range(1, 20_000, 7))
    silent = [a.hold(fx.Append)]
    while any(isinstance(e, fx.Append) for e in a.todo):
        silent.append(a.hold(fx.Append))
    assert a.machine.writer.outbox, "records wait for room in the window"
    return a, silent


def test_a_reset_forgets_what_was_taken_and_what_was_sent() -> None:
    bench = Bench(ONE_AT_A_TIME)
    a, silent = _busy(bench)
    a.reset(Position(DATA, -1))
    a.go()
    bench.new_generation()
    assert a.resets and not a.machine.writer.outbox and not a.machine.writer.unconfirmed
    for append in silent:  # late answers are of a ledger that was left
        a.do(append)
    a.ack(3)
    a.go()
    assert a.durable == a.seq
    bench.ask()


def test_a_message_behind_a_reset_is_confirmed_though_it_changes_nothing() -> None:
    """The ack in flight is decided by the reset. The layout that waited for the new generation says
    nothing new: it is confirmed with what is durable, not with a record that was given up.
    """
    bench = Bench()
    a = bench.owner("A").open(layout=(opened(DATA),))
    a.ack(0)
    a.go()
    a.ack(1)
    a.hold(fx.Append)
    a.reset(Position(DATA, -1))
    a.seq += 1
    a.step(ev.SetLayout(a.attach, a.seq, a.machine.generation, (opened(DATA),)))
    a.go()
    assert a.durable == a.seq


def test_a_reset_forgets_the_batches_that_were_queued() -> None:
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.send(partial(DATA, 5, 10, {1, 2}))
    assert a.machine.flow.queued.messages
    a.reset(Position(DATA, -1))
    a.go()
    assert a.machine.flow.queued.acks == a.machine.flow.queued.size_bytes == 0
    bench.new_generation()
    seq = a.send(partial(DATA, 5, 20, {1, 2}))
    a.go()
    assert a.durable == seq and a.refused_handle is None, (
        "a batch size of the old generation says nothing now"
    )
    assert a.machine.counters.snapshots_aborted == 0, "there was none"


@pytest.mark.parametrize("where", ["queued", "carried", "put back"])
def test_acks_that_were_not_written_are_not_of_the_generation_after_a_reset(where: str) -> None:
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(8)
    if where == "put back":
        append = a.hold(fx.Append)
        a.unknown(append)
        a.do(a.hold(fx.ReadFooter))
        a.do(a.hold(fx.FenceLedger))
    elif where == "carried":
        a.seq += 1
        a.step(ev.SetLayout(a.attach, a.seq, a.machine.generation, (opened(DATA),)))
    assert bool(a.machine.flow.queued.messages) is (where == "queued") and bool(
        a.machine.flow.carried
    ) is (where != "queued")
    a.reset(Position(DATA, -1))
    a.go()
    bench.new_generation()
    a.ack(3)
    a.go()
    assert a.durable == a.seq
    bench.ask()


def test_a_layout_too_large_for_the_footer_of_a_reset_is_written_with_the_next_record() -> None:
    bench = Bench(NO_ROOM)
    a = bench.owner("A").open(layout=LAYOUT)
    a.reset(Position(DATA, 4))
    a.go()
    bench.new_generation()
    base = bench.footer.base
    assert isinstance(base, InlineBase) and not base.state.layout
    a.ack(7)
    a.go()
    a.go(lambda: a.durable == a.seq)
    assert _layout_of_the_next_owner(bench) == LAYOUT


def test_a_close_waits_for_what_only_the_next_record_would_hold() -> None:
    """No message waits, but the layout is in no footer and in no record yet."""
    bench = Bench(NO_ROOM)
    a = bench.owner("A").open(layout=LAYOUT)
    a.reset(Position(DATA, 4))
    a.go(lambda: bool(a.resets))
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and bench.footer.state is FooterState.CLOSED
    assert _layout_of_the_next_owner(bench) == LAYOUT


def _layout_of_the_next_owner(bench: Bench) -> tuple[LayoutItem, ...]:
    b = bench.opened("B")
    return b.machine.acks.layout.items_from(DATA)


def test_a_close_with_records_that_wait_for_room_needs_no_further_ledger() -> None:
    bench = Bench(ONE_AT_A_TIME)
    a, silent = _busy(bench)
    a.step(ev.Close())
    for append in silent:
        a.do(append)
    a.go()
    assert a.state is State.CLOSED and len(a.did(fx.CreateLedger)) == 1
    bench.ask()


def _silence(bench: Bench, a: Owner) -> list[fx.Append]:
    """BookKeeper answers no append any more until the state is in the footer."""
    silent: list[fx.Append] = []

    def is_inline() -> bool:
        while any(isinstance(e, fx.Append) for e in a.todo):
            silent.append(a.hold(fx.Append))
        return (
            isinstance(bench.footer.base, InlineBase)
            and a.machine.ownership.commit.outstanding is None
        )

    a.go(is_inline)
    assert is_inline()
    return silent


def test_an_inline_state_leaves_nothing_to_be_written_again() -> None:
    bench = Bench(Limits(appends_in_flight_max=2))
    a = bench.opened("A")
    a.ack(0)
    a.go()
    left = a.machine.writer.current
    assert left is not None
    a.ack(1)
    _silence(bench, a)
    assert a.durable == a.seq and a.machine.counters.inline_backstops == 1
    assert left.ledger in a.deletions() and a.machine.flow.cost.delta_bytes == 0
    ledgers = len(a.did(fx.CreateLedger))
    a.go()
    assert len(a.did(fx.CreateLedger)) == ledgers, "nothing waits for a ledger"
    a.ack(2)
    sent = len(a.log)
    a.go()
    deltas = [
        e.record.body
        for e in a.log[sent:]
        if isinstance(e, fx.Append) and isinstance(e.record, Record)
    ]
    assert [list(d.acks[DATA]) for d in deltas if isinstance(d, Delta)] == [[2]]
    bench.ask()


def test_an_inline_state_confirms_only_what_it_holds() -> None:
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.ack(1)
    held: list[fx.WriteFooter] = []

    def is_sent() -> bool:
        while any(isinstance(e, fx.Append) for e in a.todo):
            a.hold(fx.Append)
        held.extend(e for e in a.todo if isinstance(e, fx.WriteFooter))
        return bool(held)

    a.go(is_sent)
    a.todo.remove(held[0])
    later = a.ack(2)
    a.do(held[0])
    assert a.durable == later - 1, "the later ack is in no ledger and in no footer"
    a.go()
    assert a.durable == later
    bench.ask()


def _begins_a_snapshot(bench: Bench) -> Owner:
    """An owner with some deltas behind it, that has written nothing of a snapshot yet."""
    a = bench.opened("A")
    for entry in range(0, 20, 2):
        a.ack(entry)
        a.go()
    a.snapshot()
    return a


def test_an_inline_state_ends_the_snapshot_that_was_being_written() -> None:
    """Its ledger does not answer. What comes next is a snapshot of its own, in one ledger, and it
    can be read.
    """
    bench = Bench()
    a = _begins_a_snapshot(bench)
    a.go(
        lambda: (
            "Segment"
            in [
                type(e.record.body).__name__
                for e in a.todo
                if isinstance(e, fx.Append) and isinstance(e.record, Record)
            ]
        )
    )
    a.ack(1)
    _silence(bench, a)
    assert a.machine.counters.snapshots_aborted == 1
    a.go()
    a.snapshot()
    a.go()
    base = bench.footer.base
    assert isinstance(base, SnapshotBase)
    sent = [e for e in a.did(fx.Append) if e.ledger == base.ledger and isinstance(e.record, Record)]
    assert [type(e.record.body).__name__ for e in sent].count("Segment") == base.num_parts
    bench.ask()


def test_a_switch_that_was_sent_is_not_given_up_with_its_ledger() -> None:
    """The ledger fails while the switch is on its way: its answer decides, and no second snapshot
    is begun for it.
    """
    bench = Bench()
    a = _begins_a_snapshot(bench)
    a.go(
        lambda: any(
            isinstance(e, fx.WriteFooter) and isinstance(e.footer.base, SnapshotBase)
            for e in a.todo
        )
    )
    switch = next(e for e in a.todo if isinstance(e, fx.WriteFooter))
    a.todo.remove(switch)
    a.ack(1)
    a.unknown(a.hold(fx.Append))
    a.do(switch)
    a.go()
    assert (a.machine.counters.snapshots, a.machine.counters.snapshots_aborted) == (1, 0)
    assert a.durable == a.seq
    bench.ask()


def test_a_claimer_recovers_ledgers_that_only_the_fall_back_names() -> None:
    """A footer whose previous chain has a ledger without an end: its tail may hold what was
    confirmed.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(0)
    a.go()
    a.snapshot()
    a.go()
    footer, version = bench.footer, bench.znode[1] if bench.znode else 0
    assert footer.previous is not None
    left = footer.previous.chain[-1]
    unended = replace(
        footer.previous, chain=(*footer.previous.chain[:-1], ChainLedger(left.ledger))
    )
    bench.znode = (footer_bytes.encode(replace(footer, previous=unended)), version)
    bench.ledgers[left.ledger].closed = False
    b = bench.opened("B")
    assert (
        left.ledger in {e.ledger for e in b.did(fx.FenceLedger)}
        and bench.ledgers[left.ledger].closed
    )
