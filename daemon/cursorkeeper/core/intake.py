"""Messages of the source: checked on arrival, kept whole or refused whole. Kept is accepted.

A bad message refuses its handle, never the cursor: what was accepted before stays and becomes durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cursorkeeper.core import answers, fencing, opening
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import without_partials
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.flushing import absorb
from cursorkeeper.core.limits import QUEUED_PARTS_MAX
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.values import CursorProperties, Delta, LayoutItem, Stamp

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine

DEFERRED_MAX = 1_000
CONTROL_BYTES = 0
"""Control messages cost no credit: there are few, and each is bounded by the stream's message limit."""


def on_attach(m: CursorMachine, event: ev.Attach, now: float) -> None:
    """A handle wants the state; it gets it when the footer is proved to be ours and everything accepted is durable (see
    `flushing.drive`). Or it goes on where its predecessor broke off."""
    if answers.may_resume(m, event):
        m.attach, m.last_seq = event.attach, 0
        m.emit(fx.ContinueHandle(event.attach))
        _take_layout(m, event.attach, event.layout)
        return
    m.answers.drop(m.attach_waiting)
    m.attach, m.attach_waiting, m.last_seq = None, event.attach, 0
    m.attach_layout, m.attach_source = event.layout, event.source
    opening.joined(m)
    answers.ask(m, event.attach, answers.Wish.STATE, waited_s=event.waited_s, fencing_token=event.fencing_token)


def drive(m: CursorMachine) -> None:
    """Takes the layout that the waiting handle told, once: a contradiction is an answer too, so not before the proof; and not
    while resets are decided, because it belongs to the last generation."""
    if not m.attach_layout or m.state not in LIVE or m.resets:
        return
    waiting = fencing.answerable(m)
    if waiting is not None:
        run, m.attach_layout = m.attach_layout, ()
        _take_layout(m, waiting, run)


def _take_layout(m: CursorMachine, attach: int, run: tuple[LayoutItem, ...]) -> None:
    """The layout that came with OpenCursor; a wrong one refuses the handle."""
    if not run:
        return
    try:
        _join_layout(m, run)
    except RefusedError as e:
        m.answers.drop(attach)
        m.attach_waiting = None
        _refuse_handle(m, attach, e)


def _join_layout(m: CursorMachine, run: tuple[LayoutItem, ...]) -> None:
    """Behind what is queued, whose acks are in ledgers that were open then. Raises RefusedError."""
    absorb(m)
    m.check.layout(run, m.acks)
    for item in run:
        beyond = m.acks.acked_beyond(item)
        if beyond:
            m.counters.acks_beyond_end += beyond
            m.emit(fx.Report("acks beyond the end of a ledger", {"ledger": item.ledger, "entries": item.entries, "acks": beyond}))
    m.carry(m.acks.apply_layout(run))


def on_detach(m: CursorMachine, event: ev.Detach, now: float) -> None:
    """The handle is gone. Its unconfirmed messages stay accepted; nobody waits for their confirmation."""
    if m.attach == event.attach:
        m.attach = None
    if m.reopen == event.attach:
        m.reopen = None
    if m.attach_waiting == event.attach:
        m.attach_waiting = None
    if m.answers.drop(event.attach):
        opening.end_if_unwanted(m)


def _admit(m: CursorMachine, attach: int, seq: int, generation: int) -> bool:
    """Whether a message of this handle counts. Raises RefusedError."""
    if attach != m.attach or m.state not in LIVE:
        m.counters.late_events += 1
        return False
    if seq <= m.last_seq:
        raise RefusedError(Refusal.SEQ_NOT_GROWING, m.name.display, f"seq {seq} after {m.last_seq}", "number messages upwards per handle")
    if generation > m.generation:
        raise RefusedError(
            Refusal.WRONG_GENERATION,
            m.name.display,
            f"generation {generation}, the cursor is in {m.generation}",
            "use the generation of Opened or ResetDone",
        )
    m.last_seq = seq
    return True


def _refuse_handle(m: CursorMachine, attach: int, error: RefusedError, seq: int = 0) -> None:
    m.attach = None
    m.emit(fx.RefuseHandle(attach, error.code, error.message, error.remedy, seq))


