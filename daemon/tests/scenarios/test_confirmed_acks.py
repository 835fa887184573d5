"""Stories in which a confirmed ack could be lost: one per rule of the commit protocol that forbids
it.

A number in a name tells the stories apart; the rule that forbids each is in ARCHITECTURE.md. In
each story A is the owner it is about, B the next one; the last line is the checker's question
(`ask`).
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import FooterCommit, Purpose
from cursorkeeper.core.footer import ChainLedger, FooterState, InlineBase, SnapshotBase
from cursorkeeper.core.limits import ACK_LEDGERS_MAX, TAKEN_PARTS_MAX, Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.runtime.gc import Verdict, judge
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import acks

SNAPSHOTS = Limits(snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0)
"""A snapshot whenever a delta was written."""
NO_INLINE = Limits(inline_state_max_bytes=0)


def test_s01_delete_and_recreate_restarts_versions() -> None:
    """No fault, only a slow daemon. B reads the footer and pauses. A claims, deletes the cursor and
    creates it again, and a source has an ack confirmed. Then B's old compare-and-set arrives: it
    must not fit.
    """
    bench = Bench()
    bench.opened("X").step(ev.Close())
    # B reads the footer and pauses before its claim
    b = bench.owner("B").start()
    claim_of_b = b.hold(fx.WriteFooter)
    # A claims, deletes, creates again, confirms
    a = bench.opened("A")
    a.step(ev.Delete())
    a.go()
    assert bench.footer.state is FooterState.DELETED, "a tombstone: epoch and version live on"
    again = bench.opened("A2")
    assert again.machine.epoch > claim_of_b.footer.epoch
    again.ack(1)
    again.go()
    assert bench.confirmed == {(DATA, 1)}
    # B's old write with its old version arrives
    answer = b.arrives(claim_of_b)
    assert isinstance(answer, ev.FooterBadVersion)
    assert bench.footer.writer == "A2"
    bench.ask()


def test_s02_an_equal_epoch_is_not_mine() -> None:
    """A's claim of the next epoch is delayed. B claims that same epoch and wins. A must not take
    B's epoch for its own.
    """
    bench = Bench()
    bench.opened("X").step(ev.Close())
    first = bench.owner("X").start()
    first.go()
    first.step(ev.Close())
    first.go()
    # A's claim is delayed, the answer never comes
    a = bench.owner("A").start(takeover=False)
    claim = a.hold(fx.WriteFooter)
    a.unknown(claim)
    # B claims the same epoch
    b = bench.opened("B")
    assert b.machine.epoch == claim.footer.epoch
    b.ack(1)
    b.go()
    # A decides: it repeats its bytes, gets BadVersion, and reads an equal epoch with another writer
    a.go()
    assert a.state is State.CLOSED
    assert a.refused is not None and a.refused.code == "OPEN_ELSEWHERE"
    assert bench.footer.writer == "B"
    bench.ask()


def test_s02_an_earlier_write_of_my_own_is_not_the_one_i_ask_about() -> None:
    """A's footer that names L0 is delayed. Reading back, A finds its own claim: same epoch, same
    writer, another write. That does not confirm ack 1; A dies; the next owner knows no L0.
    """
    bench = Bench()
    a = bench.opened("A")
    claim = bench.footer
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    assert not commit.footer.is_same_write(claim), (
        "epoch and writer are equal, the write number is not"
    )
    a.unknown(commit)
    # A read that shows the claim's footer decides nothing, and confirms nothing
    pending = FooterCommit(a.machine.turn)
    pending.adopt(claim, commit.expected_version)
    pending.propose(commit.footer, Purpose.NAME_LEDGER)
    pending.on_bad_version()
    assert type(pending.on_read(claim, 0)).__name__ == "Lost"
    assert a.durable == 0
    # A crashes here
    bench.ask()


def test_s03_reading_the_old_footer_decides_nothing() -> None:
    """A's footer that names L0 is delayed, and the next append is unknown too. A must not drop L0
    because it reads the old
    footer: the request may still arrive. It repeats the same bytes until that is decided, and
    recovers L0 only then.
    """
    bench = Bench()
    a = bench.opened("A")
    # append 1 to L0 ok; the commit of L0 is delayed
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    [ledger] = [c.ledger for c in commit.footer.chain]
    a.go(lambda: bench.ledgers[ledger].acked == 1)
    a.unknown(commit)
    # append 2 unknown
    a.ack(2)
    a.unknown(a.hold(fx.Append))
    # until the commit is decided nothing is recovered, read or dropped
    again = a.hold(fx.WriteFooter)
    assert (again.footer, again.expected_version) == (commit.footer, commit.expected_version), (
        "the same bytes, the same version"
    )
    assert not a.did(fx.FenceLedger) and ledger not in a.deletions()
    # the delayed request arrives; the repetition gets BadVersion; a synced read finds A's own write
    a.arrives(commit)
    a.do(again)
    assert a.hold(fx.ReadFooter).sync
    a.todo.appendleft(a.did(fx.ReadFooter)[-1])
    a.go()
    assert a.durable == 2
    assert ledger not in bench.deleted
    bench.ask()


def test_s04_garbage_collection_does_not_take_a_ledger_that_is_about_to_be_named() -> None:
    """A has created L0 and appended to it; garbage collection lists L0 and reads a footer that does
    not name it; A commits. Only a lower epoch than the footer's (or an equal one once it is closed)
    makes a ledger garbage, never its age.
    """
    bench = Bench()
    a = bench.opened("A")
    # append 1 to L0 ok; the collector looks
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    [ledger] = [c.ledger for c in commit.footer.chain]
    seen = bench.footer
    assert ledger not in seen.named_ledgers()
    assert judge(ledger, bench.ledgers[ledger].epoch, seen) is not Verdict.GARBAGE
    # A commits
    a.do(commit)
    a.go()
    assert a.durable == 1
    # the epoch decides, with a stale footer too; no footer at all touches nothing
    assert judge(ledger, seen.epoch - 1, seen) is Verdict.GARBAGE
    assert judge(ledger, seen.epoch, None) is not Verdict.GARBAGE
    assert judge(ledger, bench.footer.epoch - 1, bench.footer) is not Verdict.GARBAGE, "it is named"
    bench.ask()


def test_s05_a_roll_recovers_the_ledger_it_leaves() -> None:
    """Ack 1 is confirmed in L0. Append 2 is unknown and A rolls to L1. L0 read without recovery
    would end below its last
    entry: so A recovery-opens L0 before the footer that names L1 is sent, and writes the end that
    recovery found.
    """
    bench = Bench()
    bench.keep_tail = False
    a = bench.opened("A")
    # append 1 to L0 ok, committed, confirmed
    a.ack(1)
    a.go()
    [left] = bench.chain
    # append 2 unknown
    a.ack(2)
    a.unknown(a.hold(fx.Append))
    # A rolls
    naming = a.hold(fx.WriteFooter)
    assert [e.ledger for e in a.did(fx.FenceLedger)] == [left], (
        "recovered before the next footer is sent"
    )
    assert naming.footer.chain[0] == ChainLedger(left, 1)
    a.do(naming)
    a.go()
    assert a.durable == 2
    bench.ask()


def test_s05_a_claimer_recovers_every_ledger_without_an_end() -> None:
    """The same from the other side: a footer that names two ledgers without ends. B recovery-opens
    both before it reads.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    [first] = bench.chain
    a.step(ev.Roll())
    a.ack(2)
    a.go()
    version = bench.znode[1] if bench.znode else 0
    footer = bench.footer
    open_ended = tuple(ChainLedger(c.ledger) for c in footer.chain)
    bench.ledgers[first].closed = False
    assert bench.compare_and_set(
        type(footer)(**{**_fields(footer), "chain": open_ended}).written_at(version + 1), version
    )
    b = bench.owner("B").start()
    reading = b.hold(fx.ReadChain)
    assert {e.ledger for e in b.did(fx.FenceLedger)} == {c.ledger for c in open_ended}
    assert all(c.last_entry is not None for c in reading.footer.chain)
    bench.ask()


