"""Ledgers of the writer: created lazily, named by the footer, left by close or recovery (ARCHITECTURE rules 7 and 10 to 13).

A ledger is named once its first entry (the open record) is acknowledged; deltas may be sent meanwhile and are
confirmed only when it is named. Where every flush writes the whole state there is no open record: a ledger is named, alone,
once its first whole state is acknowledged. Leaving: a planned roll drains and closes; a failed one waits for the outstanding
footer write, reads the footer, recovery-opens the ledger, and puts everything unconfirmed back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import flushing, snapshotting, whole_states
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import FORMAT_PULSAR, ChainLedger, EmptyBase, SnapshotBase
from cursorkeeper.core.joining import join
from cursorkeeper.core.table import State
from cursorkeeper.core.values import OpenRecord
from cursorkeeper.core.writer import OpenLedger, WriterPhase

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


def live_state(m: CursorMachine) -> State:
    """READY, or ROLLING while a ledger is being left or replaced."""
    return State.READY if m.writer.is_settled else State.ROLLING


def drive(m: CursorMachine, now: float) -> None:
    """Starts whatever is possible now."""
    w = m.writer
    if w.retry_at_s is not None and now >= w.retry_at_s:
        w.retry_at_s = None
        if w.phase is WriterPhase.ENDING:
            _recover(m)
    match w.phase:
        case WriterPhase.IDLE:
            if w.retry_at_s is None and _needs_ledger(m):
                _create(m)
        case WriterPhase.OPEN:
            assert w.current is not None
            unnamed = w.current.first_acked and not w.current.named and not snapshotting.is_named_by_switch(m)
            if unnamed and m.commit.outstanding is None and not m.resets:
                _name(m, w.current)
            if _is_full(m, w.current, now):
                leave_planned(m)
        case WriterPhase.FAILED:
            if m.commit.outstanding is None and w.retry_at_s is None:
                _check(m)
        case _:
            pass
    if w.phase is WriterPhase.DRAINING:
        _drained(m)


def _needs_ledger(m: CursorMachine) -> bool:
    if m.resets or m.deleting:
        return False
    if m.commit.outstanding is not None and m.commit.outstanding.purpose in (Purpose.INLINE, Purpose.CLOSE):
        return False  # it covers everything that is pending
    if m.snapshot is not None and m.snapshot.wants_ledger:
        return True
    if m.closing and not m.inline_refused:
        return False  # `finishing` tries the footer first
    if snapshotting.is_waited_for(m):
        # the snapshot that shortens the chain goes first; its own ledger is exempt
        m.waiting_for = snapshotting.why_waited_for(m)
        return False
    return (
        whole_states.is_rewrite_due(m)
        or bool(m.writer.outbox)
        or ((bool(m.queue) or bool(m.carried)) and (m.progress.has_unbound or m.closing))
    )


def _create(m: CursorMachine) -> None:
    w = m.writer
    w.phase, w.token, w.asked_at_s = WriterPhase.CREATING, m.token(), m.now
    if m.state_writer is None:
        m.emit(fx.CreateLedger(w.token, m.epoch, m.generation))
    else:
        m.emit(fx.CreateLedger(w.token, m.epoch, m.generation, m.state_writer.format, m.state_writer.ledger_metadata))


def on_created(m: CursorMachine, event: ev.LedgerCreated, now: float) -> None:
    """Entry 0 says whose it is (where Pulsar's reader would not stumble over it); then the window is open."""
    w = m.writer
    if w.phase is not WriterPhase.CREATING or event.token != w.token:
        m.emit(fx.DeleteLedgers((event.ledger,)))  # ours, never sent in any footer write
        return
    w.phase, w.trouble, w.failed_at_s = WriterPhase.OPEN, "", None
    w.current = OpenLedger(event.ledger, now)
    m.waiting_for = ""
    if m.state_writer is None:
        flushing.append(m, OpenRecord(m.name.canonical, m.epoch, m.generation, m.writer_id))


def on_create_failed(m: CursorMachine, event: ev.LedgerCreateFailed, now: float) -> None:
    """Too few bookies, or the gateway is away: again later."""
    w = m.writer
    if w.phase is not WriterPhase.CREATING or event.token != w.token:
        return
    w.phase = WriterPhase.IDLE
    w.trouble = m.waiting_for = f"BookKeeper: creating a ledger: {event.reason}"
    _back_off(m, now)


def _back_off(m: CursorMachine, now: float) -> None:
    w = m.writer
    w.failed_at_s = now if w.failed_at_s is None else w.failed_at_s
    w.retry_at_s = now + min(m.limits.retry_max_ms, m.limits.retry_min_ms * 2 ** min(w.tries, 16)) / 1000
    w.tries += 1


def _name(m: CursorMachine, ledger: OpenLedger) -> None:
    if m.state_writer is not None:
        # its first state was taken from all that is known: nothing of what was named before it is needed any more
        alone = (ChainLedger(ledger.ledger, format=FORMAT_PULSAR),)
        m.propose(m.footer(base=EmptyBase(m.acks.mark_delete), chain=alone, previous=None), Purpose.NAME_LEDGER)
        return
    dropped = {c.ledger for c in m.chain if is_hollow(m, c)}
    chain = (*(c for c in m.chain if c.ledger not in dropped), ChainLedger(ledger.ledger))
    m.propose(m.footer(chain=chain), Purpose.NAME_LEDGER)


def is_hollow(m: CursorMachine, item: ChainLedger) -> bool:
    """Only the open record, or nothing: it need not be read again. A ledger of whole states was named for what is in it."""
    return (
        item.format != FORMAT_PULSAR
        and item.last_entry is not None
        and item.last_entry <= 0
        and not (isinstance(m.base, SnapshotBase) and m.base.ledger == item.ledger)
    )


def named(m: CursorMachine, done: Committed, now: float) -> None:
    """The footer leads to the ledger: what it acknowledged is durable."""
    m.base, m.chain, m.previous = done.after.base, done.after.chain, done.after.previous
    assert m.writer.current is not None, "no ledger is left while a write that names it is undecided"
    m.writer.current.named = True
    flushing.confirm(m)
    m.counters.rolls += 1
    m.delete_dropped(done)


def _is_full(m: CursorMachine, ledger: OpenLedger, now: float) -> bool:
    if not ledger.named or m.snapshot is not None or m.closing or m.deleting or m.resets:
        return False
    if not whole_states.is_between_states(m):
        return False
    only_opened = 1 if m.state_writer is None else 0
    aged = now - ledger.opened_at_s >= m.limits.ledger_age_max_s and ledger.next_entry > only_opened
    return ledger.stored_bytes >= m.limits.ledger_bytes_max or aged


def leave_planned(m: CursorMachine) -> None:
    """No more appends; closed when what is in flight was answered."""
    if m.writer.phase is WriterPhase.OPEN:
        m.writer.phase = WriterPhase.DRAINING


def _drained(m: CursorMachine) -> None:
    w = m.writer
    assert w.current is not None
    if w.current.in_flight or m.commit.outstanding is not None:
        return
    if not w.current.named and w.current.first_acked and w.unconfirmed:
        _name(m, w.current)
        return
    w.phase, w.token, w.asked_at_s = WriterPhase.ENDING, m.token(), m.now
    m.emit(fx.CloseLedger(w.token, w.current.ledger))


def fail(m: CursorMachine, reason: str) -> None:
    """The ledger is not to be used any more. A snapshot in it is aborted."""
    w = m.writer
    if w.phase not in (WriterPhase.OPEN, WriterPhase.DRAINING):
        return
    assert w.current is not None
    w.phase, w.trouble, w.retry_at_s = WriterPhase.FAILED, f"BookKeeper: ledger {w.current.ledger}: {reason}", None
    w.failed_at_s = m.now if w.failed_at_s is None else w.failed_at_s
    m.emit(fx.Report("ledger failed", {"ledger": w.current.ledger, "reason": reason}))
    m.snapshots_failed += m.snapshot is not None
    snapshotting.abort(m)


def check_failed(m: CursorMachine, reason: str, now: float) -> None:
    """The footer could not be read: again later."""
    m.writer.phase = WriterPhase.FAILED
    m.waiting_for = f"ZooKeeper: {reason}"
    _back_off(m, now)


def _check(m: CursorMachine) -> None:
    m.writer.phase, m.writer.token, m.writer.asked_at_s = WriterPhase.CHECKING, m.token(), m.now
    m.emit(fx.ReadFooter(m.writer.token, sync=m.writer.missing))


def recover_own(m: CursorMachine) -> None:
    """The footer is still ours: recovery decides what the ledger holds; one that is gone all the same is nothing to go on from."""
    assert m.writer.current is not None
    if m.writer.missing:
        m.writer.token = m.token()
        m.emit(fx.CheckFooter(m.writer.token, m.commit.version))
        return
    _recover(m)


def lost_under_its_owner(m: CursorMachine) -> None:
    """A ledger is gone, and the committed footer names it: no new owner has replaced it."""
    assert m.writer.current is not None
    m.refuse(
        Refusal.DAMAGED,
        f"ledger {m.writer.current.ledger} was deleted under its owner",
        "find out who deleted it; open the cursor again afterwards",
    )


def _recover(m: CursorMachine) -> None:
    w = m.writer
    assert w.current is not None
    w.phase, w.retry_at_s, w.token, w.asked_at_s = WriterPhase.ENDING, None, m.token(), m.now
    m.emit(fx.FenceLedger(w.token, w.current.ledger))


def on_ledger_ended(m: CursorMachine, event: ev.LedgerEnded, now: float) -> None:
    """The end of the ledger that was left is known; everything not durable waits for the next one."""
    w = m.writer
    if w.phase is not WriterPhase.ENDING or event.token != w.token or w.current is None:
        m.counters.late_events += 1
        return
    left = w.current
    if left.named:
        m.end_ledger(left.ledger, event.last_entry)
    else:
        m.emit(fx.DeleteLedgers((left.ledger,)))
    abandon(m)
    if event.last_entry < left.acked_entry:
        _entries_lost(m, left, event.last_entry, now)


def _entries_lost(m: CursorMachine, left: OpenLedger, last_entry: int, now: float) -> None:
    """BookKeeper has broken its promise. Of what it acknowledged, that may be confirmed which a committed footer led to: it is
    here still, so the whole state is written at once. What was not confirmed was put back."""
    m.counters.lost_entries += left.acked_entry - last_entry
    fields: dict[str, str | int] = {"ledger": left.ledger, "expected_last_entry": left.acked_entry, "answered_last_entry": last_entry}
    m.emit(fx.Report("acknowledged entries lost", {**fields, "confirmed": "perhaps" if left.named else "no"}))
    if not left.named or m.deleting:
        return
    base = m.base
    if isinstance(base, SnapshotBase) and base.ledger == left.ledger and base.last_entry > last_entry and m.previous is not None:
        # the end of the newest snapshot is among them: until there is another one, the footer leads to the one before
        known = {c.ledger for c in m.previous.chain}
        m.base, m.chain = m.previous.base, m.previous.chain + tuple(c for c in m.chain if c.ledger not in known)
        m.previous = None
    m.behind = True
    if m.state_writer is None:
        snapshotting.start(m, snapshotting.LOST, now)


def abandon(m: CursorMachine) -> None:
    """Without a ledger again. What is not durable is carried."""
    left = m.writer.current
    whole_states.left_behind(m)
    m.carried = join([m.carried, *m.writer.put_back()])
    m.progress.put_back()
    m.writer.forget()
    if left is not None and left.acked_record is None:
        _back_off(m, m.now)  # it took nothing: the next one may fare no better


def on_ledger_end_failed(m: CursorMachine, event: ev.LedgerEndFailed, now: float) -> None:
    """Recovery is retried for ever. A named ledger that is gone: a new owner may have replaced it, so the footer is asked
    after a sync."""
    w = m.writer
    if w.phase is not WriterPhase.ENDING or event.token != w.token or w.current is None:
        return
    if event.missing and w.current.named:
        w.missing = True
        _check(m)
        return
    if event.missing:
        abandon(m)
        return
    m.waiting_for = w.trouble = f"BookKeeper: recovering ledger {event.ledger}: {event.reason}"
    _back_off(m, now)


def on_roll(m: CursorMachine, event: ev.Roll, now: float) -> None:
    """Leave the ledger when it suits; the next flush makes the new one."""
    if m.snapshot is None and m.writer.current is not None and m.writer.current.named:
        leave_planned(m)


HANDLERS: dict[type, Any] = {ev.Roll: on_roll, ev.LedgerCreated: on_created, ev.LedgerCreateFailed: on_create_failed}
