"""Footer writes that hold the whole answer: reset, inline backstop, inline or sealed close, tombstone
(ARCHITECTURE rules 5, 19, 20 and 42). Once sent they are decided, never withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cursorkeeper.core import answers, evidence, fencing, flushing, intake, opening, rolling, snapshotting, whole_states
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.footer import Base, EmptyBase, FooterState, InlineBase, PulsarBase
from cursorkeeper.core.joining import NOTHING
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.snapshot_plan import inline_bytes_max, whole_state, whole_state_bytes_estimate
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import LIVE, OPENING, State
from cursorkeeper.core.values import Delta, LayoutItem, Segment
from cursorkeeper.core.writer import WriterPhase

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


def on_close(m: CursorMachine, event: ev.Close, now: float) -> None:
    """No more intake; everything accepted becomes durable, then the closed footer is committed."""
    if not _is_theirs(m, event.attach):
        m.counters.late_events += 1
        return
    if m.state is State.CLOSING:
        if event.attach is not None and event.attach == m.reopen:
            m.reopen = None  # it waited for the cursor to be read again, and does not want it any more
        return
    if m.state in OPENING:
        if m.wanted_after_opening is None:
            m.wanted_after_opening = event
        if event.attach is None:
            opening.give_up(m)
        return
    m.leaving = m.attach if m.attach is not None else m.attach_waiting
    m.attach = m.attach_waiting = None
    m.closing = True
    m.move(State.CLOSING)
    m.emit_all(m.progress.confirmations())


def _is_theirs(m: CursorMachine, attach: int | None) -> bool:
    """Whether the cursor is this handle's to end: it holds it, waits for its state, or held it when the close began."""
    return attach is None or attach in (m.attach, m.attach_waiting, m.reopen, m.leaving)


def on_delete(m: CursorMachine, event: ev.Delete, now: float) -> None:
    """Everything that is still undecided is decided by the tombstone."""
    if not _is_theirs(m, event.attach):
        m.counters.late_events += 1
        return
    m.delete_token = max(event.fencing_token, fencing.asked(m))
    asker = event.asker if event.attach is None else event.attach
    if asker is not None:
        answers.ask(m, asker, answers.Wish.DELETION, waited_s=event.waited_s)
    if m.state in OPENING:
        m.wanted_after_opening = event
        return
    m.attach = m.attach_waiting = m.reopen = None
    m.deleting = True
    outstanding = m.commit.outstanding
    while len(m.resets) > (outstanding is not None and outstanding.purpose is Purpose.RESET):
        m.resets.pop()  # what was sent is decided first, the others are decided by the tombstone
    m.move(State.DELETING)


def drive(m: CursorMachine, now: float) -> None:
    """Sends the footer write whose turn it is."""
    if reopen_at_s(m) is not None:
        _close_to_reopen(m)
    if m.commit.outstanding is not None:
        return
    if m.deleting:
        gone = {"base": EmptyBase(m.acks.mark_delete), "chain": (), "previous": None, "cursor_properties": None, "truncated": None}
        token = max(fencing.committed(m), m.delete_token)
        tombstone = m.footer(state=FooterState.DELETED, generation=m.generation + 1, fencing_token=token, **gone)
        m.propose(tombstone, Purpose.DELETE)
    elif m.resets:
        _propose_reset(m, m.resets[0])
    elif m.attach_waiting is not None and fencing.drive(m):
        pass
    elif m.closing:
        _drive_close(m)
    elif m.paused_for:
        at = backstop_at_s(m)
        if at is not None and now >= at:
            if m.inline_turn:
                _propose_backstop(m, now)
            elif m.inline_token is None:
                m.inline_token = m.token()
                m.emit(fx.AskInlineTurn(m.inline_token))


def on_inline_turn(m: CursorMachine, event: ev.InlineTurn, now: float) -> None:
    """Used in this step, or let go: what it was asked for may be over."""
    if event.token == m.inline_token:
        m.inline_token, m.inline_turn = None, True


# ---- reset


