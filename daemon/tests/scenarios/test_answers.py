"""Stories in which a source would be told what is not true any more: what an open is answered with,
and when.

A number in a name tells the stories apart; the rule that forbids each is in ARCHITECTURE.md. A and
B are two daemons' machines of one cursor; a source that opens where the cursor is held already is
answered only with proof that was asked for after its open came.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import closed, opened


def attaches(
    owner: Owner, attach: int, *, resume: ev.Resume | None = None, source: str = ""
) -> Owner:
    """A source opens the cursor that this machine holds, or is claiming."""
    owner.attach, owner.seq, owner.durable, owner.streamed = attach, 0, 0, 0
    owner.step(ev.Attach(attach, resume=resume, source=source))
    return owner


def breaks(owner: Owner) -> None:
    """The stream is gone; the machine stays."""
    owner.step(ev.Detach(owner.attach))


def confirms(owner: Owner, *entries: int) -> None:
    """Each in a message of its own."""
    for entry in entries:
        seq = owner.ack(entry)
        owner.go()
        assert owner.durable == seq


def moved(bench: Bench, *entries: int) -> Owner:
    """The cursor goes to B, where acks are confirmed; nobody has told A."""
    b = bench.opened("B")
    confirms(b, *entries)
    return b


def footer_and_version(bench: Bench) -> tuple[Footer, int]:
    assert bench.znode is not None
    return bench.footer, bench.znode[1]


def goes_on_elsewhere(bench: Bench, a: Owner) -> Owner:
    """What the keeper does for a handle that still wants a cursor that is not held any more: an
    ordinary open.
    """
    assert a.streamed == 0, "nothing of the answer has left"
    assert a.state is State.DEPOSED and a.ended is not None and a.ended.reopen == a.attach
    return bench.opened("A2")


def finds_the_move(bench: Bench, a: Owner) -> None:
    """A goes on, answers nothing by itself, and whoever opens anew has the ack that was confirmed
    at B.
    """
    a.go()
    assert goes_on_elsewhere(bench, a).machine.acks.is_acked(DATA, 1)


def test_s16_a_held_cursor_is_not_answered_from_memory() -> None:
    """S opens at A, the stream breaks; at B ack 1 is confirmed; S opens at A, whose watch is late:
    it must get ack 1.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    a.go()
    a2 = goes_on_elsewhere(bench, a)
    assert a2.streamed and a2.machine.acks.is_acked(DATA, 1) and a2.machine.acks.is_acked(DATA, 5)
    bench.ask()


def test_s16_a_held_cursor_is_not_answered_in_a_generation_that_is_over() -> None:
    """As before, with a reset at B: A must not offer the old generation, whose acks would skip
    messages.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 0, 1, 2)
    breaks(a)
    b = bench.opened("B")
    b.reset(Position(DATA, -1))
    b.go()
    assert b.resets
    bench.new_generation()
    attaches(a, 2)
    a.go()
    a2 = goes_on_elsewhere(bench, a)
    assert a2.machine.generation == 2 and not a2.machine.acks.is_acked(DATA, 1)
    bench.ask()


def test_s17_nothing_leaves_before_the_proof() -> None:
    """Neither the state nor a confirmation nor a word about the layout, as long as ZooKeeper has
    not answered.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 1)
    breaks(a)
    attaches(a, 2)
    check = a.hold(fx.CheckFooter)
    a.go(horizon_s=20.0)
    assert (a.streamed, a.refused_handle) == (0, None)
    assert "ZooKeeper" in a.machine.waiting_for, "whoever looks sees what it waits for"
    a.do(check)
    a.go()
    assert a.streamed == 1 and not a.machine.waiting_for


def test_s18_a_plain_read_is_no_proof() -> None:
    """A's server lags and shows A's own footer: that is no answer to the question."""
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    old = footer_and_version(bench)
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    check = a.hold(fx.CheckFooter)
    a.step(ev.FooterChanged())
    look = a.hold(fx.ReadFooter)
    a.step(ev.FooterRead(look.token, *old))
    assert a.streamed == 0
    a.do(check)
    finds_the_move(bench, a)


