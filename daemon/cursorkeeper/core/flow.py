"""Serves sources: what was accepted, what of it has to be written, and what may be confirmed.

Owns the state, the messages that are kept and not applied yet, the changes that are carried until a
record takes them, the resets that are not decided, and the progress. Invariant: kept is accepted;
what is accepted is carried, in a record, durable, or decided by a reset.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field, replace
from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, without_partials
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.footer import Footer, InlineBase, SnapshotBase, Stats, Truncation
from cursorkeeper.core.intake_check import IntakeCheck, Queued
from cursorkeeper.core.join import NOTHING, join
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.limits import QUEUED_PARTS_MAX
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.progress import Progress
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshot_policy import ReplayCost
from cursorkeeper.core.state import AckState
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    MarkDeleteProperties,
    Segment,
    Stamp,
)

DEFERRED_MAX = 1_000
_STATS_HOLES_MAX = 1_000_000


@component
class Flow:
    """`keeps_layout`: the layout is written; else it is the topic's, and the source tells it at
    each open.
    """

    _turn: Turn
    _ownership: Ownership
    _keeps_layout: bool
    check: IntakeCheck = field(init=False)
    acks: AckState = field(default_factory=AckState)
    progress: Progress = field(default_factory=Progress)
    cost: ReplayCost = field(default_factory=ReplayCost)
    queued: Queued = field(default_factory=Queued)
    carried: Delta = NOTHING
    """What is applied and in no record."""
    resets: deque[ev.Reset] = field(default_factory=deque)
    """Accepted and not decided, oldest first."""
    deferred: list[ev.SetLayout | ev.SetProperties] = field(default_factory=list)
    """What was accepted while a reset was under way."""
    stored_truncation: Truncation | None = None
    """What the newest durable state leaves out."""
    layout_changes: int = 0
    _stamp: int = 0

    def __post_init__(self) -> None:
        self.check = IntakeCheck(self._turn.name.display, self._turn.limits)

    # ---- questions

    @property
    def behind(self) -> bool:
        """BookKeeper has lost entries that it had acknowledged: the whole state, which is here, is
        written as soon as it can be, and nothing is confirmed before.
        """
        return self.progress.withheld

    @property
    def truncated_acks(self) -> int:
        """What the stored state leaves out: acks of entries and of batches."""
        left_out = self.stored_truncation
        return 0 if left_out is None else left_out.acks + left_out.batches

    @property
    def has_new(self) -> bool:
        """Something is accepted and in no record."""
        return bool(self.queued.messages or self.carried)

    def oldest_unwritten_s(self, *, is_urgent: bool) -> float | None:
        """When the oldest message came that is in no record; long ago, where something else is new
        and cannot wait; None: nothing is to be written.
        """
        oldest = self.progress.oldest_unbound_s
        return 0.0 if oldest is None and is_urgent and self.has_new else oldest

    def draft(self, **says: Any) -> Footer:
        """The next footer, with what it says of the state beside `says`."""
        known = {"mark_delete": self.acks.mark_delete, "stats": self._stats()}
        return self._ownership.draft(**(known | says))

    def _stats(self) -> Stats:
        acks = self.acks
        holes = acks.hole_count
        runs = (
            sum(count_runs(a.holes) for a in acks.ledgers.values())
            if holes <= _STATS_HOLES_MAX
            else 0
        )
        return Stats(
            len(acks.ledgers), acks.span, holes, runs, acks.partial_count, self.cost.delta_bytes
        )

    # ---- what comes

    def keep(self, batch: AckBatch) -> None:
        """Keeps a batch whole, or raises RefusedError. One of a generation that is over, or will
        be, is dropped, and decided with what comes after it.
        """
        counters, queued = self._turn.counters, self.queued
        if batch.generation < self._ownership.generation or self.resets:
            counters.dropped_batches += 1
            return
        self.check.batch(batch, self.acks, queued)
        if not self._turn.limits.batch_index_acks:
            batch, ignored = without_partials(batch)
            counters.partial_acks_ignored += ignored
        queued.keep(batch)
        counters.accepted_acks += batch.acks

    def absorb_if_much(self) -> None:
        """Applying what is queued must not take long at once."""
        if self.queued.parts >= QUEUED_PARTS_MAX:
            self.absorb()

    def absorb(self) -> None:
        """Applies what is queued; what it changed joins `carried`."""
        if not self.queued.messages:
            return
        queued, self.queued = self.queued, Queued()
        batches = queued.messages
        delta = self.acks.apply(batches)
        properties = next(
            (b.properties for b in reversed(batches) if b.properties is not None), None
        )
        if properties is not None:
            stamped = MarkDeleteProperties(self._next_stamp(), dict(properties))
            self.acks.set_mark_delete_properties(stamped)
            delta = join([delta, Delta(mark_delete_properties=stamped)])
        new = sum(map(len, delta.acks.values()))
        self._turn.counters.new_acks += new
        self._turn.counters.duplicate_acks += max(0, queued.acks - new - len(delta.partials))
        self.carried = join([self.carried, delta])

    def _next_stamp(self) -> Stamp:
        self._stamp += 1
        return Stamp(self._ownership.epoch, self._stamp)

    def apply(self, event: ev.SetLayout | ev.SetProperties) -> None:
        """What it says holds from now on. Raises RefusedError."""
        if isinstance(event, ev.SetLayout):
            self.join_layout(event.run)
        else:
            self._set_properties(event)

    def join_layout(self, run: tuple[LayoutItem, ...]) -> None:
        """Behind what is queued, whose acks are in ledgers that were open then. Raises
        RefusedError.
        """
        self.absorb()
        self.check.layout(run, self.acks)
        for item in run:
            beyond = self.acks.acked_beyond(item)
            if beyond:
                self._turn.counters.acks_beyond_end += beyond
                fields = {"ledger": item.ledger, "entries": item.entries, "acks": beyond}
                self._turn.emit(fx.Report("acks beyond the end of a ledger", fields))
        self._carry(self.acks.apply_layout(run))

    def _set_properties(self, event: ev.SetProperties) -> None:
        """The whole map of cursor properties is replaced."""
        properties = CursorProperties(self._next_stamp(), dict(event.values))
        self.acks.set_cursor_properties(properties)
        self._carry(Delta(cursor_properties=properties))

    def _carry(self, delta: Delta) -> None:
        """One more change that is to be written."""
        self.layout_changes += bool(delta.layout)
        if delta.layout and not self._keeps_layout:
            delta = replace(delta, layout=())
        self.carried = join([self.carried, delta])

    def defer(self, event: ev.SetLayout | ev.SetProperties) -> None:
        """Accepts it for the generation that begins with the last reset. Raises RefusedError."""
        if len(self.deferred) >= DEFERRED_MAX:
            raise self._refused(
                "too many messages while a reset is under way", "wait for ResetDone"
            )
        if isinstance(event, ev.SetLayout):
            waiting = sum(
                len(layout.run) for layout in self.deferred if isinstance(layout, ev.SetLayout)
            )
            self.check.layout_memory(waiting + len(event.run), self.acks)
        self.deferred.append(event)

    def take_deferred(self) -> list[ev.SetLayout | ev.SetProperties]:
        deferred, self.deferred = self.deferred, []
        return deferred

    def accept_reset(self, reset: ev.Reset) -> None:
        """Puts a reset behind those that are not decided. Raises RefusedError if there are too many
        of them.
        """
        if len(self.resets) >= DEFERRED_MAX:
            raise self._refused("too many resets at once", "wait for ResetDone")
        self.resets.append(reset)

    def _refused(self, message: str, remedy: str) -> RefusedError:
        return RefusedError(Refusal.BAD_MESSAGE, self._turn.name.display, message, remedy)

    def drop_resets(self, but: int) -> None:
        """The tombstone decides all but the oldest ones."""
        while len(self.resets) > but:
            self.resets.pop()

    # ---- what is recovered, or begins again

    def recover(self, event: ev.ChainRead) -> None:
        """The state of the owners before us."""
        self.acks = event.state
        base = self._ownership.base
        length = base.length if isinstance(base, SnapshotBase) else 0
        self.cost.recovered(
            event.delta_bytes, event.delta_records, event.delta_acks, length, self._turn.now
        )

    def begin_generation(self, written: InlineBase | None) -> ev.Reset:
        """A reset is committed: the state begins at its target. Takes the reset from those that are
        not decided.
        """
        reset = self.resets.popleft()
        layout = self.layout_from(reset)
        state = AckState(reset.target, Layout(layout))
        state.set_cursor_properties(self.acks.cursor_properties)
        self.acks = state
        self.queued = Queued()
        self.carried = NOTHING
        self._carry(
            Delta(
                layout=()
                if (written.state if written is not None else Segment()).layout == layout
                else layout
            )
        )
        self.cost.forget()
        return reset

    def layout_from(self, reset: ev.Reset) -> tuple[LayoutItem, ...]:
        """What is known from the target on. A target that is not in the layout leaves nothing:
        crossing from it into what is known would need the ledgers between, so the source sends
        Layout again.
        """
        return (
            self.acks.layout.items_from(reset.target.ledger)
            if reset.target.ledger in self.acks.layout
            else ()
        )

    # ---- records

    def take_carried(self) -> Delta:
        """All of it is in a record now."""
        taken, self.carried = self.carried, NOTHING
        return taken

    def carry_rest(self, rest: Delta) -> None:
        """What of it is left for the next records."""
        self.carried = rest

    def put_back(self, deltas: list[Delta]) -> None:
        """Records that are not durable are written again elsewhere."""
        self.carried = join([self.carried, *deltas])
        self.progress.put_back()

    # ---- what the source is told

    def withhold(self, *, is_withheld: bool) -> None:
        """Whether what is stored is less than what was durable."""
        self.progress.withhold(is_withheld=is_withheld)

    def stores(self, truncated: Truncation | None) -> None:
        """The newest durable state leaves this out."""
        self.stored_truncation = truncated

    def bind_to_newest(self) -> None:
        """A flush found nothing new: its messages wait for the newest record, or for none."""
        self.progress.bind_to_newest()
        self.confirm(self.progress.confirmations())

    def confirm(self, confirmations: list[fx.Effect]) -> None:
        """Tells the sources, with what the stored state leaves out."""
        left_out = self.truncated_acks
        for effect in confirmations:
            told = (
                replace(effect, truncated_acks=left_out)
                if left_out and isinstance(effect, fx.Confirm)
                else effect
            )
            self._turn.emit(told)