def on_acks(m: CursorMachine, event: ev.Acks, now: float) -> None:
    batch = event.batch
    try:
        if not _admit(m, event.attach, batch.seq, batch.generation):
            return
        if batch.generation < m.generation or m.resets:
            # of a generation that is over, or will be: dropped, and decided with what comes after it
            m.counters.dropped_batches += 1
        else:
            m.check.batch(batch, m.acks, m.queued)
            if not m.limits.batch_index_acks:
                batch, ignored = without_partials(batch)
                m.counters.partial_acks_ignored += ignored
            m.queue.append(batch)
            m.pending_acks += batch.acks
            m.pending_bytes += batch.size_bytes
            m.counters.accepted_acks += batch.acks
    except RefusedError as e:
        _refuse_handle(m, event.attach, e, batch.seq)
        return
    m.progress.accept(event.attach, batch.seq, batch.size_bytes, now)
    if m.queued.parts >= QUEUED_PARTS_MAX:
        absorb(m)


def on_set_layout(m: CursorMachine, event: ev.SetLayout, now: float) -> None:
    try:
        if not _admit(m, event.attach, event.seq, event.generation):
            return
        if m.resets:
            _defer(m, event)
        else:
            _join_layout(m, event.run)
    except RefusedError as e:
        _refuse_handle(m, event.attach, e, event.seq)
        return
    m.progress.accept(event.attach, event.seq, CONTROL_BYTES, now)


def on_set_properties(m: CursorMachine, event: ev.SetProperties, now: float) -> None:
    """The whole map of cursor properties is replaced."""
    try:
        if not _admit(m, event.attach, event.seq, event.generation):
            return
        m.check.cursor_properties(event.values)
        if m.resets:
            _defer(m, event)
        else:
            _apply_properties(m, event)
    except RefusedError as e:
        _refuse_handle(m, event.attach, e, event.seq)
        return
    m.progress.accept(event.attach, event.seq, CONTROL_BYTES, now)


def _apply_properties(m: CursorMachine, event: ev.SetProperties) -> None:
    m.stamp += 1
    properties = CursorProperties(Stamp(m.epoch, m.stamp), dict(event.values))
    m.acks.cursor_properties = properties
    m.carry(Delta(cursor_properties=properties))


def apply_deferred(m: CursorMachine) -> None:
    """What was accepted while a reset was under way takes effect in the new generation, in its order. It was accepted
    then, so a handle that is gone by now changes nothing; a layout that the target contradicts refuses its handle."""
    deferred, m.deferred = m.deferred, []
    for event in deferred:
        if isinstance(event, ev.SetProperties):
            _apply_properties(m, event)
            continue
        try:
            _join_layout(m, event.run)
        except RefusedError as e:
            if event.attach == m.attach:
                _refuse_handle(m, event.attach, e, event.seq)


def on_reset(m: CursorMachine, event: ev.Reset, now: float) -> None:
    """Seek. Decided once its footer write is sent; see `finishing`."""
    try:
        if not _admit(m, event.attach, event.seq, event.generation):
            return
        told = [item for waiting in m.deferred if isinstance(waiting, ev.SetLayout) for item in waiting.run]
        m.check.reset_target(event.target, m.acks, told)
        if m.generation + len(m.resets) + 1 >= NUMBER_MAX:  # the last one is for the tombstone
            raise RefusedError(
                Refusal.BAD_MESSAGE,
                m.name.display,
                f"generation {m.generation} is the last one that can be reset from",
                "export the cursor, delete it, and import it again",
            )
        if len(m.resets) >= DEFERRED_MAX:
            raise RefusedError(Refusal.BAD_MESSAGE, m.name.display, "too many resets at once", "wait for ResetDone")
    except RefusedError as e:
        _refuse_handle(m, event.attach, e, event.seq)
        return
    m.resets.append(event)
    m.progress.accept(event.attach, event.seq, CONTROL_BYTES, now)


def _defer(m: CursorMachine, event: ev.SetLayout | ev.SetProperties) -> None:
    if len(m.deferred) >= DEFERRED_MAX:
        raise RefusedError(Refusal.BAD_MESSAGE, m.name.display, "too many messages while a reset is under way", "wait for ResetDone")
    if isinstance(event, ev.SetLayout):
        waiting = sum(len(layout.run) for layout in m.deferred if isinstance(layout, ev.SetLayout))
        m.check.layout_memory(waiting + len(event.run), m.acks)
    m.deferred.append(event)


HANDLERS: dict[type, Any] = {
    ev.Attach: on_attach,
    ev.Detach: on_detach,
    ev.Acks: on_acks,
    ev.SetLayout: on_set_layout,
    ev.SetProperties: on_set_properties,
    ev.Reset: on_reset,
}
