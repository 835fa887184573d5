"""Serves the next owner: snapshots, incremental and fuzzy, so that a recovery reads little
(ARCHITECTURE rules 14 to 16). Move to a fresh ledger that the footer names, write segments between
deltas with the pending delta in front of each, the end record, then switch the footer's base.

Any roll or reset aborts one; parts of an aborted one are never counted because only the end record
names segments.
"""

from __future__ import annotations

from dataclasses import field

from cursorkeeper.core import events as ev
from cursorkeeper.core.checksums import combined
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.footer import ChainLedger, Footer, Previous, SnapshotBase
from cursorkeeper.core.form import Form
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.shape import component
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.snapshot_policy import snapshot_reason
from cursorkeeper.core.table import LIVE, SNAPSHOT_PHASES, SnapshotPhase, State
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import SnapshotEnd
from cursorkeeper.core.writer import Writer

LOST = "lost"
"""The reason of a snapshot that is taken because BookKeeper has lost entries: no interval is waited
for.
"""
CLOSING = "closing"
"""The reason of a snapshot without which a close could not write what it has to write."""
BACK_OFF_MAX_S = 60.0
"""The longest time between a snapshot that failed and the next try."""
FAILED_MANY = 3
"""So many failures in a row are told to the source as the reason of a pause, if the chain waits for
a snapshot.
"""


@component
class SnapshotRun:
    reason: str
    snapshot_id: int
    phase: SnapshotPhase = SnapshotPhase.MOVING
    plan: SnapshotPlan | None = None
    waiting: set[int] = field(default_factory=set)
    parts: list[ev.Appended] = field(default_factory=list)
    """The segments that are acknowledged."""
    end_entry: int | None = None
    end_crc32c: int = 0
    records_before: int = 0

    def move(self, phase: SnapshotPhase) -> None:
        SNAPSHOT_PHASES.check(self.phase, phase)
        self.phase = phase


