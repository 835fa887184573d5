"""One cursor's machine on the bench: decisions that are about its behaviour, and what once went
wrong.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.footer import EmptyBase, FooterState, InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.snapshots import SnapshotPhase
from cursorkeeper.core.table import State
from cursorkeeper.core.values import Delta
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import acks, closed, opened, partial

SNAPSHOTS = Limits(snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0)


def deltas(owner: Owner) -> list[Delta]:
    return [e.record.body for e in owner.did(fx.Append) if isinstance(e.record.body, Delta)]


def started(owner: Owner, entry: int = 0) -> Owner:
    """With a named ledger."""
    owner.ack(entry)
    owner.go()
    return owner


# ---- acceptance and durability


def test_decision_01_a_delta_that_was_put_back_is_not_filtered_again() -> None:
    """Holes were cleared when it was taken; asking them again would lose it and then confirm it as
    a duplicate.
    """
    bench = Bench()
    bench.keep_tail = False
    a = started(bench.opened("A"))
    a.send(acks(DATA, 5), partial(DATA, 7, 4, {1, 2}))
    append = a.hold(fx.Append)
    a.unknown(append)
    a.ack(6)
    a.go()
    again = deltas(a)[-1]
    assert set(again.acks[DATA]) == {5, 6} and len(again.partials) == 1
    assert a.durable == a.seq
    state = bench.ask()
    assert state.partial(DATA, 7) is not None


def test_decision_01_mark_delete_changed_against_the_last_durable_one() -> None:
    """The record that moved it is lost; the next one carries it although memory had it already."""
    bench = Bench()
    bench.keep_tail = False
    a = started(bench.opened("A"))
    a.ack(1, mark_delete=Position(DATA, 1))
    a.unknown(a.hold(fx.Append))
    a.ack(5)
    a.go()
    assert deltas(a)[-1].mark_delete == Position(DATA, 1)
    assert bench.ask().mark_delete == Position(DATA, 1)


def test_decision_02_kept_is_accepted_and_a_bad_batch_is_refused_whole() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    good = a.ack(1)
    a.step(ev.Acks(a.attach, _batch(a, acks(DATA, 2), acks(-5, 1))))
    assert a.refused_handle is not None and a.refused_handle.code == "POSITION_OUT_OF_RANGE"
    a.go()
    assert a.durable == good, "earlier acks stay and become durable"
    assert not bench.ask().is_acked(DATA, 2)


def test_decision_12_a_bad_message_refuses_the_handle_not_the_cursor() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.ack(1)
    a.step(ev.Acks(a.attach, _batch(a, acks(DATA, 2), seq=1)))
    assert a.refused_handle is not None and a.refused_handle.code == "SEQ_NOT_GROWING"
    assert a.state is State.READY
    # what the dead handle still says is late; the source comes back with another handle
    before = a.machine.counters.late_events
    a.ack(3)
    assert a.machine.counters.late_events == before + 1
    a.attach, a.seq, a.durable = 2, 0, 0
    a.step(ev.Attach(2))
    a.go()
    assert a.streamed == 2
    a.ack(3)
    a.go()
    assert a.durable == 1
    bench.ask()


def test_decision_08_generation_travels_with_acks() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.reset(Position(DATA, -1))
    a.go()
    bench.new_generation()
    # lower: dropped, counted, decided
    a.seq += 1
    a.step(ev.Acks(a.attach, _batch(a, acks(DATA, 9), generation=1, seq=a.seq)))
    a.go()
    assert a.durable == a.seq and a.machine.counters.dropped_batches == 1
    assert not a.machine.acks.is_acked(DATA, 9)
    # higher: the handle is refused
    a.step(ev.Acks(a.attach, _batch(a, acks(DATA, 9), generation=3, seq=a.seq + 1)))
    assert a.refused_handle is not None and a.refused_handle.code == "WRONG_GENERATION"
    bench.ask()


def test_decision_09_a_second_handle_waits_until_everything_is_durable() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.ack(1)
    append = a.hold(fx.Append)
    a.step(ev.Attach(2))
    a.go(lambda: not a.todo)
    assert a.streamed == 1
    a.do(append)
    a.go()
    assert a.streamed == 2 and a.machine.epoch == 1, "re-attached in the same epoch"


# ---- control messages


def test_decision_11_properties_during_a_reset_are_durable_before_they_are_confirmed() -> None:
    """Reset, properties, acks of the old generation: the later ack must not confirm the properties
    early.
    """
    bench = Bench()
    a = started(bench.opened("A"))
    a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    a.seq += 1
    properties = a.seq
    a.step(ev.SetProperties(a.attach, properties, 1, {"a": "1"}))
    dropped = a.ack(4)
    a.do(write)
    assert a.durable == properties - 1
    assert a.refused_handle is None
    a.go()
    assert a.durable == dropped
    bench.new_generation()
    recovered = bench.ask().cursor_properties
    assert recovered is not None and recovered.values == {"a": "1"}


def test_decision_11_a_layout_between_two_resets_keeps_its_place() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    a.seq += 1
    a.step(ev.SetLayout(a.attach, a.seq, 1, (closed(DATA, 3), opened(20))))
    second = a.reset(Position(DATA, 0))
    a.do(write)
    assert a.durable == second - 2, "decided up to the layout, which waits"
    a.go()
    assert a.durable == second and [r.generation for r in a.resets] == [2, 3]
    bench.new_generation()
    state = bench.ask(beyond=((DATA, 0),))
    assert [i.ledger for i in state.layout] == [DATA, 20] and state.mark_delete == Position(DATA, 0)


def test_decision_11_accepted_during_a_reset_outlives_its_handle() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    a.seq += 1
    a.step(ev.SetProperties(a.attach, a.seq, 1, {"a": "1"}))
    a.step(ev.Close())
    a.do(write)
    a.go()
    assert a.state is State.CLOSED
    bench.new_generation()
    recovered = bench.ask().cursor_properties
    assert recovered is not None and recovered.values == {"a": "1"}


def test_decision_11_mark_delete_properties_of_a_later_epoch_win() -> None:
    bench = Bench()
    for nonce, value in (("A", 1), ("B", 2)):
        owner = bench.opened(nonce)
        for repeat in range(3 if nonce == "A" else 1):
            owner.seq += 1
            owner.step(
                ev.Acks(
                    owner.attach,
                    _batch(owner, acks(DATA, repeat), seq=owner.seq, properties={"horizon": value}),
                )
            )
            bench.sent.add((DATA, repeat))
            owner.go()
    recovered = bench.ask().mark_delete_properties
    assert recovered is not None and recovered.values == {"horizon": 2}


# ---- footers


def test_decision_19_a_footer_once_seen_is_never_created_again() -> None:
    bench = Bench()
    bench.opened("X").step(ev.Close())
    # the claim loses, and then the znode is gone
    a = bench.owner("A").start()
    claim = a.hold(fx.WriteFooter)
    bench.opened("B")
    a.do(claim)
    bench.znode = None
    a.go()
    assert a.state is State.REFUSED and a.refused is not None and a.refused.code == "FOOTER_LOST"
    assert bench.znode is None


def test_decision_19_a_lost_footer_refuses_the_owner_after_a_synced_read() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    saved, bench.znode = bench.znode, None
    a.step(ev.FooterChanged())
    read = a.hold(fx.ReadFooter)
    assert not read.sync
    a.do(read)
    again = a.hold(fx.ReadFooter)
    assert again.sync and a.state is State.READY, "a server that lags does not lose a footer"
    # it was only a lag
    bench.znode = saved
    a.do(again)
    assert a.state is State.READY
    # now it is really gone
    bench.znode = None
    a.step(ev.FooterChanged())
    a.go()
    assert a.refused is not None and a.refused.code == "FOOTER_LOST"
    assert bench.ledgers, "the ledgers are left for whoever repairs it"


@pytest.mark.parametrize("lagging", ["absent", "open"])
def test_decision_19_nobody_is_sent_away_because_of_a_server_that_lags(lagging: str) -> None:
    """The first read shows no cursor, or one that is open elsewhere; a synced read shows a closed
    one.
    """
    bench = Bench()
    x = bench.opened("X")
    open_znode = bench.znode
    x.step(ev.Close())
    x.go()
    now = bench.znode
    a = bench.owner("A").start(create=False, takeover=False)
    read = a.hold(fx.ReadFooter)
    bench.znode = None if lagging == "absent" else open_znode
    answer = a.arrives(read)
    bench.znode = now
    assert answer is not None
    a.step(answer)
    a.go()
    assert a.state is State.READY


def test_decision_19_write_numbers_start_at_one_for_each_nonce() -> None:
    bench = Bench()
    for entry, nonce in enumerate(("A", "B")):
        a = bench.opened(nonce)
        assert (bench.footer.writer, bench.footer.write) == (nonce, 1)
        a.ack(entry)
        a.go()
        assert bench.footer.write == 2


def test_decision_19_reopening_a_closed_cursor_is_a_claim() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.step(ev.Close())
    a.go()
    assert bench.footer.state is FooterState.CLOSED and bench.footer.epoch == 1
    b = bench.owner("B").open(takeover=False)
    assert b.state is State.READY and bench.footer.epoch == 2


def test_decision_04_where_a_new_cursor_starts() -> None:
    for request, start in (
        ({}, FIRST),
        ({"layout": (closed(7, 3), opened(9))}, Position(7, -1)),
        ({"start": Position(9, 4), "layout": (closed(7, 3), opened(9))}, Position(9, 4)),
    ):
        bench = Bench()
        a = bench.owner("A").open(**request)  # type: ignore[arg-type]
        assert bench.footer.base == EmptyBase(start)
        assert a.machine.acks.mark_delete == start


def test_decision_20_a_reset_writes_an_inline_base() -> None:
    bench = Bench()
    a = bench.owner("A").open(
        layout=(closed(7, 3), closed(DATA, 30), opened(20)), cursor_properties={"k": "v"}
    )
    a.seq += 1
    a.step(ev.Acks(a.attach, _batch(a, acks(DATA, 5), seq=a.seq, properties={"horizon": 1})))
    a.go()
    [ledger] = bench.chain
    a.reset(Position(DATA, 2))
    a.go()
    footer = bench.footer
    assert isinstance(footer.base, InlineBase) and footer.chain == () and footer.previous is None
    state = footer.base.state
    assert state.mark_delete == footer.mark_delete == Position(DATA, 2)
    assert state.cursor_properties is not None and state.cursor_properties.values == {"k": "v"}
    assert state.mark_delete_properties is None
    assert [i.ledger for i in state.layout] == [DATA, 20]
    assert ledger in bench.deleted
    assert a.resets == [fx.ResetDone(a.attach, 2, Position(DATA, 2))]


def test_a_missing_ledger_of_a_footer_that_has_moved_on_is_no_damage() -> None:
    """B has claimed and is about to read when C closes the cursor into the footer and deletes the
    ledger: B reads the footer again, after a sync, and learns that it was deposed.
    """
    bench = Bench()
    a = started(bench.opened("A"))
    assert a.durable
    b = bench.owner("B").start()
    reading = b.hold(fx.ReadChain)
    c = bench.opened("C")
    c.step(ev.Close())
    c.go()
    assert not bench.ledgers
    b.do(reading)
    assert b.hold(fx.ReadFooter).sync
    b.todo.appendleft(b.did(fx.ReadFooter)[-1])
    b.go()
    assert b.state is State.DEPOSED and b.refused is None
    assert bench.footer.writer == "C", (
        "who was deposed before it answered does not claim again by itself"
    )
    # the same while nothing has moved: refused, with the reason, and however often ZooKeeper must
    # be asked
    bench.ask()
    lost = bench.chain[0]
    del bench.ledgers[lost]
    d = bench.owner("D").start()
    read = next(iter(r for r in [d.hold(fx.ReadFooter)]))
    d.do(read)
    again = d.hold(fx.ReadFooter)
    d.step(ev.FooterReadFailed(again.token, "away"))
    check = d.hold(fx.CheckFooter)
    d.step(ev.FooterCheckUnknown(check.token, "away"))
    assert d.refused is None, "what a read shows is not enough to give a cursor up"
    d.go()
    assert d.refused is not None and f"ledger {lost}" in d.refused.message


# ---- ledgers and snapshots


def test_decision_21_acks_wait_while_the_snapshot_moves() -> None:
    """Stop appending, wait for what is in flight, close, create, name, append again; the plan is
    made after that.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A")
    a.ack(1)
    closing = a.hold(fx.CloseLedger)
    a.ack(2)
    a.go(lambda: not a.todo)
    assert a.machine.snapshots.run is not None and a.machine.snapshots.run.plan is None
    assert a.machine.snapshots.run.phase is SnapshotPhase.MOVING
    a.do(closing)
    a.go(lambda: a.machine.snapshots.run is not None and a.machine.snapshots.run.plan is not None)
    assert bench.chain[-1] == a.machine.writer.current.ledger  # type: ignore[union-attr]
    a.go()
    assert a.durable == a.seq
    assert isinstance(bench.footer.base, SnapshotBase)


