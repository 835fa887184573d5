"""The cursor machine: one cursor's whole behaviour as `step(event, now) -> effects`. No I/O, no clock, no random.

This file owns the data of a cursor and the dispatch of events; what an event does is in the module of its theme:
`opening` (claim, fence, read), `footer_answers`, `answers` (proof before anything is told), `intake` (acks and control
messages), `flushing`, `rolling` (ledgers), `snapshotting`,
`finishing` (reset, inline, close, delete). After every event `_drive` looks at the whole and starts whatever is
possible now: handlers record what happened, they do not chain into each other.

Invariants: `progress.durable <= in flight <= accepted`; one footer write at a time; nothing is appended to a ledger
that was left; nothing is confirmed that a committed footer does not lead to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace

from cursorkeeper.core import answers, evidence, finishing, flushing, footer_answers, intake, opening, rolling, snapshotting, whole_states
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.commit import Committed, FooterCommit, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import (
    Base,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    Previous,
    Stats,
    Truncation,
)  # fmt: skip
from cursorkeeper.core.intake_check import IntakeCheck, Queued
from cursorkeeper.core.joining import NOTHING, join
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.progress import Progress
from cursorkeeper.core.snapshot_policy import ReplayCost
from cursorkeeper.core.snapshotting import SnapshotRun
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import ENDED, LIVE, OPENING, OWNING, State, check_move, is_handled
from cursorkeeper.core.values import Delta, LayoutItem
from cursorkeeper.core.writer import LedgerWriter

_STATS_HOLES_MAX = 1_000_000


@dataclass(slots=True)
class Counters:
    """Counts over this machine's life, for metrics and `Get`."""

    accepted_acks: int = 0
    new_acks: int = 0
    duplicate_acks: int = 0
    dropped_batches: int = 0
    flushes: int = 0
    flushed_bytes: int = 0
    snapshots: int = 0
    snapshots_aborted: int = 0
    rolls: int = 0
    late_events: int = 0
    inline_backstops: int = 0
    partial_acks_ignored: int = 0
    """Acks of batch indexes while they are not kept."""
    acks_beyond_end: int = 0
    """Acked entries that their ledgers turned out not to have when they were closed."""
    limit_crossings: int = 0
    """How often the state began not to fit a limit."""
    truncations: int = 0
    """How often the stored state began to leave something out."""
    truncated_flushes: int = 0
    lost_entries: int = 0
    """Entries that BookKeeper had acknowledged and that recovery of their ledger did not find."""

    def add(self, other: Counters) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class CursorMachine:
    """One cursor, from one claim to its end. A deposed or closed machine is thrown away; reopening makes a new one.

    `writer` is a nonce of this claim attempt; `jitter` in [-0.1, 0.1] spreads snapshots. Both come from outside. `state_writer`:
    every flush writes the whole state, by it; None: the native form.
    """

    def __init__(
        self, name: CursorName, limits: Limits, writer: str, jitter: float = 0.0, state_writer: whole_states.StateWriter | None = None
    ) -> None:
        self.name, self.limits, self.writer_id, self.jitter = name, limits, writer, jitter
        self.state = State.CLOSED
        self.check = IntakeCheck(name.display, limits)
        self.counters = Counters()
        self.commit = FooterCommit(limits.retry_min_ms / 1000, limits.retry_max_ms / 1000)
        self.progress = Progress()
        self.writer = LedgerWriter()
        self.cost = ReplayCost()
        self.opening = opening.OpeningRun()
        self.answers = answers.Answers()
        self.snapshot: SnapshotRun | None = None
        self.snapshot_asked = False
        self.snapshots_failed = 0
        """How many snapshots in a row have failed because their ledger did."""
        self.acks = AckState()
        self.epoch = 0
        self.generation = 1
        self.write = 0
        self.sequence = 0
        self.stamp = 0
        # what the next footer will say; the committed one is in `commit`
        self.base: Base = EmptyBase(FIRST)
        self.chain: tuple[ChainLedger, ...] = ()
        self.previous: Previous | None = None
        self.damaged: tuple[EntryAddress, ...] = ()
        self.claimed_bases: tuple[Base, ...] = ()
        """What the footer named when it was claimed: written by owners before us."""

        self.queue: list[AckBatch] = []
        self.pending_acks = 0
        self.pending_bytes = 0
        self.queued = Queued()
        self.carried: Delta = NOTHING
        self.attach: int | None = None
        self.attach_waiting: int | None = None
        self.attach_layout: tuple[LayoutItem, ...] = ()
        """What the waiting handle told and was not taken yet."""
        self.attach_source = ""
        """Which process the waiting handle is of."""
        self.last_seq = 0
        self.resets: deque[ev.Reset] = deque()
        self.deferred: list[ev.SetLayout | ev.SetProperties] = []
        self.closing = False
        self.wanted_after_opening: ev.Close | ev.Delete | None = None
        """A close or delete that came too early."""
        self.leaving: int | None = None
        """The handle that was attached when the close began: a delete of its own may still come."""
        self.deleting = False
        self.delete_token = 0
        """The highest fencing token of those who asked for the cursor's deletion."""
        self.paused_for = ""
        """`away` or `limit` while NOT_PERSISTABLE."""
        self.pause_reason = ""
        """What the source was told; empty: it was not told to pause."""
        self.reopen: int | None = None
        self.waiting_for = ""
        self.state_writer = state_writer
        self.state_taken_s: float | None = None
        self.unfit: whole_states.Unfit | None = None
        self.fits_since_s = 0.0
        self.note_awaited = False
        """A state waits until the committed footer says that it leaves something out."""
        self.truncated: Truncation | None = None
        """What the next footer says is left out of the stored state."""
        self.stored_truncation: Truncation | None = None
        """What the newest durable state leaves out."""
        self.metadata_bytes = 0
        """Size of the encoded state as of the last flush (PIP-299's cursorMetadataSizeInMemoryBytes)."""
        self.inline_at_s: float | None = None
        self.inline_token: int | None = None
        """A turn to write the state into the footer was asked for."""
        self.inline_turn = False
        """The daemon lets this cursor write its state into its footer."""
        self.inline_refused = False
        self.covered = finishing.Covered()
        self.check_token = 0
        self.look_again = False
        """The footer may have changed since it was read last."""
        self.checked_synced = False

        self.held: set[int] = set()
        """Tokens of effects that wait in the daemon's own queues: see `hold`."""
        self.no_room_since_s: float | None = None
        """Since when the daemon's window is full of appends that nobody answers."""
        self.heard_s: float | None = None
        """When ZooKeeper last answered anybody, as of this tick."""

        self.now = 0.0
        self.room = 0
        self.at_once = False
        """Nothing of the daemon is in flight, as of this tick."""
        self._tokens = 0
        self._out: list[fx.Effect] = []

    # ---- the one way in

    def step(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """What must be done because of this event, in order. `now`: seconds of any monotonic clock."""
        self._out = []
        self.now = now
        self.room, self.heard_s, self.at_once = 0, None, False
        if isinstance(event, ev.Tick):
            self.at_once = event.at_once
            self.room, self.no_room_since_s = event.room, event.no_room_since_s
            self.heard_s = now if event.heard_s is None else event.heard_s
        if is_handled(self.state, event):
            HANDLERS[type(event)](self, event, now)
        else:
            self.counters.late_events += 1
            self._late(event)
        if isinstance(event, ev.Sent):
            answers.drive(self, now)  # that something is sent makes nothing else possible
        else:
            self._drive(now)
        self.inline_turn = False
        return self._out

    def _late(self, event: ev.Event) -> None:
        """A message for a cursor on its way out gets no answer of its own: the end is the answer."""

    def _drive(self, now: float) -> None:
        again = self.commit.on_time(now, self.next_token_if_due(now))
        if again is not None:
            self.emit(again)
        if self.state in OPENING:
            opening.drive(self, now)
        answers.drive(self, now)
        if self.state in OWNING:
            intake.drive(self)
            finishing.drive(self, now)
            snapshotting.drive(self, now)
            flushing.settle_without_writing(self)
            rolling.drive(self, now)
            flushing.drive(self, now)
            whole_states.drive(self)
            footer_answers.look(self)
            self._watch_progress(now)

    def _watch_progress(self, now: float) -> None:
        """Acks that wait too long, or a state that may not be written, pause the source; the state says so."""
        if self.state not in LIVE:
            return
        stuck_for = "limit" if self.unfit is not None else "away" if self._is_away(now) else ""
        if stuck_for == "away" and snapshotting.is_given_little_hope(self):
            stuck_for = "chain"
        if not stuck_for:
            self.paused_for = ""
            self.move(rolling.live_state(self))
            self._tell_paused("")
            return
        if self.unfit is not None:
            self.waiting_for = self.unfit.why.reason  # with the numbers of now, whatever else was waited for meanwhile
        if stuck_for != self.paused_for:
            self.paused_for = stuck_for
            self.move(State.NOT_PERSISTABLE)
            if stuck_for == "chain":
                self._tell_paused(snapshotting.why_waited_for(self))
            elif self.unfit is not None:
                self._tell_paused(self.unfit.why.reason if self.limits.pause_at_limit else "")
            else:
                self._tell_paused(self.writer.trouble or self.waiting_for or "acks are not durable yet")

    def _is_away(self, now: float) -> bool:
        """Once said it holds until acks are durable again: an answer alone does not make them so."""
        waited_at = evidence.waited_at_s(self)
        if waited_at is None or now < waited_at:
            return False
        away_at = waited_at if self.paused_for == "away" else evidence.away_at_s(self)
        return away_at is not None and now >= away_at

    def _tell_paused(self, reason: str) -> None:
        told, self.pause_reason = self.pause_reason, reason
        if reason:
            self.emit(fx.Pause(reason))
        elif told:
            self.emit(fx.Resume())

    @property
    def paused(self) -> bool:
        """NOT_PERSISTABLE, whether or not the source was told to pause."""
        return bool(self.paused_for)

    @property
    def wake_at_s(self) -> float | None:
        """When the machine wants a Tick at the latest, given room; None: nothing to wait for."""
        at, append_at = self.timer_at_s, self.append_at_s
        return append_at if at is None else at if append_at is None else min(at, append_at)

    @property
    def timer_at_s(self) -> float | None:
        """When it wants a Tick, with or without room for appends."""
        times = [self.commit.retry_at_s, self.writer.retry_at_s, answers.wake_at_s(self)]
        if self.state in OPENING:
            times.append(opening.wake_at_s(self))
        if self.state in OWNING:
            times.append(snapshotting.start_at_s(self))
            times.append(finishing.reopen_at_s(self))
            times.append(finishing.close_at_s(self))
            if self.progress.oldest_unconfirmed_s is not None and self.state in LIVE:
                times.append(self._backstop_at_s() if self.paused_for else evidence.away_at_s(self))
        known = [t for t in times if t is not None]
        return min(known) if known else None

    def _backstop_at_s(self) -> float | None:
        return finishing.backstop_at_s(self) if self.inline_token is None else None

    @property
    def append_at_s(self) -> float | None:
        """When it wants a Tick with room for an append; None: nothing is to be appended."""
        return flushing.wake_at_s(self) if self.state in OWNING else None

    def is_due_at_once(self, now: float) -> bool:
        """Whether it appends as soon as nothing of the daemon is in flight, though `append_at_s` is later."""
        return self.state in OWNING and flushing.is_due_at_once(self, now)

    # ---- shared by the themes

    def emit(self, effect: fx.Effect) -> None:
        self._out.append(effect)

    def hold(self, token: int) -> None:
        """An effect of the last step waits for its turn in the daemon's own queue; `ev.Sent` tells when it is sent."""
        self.held.add(token)

    def emit_all(self, effects: list[fx.Effect]) -> None:
        self._out.extend(effects)

    def confirmed(self, confirmations: list[fx.Effect]) -> None:
        """Tell the sources, with what the stored state leaves out."""
        left_out = self.truncated_acks
        for effect in confirmations:
            self.emit(replace(effect, truncated_acks=left_out) if left_out and isinstance(effect, fx.Confirm) else effect)

    @property
    def truncated_acks(self) -> int:
        """What the stored state leaves out: acks of entries and of batches."""
        return self.stored_truncation.acks + self.stored_truncation.batches if self.stored_truncation is not None else 0

    @property
    def flush_interval_ms(self) -> int:
        """The longest wait of an ack before it is sent, when nothing is in the way."""
        return self.limits.flush_interval_ms if self.state_writer is None else self.limits.whole_state_interval_ms

    def carry(self, delta: Delta) -> None:
        """One more change that is to be written."""
        self.carried = join([self.carried, whole_states.carried_of(self, delta)])
        if delta.layout and self.unfit is not None:
            self.unfit = replace(self.unfit, carried=None)

    @property
    def behind(self) -> bool:
        """BookKeeper has lost entries that it had acknowledged: the whole state, which is here, is written as soon as it can be, and
        nothing is confirmed before."""
        return self.progress.withheld

    @behind.setter
    def behind(self, behind: bool) -> None:
        self.progress.withheld = behind

    def forget_limits(self) -> None:
        """Another state is durable than the one that did not fit, or was cut."""
        self.unfit, self.note_awaited, self.truncated, self.stored_truncation = None, False, None, None
        self.behind = False
        self.fits_since_s = self.now

    def move(self, state: State) -> None:
        """Change state, by the table only."""
        check_move(self.state, state)
        self.state = state

    def token(self) -> int:
        """A number that no attempt had before."""
        self._tokens += 1
        return self._tokens

    def next_token_if_due(self, now: float) -> int:
        """A token for a repetition, only drawn when one is due (so that numbers do not depend on idle ticks)."""
        due = self.commit.retry_at_s
        return self.token() if due is not None and now >= due else 0

    def refuse(self, code: Refusal, message: str, remedy: str) -> None:
        """The cursor cannot go on; it is left as it is on disk."""
        self.move(State.REFUSED)
        self.commit.outstanding = None
        self.emit(fx.Refuse(code, message, remedy))
        self.emit(fx.Ended())

    def footer_lost(self) -> None:
        """A footer once seen is gone: never created again."""
        self.keep_footer()
        self.refuse(
            Refusal.FOOTER_LOST,
            "its footer was in ZooKeeper and is gone",
            "find out who removed the znode; the ledgers still exist and name this cursor in their custom metadata. " + opening.RESTORE,
        )

    def keep_footer(self) -> None:
        """What an owner had committed is needed to go on, and may be nowhere else."""
        if self.state in OWNING and self.commit.committed is not None:
            self.emit(fx.KeepFooter(self.commit.committed))

    def depose(self, epoch: int) -> None:
        """A higher epoch exists: final. No footer write, no append, no deletion."""
        self.move(State.DEPOSED)
        self.commit.outstanding = None  # undecided for ever: its repetition would be a write of a deposed owner
        reopen = answers.wants_reopening(self)
        self.emit(fx.Ended(epoch, reopen, 0.0 if reopen is None else self.answers.waited_s(reopen, self.now)))

    def footer(self, **changes: object) -> Footer:
        """The next footer: what we know now, with changes. Draws the next write number."""
        self.write += 1
        committed = self.commit.committed
        base = Footer(
            topic=self.name.topic,
            subscription=self.name.subscription,
            state=FooterState.OPEN,
            epoch=self.epoch,
            writer=self.writer_id,
            write=self.write,
            generation=self.generation,
            mark_delete=self.acks.mark_delete,
            base=self.base,
            chain=self.chain,
            previous=self.previous,
            stats=self.stats(),
            cursor_properties=self.acks.cursor_properties if self.state_writer else committed.cursor_properties if committed else None,
            truncated=self.truncated,
            fencing_token=committed.fencing_token if committed else 0,
            extra=committed.extra if committed else {},
        )
        footer: Footer = replace(base, **changes)  # type: ignore[arg-type]
        if self.state_writer is None and not whole_states.are_notes_needed(self, footer):
            footer = replace(footer, cursor_properties=None, truncated=None)
        elif self.state_writer is not None and isinstance(footer.base, EmptyBase) and "base" not in changes:
            footer = replace(footer, base=EmptyBase(footer.mark_delete))
        if self.damaged:
            named = footer.named_ledgers()
            footer = replace(footer, damaged=tuple(d for d in self.damaged if d.ledger in named))
        return footer

    def stats(self) -> Stats:
        holes = self.acks.hole_count
        runs = sum(count_runs(a.holes) for a in self.acks.ledgers.values()) if holes <= _STATS_HOLES_MAX else 0
        return Stats(len(self.acks.ledgers), self.acks.span, holes, runs, self.acks.partial_count, self.cost.delta_bytes)

    def propose(self, footer: Footer, purpose: Purpose) -> None:
        answers.write_sent(self, purpose)
        self.emit(self.commit.propose(footer, purpose, self.token(), self.now))

    def end_ledger(self, ledger: int, last_entry: int) -> None:
        """What recovery or close answered goes into the next footer."""

        def mend(chain: tuple[ChainLedger, ...]) -> tuple[ChainLedger, ...]:
            return tuple(replace(c, last_entry=last_entry) if c.ledger == ledger else c for c in chain)

        self.chain = mend(self.chain)
        if self.previous is not None:
            self.previous = replace(self.previous, chain=mend(self.previous.chain))

    def delete_dropped(self, done: Committed, extra: tuple[int, ...] = ()) -> None:
        """Ledgers that the footer named and, now that its answer is known, names no more."""
        before = done.before.named_ledgers() if done.before else frozenset()
        gone = tuple(sorted((before | set(extra)) - done.after.named_ledgers()))
        if gone:
            self.emit(fx.DeleteLedgers(gone))

    def redeliver(self, late: list[ev.Event]) -> None:
        """What came too early, in its order."""
        for event in late:
            HANDLERS[type(event)](self, event, self.now)

    @property
    def is_leaving(self) -> bool:
        """It is on its way out, or will be as soon as it is open: whoever wants the cursor waits for the end."""
        going = self.deleting or self.wanted_after_opening is not None
        return going or self.state not in LIVE | OPENING

    @property
    def is_ended(self) -> bool:
        """Nothing will come of this machine any more."""
        return self.state in ENDED or (self.state is State.CLOSED and self._tokens > 0)


def on_sent(m: CursorMachine, event: ev.Sent, now: float) -> None:
    """From now on its answer may be missed."""
    m.held.discard(event.token)
    answers.turn_came(m)
    if event.token == m.writer.token:
        m.writer.asked_at_s = now
    if m.commit.is_waiting_for(event.token):
        m.commit.sent(now)


HANDLERS = {
    **answers.HANDLERS,
    **opening.HANDLERS,
    **footer_answers.HANDLERS,
    **intake.HANDLERS,
    **flushing.HANDLERS,
    **rolling.HANDLERS,
    **snapshotting.HANDLERS,
    **finishing.HANDLERS,
    ev.Tick: lambda _m, _e, _now: None,
    ev.Sent: on_sent,
}
