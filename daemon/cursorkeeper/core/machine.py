"""Serves the daemon, one cursor at a time: the cursor machine, a cursor's whole behaviour as
`step(event, now) -> effects`. No I/O, no clock, no random.

This file is the dispatch: which part an event concerns, and in which order the parts go on
afterwards. Each part owns its fields and sees of the others what it was given:

    turn       the event of now, and the effects        life       where the cursor is between claim
    and end
    handles    who holds it, who waits                  questions  who wants to be told something
    ownership  the footer: epoch, chain, its writes     claim      becoming the owner
    flow       what was accepted and is carried         writer     the ledger that is written
    form       how the state is stored                  snapshots  shortening the chain
    ledgers    created, named, left                     flush      from accepted to in flight
    evidence   what may be called away                  pause      telling sources so
    proof      before anything is told                  intake     messages of sources
    ending     reset, backstop, close, delete

Invariants: `progress.durable <= in flight <= accepted`; one footer write at a time; nothing is
appended to a ledger that was left; nothing is confirmed that a committed footer does not lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.commit import Decision, Lost, Purpose
from cursorkeeper.core.ending import Ending
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.evidence import Evidence
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.flush import Flush
from cursorkeeper.core.footer import ChainLedger, Footer
from cursorkeeper.core.form import Form
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.intake import Intake
from cursorkeeper.core.ledgers import Ledgers
from cursorkeeper.core.life import Life
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.native_form import NativeForm
from cursorkeeper.core.ownership import RESTORE, Ownership
from cursorkeeper.core.pause import Pause
from cursorkeeper.core.progress import Progress
from cursorkeeper.core.proof import Proof
from cursorkeeper.core.questions import Questions
from cursorkeeper.core.shape import extended, frozen
from cursorkeeper.core.snapshots import Snapshots
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import ENDED, LIVE, OPENING, OWNING, State, WriterPhase, is_handled
from cursorkeeper.core.turn import Counters, Turn, earlier, earliest
from cursorkeeper.core.whole_form import StateWriter, WholeForm
from cursorkeeper.core.writer import Writer


@frozen
class Statistics:
    """What is told of a cursor beside its state, its acks and its counters."""

    format: str
    metadata_bytes: int
    interval_ms: int
    appends_in_flight: int
    answers_waiting: int
    """Questions that ZooKeeper has not answered."""
    truncated_acks: int
    fencing_token: int
    paused_for: str
    pause_reason: str
    """What sources were told; empty: they were not told to pause."""
    stuck_for: str
    """Why what waits may not be written before more is acked; empty: it may."""


@extended
class CursorMachine:
    """One cursor, from one claim to its end. A deposed or closed machine is thrown away; reopening
    makes a new one.

    `writer` is a nonce of this claim attempt; `jitter` in [-0.1, 0.1] spreads snapshots. Both come
    from outside. `state_writer`: every flush writes the whole state, by it; None: the native form.
    """

    def __init__(
        self,
        name: CursorName,
        limits: Limits,
        writer: str,
        jitter: float = 0.0,
        state_writer: StateWriter | None = None,
    ) -> None:
        turn = self.turn = Turn(name, limits, writer, jitter)
        life = self.life = Life()
        handles = self.handles = Handles()
        questions = self.questions = Questions()
        ownership = self.ownership = Ownership(turn, life, handles, questions)
        flow = self.flow = Flow(turn, ownership, state_writer is None)
        ledger = self.writer = Writer(turn, ownership)
        form: Form
        if state_writer is None:
            form = NativeForm(turn, ownership, flow, ledger)
        else:
            form = WholeForm(turn, life, ownership, flow, ledger, state_writer)
        self.form = form
        snapshots = self.snapshots = Snapshots(turn, life, ownership, flow, ledger, form)
        ledgers = self.ledgers = Ledgers(turn, life, ownership, flow, ledger, form, snapshots)
        claim = self.claim = Claim(turn, life, handles, questions, ownership, not form.has_records)
        evidence = self.evidence = Evidence(turn, ownership, flow, ledger, form, snapshots, claim)
        proof = self.proof = Proof(turn, life, handles, questions, ownership, claim, evidence)
        intake = self.intake = Intake(turn, life, handles, questions, ownership, flow, claim, proof)
        self.flush = Flush(
            turn, life, handles, questions, ownership, flow, ledger, form, snapshots, claim
        )
        self.pause = Pause(turn, life, ledger, form, snapshots, ledgers, evidence)
        self.ending = Ending(
            turn,
            life,
            handles,
            ownership,
            flow,
            ledger,
            form,
            snapshots,
            claim,
            evidence,
            proof,
            intake,
        )

    # ---- the one way in

    def step(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """What must be done because of this event, in order. `now`: seconds of any monotonic
        clock.
        """
        out = self.turn.begin(event, now)
        if is_handled(self.life.state, event):
            HANDLERS[type(event)](self, event)
        else:
            # a message for a cursor on its way out gets no answer of its own: the end is the answer
            self.turn.late()
        if isinstance(event, ev.Sent):
            self.proof.drive()  # that something is sent makes nothing else possible
        elif not (isinstance(event, ev.Acks) and self._is_flowing):
            self._drive(is_steady=type(event) in OF_FLOW and self._is_steady)
        return out

    @property
    def _is_flowing(self) -> bool:
        """Acks wait for the next flush, which a Tick brings: they make nothing else possible."""
        return self.life.state is State.READY and self.writer.is_usable and not self.questions

    @property
    def _is_steady(self) -> bool:
        """Nothing is asked of anybody and nobody waits but for acks to be durable: what claims,
        proves, ends and notes has nothing to do.
        """
        ownership = self.ownership
        return (
            self._is_flowing
            and ownership.commit.outstanding is None
            and not ownership.look_again
            and self.handles.waiting is None
            and not self.flow.resets
            and self.form.has_records
        )

    def _drive(self, *, is_steady: bool) -> None:
        """Starts whatever is possible now: handlers record what happened, they do not chain into
        each other. `is_steady`: only acks, their records and time concern it.
        """
        if not is_steady:
            self.ownership.commit.drive()
            if self.life.state in OPENING:
                self.claim.drive()
            self.proof.drive()
            if self.life.state not in OWNING:
                return
            self.intake.drive()
            self.ending.drive(is_paused=bool(self.pause.paused_for))
        self.snapshots.drive()
        self.flush.settle_without_writing()
        self.ledgers.drive()
        self.flush.drive()
        if not is_steady:
            self._note()
            if self.writer.phase is not WriterPhase.CHECKING:
                self.ownership.look()
        self.pause.drive()

    def _note(self) -> None:
        """A small footer write of its own where no other one is on its way."""
        if self.ownership.is_writing or self.flow.resets or self.life.state is State.DELETING:
            return
        footer = self.form.note()
        if footer is not None:
            self.ownership.propose(footer, Purpose.NOTE)

    # ---- events that concern several parts

    def on_sent(self, event: ev.Sent) -> None:
        """From now on its answer may be missed."""
        self.turn.release(event.token)
        self.proof.turn_came()
        self.writer.asked_now(event.token)
        if self.ownership.commit.awaits(event.token):
            self.ownership.commit.sent()

    def on_ledger_ended(self, event: ev.LedgerEnded) -> None:
        """Recovery answered: during the claim, or for a ledger that the writer leaves."""
        part = self.claim if self.life.state is State.FENCING else self.ledgers
        part.on_ledger_ended(event)

    def on_ledger_end_failed(self, event: ev.LedgerEndFailed) -> None:
        part = self.claim if self.life.state is State.FENCING else self.ledgers
        part.on_ledger_end_failed(event)

    def on_chain_read(self, event: ev.ChainRead) -> None:
        """READY, with the state of the owners before us."""
        if not self.claim.on_chain_read(event):
            return
        self.flow.recover(event)
        truncated = self.ownership.truncated
        self.flow.stores(truncated)
        if truncated is not None:
            self.turn.emit(
                fx.Report(
                    "state recovered that was truncated when it was written", truncated.as_fields()
                )
            )
        if self.form.has_records and (event.fell_back or event.bars_fallback):
            self.snapshots.start("damage")
        elif self.form.has_records and self.form.is_foreign:
            self.snapshots.start("format")
        wish = self.ending.wish_after_opening()
        if wish is not None:
            HANDLERS[type(wish)](self, wish)

    # ---- answers of ZooKeeper: each belongs to the part that asked

    def _asker(self, token: int) -> Proof | Claim | Ledgers | None:
        """Who asks whose the footer is, or whether it is still ours, and waits for this answer."""
        return next((p for p in (self.proof, self.claim, self.ledgers) if p.awaits(token)), None)

    def on_footer_read(self, event: ev.FooterRead) -> None:
        """An answer to a BadVersion's question, to a check that failed, to the claim's read, to the
        roll's check, or to the slow poll.
        """
        if self.ownership.commit.awaits(event.token):
            self._decide(self.ownership.commit.on_read(event.footer, event.version))
        elif asker := self._asker(event.token):
            asker.on_read(event)
        elif self.ownership.is_looking(event.token):
            self.ownership.on_looked(event.footer)

    def on_footer_unknown(
        self, event: ev.FooterReadFailed | ev.FooterWriteUnknown | ev.FooterCheckUnknown
    ) -> None:
        """ZooKeeper is away, or its answer was lost: ask again later."""
        asker = self._asker(event.token)
        if self.ownership.commit.awaits(event.token):
            self.ownership.commit.on_unknown(event.reason)
        elif asker is not None:
            asker.on_unknown(event.reason)
        elif self.ownership.is_looking(event.token):
            self.ownership.on_look_failed()

    def on_footer_unreadable(self, event: ev.FooterUnreadable) -> None:
        """Bytes that are not a footer of this version: touch nothing."""
        token, ownership = event.token, self.ownership
        if not (
            self._asker(token) or ownership.commit.awaits(token) or ownership.is_looking(token)
        ):
            return
        if self.claim.is_read_again(token):
            return
        if event.replaced:
            ownership.keep_footer()
            ownership.refuse(
                Refusal.FOOTER_REPLACED,
                f"its footer was not put there by a CursorKeeper: {event.reason}",
                "find out what wrote the znode, and let nothing delete this cursor's ledgers. "
                + RESTORE,
            )
        elif event.too_new:
            reason = f"its footer was written by a newer version: {event.reason}"
            ownership.refuse(Refusal.FORMAT_TOO_NEW, reason, "upgrade this daemon")
        else:
            remedy = "look at it with `cursorkeeper inspect`. " + RESTORE
            ownership.refuse(Refusal.DAMAGED, f"its footer cannot be read: {event.reason}", remedy)

    def on_write_answered(
        self, event: ev.FooterWritten | ev.FooterBadVersion | ev.FooterGone | ev.FooterTooLarge
    ) -> None:
        ownership = self.ownership
        if not ownership.commit.awaits(event.token):
            return
        match event:
            case ev.FooterWritten():
                self._decide(ownership.commit.on_written(event.version))
            case ev.FooterBadVersion():  # somebody's write was applied: whose?
                ownership.commit.on_bad_version()
            case ev.FooterGone():  # a footer once seen is never created again
                ownership.footer_lost()
            case ev.FooterTooLarge():
                # It was not sent. A limit that the start-up checks should have caught; nothing is
                # guessed, nothing is lost on disk.
                ownership.refuse(
                    Refusal.TOO_LARGE,
                    f"its footer does not fit a znode: {event.reason}",
                    "raise jute.maxbuffer, or lower the chain and property limits",
                )

    def on_footer_checked(self, event: ev.FooterChecked) -> None:
        """The footer is the one that was asked about."""
        if asker := self._asker(event.token):
            asker.on_checked()

    def on_footer_check_failed(self, event: ev.FooterCheckFailed) -> None:
        if asker := self._asker(event.token):
            asker.on_check_failed()

    def _decide(self, decision: Decision) -> None:
        self.questions.write_decided(committed=not isinstance(decision, Lost))
        if isinstance(decision, Lost):
            if decision.purpose is Purpose.CLAIM:
                self.claim.lost(decision.now)
            elif decision.now is None:
                self.ownership.footer_lost()
            else:
                self.ownership.depose(decision.now.epoch)
            return
        self.turn.wait_for("")
        match decision.purpose:
            case Purpose.CLAIM:
                self.claim.committed(decision)
            case Purpose.NAME_LEDGER:
                self.ledgers.named(decision)
            case Purpose.SWITCH:
                self.ledgers.switched(decision)
            case Purpose.TOKEN:
                pass  # it proved, and who waits has its token now
            case Purpose.NOTE:
                self.ledgers.confirm()
            case Purpose.RESET:
                self.ending.reset(decision)
            case Purpose.INLINE:
                self.ending.inlined(decision)
            case Purpose.CLOSE:
                self.ending.closed(decision)
            case Purpose.DELETE:
                self.ending.deleted(decision)

    # ---- what the daemon asks

    @property
    def timer_at_s(self) -> float | None:
        """When it wants a Tick at the latest, with or without room for appends; None: nothing to
        wait for.
        """
        if self._is_steady:
            away = None if self.flow.progress.is_clear else self.evidence.away_at_s
            return earlier(earlier(self.writer.retry_at_s, self.snapshots.start_at_s), away)
        state = self.life.state
        times = [self.ownership.commit.retry_at_s, self.writer.retry_at_s, self.proof.wake_at_s]
        if state in OPENING:
            times.append(self.claim.wake_at_s)
        if state in OWNING:
            times += [self.snapshots.start_at_s, self.ending.reopen_at_s, self.ending.close_at_s]
            if state in LIVE and self.flow.progress.oldest_unconfirmed_s is not None:
                times.append(
                    self.ending.backstop_at_s if self.pause.paused_for else self.evidence.away_at_s
                )
        return earliest(*times)

    @property
    def append_at_s(self) -> float | None:
        """When it wants a Tick with room for an append; None: nothing is to be appended."""
        return self.flush.wake_at_s if self.life.state in OWNING else None

    def is_due_at_once(self, now: float) -> bool:
        """Whether it appends as soon as nothing of the daemon is in flight, though `append_at_s` is
        later.
        """
        return self.life.state in OWNING and self.flush.is_due(at_once=True, now=now)

    def hold(self, token: int) -> None:
        """An effect of the last turn waits for its place in the daemon's own queue; `ev.Sent` tells
        when it is sent.
        """
        self.turn.hold(token)

    def wait_for(self, what: str) -> None:
        """Says what is waited for, for people; empty: nothing."""
        self.turn.wait_for(what)

    def allow(self, request: ev.Open) -> None:
        """Another source wants the cursor while it is being claimed: what either of them allows, is
        allowed.
        """
        self.claim.allow(request)

    def stop(self) -> None:
        """A bug was met: it is left as it is on disk, and nothing more comes of it."""
        self.life.stop()

    @property
    def has_failed_to_look(self) -> bool:
        """Whether its footer has changed is not known: the last read that was to see it was not
        answered.
        """
        return self.ownership.has_failed_to_look

    @property
    def has_only_claimed(self) -> bool:
        """Nothing that this owner was told is in the footer yet, or named by it."""
        return self.ownership.has_only_claimed

    @property
    def is_leaving(self) -> bool:
        """It is on its way out, or will be as soon as it is open: whoever wants the cursor waits
        for the end.
        """
        going = self.claim.is_for_delete or self.handles.wish is not None
        return going or self.life.state not in LIVE | OPENING

    @property
    def is_end_with_zookeeper(self) -> bool:
        """A cursor on its way out, or that is opened only to go: it is a footer that it waits
        for.
        """
        return self.proof.is_end_with_zookeeper

    @property
    def is_footer_held(self) -> bool:
        """What is to be asked of the footer next waits for its turn in the daemon."""
        return self.evidence.is_footer_held

    @property
    def knows_no_room(self) -> bool:
        """It was told that the daemon's window is full of appends that nobody answers."""
        return self.turn.no_room_since_s is not None

    @property
    def known_token(self) -> int:
        """The highest fencing token that was seen: an open with a lower one is refused."""
        return self.ownership.fencing.known

    def waited_s(self, question: int, now: float) -> float:
        """How long one who asked has waited for ZooKeeper in all."""
        return self.questions.waited_s(question, now)

    @property
    def is_ended(self) -> bool:
        """Nothing will come of this machine any more."""
        return self.life.state in ENDED or (self.life.state is State.CLOSED and self.turn.has_asked)

    # ---- what may be told of it

    @property
    def statistics(self) -> Statistics:
        """As of now. The metrics' thread asks, too."""
        form, pause = self.form, self.pause
        return Statistics(
            form.name,
            form.metadata_bytes,
            form.interval_ms,
            self.writer.in_flight,
            self.questions.waiting,
            self.flow.truncated_acks,
            self.ownership.fencing.committed,
            pause.paused_for,
            pause.reason,
            form.unfit if form.is_stuck else "",
        )

    @property
    def answerable(self) -> int | None:
        """The handle that waits for the state, if the footer was proved to be ours since it asked
        (ARCHITECTURE rule 22).
        """
        return self.ownership.fencing.answerable

    @property
    def nonce(self) -> str:
        """What its footers name as their writer."""
        return self.turn.writer

    @property
    def footer(self) -> Footer | None:
        """The committed one, as far as is known."""
        return self.ownership.committed

    @property
    def name(self) -> CursorName:
        return self.turn.name

    @property
    def limits(self) -> Limits:
        return self.turn.limits

    @property
    def counters(self) -> Counters:
        return self.turn.counters

    @property
    def waiting_for(self) -> str:
        return self.turn.waiting_for

    @property
    def state(self) -> State:
        return self.life.state

    @property
    def acks(self) -> AckState:
        return self.flow.acks

    @property
    def progress(self) -> Progress:
        return self.flow.progress

    @property
    def epoch(self) -> int:
        return self.ownership.epoch

    @property
    def generation(self) -> int:
        return self.ownership.generation

    @property
    def chain(self) -> tuple[ChainLedger, ...]:
        return self.ownership.chain