def test_s19_an_older_question_proves_nothing() -> None:
    """Open at A, the check is sent, the stream breaks; B claims and confirms 1; the second open at
    A must not be answered by the first one's check, whose late answer says that all is well.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    breaks(a)
    attaches(a, 2)
    first = a.hold(fx.CheckFooter)
    said = a.arrives(first)
    assert isinstance(said, ev.FooterChecked)
    breaks(a)
    moved(bench, 1)
    attaches(a, 3)
    a.step(said)
    assert a.streamed == 0
    finds_the_move(bench, a)


def test_s19_a_write_that_was_sent_before_proves_nothing() -> None:
    """A's footer write is applied, its answer under way; B claims and confirms 1; S opens at A, and
    the answer comes.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(5)
    naming = a.hold(fx.WriteFooter)
    said = a.arrives(naming)
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    assert said is not None
    a.step(said)
    assert a.streamed == 0
    finds_the_move(bench, a)


def test_s19_a_write_that_was_sent_afterwards_does() -> None:
    """The open comes before the ledger is named: that write, applied, is as good as a check."""
    bench = Bench()
    a = bench.opened("A")
    a.ack(5)
    created = a.hold(fx.CreateLedger)
    attaches(a, 2)
    check = a.hold(fx.CheckFooter)
    a.do(created)
    a.go(lambda: a.streamed > 0)
    assert a.streamed and a.machine.acks.is_acked(DATA, 5)
    a.step(ev.FooterCheckUnknown(check.token, "late"))
    assert bench.ask()


def test_s20_an_open_that_joins_a_claim_is_not_proved_by_it() -> None:
    """S opens at A: the claim is committed, fencing is slow, the stream breaks; at B ack 1 is
    confirmed; S opens at A, joins, and A reads its old chain: it must not be answered from it.
    """
    bench = Bench()
    x = bench.opened("X")
    confirms(x, 5)
    a = bench.owner("A").start()
    fencing = a.hold(fx.FenceLedger)
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    a.do(fencing)
    a.go()
    a2 = goes_on_elsewhere(bench, a)
    assert a2.machine.acks.is_acked(DATA, 1) and a2.machine.acks.is_acked(DATA, 5)
    bench.ask()


def test_s20_an_open_that_came_before_the_claim_was_sent_is_proved_by_it() -> None:
    """Two opens while the footer is being read: the claim answers the second, with no further
    question.
    """
    bench = Bench()
    bench.opened("X")
    a = bench.owner("A").start()
    read = a.hold(fx.ReadFooter)
    breaks(a)
    assert a.state is State.CLOSED, "nobody waits any more: whoever owns it keeps it"
    a = bench.owner("A").start()
    read = a.hold(fx.ReadFooter)
    attaches(a, 2)
    a.do(read)
    a.go()
    assert a.streamed == 1 and not a.did(fx.CheckFooter)


