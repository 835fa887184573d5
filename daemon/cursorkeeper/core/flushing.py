"""From accepted to in flight: a record is taken at one instant and leaves as one effect; and what its answer means.

Durable = acknowledged by the ack quorum, in a ledger that the committed footer names, in the committed generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import fencing, rolling, snapshotting, whole_states
from cursorkeeper.core.cutting import cut_delta, portion
from cursorkeeper.core.flush_policy import flush_at
from cursorkeeper.core.joining import join
from cursorkeeper.core.limits import TAKEN_PARTS_MAX
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.values import Delta, MarkDeleteProperties, RawEntry, Record, RecordBody, Stamp
from cursorkeeper.core.writer import Outgoing, Sent

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


def absorb(m: CursorMachine) -> None:
    """Applies what is queued; what it changed joins `carried`."""
    if not m.queue:
        return
    batches, m.queue = m.queue, []
    asked = m.pending_acks
    m.pending_acks = m.pending_bytes = 0
    m.queued.clear()
    delta = m.acks.apply(batches)
    properties = next((b.properties for b in reversed(batches) if b.properties is not None), None)
    if properties is not None:
        m.stamp += 1
        stamped = MarkDeleteProperties(Stamp(m.epoch, m.stamp), dict(properties))
        m.acks.mark_delete_properties = stamped
        delta = join([delta, Delta(mark_delete_properties=stamped)])
    new = sum(map(len, delta.acks.values()))
    m.counters.new_acks += new
    m.counters.duplicate_acks += max(0, asked - new - len(delta.partials))
    m.carried = join([m.carried, delta])


def take(m: CursorMachine) -> None:
    """Everything accepted becomes records in the outbox; its messages are bound to the last of them. Very much becomes records in
    several steps, so that others have their turn between them."""
    absorb(m)
    if m.state_writer is not None:
        whole_states.take(m)
        return
    if not m.carried:
        m.progress.bind_to_newest()
        m.confirmed(m.progress.confirmations())
        return
    delta, m.carried = portion(m.carried, TAKEN_PARTS_MAX)
    parts = cut_delta(delta, m.limits.max_entry_bytes - RECORD_HEADER_BYTES)
    numbers = m.progress.take(len(parts), is_all=not m.carried)
    m.writer.outbox.extend(Outgoing(n, part, part) for n, part in zip(numbers, parts, strict=True))
    m.counters.flushes += 1


def append(m: CursorMachine, body: RecordBody | RawEntry, record: int | None = None) -> int:
    """Sends one entry to the current ledger; returns its id."""
    ledger = m.writer.current
    assert ledger is not None
    entry = ledger.next_entry
    ledger.next_entry += 1
    m.sequence += 1
    acks = sum(map(len, body.acks.values())) + len(body.partials) if isinstance(body, Delta) else 0
    ledger.in_flight.append(Sent(entry, record, acks, m.now))
    record_or_raw = body if isinstance(body, RawEntry) else Record(m.name.record_hash, m.epoch, m.generation, m.sequence, body)
    m.emit(fx.Append(ledger.ledger, entry, record_or_raw))
    m.room -= 1
    return entry


def append_outbox(m: CursorMachine) -> None:
    """Sends what was taken, as far as the window allows."""
    while m.writer.outbox and m.room > 0 and m.writer.in_flight < m.limits.appends_in_flight_max:
        outgoing = m.writer.outbox.popleft()
        if outgoing.record is not None:
            m.writer.unconfirmed[outgoing.record] = outgoing
        append(m, outgoing.body, outgoing.record)


def _is_urgent(m: CursorMachine) -> bool:
    return m.closing or m.attach_waiting is not None or (m.snapshot is not None and m.snapshot.wants_flush)


def _flush_at(m: CursorMachine, *, at_once: bool = False) -> float | None:
    if not m.writer.is_usable or m.resets or m.deleting:
        return None
    if m.writer.outbox:
        return 0.0 if m.writer.in_flight < m.limits.appends_in_flight_max else None
    urgent = _is_urgent(m)
    if m.state_writer is not None:
        return whole_states.flush_at(m, urgent=urgent)
    oldest = m.progress.oldest_unbound_s
    if oldest is None and urgent and (m.queue or m.carried):
        oldest = 0.0
    return flush_at(
        m.limits,
        pending_acks=m.pending_acks,
        pending_bytes=m.pending_bytes,
        oldest_s=oldest,
        in_flight=m.writer.in_flight,
        urgent=urgent or bool(m.carried),
        at_once=at_once,
    )


def drive(m: CursorMachine, now: float) -> None:
    """Flushes when the policy says so and the daemon has room; answers a waiting handle when all is durable and
    the footer is proved to be ours."""
    if m.writer.is_usable and not m.resets and not m.deleting and m.room > 0:
        append_outbox(m)
        due = _flush_at(m, at_once=m.at_once)
        if due is not None and due <= now and not m.writer.outbox:
            take(m)
            append_outbox(m)
        snapshotting.write(m, now)
    settle_without_writing(m)
    if (
        m.attach_waiting is not None
        and (waiting := fencing.answerable(m)) is not None
        and m.state in LIVE
        and m.progress.is_clear
        and not m.queue
        and not m.resets
        and (not m.behind or whole_states.is_stuck(m))
    ):
        m.attach, m.attach_waiting, m.last_seq = waiting, None, 0
        m.answers.drop(waiting)
        created = m.opening.created and not m.answers.is_told
        m.answers.answered, m.answers.is_told = m.attach_source, True
        m.emit(fx.StreamState(waiting, created))


def settle_without_writing(m: CursorMachine) -> None:
    """Messages that changed nothing need no ledger: they bind to the newest record, durable or not. Asked before a ledger
    is created: a source that repeats what was recovered must not cost one."""
    if m.writer.is_usable or m.resets or not m.progress.has_unbound:
        return
    absorb(m)
    if not m.carried and not m.writer.outbox:
        m.progress.bind_to_newest()
        m.confirmed(m.progress.confirmations())


def is_all_written(m: CursorMachine) -> bool:
    """Nothing waits for a flush or for its answer, or what waits may not be written. What was queued was absorbed."""
    if m.writer.outbox or m.writer.unconfirmed:
        return False
    return not m.carried or whole_states.is_stuck(m)


def wake_at_s(m: CursorMachine) -> float | None:
    """When `drive` has something to do, given room."""
    times = [t for t in (_flush_at(m), snapshotting.write_at_s(m)) if t is not None]
    return min(times) if times else None


def is_due_at_once(m: CursorMachine, now: float) -> bool:
    """`drive` appends in a Tick that says `at_once`."""
    due = _flush_at(m, at_once=True)
    return due is not None and due <= now


def on_appended(m: CursorMachine, event: ev.Appended, now: float) -> None:
    """An entry is acknowledged. Answers come in order; those of a ledger that was left are late."""
    ledger = m.writer.current
    if ledger is None or ledger.ledger != event.ledger or not ledger.in_flight or ledger.in_flight[0].entry != event.entry:
        m.counters.late_events += 1
        return
    sent = ledger.in_flight.popleft()
    ledger.acked_entry = event.entry
    ledger.stored_bytes += event.stored_bytes
    whole = m.state_writer is not None
    if (sent.record is not None) if whole else (event.entry == 0):
        ledger.first_acked = True
    if whole or sent.record is not None:
        m.counters.flushed_bytes += event.stored_bytes
    if sent.record is not None:
        ledger.acked_record = sent.record
        m.writer.tries = 0
        if not whole:
            m.cost.add(event.stored_bytes, sent.acks)
            m.metadata_bytes = m.cost.snapshot_bytes + m.cost.delta_bytes
    else:
        snapshotting.on_part_appended(m, event)
    confirm(m)


def confirm(m: CursorMachine) -> None:
    """Durable follows what is acknowledged, once the footer names the ledger and holds what only it can hold."""
    ledger = m.writer.current
    if ledger is None or not ledger.named or ledger.acked_record is None:
        return
    upto = m.progress.durable
    for record in range(upto + 1, ledger.acked_record + 1):
        if not whole_states.is_held(m, m.writer.unconfirmed[record]):
            break
        whole_states.durable(m, m.writer.unconfirmed.pop(record))
        upto = record
    m.confirmed(m.progress.made_durable(upto))


def on_append_failed(m: CursorMachine, event: ev.AppendFailed, now: float) -> None:
    """Refused, fenced or unknown: leave the ledger."""
    ledger = m.writer.current
    if ledger is None or ledger.ledger != event.ledger:
        m.counters.late_events += 1
        return
    rolling.fail(m, event.reason)


HANDLERS: dict[type, Any] = {ev.Appended: on_appended, ev.AppendFailed: on_append_failed}