@component
class Snapshots:
    """`failed`: how many in a row have failed because their ledger did."""

    _turn: Turn
    _life: Life
    _ownership: Ownership
    _flow: Flow
    _writer: Writer
    _form: Form
    run: SnapshotRun | None = None
    failed: int = 0

    # ---- questions

    @property
    def wants_ledger(self) -> bool:
        """A fresh ledger is needed even if nothing is pending."""
        return self.run is not None and self.run.phase is SnapshotPhase.MOVING

    @property
    def wants_flush(self) -> bool:
        """Pending acks go in front of the next segment, without a linger."""
        return self.run is not None and self.run.phase is SnapshotPhase.WRITING

    @property
    def is_waited_for(self) -> bool:
        """No other ledger may be added to the chain before a snapshot has shortened it."""
        return (
            self._form.has_records
            and len(self._ownership.chain) >= self._turn.limits.chain_ledgers_hard_max
        )

    @property
    def is_needed_to_close(self) -> bool:
        """What a close has to write needs a ledger, and none may be added to the chain."""
        if (
            not (
                self._life.state is State.CLOSING
                and self._life.closes_by_ledger
                and self.is_waited_for
            )
            or self.is_all_written
        ):
            return False
        current = self._writer.current
        return current is None or not current.named

    @property
    def is_all_written(self) -> bool:
        """Nothing waits for a flush or for its answer, or what waits may not be written. What was
        queued was absorbed.
        """
        if self._writer.outbox or self._writer.unconfirmed:
            return False
        return not self._flow.carried or self._form.is_stuck

    @property
    def why_waited_for(self) -> str:
        """Why the cursor cannot be written to now, and what is tried, as one sentence."""
        failed = (
            f", and {self.failed} snapshots in a row have failed: {self._writer.trouble}"
            if self.failed
            else ""
        )
        return f"a snapshot: the chain has {len(self._ownership.chain)} ledgers{failed}"

    @property
    def is_given_little_hope(self) -> bool:
        """The chain waits for a snapshot, and several have failed."""
        return self.is_waited_for and self.failed >= FAILED_MANY

    @property
    def is_named_by_switch(self) -> bool:
        """One snapshot may add its ledger to a chain at its limit, so that acks go on meanwhile. If
        that failed, the ledger of the next one is named by its end alone: until then nothing in it
        counts, and a failure leaves nothing behind.
        """
        limit = self._turn.limits.chain_ledgers_hard_max
        return (
            self.run is not None and self._form.has_records and len(self._ownership.chain) > limit
        )

    # ---- begin and abort

    def start(self, reason: str) -> None:
        """Begins a snapshot by leaving the current ledger; does nothing where one is under way."""
        if self.run is not None:
            return
        self.run = SnapshotRun(
            reason, (self._ownership.epoch << 32) | (self._ownership.sequence & 0xFFFFFFFF)
        )
        self._flow.cost.snapshot_begun(self._turn.now)
        self._writer.drain()

    def abort(self) -> None:
        """Its ledger is being left: start again later, in another one."""
        if self.run is None or self._ownership.is_deciding(Purpose.SWITCH):
            return  # sent is sent: its answer decides
        self.run = None
        self._turn.counters.snapshots_aborted += 1

    def fail(self) -> None:
        """Gives up the snapshot whose ledger failed; the next one waits longer."""
        self.failed += self.run is not None
        self.abort()

    # ---- time

    def drive(self) -> None:
        """Starts one when the cost rule says so, and moves it on."""
        run, writer = self.run, self._writer
        if run is None:
            self._maybe_start()
            return
        if run.phase is SnapshotPhase.MOVING and writer.is_usable:
            assert writer.current is not None
            if writer.current.named or self.is_named_by_switch:
                run.move(SnapshotPhase.WRITING)
                run.records_before = self._flow.cost.records
        if (
            run.phase is SnapshotPhase.SWITCHING
            and not self._ownership.is_writing
            and writer.current is not None
        ):
            self._ownership.propose(self._switch(run, writer.current.ledger), Purpose.SWITCH)

    def _switch(self, run: SnapshotRun, ledger: int) -> Footer:
        assert run.end_entry is not None
        length = sum(p.stored_bytes for p in run.parts)
        base = SnapshotBase(
            ledger, run.parts[0].entry, run.end_entry, len(run.parts), length, run.end_crc32c
        )
        before = tuple(c for c in self._ownership.chain if c.ledger != ledger)
        return self._form.footer(
            base=base, chain=(ChainLedger(ledger),), previous=Previous(self._ownership.base, before)
        )

    def _may_start(self) -> bool:
        if (
            self.run is not None
            or self._life.state is State.DELETING
            or self._flow.resets
            or not self._form.has_records
        ):
            return False
        if not (self._life.state in LIVE or self.is_needed_to_close):
            return False
        # the writer's own words, not ROLLING: the state follows them at the end of an event, and
        # there may be no next one soon
        return self._writer.is_settled

    def _maybe_start(self) -> None:
        now = self._turn.now
        if not self._may_start() or (self.failed and now < self._not_before_s):
            return
        if self._flow.behind:
            reason: str | None = LOST
        elif self._life.state is State.CLOSING:
            reason = CLOSING
        else:
            reason = snapshot_reason(
                self._turn.limits,
                self._flow.cost,
                chain_ledgers=len(self._ownership.chain),
                now_s=now,
                jitter=self._turn.jitter,
                foreign=self._form.is_foreign,
            )
        if reason is not None:
            self.start(reason)

    @property
    def _not_before_s(self) -> float:
        """The interval, doubled with each failure but the first: every try may leave a ledger
        behind.
        """
        interval = self._turn.limits.snapshot_interval_min_s
        wait = interval * 2.0 ** min(max(0, self.failed - 1), 16)
        return self._flow.cost.snapshot_at_s + max(interval, min(wait, BACK_OFF_MAX_S))

    @property
    def start_at_s(self) -> float | None:
        """When to look again, if acks wait for a snapshot that shortens the chain, or the form is
        to change; the cost rule itself can wait for an event.
        """
        flow = self._flow
        waiting = self.is_waited_for and (
            self._life.state is State.CLOSING or not flow.progress.is_clear
        )
        if not (waiting or flow.behind or self._form.is_foreign) or not self._may_start():
            return None
        return 0.0 if flow.behind and not self.failed else self._not_before_s

    # ---- segments

    def write(self) -> None:
        """Segments, as the window allows: one slot is left for the next acks. The flush of this
        turn went in front of them.
        """
        run = self.run
        if run is None or run.phase is not SnapshotPhase.WRITING or not self._writer.is_usable:
            return
        acks, bytes_max = self._flow.acks, self._turn.limits.max_entry_bytes - RECORD_HEADER_BYTES
        while (run.plan is None or not run.plan.is_done) and self._may_write(run):
            if run.plan is None:
                # in the turn of the first segment, behind the last delta in front of it: so the
                # segments hold all that the deltas before the first of them hold, and a reader
                # needs none of those
                run.plan = SnapshotPlan(acks, bytes_max)
            run.waiting.add(self._writer.append(run.plan.take(acks)))
        if run.plan is not None and run.plan.is_done and not run.waiting and self._may_write(run):
            end = SnapshotEnd(
                run.snapshot_id,
                self._ownership.epoch,
                self._ownership.generation,
                tuple(p.entry for p in run.parts),
                acks.mark_delete,
                acks.mark_delete_properties,
                acks.cursor_properties,
                length=sum(p.stored_bytes for p in run.parts),
                segments_crc32c=combined([p.crc32c for p in run.parts]),
            )
            run.end_entry = self._writer.append(end)
            run.move(SnapshotPhase.END_SENT)

    def _may_write(self, run: SnapshotRun) -> bool:
        """Segments and the end record repeat only what an entry before them holds."""
        return not self._flow.carried and self._turn.room > 0 and self._has_room_given_any(run)

    @property
    def write_at_s(self) -> float | None:
        """Now, if a segment or the end record could be sent."""
        run = self.run
        if (
            run is None
            or run.phase is not SnapshotPhase.WRITING
            or not self._writer.is_usable
            or self._flow.resets
            or self._life.state is State.DELETING
        ):
            return None
        if run.plan is not None and run.plan.is_done and run.waiting:
            return None
        return 0.0 if self._has_room_given_any(run) else None

    def _has_room_given_any(self, run: SnapshotRun) -> bool:
        limits, writer = self._turn.limits, self._writer
        has_slot = len(run.waiting) < limits.snapshot_segments_in_flight_max
        return (
            not writer.outbox and has_slot and writer.in_flight + 2 <= limits.appends_in_flight_max
        )

    def on_part_appended(self, event: ev.Appended) -> None:
        """A segment or the end record is acknowledged (or the open record, which is neither)."""
        run = self.run
        if run is None:
            return
        if event.entry in run.waiting:
            run.waiting.discard(event.entry)
            run.parts.append(event)
        elif event.entry == run.end_entry:
            run.end_crc32c = event.crc32c
            run.move(SnapshotPhase.SWITCHING)

    def committed(self, done: Committed) -> None:
        self._ownership.follow(done.after)
        run, self.run = self.run, None
        base = done.after.base
        assert isinstance(base, SnapshotBase) and run is not None, (
            "a switch that was sent is not aborted"
        )
        self._flow.cost.snapshot_committed(base.length, run.records_before, self._turn.now)
        self._flow.withhold(is_withheld=False)
        self._turn.counters.snapshots += 1
        self.failed = 0
        self._form.switched()
        self._writer.named()