def test_s21_a_read_behind_a_sync_is_no_proof() -> None:
    """The leader that A talks to was deposed and does not know it: it answers sync and read with
    A's own footer, but no check. A asks again until the quorum has spoken.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    old = footer_and_version(bench)
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    check = a.hold(fx.CheckFooter)
    # a check that fails is followed by sync and read; that read is answered by the deposed leader
    a.step(ev.FooterCheckFailed(check.token))
    read = a.hold(fx.ReadFooter)
    assert read.sync
    a.step(ev.FooterRead(read.token, *old))
    assert a.streamed == 0
    again = a.hold(fx.CheckFooter)
    a.step(ev.FooterCheckUnknown(again.token, "connection lost"))
    assert a.streamed == 0
    finds_the_move(bench, a)


def test_s22_two_waiting_opens_do_not_take_the_cursor_from_one_another_for_ever() -> None:
    """An open waits at A, one at B. A's claim is taken over by B's before A answered: A says so,
    and does not claim again.
    """
    bench = Bench()
    confirms(bench.opened("X"), 5)
    a = bench.owner("A").start()
    fencing = a.hold(fx.FenceLedger)
    b = bench.opened("B")
    assert b.streamed
    version = footer_and_version(bench)[1]
    a.do(fencing)
    a.step(ev.FooterChanged())
    a.go()
    assert a.streamed == 1, "its own claim, sent after its open, proves: B's came later"
    a.step(ev.FooterChanged())
    a.go()
    assert a.state is State.DEPOSED and a.ended is not None and a.ended.reopen is None
    assert footer_and_version(bench)[1] == version


def test_s22_a_claimer_that_was_deposed_before_it_answered_says_so() -> None:
    """The ledger that A has to read is gone because B has replaced it: A is deposed, its source
    hears that, nothing is claimed again.
    """
    bench = Bench()
    confirms(bench.opened("X"), 5)
    a = bench.owner("A").start()
    reading = a.hold(fx.ReadChain)
    b = bench.opened("B")
    b.step(ev.Close())
    b.go()
    version = footer_and_version(bench)[1]
    a.do(reading)
    a.go()
    assert a.streamed == 0 and a.state is State.DEPOSED
    assert a.ended is not None and a.ended.reopen is None
    assert footer_and_version(bench)[1] == version


def test_s23_what_was_accepted_is_durable_before_it_is_shown() -> None:
    """A accepts 1; a second open; A's append is slow: the state must not show 1 before a crash
    could not take it back.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    a.ack(1)
    attaches(a, 2)
    append = a.hold(fx.Append)
    a.go(horizon_s=1.0)
    assert not a.machine.questions.waiting, "the proof is there"
    assert a.streamed == 0
    a.do(append)
    a.go(horizon_s=1.0)
    assert a.streamed == 1
    # A crashes: whatever the state showed is found
    assert bench.opened("B").machine.acks.is_acked(DATA, 1)