def test_decision_21_a_delta_lies_in_front_of_every_segment_if_there_is_one() -> None:
    """With acks coming in all the time."""
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A", max_entry_bytes=1_200)
    for ledger in range(DATA, DATA + 4):
        a.ack(*range(0, 400, 2), ledger=ledger)
    entry = 1
    for _ in range(400):
        a.ack(entry)
        entry += 2
        a.go_a_little()
        if isinstance(bench.footer.base, SnapshotBase):
            break
    base = bench.footer.base
    assert isinstance(base, SnapshotBase) and base.num_parts > 2
    bodies = a.bodies(base.ledger)[: base.last_entry + 1]
    for at, body in enumerate(bodies):
        if body in ("Segment", "SnapshotEnd"):
            assert bodies[at - 1] in ("Delta", "Segment"), "whatever was accepted is in front of it"
    a.go()
    bench.ask()


def test_rule_41_a_base_whose_ledger_has_a_damaged_delta_in_front_bars_the_fall_back() -> None:
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A", flush_interval_ms=10_000)
    a.ack(1)
    moving = a.hold(fx.CloseLedger)
    a.ack(2)
    a.do(moving)
    a.go(lambda: isinstance(bench.footer.base, SnapshotBase))
    base = bench.footer.base
    assert isinstance(base, SnapshotBase) and bench.footer.previous is not None
    assert base.first_entry == 2
    bench.damaged.add((base.ledger, 1))
    b = bench.opened("B")
    assert b.machine.counters.snapshots == 1, "at once"
    assert isinstance(bench.footer.base, SnapshotBase) and bench.footer.base.ledger != base.ledger
    bench.ask()


