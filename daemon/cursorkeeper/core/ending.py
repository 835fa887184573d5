"""Serves sources that seek, close and delete, and those whose acks wait for BookKeeper: footer
writes that hold the whole answer: reset, inline backstop, inline or sealed close, tombstone
(ARCHITECTURE rules 5, 19, 20 and 42). Once sent they are decided, never withdrawn.
"""

from __future__ import annotations

from dataclasses import field

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.evidence import Evidence
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.footer import Base, EmptyBase, Footer, FooterState, InlineBase, is_hollow
from cursorkeeper.core.form import Form
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.intake import Intake
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.proof import Proof
from cursorkeeper.core.questions import Wish
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshots import LOST, Snapshots
from cursorkeeper.core.table import LIVE, OPENING, State, WriterPhase
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.writer import Writer


@component
class Covered:
    """What an inline footer write that is under way makes durable, and the ledger that was left for
    it.
    """

    record: int = 0
    ledger: tuple[int, ...] = ()


@component
class Ending:
    _turn: Turn
    _life: Life
    _handles: Handles
    _ownership: Ownership
    _flow: Flow
    _writer: Writer
    _form: Form
    _snapshots: Snapshots
    _claim: Claim
    _evidence: Evidence
    _proof: Proof
    _intake: Intake
    _covered: Covered = field(default_factory=Covered)
    _has_restarted: bool = False
    """The first new acks after the claim were looked at."""
    _inlined_s: float | None = None
    """When the backstop was tried last."""
    _asked_token: int | None = None
    """A turn to write the state into the footer was asked for."""
    _has_turn: bool = False
    """The daemon lets this cursor write its state into its footer, in this turn."""

    # ---- wishes

    def on_close(self, event: ev.Close) -> None:
        """No more intake; everything accepted becomes durable, then the closed footer is
        committed.
        """
        if not self._handles.is_theirs(event.attach):
            self._turn.late()
        elif self._life.state is State.CLOSING:
            # it waited for the cursor to be read again, and does not want it any more
            self._handles.stay_closed(event.attach)
        elif self._life.state in OPENING:
            self._handles.wish_for(event)
            if event.attach is None:
                self._claim.give_up()
        else:
            self._handles.leave()
            self._life.move(State.CLOSING)
            self._turn.emit_all(self._flow.progress.confirmations())

    def on_delete(self, event: ev.Delete) -> None:
        """Everything that is still undecided is decided by the tombstone."""
        if not self._handles.is_theirs(event.attach):
            self._turn.late()
            return
        self._handles.raise_delete_token(max(event.fencing_token, self._ownership.fencing.asked))
        asker = event.asker if event.attach is None else event.attach
        if asker is not None:
            self._proof.ask(asker, Wish.DELETION, waited_s=event.waited_s)
        if self._life.state in OPENING:
            self._handles.wish_for(event)
            return
        self._handles.end()
        # what was sent is decided first
        self._flow.drop_resets(but=int(self._ownership.is_deciding(Purpose.RESET)))
        self._life.move(State.DELETING)

    def wish_after_opening(self) -> ev.Close | ev.Delete | None:
        """A close or delete that came too early. Its handle may be gone by now; another one that
        has come instead keeps the cursor from a close. A delete was there first: it is done.
        """
        match self._handles.take_wish():
            case ev.Close() as close if close.attach is None or self._handles.waiting in (
                None,
                close.attach,
            ):
                return ev.Close()
            case ev.Delete():
                return ev.Delete()
            case _:
                return None

    def on_inline_turn(self, event: ev.InlineTurn) -> None:
        """Used in this turn, or let go: what it was asked for may be over."""
        if event.token == self._asked_token:
            self._asked_token, self._has_turn = None, True

    # ---- time

    def drive(self, *, is_paused: bool) -> None:
        """Sends the footer write whose turn it is."""
        if self.reopen_at_s is not None:
            self._handles.read_again()  # the state is read again, as a new owner would
            self._life.move(State.CLOSING)
        has_turn, self._has_turn = self._has_turn, False
        ownership, flow = self._ownership, self._flow
        if ownership.is_writing:
            return
        if self._life.state is State.DELETING:
            ownership.propose(self._tombstone(), Purpose.DELETE)
        elif flow.resets:
            self._snapshots.abort()
            ownership.propose(self._form.reset(flow.resets[0]), Purpose.RESET)
        elif (
            self._handles.waiting is not None
            and self._life.state in LIVE
            and ownership.raise_token()
        ):
            pass
        elif self._life.state is State.CLOSING:
            self._drive_close()
        elif self._is_restart:
            self._write_restart_state()
        elif self._writer.take_lost_handle() and self._write_instead_of_recovery():
            pass
        elif is_paused:
            at = self._backstop_at_s
            if at is not None and self._turn.now >= at:
                if has_turn:
                    self._propose_backstop()
                elif self._asked_token is None:
                    self._asked_token = self._turn.token()
                    self._turn.emit(fx.AskInlineTurn(self._asked_token))

    @property
    def _backstop_at_s(self) -> float | None:
        """When the inline backstop may be written: acks have waited long enough, what they wait for
        is away, and it is not ZooKeeper.
        """
        if self._ownership.is_writing or self._life.closes_by_ledger or self._form.is_stuck:
            return None
        if self._form.unfit and self._writer.is_usable:
            return None  # BookKeeper is there: the next flush tells whether the state fits now
        away = self._evidence.away_at_s
        if away is None:
            return None
        interval_s = self._turn.limits.inline_backstop_interval_ms / 1000
        return away if self._inlined_s is None else max(self._inlined_s + interval_s, away)

    @property
    def backstop_at_s(self) -> float | None:
        """When to ask for a turn to write the backstop; None: it is asked for, or there is nothing
        to ask for.
        """
        return self._backstop_at_s if self._asked_token is None else None

    @property
    def close_at_s(self) -> float | None:
        """Now, if the last flush of a close found nothing to write, or nothing that may be: no
        answer is on its way that would go on.
        """
        if (
            self._life.state is not State.CLOSING
            or not self._life.closes_by_ledger
            or self._flow.resets
            or self._ownership.is_writing
        ):
            return None
        is_idle = self._writer.phase in (WriterPhase.OPEN, WriterPhase.IDLE)
        return 0.0 if self._snapshots.is_all_written and is_idle else None

    @property
    def reopen_at_s(self) -> float | None:
        """Now, if a handle waits for the state, which is what is durable, and what was accepted
        beyond that cannot become so.
        """
        waits = (
            self._handles.waiting is not None and self._life.state in LIVE and not self._flow.resets
        )
        return (
            0.0
            if waits and self._ownership.fencing.wanted is None and self._form.is_stuck
            else None
        )

    @property
    def _is_restart(self) -> bool:
        """This owner has claimed ledgers of the owners before it, and has acks to write for the
        first time. Where something of what they left is damaged, it stays where it is.
        """
        ownership = self._ownership
        return (
            not self._has_restarted
            and ownership.has_only_claimed
            and bool(ownership.chain)
            and not (ownership.damaged or ownership.names_pulsar)
            and self._life.state is State.READY
            and self._flow.progress.has_unbound
            and self._writer.is_without_ledger
            and not self._snapshots.wants_ledger
        )

    def _write_restart_state(self) -> None:
        """A small state goes into the footer with the acks: one footer write in place of a new
        ledger, an append, and the footer write that names it; and the ledgers of the owners before
        go.
        """
        self._flow.absorb()
        if not self._flow.carried:
            return  # nothing is new
        self._has_restarted = True
        base = self._form.restart_base()
        if base is not None:
            self._turn.counters.restart_states += 1
            self._propose_inline(base, FooterState.OPEN, Purpose.INLINE)

    def _write_instead_of_recovery(self) -> bool:
        """The handles of all ledgers were lost at once. A small state goes into the footer: one
        write in place of a recovery, a new ledger, an append, and the footer write that names it;
        and the ledger goes. True: it was sent. Where something is damaged or left out, recovery
        goes on as ever.
        """
        ownership = self._ownership
        if (
            self._life.state not in LIVE
            or ownership.damaged
            or ownership.names_pulsar
            or self._snapshots.wants_ledger
            or self._form.unfit
        ):
            return False
        self._flow.absorb()
        base = self._form.restart_base()
        if base is None:
            return False
        self._turn.counters.lost_handle_states += 1
        self._propose_inline(base, FooterState.OPEN, Purpose.INLINE)
        return True

    # ---- the whole state in the footer

    def _inline_base(self) -> Base | None:
        self._flow.absorb()
        return None if self._life.closes_by_ledger else self._form.inline_base()

    def _propose_inline(self, base: Base, kind: FooterState, purpose: Purpose) -> None:
        """Everything accepted until now is in it. The ledger is left as it is: the committed footer
        will not name it, and should this write never be applied, the next owner recovers it.
        """
        self._snapshots.abort()
        self._covered = Covered(self._flow.progress.take().stop - 1, self._writer.own_ledger)
        self._writer.put_back()
        self._writer.forget()
        self._flow.take_carried()
        self._form.inlined()
        self._ownership.propose(
            self._form.footer(state=kind, base=base, chain=(), previous=None, truncated=None),
            purpose,
        )

    def _propose_backstop(self) -> None:
        self._inlined_s = self._turn.now
        base = self._inline_base()
        if base is not None:
            self._turn.counters.inline_backstops += 1
            self._propose_inline(base, FooterState.OPEN, Purpose.INLINE)

    def inlined(self, done: Committed) -> None:
        """Everything accepted before the write was sent is durable by it."""
        covered, self._covered = self._covered, Covered()
        self._ownership.follow(done.after)
        self._flow.cost.forget()
        self._forget_limits()
        self._flow.confirm(self._flow.progress.made_durable(covered.record))
        self._ownership.delete_dropped(done, covered.ledger)

    def _forget_limits(self) -> None:
        """Another state is durable than the one that did not fit, or was cut."""
        self._form.forget()
        self._ownership.note_truncation(None)
        self._flow.stores(None)
        self._flow.withhold(is_withheld=False)

    # ---- reset

    def reset(self, done: Committed) -> None:
        """A new generation begins at the target."""
        flow, writer = self._flow, self._writer
        own = writer.own_ledger
        self._ownership.begin_generation(done.after)
        writer.put_back()
        writer.forget()
        reset = flow.begin_generation(
            done.after.base if isinstance(done.after.base, InlineBase) else None
        )
        self._forget_limits()
        self._ownership.delete_dropped(done, own)
        flow.progress.put_back()
        # a message that waits for the new generation is not decided by the reset, nor is what came
        # after it
        waiting = {(e.attach, e.seq) for e in (*flow.resets, *flow.deferred)}
        flow.confirm(flow.progress.decide_until(waiting) if waiting else flow.progress.decide_all())
        self._turn.emit(fx.ResetDone(reset.attach, self._ownership.generation, reset.target))
        if not flow.resets:
            self._intake.apply_deferred()

    # ---- close

    def _drive_close(self) -> None:
        base = self._inline_base()
        if base is not None:
            self._propose_inline(base, FooterState.CLOSED, Purpose.CLOSE)
            return
        self._life.close_by_ledger()
        if self._flow.behind and not self._form.is_stuck:
            if self._form.has_records:
                self._snapshots.start(LOST)
            return  # what is stored is less than what was confirmed
        if self._snapshots.is_needed_to_close:
            return
        self._snapshots.abort()
        if not self._snapshots.is_all_written:
            return
        self._writer.drain()
        if self._writer.phase is not WriterPhase.IDLE:
            return
        ownership = self._ownership
        chain = tuple(c for c in ownership.chain if not is_hollow(c, ownership.base))
        ownership.propose(self._form.footer(state=FooterState.CLOSED, chain=chain), Purpose.CLOSE)

    def closed(self, done: Committed) -> None:
        """Everything is durable; but what may not be written because of a limit is given up,
        unconfirmed: nobody was told that it was kept.
        """
        own = self._writer.own_ledger
        if self._form.is_stuck:
            self._flow.confirm(self._flow.progress.confirmations())
            self._turn.emit(
                fx.Report(
                    "closed without the acks that were not confirmed", {"reason": self._form.unfit}
                )
            )
        else:
            self._flow.withhold(is_withheld=False)
            self._flow.confirm(self._flow.progress.decide_all())
        self._ownership.delete_dropped(done, own + self._covered.ledger)
        self._ownership.follow(done.after)
        # else the wish came while the close was on its way: the tombstone is next
        if self._life.state is not State.DELETING:
            self._life.move(State.CLOSED)
            self._turn.emit(fx.Ended(reopen=self._handles.reopen))

    # ---- delete

    def _tombstone(self) -> Footer:
        ownership = self._ownership
        return self._form.footer(
            state=FooterState.DELETED,
            generation=ownership.generation + 1,
            fencing_token=max(ownership.fencing.committed, self._handles.delete_token),
            base=EmptyBase(self._flow.acks.mark_delete),
            chain=(),
            previous=None,
            cursor_properties=None,
            truncated=None,
        )

    def deleted(self, done: Committed) -> None:
        self._ownership.delete_dropped(done, self._writer.own_ledger)
        self._flow.withhold(is_withheld=False)
        self._turn.emit_all(self._flow.progress.decide_all())
        self._life.move(State.DELETED)
        self._turn.emit(fx.Ended())
