"""A snapshot, incremental and fuzzy (ARCHITECTURE rules 14 to 16): move to a fresh ledger that the footer names, write
segments between deltas with the pending delta in front of each, the end record, then switch the footer's base.

Any roll or reset aborts it; parts of an aborted one are never counted because only the end record names segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import flushing, rolling, whole_states
from cursorkeeper.core.checksums import combined
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.footer import ChainLedger, Previous, SnapshotBase
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.snapshot_policy import snapshot_reason
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.values import SnapshotEnd

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


ASKED = "asked"
"""The reason of a snapshot that an event asked for."""
TAKEN = "snapshot taken"
LOST = "lost"
"""The reason of a snapshot that is taken because BookKeeper has lost entries: no interval is waited for."""
CLOSING = "closing"
"""The reason of a snapshot without which a close could not write what it has to write."""
BACK_OFF_MAX_S = 60.0
"""The longest time between a snapshot that failed and the next try."""
FAILED_MANY = 3
"""So many failures in a row are told to the source as the reason of a pause, if the chain waits for a snapshot."""


class SnapshotPhase(Enum):
    MOVING = auto()
    """Leaving the old ledger, or waiting for the fresh one to be named."""
    WRITING = auto()
    END_SENT = auto()
    SWITCHING = auto()


@dataclass(frozen=True, slots=True)
class Part:
    """A segment that is acknowledged."""

    entry: int
    stored_bytes: int
    crc32c: int


@dataclass(slots=True)
class SnapshotRun:
    reason: str
    snapshot_id: int
    phase: SnapshotPhase = SnapshotPhase.MOVING
    plan: SnapshotPlan | None = None
    waiting: set[int] = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)
    end_entry: int | None = None
    end_crc32c: int = 0
    records_before: int = 0

    @property
    def wants_ledger(self) -> bool:
        """A fresh ledger is needed even if nothing is pending."""
        return self.phase is SnapshotPhase.MOVING

    @property
    def wants_flush(self) -> bool:
        """Pending acks go in front of the next segment, without a linger."""
        return self.phase is SnapshotPhase.WRITING


def on_snapshot(m: CursorMachine, event: ev.Snapshot, now: float) -> None:
    """Somebody wants one; if one is under way, that one will do: it holds all that is accepted when it ends. An aborted one is begun
    again."""
    m.snapshot_asked = m.state_writer is None


def start(m: CursorMachine, reason: str, now: float) -> None:
    """Begins a snapshot by leaving the current ledger; does nothing where one is under way."""
    if m.snapshot is not None:
        return
    m.snapshot = SnapshotRun(reason, (m.epoch << 32) | (m.sequence & 0xFFFFFFFF))
    m.cost.snapshot_at_s = now
    rolling.leave_planned(m)


def abort(m: CursorMachine) -> None:
    """Its ledger is being left: start again later, in another one."""
    if m.snapshot is None:
        return
    outstanding = m.commit.outstanding
    if outstanding is not None and outstanding.purpose is Purpose.SWITCH:
        return  # sent is sent: its answer decides
    m.snapshot = None
    m.counters.snapshots_aborted += 1


def drive(m: CursorMachine, now: float) -> None:
    """Starts one when the cost rule says so, and moves it on."""
    run = m.snapshot
    if run is None:
        _maybe_start(m, now)
        return
    if run.phase is SnapshotPhase.MOVING and m.writer.is_usable:
        assert m.writer.current is not None
        if m.writer.current.named or is_named_by_switch(m):
            run.phase = SnapshotPhase.WRITING
            run.records_before = m.cost.records
    if run.phase is SnapshotPhase.SWITCHING and m.commit.outstanding is None:
        _switch(m, run)


def _may_start(m: CursorMachine) -> bool:
    if m.snapshot is not None or m.deleting or m.resets or m.state_writer is not None:
        return False
    if not (m.state in LIVE or is_needed_to_close(m)):
        return False
    # the writer's own words, not ROLLING: the state follows them at the end of an event, and there may be no next one soon
    return m.writer.is_settled


def _maybe_start(m: CursorMachine, now: float) -> None:
    if not _may_start(m):
        return
    foreign = whole_states.is_foreign(m)
    if m.snapshots_failed and now < _not_before_s(m):
        return
    reason = snapshot_reason(m.limits, m.cost, chain_ledgers=len(m.chain), now_s=now, jitter=m.jitter, foreign=foreign)
    if m.snapshot_asked:
        reason = ASKED
    if m.closing:
        reason = CLOSING
    if m.behind:
        reason = LOST
    if reason is not None:
        start(m, reason, now)


def _not_before_s(m: CursorMachine) -> float:
    """The interval, doubled with each failure but the first: every try may leave a ledger behind."""
    wait = m.limits.snapshot_interval_min_s * 2.0 ** min(max(0, m.snapshots_failed - 1), 16)
    return m.cost.snapshot_at_s + max(m.limits.snapshot_interval_min_s, min(wait, BACK_OFF_MAX_S))


def is_waited_for(m: CursorMachine) -> bool:
    """No other ledger may be added to the chain before a snapshot has shortened it."""
    return m.state_writer is None and len(m.chain) >= m.limits.chain_ledgers_hard_max


def is_needed_to_close(m: CursorMachine) -> bool:
    """What a close has to write needs a ledger, and none may be added to the chain."""
    if not (m.closing and m.inline_refused and is_waited_for(m)) or flushing.is_all_written(m):
        return False
    current = m.writer.current
    return current is None or not current.named


def why_waited_for(m: CursorMachine) -> str:
    """Why the cursor cannot be written to now, and what is tried, as one sentence."""
    failed = f", and {m.snapshots_failed} snapshots in a row have failed: {m.writer.trouble}" if m.snapshots_failed else ""
    return f"a snapshot: the chain has {len(m.chain)} ledgers{failed}"


def is_given_little_hope(m: CursorMachine) -> bool:
    """The chain waits for a snapshot, and several have failed."""
    return is_waited_for(m) and m.snapshots_failed >= FAILED_MANY


def is_named_by_switch(m: CursorMachine) -> bool:
    """One snapshot may add its ledger to a chain at its limit, so that acks go on meanwhile. If that failed, the ledger of the
    next one is named by its end alone: until then nothing in it counts, and a failure leaves nothing behind."""
    return m.snapshot is not None and m.state_writer is None and len(m.chain) > m.limits.chain_ledgers_hard_max


def start_at_s(m: CursorMachine) -> float | None:
    """When to look again, if acks wait for a snapshot that shortens the chain, or the form is to change; the cost rule itself
    can wait for an event."""
    waiting = is_waited_for(m) and (m.closing or not m.progress.is_clear)
    if not (waiting or m.behind or m.snapshot_asked or whole_states.is_foreign(m)) or not _may_start(m):
        return None
    at_once = (m.behind or m.snapshot_asked) and not m.snapshots_failed
    return 0.0 if at_once else _not_before_s(m)


def write(m: CursorMachine, now: float) -> None:
    """Segments, as the window allows: one slot is left for the next acks. The flush of this step went in front of them."""
    run = m.snapshot
    if run is None or run.phase is not SnapshotPhase.WRITING or not m.writer.is_usable:
        return
    while (run.plan is None or not run.plan.is_done) and _may_write(m, run):
        if run.plan is None:
            # in the step of the first segment, behind the last delta in front of it: so the segments hold all that the
            # deltas before the first of them hold, and a reader needs none of those
            run.plan = SnapshotPlan(m.acks, m.limits.max_entry_bytes - RECORD_HEADER_BYTES)
        run.waiting.add(flushing.append(m, run.plan.take(m.acks)))
    if run.plan is not None and run.plan.is_done and not run.waiting and _may_write(m, run):
        end = SnapshotEnd(
            run.snapshot_id,
            m.epoch,
            m.generation,
            tuple(p.entry for p in run.parts),
            m.acks.mark_delete,
            m.acks.mark_delete_properties,
            m.acks.cursor_properties,
            length=sum(p.stored_bytes for p in run.parts),
            segments_crc32c=combined([p.crc32c for p in run.parts]),
        )
        run.end_entry = flushing.append(m, end)
        run.phase = SnapshotPhase.END_SENT


def _may_write(m: CursorMachine, run: SnapshotRun) -> bool:
    """Segments and the end record repeat only what an entry before them holds."""
    return not m.carried and m.room > 0 and _has_room_given_any(m, run)


def write_at_s(m: CursorMachine) -> float | None:
    """Now, if a segment or the end record could be sent."""
    run = m.snapshot
    if run is None or run.phase is not SnapshotPhase.WRITING or not m.writer.is_usable or m.resets or m.deleting:
        return None
    if run.plan is not None and run.plan.is_done and run.waiting:
        return None
    return 0.0 if _has_room_given_any(m, run) else None


def _has_room_given_any(m: CursorMachine, run: SnapshotRun) -> bool:
    window = m.limits.appends_in_flight_max
    return not m.writer.outbox and len(run.waiting) < m.limits.snapshot_segments_in_flight_max and m.writer.in_flight + 2 <= window


def on_part_appended(m: CursorMachine, event: ev.Appended) -> None:
    """A segment or the end record is acknowledged (or the open record, which is neither)."""
    run = m.snapshot
    if run is None:
        return
    if event.entry in run.waiting:
        run.waiting.discard(event.entry)
        run.parts.append(Part(event.entry, event.stored_bytes, event.crc32c))
    elif event.entry == run.end_entry:
        run.end_crc32c = event.crc32c
        run.phase = SnapshotPhase.SWITCHING


def _switch(m: CursorMachine, run: SnapshotRun) -> None:
    ledger = m.writer.current
    if ledger is None or run.end_entry is None:
        return
    base = SnapshotBase(
        ledger.ledger, run.parts[0].entry, run.end_entry, len(run.parts), sum(p.stored_bytes for p in run.parts), run.end_crc32c
    )
    before = tuple(c for c in m.chain if c.ledger != ledger.ledger)
    m.propose(m.footer(base=base, chain=(ChainLedger(ledger.ledger),), previous=Previous(m.base, before)), Purpose.SWITCH)


def switched(m: CursorMachine, done: Committed, now: float) -> None:
    """The new base is committed; what only the old previous named goes."""
    m.base, m.chain, m.previous = done.after.base, done.after.chain, done.after.previous
    run, m.snapshot = m.snapshot, None
    assert isinstance(m.base, SnapshotBase) and run is not None, "a switch that was sent is not aborted"
    m.cost.records = max(0, m.cost.records - run.records_before)
    m.cost.delta_bytes = m.cost.acks = 0
    m.cost.snapshot_bytes = m.base.length
    m.cost.snapshot_at_s = now
    m.counters.snapshots += 1
    m.snapshots_failed, m.behind = 0, False
    if m.snapshot_asked:
        m.snapshot_asked = False
        m.emit(fx.Report(TAKEN, {"ledger": m.base.ledger, "bytes": m.base.length}))
    whole_states.switched(m)
    assert m.writer.current is not None, "no ledger is left while a write that names it is undecided"
    m.writer.current.named = True
    flushing.confirm(m)
    m.confirmed(m.progress.confirmations())
    m.delete_dropped(done)


HANDLERS: dict[type, Any] = {ev.Snapshot: on_snapshot}