def test_decision_24_a_chain_at_its_hard_limit_waits_for_a_snapshot() -> None:
    """Every append fails, every ledger keeps its first record: the chain grows to its limits and a
    snapshot shortens it.
    """
    bench = Bench(
        Limits(
            chain_ledgers_max=3,
            chain_ledgers_hard_max=5,
            snapshot_interval_min_s=1_000.0,
            inline_state_max_bytes=0,
        )
    )
    bench.now = 2_000.0
    a = bench.opened("A")
    for entry in range(5):
        a.ack(entry)
        a.go(horizon_s=1.0)
        a.step(ev.Roll())
        a.go(horizon_s=1.0)
    assert len(bench.chain) == 5
    seq = a.ack(10)
    a.go(horizon_s=3.0)
    assert a.state is State.NOT_PERSISTABLE and a.durable < seq
    assert "snapshot" in a.machine.waiting_for
    bench.now += 1_000.0
    a.go()
    assert a.durable == seq and len(bench.chain) == 1
    assert a.state is State.READY
    bench.ask()


def test_a_full_ledger_is_left_as_planned() -> None:
    bench = Bench(Limits(ledger_bytes_max=150))
    a = bench.opened("A")
    for entry in range(1, 40, 2):
        a.ack(entry)
        a.go()
    assert len(bench.chain) > 2 and a.did(fx.CloseLedger) and not a.did(fx.FenceLedger)
    assert all(c.last_entry is not None for c in bench.footer.chain[:-1])
    bench.ask()