def test_s06_inline_state_is_a_base_not_a_chain() -> None:
    """Ack 1 was closed into the footer. B accepts 2 and names its first ledger: the inline base
    stays beside the chain.
    """
    bench = Bench()
    # inline {1} committed
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.step(ev.Close())
    a.go()
    assert isinstance(bench.footer.base, InlineBase) and bench.chain == []
    # accepts 2, creates L0, commits chain [L0]
    b = bench.opened("B")
    b.ack(2)
    b.go()
    assert isinstance(bench.footer.base, InlineBase) and len(bench.chain) == 1
    assert b.durable == 1
    bench.ask()


def test_s07_what_a_segment_holds_an_earlier_delta_holds() -> None:
    """Ack 1 is accepted just before a segment is taken. If the segment alone held it, B would
    recover and confirm it, and a damaged snapshot would lose it. So the pending delta goes in front
    of every segment, in the same ledger.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A", flush_interval_ms=10_000)
    a.ack(0)
    a.do(a.hold(fx.CloseLedger))
    a.do(a.hold(fx.WriteFooter))
    # the snapshot's ledger is named; 1 is accepted, not flushed; the segment is next
    a.ack(1)
    switch = _hold_switch(a)
    ledger = switch.footer.base.ledger
    assert a.bodies(ledger)[:3] == ["OpenRecord", "Delta", "Segment"]
    a.do(switch)
    # A dies; B reads 1, and confirms it when it is sent again
    b = bench.opened("B", snapshot_interval_min_s=1e9)
    b.ack(1)
    b.go()
    assert (DATA, 1) in bench.confirmed
    # the snapshot is damaged; C falls back
    bench.damaged.add((ledger, switch.footer.base.first_entry))
    bench.ask()


def test_s07_very_many_acks_are_all_written_before_a_segment_holds_them() -> None:
    """While the ledger of a snapshot is made, acks come for more data ledgers than one step turns
    into records. The first segment waits for all of those records: whatever it holds a fall-back
    finds without it.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A")
    many = [acks(ledger, 3) for ledger in range(DATA, DATA + 2 * TAKEN_PARTS_MAX + 7)]
    messages = [many[at : at + ACK_LEDGERS_MAX] for at in range(0, len(many), ACK_LEDGERS_MAX)]
    a.ack(0)
    closing = a.hold(fx.CloseLedger)
    for columns in messages:
        a.send(*columns)
    a.do(closing)
    switch = _hold_switch(a)
    base = switch.footer.base
    kinds = a.bodies(base.ledger)
    before = [e.record.body for e in a.did(fx.Append) if e.ledger == base.ledger][
        1 : kinds.index("Segment")
    ]
    assert kinds[1:].index("Segment") == len(before) and {
        ledger for delta in before for ledger in delta.acks
    } == {c.ledger for c in many}
    a.do(switch)
    # A dies; B reads all of them, and confirms them when they are sent again
    b = bench.opened("B", snapshot_interval_min_s=1e9)
    for columns in messages:
        b.send(*columns)
    b.go()
    assert len(bench.confirmed) > len(many)
    # the snapshot is damaged; C falls back
    bench.damaged.add((base.ledger, base.first_entry))
    bench.ask()