def _propose_reset(m: CursorMachine, reset: ev.Reset) -> None:
    snapshotting.abort(m)
    if m.state_writer is not None:
        # the target is all there is to say; properties have their own place in such a footer, the layout has none
        start = {"base": EmptyBase(reset.target), "chain": (), "previous": None, "truncated": None}
        m.propose(m.footer(generation=m.generation + 1, mark_delete=reset.target, **start), Purpose.RESET)
        return
    state = Segment(mark_delete=reset.target, cursor_properties=m.acks.cursor_properties, layout=_layout_from(m, reset))
    if inline_bytes_max(state) > m.limits.inline_state_max_bytes:
        state = replace(state, layout=())  # it is written with the first delta of the generation instead
    generation = m.generation + 1
    m.sequence += 1
    base = InlineBase(state, m.epoch, generation, m.sequence)
    m.propose(m.footer(generation=generation, mark_delete=reset.target, base=base, chain=(), previous=None), Purpose.RESET)


def _layout_from(m: CursorMachine, reset: ev.Reset) -> tuple[LayoutItem, ...]:
    """What is known from the target on. A target that is not in the layout leaves nothing: crossing from it into what is
    known would need the ledgers between, so the source sends Layout again."""
    return m.acks.layout.items_from(reset.target.ledger) if reset.target.ledger in m.acks.layout else ()


def _reset_done(m: CursorMachine, done: Committed) -> None:
    reset = m.resets.popleft()
    own = (m.writer.current.ledger,) if m.writer.current else ()
    layout = _layout_from(m, reset)
    properties = m.acks.cursor_properties
    state = AckState(reset.target, Layout(layout))
    state.cursor_properties = properties
    m.acks = state
    m.generation = done.after.generation
    m.base, m.chain, m.previous = done.after.base, (), None
    m.queue.clear()
    m.queued.clear()
    m.pending_acks = m.pending_bytes = 0
    m.writer.put_back()
    m.writer.forget()
    written = done.after.base.state if isinstance(done.after.base, InlineBase) else Segment()
    m.carried = NOTHING
    m.carry(Delta(layout=() if written.layout == layout else layout))
    m.forget_limits()
    m.cost.delta_bytes = m.cost.records = m.cost.acks = m.cost.snapshot_bytes = 0
    m.delete_dropped(done, own)
    m.progress.put_back()
    # a message that waits for the new generation is not decided by the reset, nor is what came after it
    waiting = {(e.attach, e.seq) for e in (*m.resets, *m.deferred)}
    m.confirmed(m.progress.decide_until(waiting) if waiting else m.progress.decide_all())
    m.emit(fx.ResetDone(reset.attach, m.generation, reset.target))
    if not m.resets:
        intake.apply_deferred(m)


# ---- the whole state in the footer


@dataclass(slots=True)
class Covered:
    """What an inline footer write that is under way makes durable, and the ledger that was left for it."""

    record: int = 0
    ledger: int | None = None


def _inline_base(m: CursorMachine) -> InlineBase | PulsarBase | None:
    flushing.absorb(m)
    if m.state_writer is not None:
        return None if m.inline_refused else whole_states.inline_base(m)
    if m.inline_refused or whole_state_bytes_estimate(m.acks) > m.limits.inline_state_max_bytes:
        return None
    state = whole_state(m.acks)
    if inline_bytes_max(state) > m.limits.inline_state_max_bytes:
        return None
    m.sequence += 1
    return InlineBase(state, m.epoch, m.generation, m.sequence)


def _propose_inline(m: CursorMachine, base: Base, kind: FooterState, purpose: Purpose) -> None:
    """Everything accepted until now is in it. The ledger is left as it is: the committed footer will not name it, and
    should this write never be applied, the next owner recovers it."""
    snapshotting.abort(m)
    current = m.writer.current
    m.writer.put_back()
    m.carried, m.unfit = NOTHING, None
    m.covered = Covered(m.progress.take().stop - 1, current.ledger if current else None)
    m.writer.forget()
    m.propose(m.footer(state=kind, base=base, chain=(), previous=None, truncated=None), purpose)


def backstop_at_s(m: CursorMachine) -> float | None:
    """When the inline backstop may be written: acks have waited long enough, what they wait for is away, and it is not ZooKeeper."""
    if m.commit.outstanding is not None or m.inline_refused or whole_states.is_stuck(m):
        return None
    if m.unfit is not None and m.writer.is_usable:
        return None  # BookKeeper is there: the next flush tells whether the state fits now
    away = evidence.away_at_s(m)
    if away is None:
        return None
    after = m.inline_at_s + m.limits.inline_backstop_interval_ms / 1000 if m.inline_at_s is not None else 0.0
    return max(after, away)