def test_a_close_that_does_not_fit_inline_goes_through_bookkeeper() -> None:
    bench = Bench(Limits(inline_state_max_bytes=10))
    a = started(bench.opened("A"))
    a.ack(4)
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED
    assert bench.footer.state is FooterState.CLOSED and isinstance(bench.footer.base, EmptyBase)
    assert [c.last_entry for c in bench.footer.chain] == [2]
    assert bench.confirmed == bench.sent
    bench.ask()


# ---- ends


def test_decision_25_deleting_an_unopened_cursor_claims_first() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    ledgers = set(bench.chain)
    b = bench.owner("B")
    b.step(ev.Open(create=False, takeover=True, for_delete=True))
    b.go()
    assert b.state is State.DELETED and not b.did(fx.ReadChain)
    assert (
        bench.footer.state is FooterState.DELETED
        and bench.footer.epoch == 2
        and bench.footer.generation == 2
    )
    assert bench.deleted == ledgers
    # the old owner is deposed at its next footer write or look
    a.step(ev.FooterChanged())
    a.go()
    assert a.state is State.DEPOSED


def test_a_delete_while_a_reset_is_on_its_way() -> None:
    """The reset was sent, so it is decided first; the tombstone comes after it."""
    bench = Bench()
    a = started(bench.opened("A"))
    a.reset(Position(DATA, -1))
    a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    a.step(ev.Delete())
    a.do(write)
    a.go()
    assert a.state is State.DELETED
    assert bench.footer.generation == 3 and len(a.resets) == 1
    assert not bench.ledgers