def test_s36_a_stale_live_handle_hears_durable_of_a_generation_that_is_over() -> None:
    """S1's handle at A is live; S2 opens at B and resets. S1 repeats its ack at A, which has not
    noticed: Durable means kept, or decided because its generation is over. Only an open tells more.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 1)
    b = bench.opened("B")
    b.reset(Position(DATA, -1))
    b.go()
    seq = a.ack(1)
    a.go()
    assert a.durable == seq, (
        "state was durable while its generation lasted, and a deposed owner cannot know that it "
        "is over"
    )
    bench.new_generation()
    a.ack(2)
    a.go()
    assert a.durable == seq and a.state is State.DEPOSED, (
        "what is new needs an append, which is fenced or never named"
    )
    attaches(a, 2)
    assert a.streamed == 0


# ---- the check


def test_a_check_that_fails_because_of_an_own_write_is_asked_again() -> None:
    """Both were on their way; the write was applied first."""
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    breaks(a)
    attaches(a, 2)
    check = a.hold(fx.CheckFooter)
    a.reset(Position(DATA, -1))  # dropped: the handle is not live yet
    a.step(ev.FooterCheckFailed(check.token))
    a.go()
    assert a.streamed == 1 and len(a.did(fx.CheckFooter)) == 2 and a.state is State.READY


def test_zookeeper_away_is_waited_for_visibly_and_then_said() -> None:
    """The open is refused as UNAVAILABLE long before a broker gives up; the cursor stays, and so
    does what it holds.
    """
    bench = Bench(Limits(answer_wait_max_ms=20_000))
    a = bench.opened("A")
    confirms(a, 5)
    breaks(a)
    attaches(a, 2)
    start = bench.now
    while a.refused_handle is None:
        check = (
            a.hold(fx.CheckFooter) if any(isinstance(e, fx.CheckFooter) for e in a.todo) else None
        )
        if check is not None:
            a.step(ev.FooterCheckUnknown(check.token, "no connection"))
            assert "no connection" in a.machine.waiting_for
        a.go_a_little()
    assert bench.now - start == 20.0
    assert (
        a.refused_handle.code is Refusal.UNAVAILABLE and "no connection" in a.refused_handle.message
    )
    assert a.state is State.READY and a.streamed == 0
    asked = len(a.did(fx.CheckFooter))
    assert 10 < asked < 40, "with a back-off"
    attaches(a, 3)
    a.go()
    assert a.streamed == 1


def test_an_open_that_cannot_be_claimed_in_time_is_refused_and_claims_nothing_later() -> None:
    """ZooKeeper is away while the footer is read: the source is told, and the claim is not made for
    nobody afterwards.
    """
    bench = Bench(Limits(answer_wait_max_ms=20_000))
    bench.opened("X")
    version = footer_and_version(bench)[1]
    a = bench.owner("A").start()
    while a.refused_handle is None:
        read = a.hold(fx.ReadFooter)
        a.step(ev.FooterReadFailed(read.token, "no connection"))
        a.go_a_little()
    a.go()
    assert a.refused_handle.code is Refusal.UNAVAILABLE
    assert a.state is State.CLOSED and footer_and_version(bench)[1] == version


@pytest.mark.parametrize("closes", [False, True])
def test_a_claim_that_was_lost_is_not_repeated_for_nobody(closes: bool) -> None:
    """The source did not wait for it, not for the answer to its Close either, and has the cursor
    elsewhere by now.
    """
    bench = Bench()
    bench.opened("X")
    a = bench.owner("A").start()
    claim = a.hold(fx.WriteFooter)
    if closes:
        a.step(ev.Close(1))
    a.step(ev.Detach(1))
    bench.opened("B")
    a.do(claim)
    a.go()
    assert bench.footer.writer == "B" and a.state is State.CLOSED and a.machine.is_ended


def test_a_close_of_a_handle_that_is_gone_is_no_reason_to_claim() -> None:
    """Its stream breaks behind the Close, before the claim is sent."""
    bench = Bench()
    bench.opened("X")
    a = bench.owner("A").start()
    a.hold(fx.ReadFooter)
    a.step(ev.Close(1))
    assert a.state is not State.CLOSED, "it will be answered"
    a.step(ev.Detach(1))
    assert a.state is State.CLOSED and a.machine.is_ended


def test_nobody_is_refused_because_of_old_bytes() -> None:
    """A server that lags shows a damaged footer that was put right meanwhile."""
    bench = Bench()
    bench.opened("X")
    a = bench.owner("A").start()
    a.step(ev.FooterUnreadable(a.hold(fx.ReadFooter).token, "checksum", False))
    a.go()
    assert a.streamed == 1 and a.did(fx.ReadFooter)[1].sync
    b = bench.owner("B").start()
    for _ in range(2):
        b.step(ev.FooterUnreadable(b.hold(fx.ReadFooter).token, "checksum", False))
    assert b.refused is not None and b.refused.code is Refusal.DAMAGED


def test_without_takeover_the_cursor_stays_with_its_new_owner() -> None:
    """The open goes on as for a cursor that is not held: what it asked for decides."""
    bench = Bench()
    a = bench.opened("A")
    breaks(a)
    moved(bench, 1)
    attaches(a, 2)
    a.go()
    assert a.ended is not None and a.ended.reopen == 2
    again = bench.owner("A2").open(takeover=False)
    assert again.refused is not None and again.refused.code is Refusal.OPEN_ELSEWHERE


def test_nobody_is_sent_away_because_of_an_old_read() -> None:
    """The read shows that B holds the cursor; it was closed since. A check decides, not the
    read.
    """
    bench = Bench()
    b = bench.opened("B")
    confirms(b, 1)
    held = footer_and_version(bench)
    b.step(ev.Close())
    b.go()
    assert bench.footer.state is FooterState.CLOSED
    a = bench.owner("A").start(takeover=False)
    read = a.hold(fx.ReadFooter)
    a.step(ev.FooterRead(read.token, *held))
    a.go()
    assert a.refused is None and a.streamed == 1


def test_a_cursor_that_is_not_there_is_not_there_by_a_check() -> None:
    """An old read shows nothing where there is a cursor by now; and where there is none, a check
    says so.
    """
    bench = Bench()
    a = bench.owner("A").start(create=False)
    read = a.hold(fx.ReadFooter)
    bench.opened("B")
    a.step(ev.FooterRead(read.token, None, -1))
    a.go()
    assert a.refused is None and a.streamed == 1
    empty = Bench()
    nobody = empty.owner("A").open(create=False)
    assert nobody.refused is not None and nobody.refused.code is Refusal.NOT_FOUND
    assert [c.version for c in nobody.did(fx.CheckFooter)] == [-1]


def test_who_asks_what_is_held_gets_the_same_proof() -> None:
    """Questions share a check that is sent after them, and none that was sent before."""
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 5)
    a.step(ev.Prove(70))
    first = a.hold(fx.CheckFooter)
    a.step(ev.Prove(71))
    a.step(ev.Prove(72))
    a.do(first)
    assert a.proved == [70]
    a.go()
    assert a.proved == [70, 71, 72] and len(a.did(fx.CheckFooter)) == 2
    moved(bench, 1)
    a.step(ev.Prove(73))
    a.go()
    assert a.state is State.DEPOSED and a.proved == [70, 71, 72]


# ---- resuming


def test_a_broken_stream_is_resumed_while_zookeeper_is_away() -> None:
    """The source names the epoch and generation that it got: acks go on at once, without a
    state.
    """
    bench = Bench()
    a = bench.owner("A")
    a.step(ev.Open(takeover=True))
    a.step(ev.Attach(1, source="s/1"))
    a.go()
    confirms(a, 1)
    breaks(a)
    attaches(a, 2, resume=ev.Resume(a.machine.epoch, 1), source="s/1")
    assert a.continued == 1 and a.streamed == 0 and not a.todo
    confirms(a, 2)
    assert not a.did(fx.CheckFooter)
    bench.ask()


def test_who_resumes_again_and_again_leaves_no_more_than_two_handles_may() -> None:
    """BookKeeper answers nobody: each handle has credit of its own, and what its predecessors sent
    is still there.
    """
    bench = Bench()
    a = bench.owner("A")
    a.step(ev.Open(takeover=True))
    a.step(ev.Attach(1, source="s/1"))
    a.go()
    mine = ev.Resume(a.machine.epoch, 1)
    for attach, entry in ((2, 10), (3, 20)):
        a.ack(entry)
        a.ack(entry + 1)
        breaks(a)
        attaches(a, attach, resume=mine, source="s/1")
        assert a.continued == 1, "the second is resumed, the third is not"
    assert a.machine.handles.waiting == 3 and a.machine.progress.unconfirmed_bytes
    a.go()
    assert a.streamed == 1 and a.machine.progress.is_clear, (
        "it is shown the state when all of it is durable"
    )
    breaks(a)
    attaches(a, 4, resume=mine, source="s/1")
    assert a.continued == 2
    confirms(a, 30)


def test_nothing_is_resumed_that_is_being_opened() -> None:
    """A source that names the epoch before all others gets a state like everybody else."""
    bench = Bench()
    a = bench.owner("A")
    a.step(ev.Open(takeover=True))
    a.step(ev.Attach(1, resume=ev.Resume(0, 1)))
    assert a.continued == 0
    a.go()
    assert (a.continued, a.streamed) == (0, 1)


def test_who_resumes_tells_the_layout_of_now() -> None:
    """The topic has gone on while the stream was broken: mark-delete crosses into the ledger that
    the source names.
    """
    bench = Bench()
    a = bench.owner("A").open(layout=(closed(DATA, 2), opened(DATA + 1)))
    confirms(a, 0, 1)
    breaks(a)
    a.attach = 2
    a.step(
        ev.Attach(
            2,
            (closed(DATA, 2), closed(DATA + 1, 1), opened(DATA + 2)),
            ev.Resume(a.machine.epoch, 1),
        )
    )
    a.seq = a.durable = 0
    seq = a.ack(0, ledger=DATA + 1)
    a.go()
    assert (a.continued, a.durable) == (1, seq) and a.machine.acks.mark_delete == Position(
        DATA + 1, 0
    )
    assert bench.opened("B").machine.acks.layout.last == DATA + 2


def test_a_stale_daemon_that_is_resumed_shows_and_confirms_nothing_new() -> None:
    """The cursor went to B meanwhile: A lets the source go on, but its first append is fenced."""
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 1)
    breaks(a)
    moved(bench, 3)
    attaches(a, 2, resume=ev.Resume(a.machine.epoch, 1))
    assert a.continued == 1
    a.ack(2)
    a.go()
    assert (a.durable, a.streamed) == (0, 0) and a.state is State.DEPOSED
    bench.ask()


def test_nothing_but_the_newest_opening_is_resumed() -> None:
    """Another epoch, another generation, another source since, a reset under way, or a handle that
    waits: an ordinary open.
    """
    bench = Bench()
    a = bench.opened("A")
    confirms(a, 1)
    epoch = a.machine.epoch

    def is_ordinary(resume: ev.Resume, source: str = "") -> bool:
        breaks(a)
        before = a.continued
        attaches(a, a.attach + 1, resume=resume, source=source)
        a.go()
        return a.continued == before and a.streamed == 1

    assert is_ordinary(ev.Resume(epoch + 1, 1))
    assert is_ordinary(ev.Resume(epoch, 2))
    assert is_ordinary(ev.Resume(epoch, 1), source="another/1")
    assert is_ordinary(ev.Resume(epoch, 1), source="") and not is_ordinary(
        ev.Resume(epoch, 1), source=""
    )
    a.reset(Position(DATA, -1))
    written = a.hold(fx.WriteFooter)
    breaks(a)
    attaches(a, 50, resume=ev.Resume(epoch, 1))
    assert a.continued == 1
    a.do(written)
    a.go()
    assert a.streamed == 1 and a.machine.generation == 2
    a.ack(9)
    appending = a.hold(fx.CreateLedger)
    attaches(a, 60)
    attaches(a, 61, resume=ev.Resume(epoch, 2))
    assert a.continued == 1, "a handle waits"
    a.do(appending)
    a.go()
    assert a.streamed == 1


def test_a_cursor_is_created_for_the_first_handle_that_is_told_its_state() -> None:
    """S opens at A, which creates the cursor; its stream breaks before it is answered; S opens
    again at A: it was created for that one, and for none that comes after it.
    """
    bench = Bench()
    a = bench.owner("A").start()
    a.applied_but_unknown(a.hold(fx.WriteFooter))
    breaks(a)
    attaches(a, 2)
    a.go()
    assert (a.streamed, a.created) == (1, 1)
    attaches(a, 3)
    a.go()
    assert a.created == 1 and bench.opened("B").created == 0


def test_a_cursor_is_created_again_over_its_tombstone() -> None:
    bench = Bench()
    a = bench.opened("A")
    a.step(ev.Delete(a.attach))
    a.go()
    assert bench.footer.state is FooterState.DELETED
    b = bench.opened("B")
    assert b.created == 1 and b.machine.epoch > a.machine.epoch


def test_who_finds_a_cursor_that_another_daemon_created_meanwhile_has_not_created_it() -> None:
    """A and B have both read that there is no cursor; A creates it; B's claim is lost, and claims
    what is there.
    """
    bench = Bench()
    b = bench.owner("B").start()
    create = b.hold(fx.WriteFooter)
    a = bench.opened("A")
    b.do(create)
    b.go()
    assert (a.created, b.streamed, b.created) == (1, 1, 0)