def test_s08_a_fall_back_replays_the_previous_and_the_current_chain() -> None:
    """Deltas between the segments and after the switch are in the current chain only. A fall-back
    reads previous base, previous chain, then the current chain without the damaged segment; the
    next footer says so, and a snapshot follows.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A", snapshot_interval_min_s=0.0)
    a.ack(1)
    switch = _hold_switch(a)
    # between the segments and the switch
    a.ack(2)
    a.go(lambda: a.durable == 2)
    a.do(switch)
    # after the switch, without another snapshot
    a.machine.turn.limits = Limits()
    a.ack(3)
    a.go()
    assert bench.confirmed == {(DATA, 1), (DATA, 2), (DATA, 3)}
    damaged = bench.footer
    assert isinstance(damaged.base, SnapshotBase) and damaged.previous is not None
    bench.damaged.add((damaged.base.ledger, damaged.base.first_entry))
    # B falls back and rebases at once: what it falls back to must not be dropped by the next switch
    b = bench.owner("B").start()
    rebase = b.hold(fx.ReadChain)
    b.todo.appendleft(rebase)
    naming = _hold_write(
        b, lambda f: len(f.footer.chain) > len(damaged.chain) + len(damaged.previous.chain) - 1
    )
    assert naming.footer.base == damaged.previous.base
    assert naming.footer.previous is None
    assert naming.footer.named_ledgers() >= {
        c.ledger for c in (*damaged.previous.chain, *damaged.chain)
    }
    b.do(naming)
    switched = _hold_switch(b)
    assert switched.footer.previous.base == damaged.previous.base, "never the damaged snapshot"
    bench.ask()


@pytest.mark.parametrize("part", ["segment", "end record"])
def test_s08_the_owner_dies_between_the_rebase_and_the_next_snapshot(part: str) -> None:
    """After the rebase the damaged segment lies in a chain whose base does not know it any more.
    The next owner must still know that it is a segment, which every reader may do without, and not
    a damaged delta.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    footer = bench.footer
    assert isinstance(footer.base, SnapshotBase)
    entry = footer.base.first_entry if part == "segment" else footer.base.last_entry
    bench.damaged.add((footer.base.ledger, entry))
    # B falls back, names the ledger of the next snapshot (this is the rebase), and dies
    b = bench.owner("B").start()
    b.do(_hold_write(b, lambda f: f.footer.base == footer.previous.base))
    assert bench.footer.previous is None
    bench.ask()