def _propose_backstop(m: CursorMachine, now: float) -> None:
    m.inline_at_s = now
    base = _inline_base(m)
    if base is not None:
        m.counters.inline_backstops += 1
        _propose_inline(m, base, FooterState.OPEN, Purpose.INLINE)


def _inlined(m: CursorMachine, done: Committed) -> None:
    """Everything accepted before the write was sent is durable by it."""
    m.base, m.chain, m.previous = done.after.base, (), None
    covered, m.covered = m.covered, Covered()
    m.cost.delta_bytes = m.cost.records = m.cost.acks = m.cost.snapshot_bytes = 0
    m.forget_limits()
    m.confirmed(m.progress.made_durable(covered.record))
    m.delete_dropped(done, (covered.ledger,) if covered.ledger is not None else ())


# ---- close and delete


def _drive_close(m: CursorMachine) -> None:
    base = _inline_base(m)
    if base is not None:
        _propose_inline(m, base, FooterState.CLOSED, Purpose.CLOSE)
        return
    m.inline_refused = True  # from here on through BookKeeper
    if m.behind and not whole_states.is_stuck(m):
        if m.state_writer is None:
            snapshotting.start(m, snapshotting.LOST, m.now)
        return  # what is stored is less than what was confirmed
    if snapshotting.is_needed_to_close(m):
        return
    snapshotting.abort(m)
    if not flushing.is_all_written(m):
        return
    if m.writer.phase is WriterPhase.OPEN:
        rolling.leave_planned(m)
    if m.writer.phase is not WriterPhase.IDLE:
        return
    chain = tuple(c for c in m.chain if not rolling.is_hollow(m, c))
    m.propose(m.footer(state=FooterState.CLOSED, chain=chain), Purpose.CLOSE)


def close_at_s(m: CursorMachine) -> float | None:
    """Now, if the last flush of a close found nothing to write, or nothing that may be: no answer is on its way that would go on."""
    if m.state is not State.CLOSING or not m.inline_refused or m.resets or m.deleting or m.commit.outstanding is not None:
        return None
    return 0.0 if flushing.is_all_written(m) and m.writer.phase in (WriterPhase.OPEN, WriterPhase.IDLE) else None


def reopen_at_s(m: CursorMachine) -> float | None:
    """Now, if a handle waits for the state, which is what is durable, and what was accepted beyond that cannot become so."""
    waits = m.attach_waiting is not None and m.state in LIVE and not m.resets and not m.deleting
    return 0.0 if waits and fencing.wanted(m) is None and whole_states.is_stuck(m) else None


def _close_to_reopen(m: CursorMachine) -> None:
    """The state is read again, as a new owner would."""
    m.reopen, m.attach, m.attach_waiting = m.attach_waiting, None, None
    m.closing = True
    m.move(State.CLOSING)


def _closed(m: CursorMachine) -> None:
    """Everything is durable; but what may not be written because of a limit is given up, unconfirmed: nobody was told
    that it was kept."""
    if not whole_states.is_stuck(m):
        m.behind = False
        m.confirmed(m.progress.decide_all())
        return
    m.confirmed(m.progress.confirmations())
    assert m.unfit is not None
    m.emit(fx.Report("closed without the acks that were not confirmed", {"reason": m.unfit.why.reason}))


def committed(m: CursorMachine, done: Committed, now: float) -> None:
    """One of this module's writes was applied."""
    own = (m.writer.current.ledger,) if m.writer.current else ()
    match done.purpose:
        case Purpose.RESET:
            _reset_done(m, done)
        case Purpose.INLINE:
            _inlined(m, done)
        case Purpose.CLOSE:
            covered = (m.covered.ledger,) if m.covered.ledger is not None else ()
            _closed(m)
            m.delete_dropped(done, own + covered)
            m.base, m.chain, m.previous = done.after.base, done.after.chain, done.after.previous
            if m.deleting:
                return  # the wish came while the close was on its way: the tombstone is next
            m.move(State.CLOSED)
            m.emit(fx.Ended(reopen=m.reopen))
        case Purpose.DELETE:
            m.delete_dropped(done, own)
            m.behind = False
            m.emit_all(m.progress.decide_all())
            m.move(State.DELETED)
            m.emit(fx.Ended())
        case _:
            raise AssertionError(f"{done.purpose} is decided elsewhere")


HANDLERS: dict[type, Any] = {ev.Close: on_close, ev.Delete: on_delete, ev.InlineTurn: on_inline_turn}