OF_FLOW = frozenset({ev.Acks, ev.Tick, ev.Appended})
HANDLERS: dict[type, Callable[[CursorMachine, Any], None]] = {
    ev.Open: lambda m, e: m.claim.on_open(e),
    ev.Attach: lambda m, e: m.intake.on_attach(e),
    ev.Prove: lambda m, e: m.proof.on_prove(e),
    ev.Detach: lambda m, e: m.intake.on_detach(e),
    ev.Acks: lambda m, e: m.intake.on_acks(e),
    **dict.fromkeys(
        (ev.SetLayout, ev.SetProperties, ev.Reset), lambda m, e: m.intake.on_control(e)
    ),
    ev.Close: lambda m, e: m.ending.on_close(e),
    ev.Delete: lambda m, e: m.ending.on_delete(e),
    ev.InlineTurn: lambda m, e: m.ending.on_inline_turn(e),
    ev.Roll: lambda m, e: m.ledgers.on_roll(e),
    ev.Tick: lambda m, e: None,
    ev.Sent: CursorMachine.on_sent,
    ev.FooterRead: CursorMachine.on_footer_read,
    **dict.fromkeys(
        (ev.FooterReadFailed, ev.FooterWriteUnknown, ev.FooterCheckUnknown),
        CursorMachine.on_footer_unknown,
    ),
    ev.FooterUnreadable: CursorMachine.on_footer_unreadable,
    **dict.fromkeys(
        (ev.FooterWritten, ev.FooterBadVersion, ev.FooterGone, ev.FooterTooLarge),
        CursorMachine.on_write_answered,
    ),
    ev.FooterChecked: CursorMachine.on_footer_checked,
    ev.FooterCheckFailed: CursorMachine.on_footer_check_failed,
    ev.FooterChanged: lambda m, e: m.ownership.changed(),
    ev.LedgerCreated: lambda m, e: m.ledgers.on_created(e),
    ev.LedgerCreateFailed: lambda m, e: m.ledgers.on_create_failed(e),
    ev.LedgerEnded: CursorMachine.on_ledger_ended,
    ev.LedgerEndFailed: CursorMachine.on_ledger_end_failed,
    ev.Appended: lambda m, e: m.ledgers.on_appended(e),
    ev.AppendFailed: lambda m, e: m.ledgers.on_append_failed(e),
    ev.ChainRead: CursorMachine.on_chain_read,
    ev.ChainMissing: lambda m, e: m.claim.on_chain_missing(e),
    ev.ChainDamaged: lambda m, e: m.claim.on_chain_damaged(e),
}