def test_s09_no_segment_before_the_writer_has_moved() -> None:
    """A segment taken while deltas still go to the old ledger would miss them: the footer that
    names the new ledger only drops the old one. A first leaves the old ledger and names the new
    one; an ack that comes meanwhile waits for it.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A")
    a.ack(1)
    # the snapshot starts: the old ledger is being closed
    closing = a.hold(fx.CloseLedger)
    old = closing.ledger
    sent = len(a.bodies(old))
    # 2 is accepted: no delta to the old ledger any more, no segment anywhere yet
    a.ack(2)
    a.go(lambda: not a.todo)
    assert len(a.bodies(old)) == sent and "Segment" not in a.bodies(old)
    a.do(closing)
    # the delta may go to the new ledger before the footer names it, a segment may not, however long
    # that takes
    naming = a.hold(fx.WriteFooter)
    a.go(horizon_s=1.0)
    [fresh] = {c.ledger for c in naming.footer.chain} - {old}
    assert a.bodies(fresh) == ["OpenRecord", "Delta"]
    a.do(naming)
    switch = _hold_switch(a)
    assert [c.ledger for c in switch.footer.chain] != [old]
    a.do(switch)
    assert (DATA, 2) in bench.confirmed
    bench.ask()


def test_s10_a_roll_aborts_the_snapshot() -> None:
    """Segment 1 is in L1; the append of segment 2 is unknown; A rolls to L2. A snapshot of which
    one half is in L1 and the other in L2 would lose the first: it starts again, in one ledger, and
    its end record names its own segments only.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A", max_entry_bytes=1_200, appends_in_flight_max=16)
    for ledger in range(DATA, DATA + 4):
        a.ack(*range(0, 400, 2), ledger=ledger)
    a.go(lambda: _segments(a) >= 1)
    first_try = a.did(fx.Append)[-1].ledger
    a.go(lambda: _segments(a) >= 2)
    second = next(
        e for e in a.todo if isinstance(e, fx.Append) and type(e.record.body).__name__ == "Segment"
    )
    a.todo.remove(second)
    a.unknown(second)
    assert a.machine.snapshots.run is None, "aborted"
    a.go()
    a.ack(1)
    switch = _hold_switch(a)
    base = switch.footer.base
    assert base.ledger != first_try
    end = next(
        e.record.body
        for e in a.did(fx.Append)
        if e.ledger == base.ledger and e.entry == base.last_entry
    )
    assert [a.bodies(base.ledger)[e] for e in end.segment_entries] == ["Segment"] * base.num_parts
    assert base.num_parts >= 2
    a.do(switch)
    bench.ask()


def test_s11_a_deposed_owner_deletes_nothing() -> None:
    """A's footer that names L0 is applied, its answer lost. B claims: B's footer names L0. A learns
    of B; "its uncommitted" L0 is not A's to delete.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    a.applied_but_unknown(commit)
    # B claims
    b = bench.opened("B")
    [ledger] = bench.chain
    # A sees the higher epoch
    a.go()
    assert a.state is State.DEPOSED
    assert a.deletions() == set()
    assert ledger in bench.ledgers
    b.ack(1)
    b.go()
    assert b.durable == 1
    bench.ask()


def test_s11_deposed_while_a_footer_write_is_unknown() -> None:
    """A's footer write is unknown when the slow poll shows a higher epoch. From then on A sends
    nothing at all, the repetition of that write included.
    """
    bench = Bench()
    a = bench.opened("A")
    a.step(ev.FooterChanged())
    poll = a.hold(fx.ReadFooter)
    a.ack(1)
    a.unknown(a.hold(fx.WriteFooter))
    bench.opened("B")
    a.do(poll)
    assert a.state is State.DEPOSED
    before = len(a.log)
    bench.now += 60
    a.step(ev.Tick(64))
    assert a.log[before:] == []
    bench.ask()


def test_s12_a_bad_version_is_never_answered_by_the_old_content() -> None:
    """B claims while A is about to name L0. A gets BadVersion. Taking over the new version and
    sending the old content again would replace B's claim; A reads, sees B, and is deposed.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    b = bench.opened("B")
    b.ack(2)
    b.go()
    a.do(commit)
    a.go()
    assert a.state is State.DEPOSED
    assert a.did(fx.WriteFooter)[-1] == commit, "nothing was written after the BadVersion"
    assert a.durable == 0
    assert bench.footer.writer == "B"
    bench.ask()