def test_a_delete_while_a_close_is_on_its_way() -> None:
    bench = Bench()
    a = started(bench.opened("A"))
    a.step(ev.Close())
    write = a.hold(fx.WriteFooter)
    a.step(ev.Delete())
    a.do(write)
    a.go()
    assert a.state is State.DELETED and bench.footer.state is FooterState.DELETED
    assert not bench.ledgers


def test_the_inline_backstop() -> None:
    """BookKeeper is away: after two seconds the source is paused and the whole state goes into the
    footer, at most once a second; when ledgers come back, the next one is added beside that base.
    """
    bench = Bench()
    a = started(bench.opened("A"))
    a.ack(1)
    a.unknown(a.hold(fx.Append))
    creating = a.hold(fx.CreateLedger)
    a.step(ev.LedgerCreateFailed(creating.token, "no bookies"))
    while a.durable < 2:
        a.go(lambda: any(isinstance(e, fx.CreateLedger) for e in a.todo) or a.durable == 2)
        for effect in [e for e in a.todo if isinstance(e, fx.CreateLedger)]:
            a.todo.remove(effect)
            a.step(ev.LedgerCreateFailed(effect.token, "no bookies"))
    assert bench.now == pytest.approx(2.0, abs=0.5)
    assert a.did(fx.Pause) and a.did(fx.Resume)
    assert isinstance(bench.footer.base, InlineBase) and bench.chain == []
    a.ack(2)
    a.go()
    assert a.durable == 3 and isinstance(bench.footer.base, InlineBase) and len(bench.chain) == 1
    assert a.state is State.READY
    bench.ask()


# ---- many histories


@given(
    st.lists(
        st.sampled_from(
            [
                "ack",
                "go",
                "lose append",
                "drop append",
                "lose write",
                "late write",
                "tick",
                "snapshot",
            ]
        ),
        max_size=30,
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_lost_or_late_the_next_owner_has_everything_confirmed(moves: list[str]) -> None:
    bench = Bench(Limits(snapshot_interval_min_s=0.0, snapshot_bytes_min=1_000_000))
    a = bench.opened("A")
    late: list[fx.WriteFooter] = []
    entry = 0
    for move in moves:
        pending = next(
            (e for e in a.todo if isinstance(e, fx.Append if "append" in move else fx.WriteFooter)),
            None,
        )
        match move:
            case "ack":
                entry += 1
                a.ack(entry)
            case "go":
                a.go()
            case "tick":
                a.go_a_little()
            case "snapshot":
                a.machine.flow.cost.delta_bytes, a.machine.flow.cost.records = (
                    2_000_000,
                    max(1, a.machine.flow.cost.records),
                )
            case "lose append" | "drop append" if isinstance(pending, fx.Append):
                a.todo.remove(pending)
                a.applied_but_unknown(pending) if move == "lose append" else a.unknown(pending)
            case "lose write" | "late write" if isinstance(pending, fx.WriteFooter):
                a.todo.remove(pending)
                if move == "late write":
                    late.append(pending)
                    a.unknown(pending)
                else:
                    a.applied_but_unknown(pending)
        for write in late[:1] if entry % 3 == 0 else []:
            a.arrives(late.pop(0))
            assert write
    if entry % 2:
        a.go()
        assert a.durable == a.seq, "no stall"
    bench.ask()


def _batch(owner: Owner, *ledgers: LedgerColumns, **fields: Any) -> AckBatch:
    return AckBatch(
        **{
            "seq": owner.seq + 1,
            "generation": owner.machine.generation,
            "ledgers": ledgers,
            **fields,
        }
    )