def test_s13_an_unknown_footer_write_confirms_nothing() -> None:
    """A's footer that names L0 is lost on its way. The append was acknowledged all the same.
    Nothing is confirmed until a repetition is answered.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    commit = a.hold(fx.WriteFooter)
    a.unknown(commit)
    a.go(lambda: not a.todo)
    assert a.durable == 0
    # A crashes: 1 is in no footer, and nobody was told otherwise
    bench.ask()


def test_s13_an_unknown_inline_close_deletes_nothing() -> None:
    """A closes into the footer and the answer is lost; the request never arrived. The old ledger is
    still the only place where ack 1 is: it is not deleted before the close is decided.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    [ledger] = bench.chain
    a.step(ev.Close())
    close = a.hold(fx.WriteFooter)
    assert close.footer.state is FooterState.CLOSED and close.footer.chain == ()
    a.unknown(close)
    a.go(lambda: not a.todo)
    assert ledger not in a.deletions() and a.state is State.CLOSING
    # A crashes
    bench.ask()


def test_s14_the_ledger_of_a_snapshot_is_named_before_the_switch() -> None:
    """Acks go to the snapshot's ledger for as long as the snapshot takes. If only the switch named
    it they would wait seconds, or be confirmed and lost. Two writes: an ordinary roll names it
    first; the switch comes last.
    """
    bench = Bench(SNAPSHOTS)
    a = bench.opened("A")
    a.ack(1)
    switch = _hold_switch(a)
    ledger = switch.footer.base.ledger
    # the switch is not applied yet; an ack in the snapshot's ledger is durable all the same
    assert ledger in bench.chain
    assert not isinstance(bench.footer.base, SnapshotBase)
    seq = a.ack(2)
    a.go(lambda: a.durable == seq)
    assert a.durable == seq
    # A crashes
    bench.ask()


def test_s15_a_new_generation_does_not_read_the_old_one() -> None:
    """Acks 1 to 3 are confirmed; the source seeks back. Deltas of the old generation that are read
    with the new one would skip messages. The reset replaces base and chain in one write, and a
    reader takes only its own generation.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1, 2, 3)
    a.go()
    old = bench.footer
    # reset: one write
    a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    assert write.footer.generation == old.generation + 1
    assert (
        isinstance(write.footer.base, InlineBase)
        and write.footer.chain == ()
        and write.footer.previous is None
    )
    # an append of the old generation comes back late
    a.do(write)
    bench.new_generation()
    a.ack(7)
    a.go()
    assert [c.ledger for c in old.chain] != bench.chain
    assert a.resets[0].generation == write.footer.generation
    # even with the chain kept, the reader takes equal generations only
    kept = type(old)(
        **{
            **_fields(bench.footer),
            "chain": (ChainLedger(bench.chain[0]),),
            "generation": bench.footer.generation + 1,
        }
    )
    version = bench.znode[1] if bench.znode else 0
    saved = bench.znode
    assert bench.compare_and_set(kept, version)
    c = bench.opened("C")
    assert not c.machine.acks.is_acked(DATA, 7)
    bench.znode = saved
    bench.ask()


def test_s15_acks_of_the_old_generation_that_arrive_with_the_reset_are_dropped_and_decided() -> (
    None
):
    """The reset was sent, its answer is lost. Acks of the old generation come in: they are dropped,
    and confirmed only with the reset, as what the source asked for.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    reset = a.reset(Position(DATA, -1))
    write = a.hold(fx.WriteFooter)
    a.unknown(write)
    dropped = a.ack(2)
    a.go(lambda: not a.todo)
    assert a.durable == 1
    a.go()
    assert a.durable == dropped > reset
    bench.new_generation()
    a.ack(7)
    a.go()
    state = bench.ask()
    assert not state.is_acked(DATA, 2) and state.mark_delete == Position(DATA, -1)


# ---- what the stories share


def _fields(footer: object) -> dict[str, object]:
    return {name: getattr(footer, name) for name in type(footer).__dataclass_fields__}  # type: ignore[attr-defined]


def _segments(owner: Owner) -> int:
    return sum(type(e.record.body).__name__ == "Segment" for e in owner.did(fx.Append))


def _hold_write(owner: Owner, wanted: object) -> fx.WriteFooter:
    for _ in range(20):
        write = owner.hold(fx.WriteFooter)
        if wanted(write):  # type: ignore[operator]
            return write
        owner.do(write)
    raise AssertionError("that footer is never written")


def _hold_switch(owner: Owner) -> fx.WriteFooter:
    """Go on until the footer write that switches to the new snapshot is wanted."""
    known = {
        e.footer.base for e in owner.did(fx.WriteFooter) if isinstance(e.footer.base, SnapshotBase)
    }
    return _hold_write(
        owner, lambda w: isinstance(w.footer.base, SnapshotBase) and w.footer.base not in known
    )
