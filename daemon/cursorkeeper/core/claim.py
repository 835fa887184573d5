"""Serves whoever opens a cursor: becoming the owner (ARCHITECTURE rule 6). Read the footer, claim
it (compare-and-set of epoch + 1), recovery-open every chain ledger without a recorded end, then
have the state read.
"""

from __future__ import annotations

from dataclasses import field, replace

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import ABSENT, Committed, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.fencing import REMEDY, why_fenced
from cursorkeeper.core.footer import (
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    InlineBase,
    mark_of,
)
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import RESTORE, Ownership
from cursorkeeper.core.positions import BEFORE_FIRST, FIRST, NUMBER_MAX, Position
from cursorkeeper.core.questions import Questions
from cursorkeeper.core.shape import component
from cursorkeeper.core.table import OPENING, State
from cursorkeeper.core.turn import Turn, earliest
from cursorkeeper.core.values import CursorProperties, Segment, Stamp

STOPPING, STOPPING_REMEDY = "the daemon is stopping", "open it elsewhere, or here after the restart"
OPEN_ELSEWHERE_REMEDY = "close it there, or open it with takeover"


@component
class Claim:
    """One way from CLAIMING to READY; begins again from the read when a claim is lost.

    `notes_in_footer`: the subscription's properties have a place of their own in the footer.
    """

    _turn: Turn
    _life: Life
    _handles: Handles
    _questions: Questions
    _ownership: Ownership
    _notes_in_footer: bool
    request: ev.Open = ev.Open()
    token: int = 0
    """Of the read, the check, or the reading of the chain."""
    reading: bool = False
    """The footer is being read."""
    retry_at_s: float | None = None
    tries: int = 0
    _fencing: dict[int, int] = field(default_factory=dict)
    """Ledger -> token of the recovery that is on its way."""
    _fence_retry_at_s: dict[int, float] = field(default_factory=dict)
    _suspect: Footer | None = None
    """A named ledger was missing under this footer: refuse only if it is still the same after a
    sync.
    """
    _suspicion: str = ""
    _verdict: fx.Refuse | None = None
    """How the opening ends if the quorum says that the footer is still the one that was read."""
    sent: bool = False
    """The claim's write is on its way, or was applied: who comes now comes after it."""
    replaced: bool = False
    """The footer was found to be none of ours, or unreadable, perhaps by a server that lags: it
    is being read after a sync.
    """
    created: bool = False
    """The claim made the cursor: there was none, or a tombstone."""
    _seen: bool = False
    """There was a footer: if there is none any more, it is lost."""

    # ---- questions

    @property
    def is_unsent(self) -> bool:
        """Nothing was sent that may change the footer."""
        return self._life.state is State.CLAIMING and not self.sent

    @property
    def is_for_delete(self) -> bool:
        """The cursor is opened for its end only."""
        return self._life.state in OPENING and self.request.for_delete

    @property
    def _is_given_up(self) -> bool:
        wish = self._handles.wish
        return isinstance(wish, ev.Close) and wish.attach is None

    def awaits(self, token: int) -> bool:
        return (self.reading or self._verdict is not None) and token == self.token

    # ---- the read of the footer

    def on_open(self, event: ev.Open) -> None:
        """Begins the claim by reading the footer."""
        self.request = event
        self._handles.raise_delete_token(event.fencing_token if event.for_delete else 0)
        self._life.move(State.CLAIMING)
        self.read(sync=False)

    def allow(self, other: ev.Open) -> None:
        """Another source wants the cursor while it is being claimed: what either of them allows, is
        allowed.
        """
        mine = self.request
        self.request = replace(
            mine, create=mine.create or other.create, takeover=mine.takeover or other.takeover
        )

    def read(self, *, sync: bool) -> None:
        self.token, self.reading, self.retry_at_s = self._turn.token(), True, None
        self._verdict = None
        self._turn.wait_for("ZooKeeper: reading the footer")
        self._turn.emit(fx.ReadFooter(self.token, sync))

    def is_read_again(self, token: int) -> bool:
        """The footer that was read cannot be one of ours: reads it once more, since a server that
        lags may show bytes that were put right meanwhile.
        """
        if token != self.token or self.replaced:
            return False
        self.replaced = True
        self.read(sync=True)
        return True

    def on_read(self, event: ev.FooterRead) -> None:
        self.reading = False
        footer, ownership = event.footer, self._ownership
        if self._is_given_up:
            self.give_up()
            return
        self._seen = self._seen or footer is not None
        if footer is None and self._seen:
            self._only_if_proved(ABSENT, Refusal.FOOTER_LOST, "", "")
            return
        if self._suspect is not None and footer is not None:
            if footer.is_same_write(self._suspect):
                remedy = (
                    "a ledger that the footer names does not exist; restore it, or decide "
                    "by hand with `cursorkeeper inspect`"
                )
                self._only_if_proved(event.version, Refusal.DAMAGED, self._suspicion, remedy)
            else:
                ownership.depose(footer.epoch)  # we had claimed it: whoever came since is the owner
            return
        if footer is not None and footer.epoch >= NUMBER_MAX:
            ownership.refuse(
                Refusal.DAMAGED,
                f"its footer is of epoch {footer.epoch}, and there is none after that",
                RESTORE,
            )
            return
        ownership.commit.adopt(footer, event.version)
        self._claim(footer)

    def _claim(self, footer: Footer | None) -> None:
        request, ownership = self.request, self._ownership
        if request.only not in (None, mark_of(footer)):
            what = (
                "there is none any more"
                if footer is None
                else f"{footer.state} in epoch {footer.epoch} of {footer.writer}"
            )
            self._not_opened(
                Refusal.OPEN_ELSEWHERE,
                f"its footer is not the one that was looked at: {what}",
                "look at it again",
            )
            return
        token, given = ownership.fencing.committed, ownership.fencing.asked
        # whoever claims one footer, and no other, keeps its token
        if request.only is None and given < token:
            # tokens only grow: that needs no proof
            self._end(fx.Refuse(Refusal.FENCED, why_fenced(given, token), REMEDY))
            return
        if footer is None or footer.state is FooterState.DELETED:
            if request.create:
                self._create(footer)
            else:
                self._not_opened(
                    Refusal.NOT_FOUND, "there is no such cursor", "open it with create=true"
                )
            return
        if footer.state is FooterState.OPEN and not (
            request.takeover or given or self._is_own(footer)
        ):
            self._not_opened(
                Refusal.OPEN_ELSEWHERE,
                f"epoch {footer.epoch} of {footer.writer} holds it",
                OPEN_ELSEWHERE_REMEDY,
            )
            return
        write = ownership.begin_writes()
        claimed = replace(
            footer,
            epoch=footer.epoch + 1,
            writer=self._turn.writer,
            write=write,
            state=FooterState.OPEN,
        )
        self._send(replace(claimed, fencing_token=max(token, given)), "ZooKeeper: claiming")

    def _send(self, claim: Footer, waiting_for: str) -> None:
        self.sent = True
        self._turn.wait_for(waiting_for)
        self._ownership.propose(claim, Purpose.CLAIM)

    def _is_own(self, footer: Footer) -> bool:
        """Left open by a machine of this keeper that a bug stopped: no other one is to be asked."""
        return bool(self.request.own) and footer.writer.startswith(self.request.own)

    def _create(self, tombstone: Footer | None) -> None:
        request = self.request
        start = request.start
        if start is None:
            start = Position(request.layout[0].ledger, BEFORE_FIRST) if request.layout else FIRST
        epoch = tombstone.epoch + 1 if tombstone else 1
        generation = tombstone.generation if tombstone else 1
        base: InlineBase | EmptyBase = EmptyBase(start)
        properties = (
            CursorProperties(Stamp(epoch, 0), dict(request.cursor_properties))
            if request.cursor_properties
            else None
        )
        if properties is not None and not self._notes_in_footer:
            # properties are part of what creating promises, so they are in the first footer already
            base = InlineBase(
                Segment(mark_delete=start, cursor_properties=properties), epoch, generation, 0
            )
            properties = None
        fencing = self._ownership.fencing
        footer = Footer(
            self._turn.name.topic,
            self._turn.name.subscription,
            FooterState.OPEN,
            epoch,
            self._turn.writer,
            self._ownership.begin_writes(),
            generation,
            start,
            base,
            cursor_properties=properties,
            fencing_token=max(fencing.committed, fencing.asked),
            extra=tombstone.extra if tombstone else {},
        )
        self._send(footer, "ZooKeeper: creating")

    # ---- an opening that ends without a claim

    def give_up(self) -> None:
        """The keeper stops. A claim that is not sent yet is not begun; one that is sent goes on, so
        that its footer is closed again.
        """
        if (
            self._life.state is State.CLAIMING
            and not self._ownership.is_writing
            and self._suspect is None
        ):
            self._end(fx.Refuse(Refusal.SHUTTING_DOWN, STOPPING, STOPPING_REMEDY))

    def withdraw(self) -> None:
        """Nobody waits any more for the end that this claim was for, and it was not sent: whoever
        owns the cursor keeps it.
        """
        self._life.move(State.CLOSED)
        self._turn.emit(fx.Ended())

    def end_if_unwanted(self) -> None:
        """Nobody waits any more for a claim that was not sent yet: whoever owns the cursor keeps
        it. The close of a handle that is gone is no reason to claim; a delete is.
        """
        waits = self._handles.waiting is not None or self._questions
        wanted = (
            waits
            or self.is_for_delete
            or isinstance(self._handles.wish, ev.Delete)
            or self._is_given_up
        )
        if self.is_unsent and not wanted:
            self.withdraw()

    def _end(self, verdict: fx.Refuse) -> None:
        self._life.move(State.CLOSED)
        self._turn.emit_all([verdict, fx.Ended()])

    def _not_opened(self, code: Refusal, message: str, remedy: str) -> None:
        self._only_if_proved(self._ownership.commit.version, code, message, remedy)

    def _only_if_proved(self, version: int, code: Refusal, message: str, remedy: str) -> None:
        """A server that lags, or was deposed, may show a footer that has moved on: nobody is sent
        away because of it.
        """
        self._verdict, self.token = fx.Refuse(code, message, remedy), self._turn.token()
        self._turn.wait_for("ZooKeeper: is this footer the newest?")
        self._turn.emit(fx.CheckFooter(self.token, version))

    def on_checked(self) -> None:
        """The footer that was read is the committed one: the verdict holds."""
        verdict, self._verdict = self._verdict, None
        assert verdict is not None
        match verdict.code:
            case Refusal.FOOTER_LOST:
                self._ownership.footer_lost()
            case Refusal.DAMAGED:
                self._ownership.refuse(verdict.code, verdict.message, verdict.remedy)
            case _:
                self._end(verdict)

    def on_check_failed(self) -> None:
        """It was not the newest: read again, after a pause."""
        self._verdict, self.retry_at_s = None, self._turn.retry_at_s(self.tries)
        self.tries += 1

    def on_unknown(self, reason: str) -> None:
        """Nobody said what the footer is, or whether it is the newest: read again later."""
        self.on_check_failed()
        self._turn.wait_for(f"ZooKeeper: {reason}")

    def join(self) -> None:
        """Somebody else wants the cursor, too: what those before him allowed is no reason to send
        him away.
        """
        if self._verdict is not None and self._verdict.code in (
            Refusal.OPEN_ELSEWHERE,
            Refusal.NOT_FOUND,
        ):
            self.read(sync=False)

    # ---- the claim is decided

    def lost(self, now: Footer | None) -> None:
        """Start again from the read, which says who won."""
        self._seen = self._seen or now is not None
        self.tries, self.sent = 0, False
        self.read(sync=True)
        self.end_if_unwanted()

    def committed(self, done: Committed) -> None:
        footer = done.after
        self.created = done.before is None or done.before.state is FooterState.DELETED
        self._ownership.claim(footer)
        self._life.move(State.FENCING)
        self._turn.wait_for("BookKeeper: recovering ledgers")
        ledgers = {
            part.ledger
            for part in footer.parts
            if isinstance(part, ChainLedger) and part.last_entry is None
        }
        for ledger in sorted(ledgers):
            self._fence(ledger)
        if not ledgers:
            self._fenced_all()

    def _fence(self, ledger: int) -> None:
        token = self._turn.token()
        self._fencing[ledger] = token
        self._turn.emit(fx.FenceLedger(token, ledger))

    def _is_fenced_by(self, event: ev.LedgerEnded | ev.LedgerEndFailed) -> bool:
        if self._fencing.get(event.ledger) != event.token:
            return False
        del self._fencing[event.ledger]
        return True

    def on_ledger_ended(self, event: ev.LedgerEnded) -> None:
        if self._is_fenced_by(event):
            self._ownership.end_ledger(event.ledger, event.last_entry)
            self._go_on()

    def on_ledger_end_failed(self, event: ev.LedgerEndFailed) -> None:
        """Not enough bookies is never damage: retry. No such ledger: has the footer moved on?"""
        if not self._is_fenced_by(event):
            return
        if event.missing and self.is_for_delete:
            self._go_on()  # it was to be deleted anyway
        elif event.missing:
            self._doubt(f"ledger {event.ledger} does not exist")
        else:
            self._fence_retry_at_s[event.ledger] = self._turn.retry_at_s(self.tries)
            self.tries += 1
            self._turn.wait_for(f"BookKeeper: recovering ledger {event.ledger}: {event.reason}")

    def _go_on(self) -> None:
        if not self._fencing and not self._fence_retry_at_s:
            self._fenced_all()

    def _fenced_all(self) -> None:
        if self.is_for_delete:
            self._life.move(State.DELETING)
            return
        self._life.move(State.READING)
        self.token, self.reading = self._turn.token(), False
        self._turn.wait_for("BookKeeper: reading the cursor's ledgers")
        committed = self._ownership.committed
        assert committed is not None
        # with the ends that recovery found
        recovered = replace(
            committed, chain=self._ownership.chain, previous=self._ownership.previous
        )
        self._turn.emit(fx.ReadChain(self.token, recovered))

    # ---- the read of the state

    def on_chain_read(self, event: ev.ChainRead) -> bool:
        """READING -> READY; False: it answers something else."""
        if event.token != self.token:
            return False
        self._ownership.note_damage(event.damaged)
        if event.fell_back:
            self._ownership.fall_back()
        elif event.bars_fallback:
            self._ownership.bar_fall_back()
        self._turn.wait_for("")
        self._life.move(State.READY)
        return True

    def on_chain_missing(self, event: ev.ChainMissing) -> None:
        """A claimer that meets "no such ledger" reads the footer again."""
        if event.token == self.token:
            self._doubt(f"ledger {event.ledger} does not exist")

    def _doubt(self, why: str) -> None:
        self._suspect, self._suspicion = self._ownership.committed, why
        self._fencing.clear()
        self._fence_retry_at_s.clear()
        self._life.move(State.CLAIMING)
        self.read(sync=True)
        self._turn.wait_for(why)

    def on_chain_damaged(self, event: ev.ChainDamaged) -> None:
        """Refused loudly, untouched on disk."""
        if event.token != self.token:
            return
        refuse = self._ownership.refuse
        if event.too_new:
            refuse(
                Refusal.FORMAT_TOO_NEW,
                f"a record was written by a newer version: {event.reason}",
                "upgrade this daemon",
            )
        elif event.too_large:
            remedy = (
                "give the daemon the memory and raise the setting that is named, then open "
                "it again: nothing was changed"
            )
            refuse(Refusal.TOO_LARGE, event.reason, remedy)
        else:
            refuse(
                Refusal.DAMAGED,
                event.reason,
                "keep the ledgers; look with `cursorkeeper verify` and `inspect`, then decide by "
                "hand",
            )

    # ---- time

    def drive(self) -> None:
        now = self._turn.now
        if (
            self._life.state is State.CLAIMING
            and self.retry_at_s is not None
            and now >= self.retry_at_s
        ):
            self.read(sync=True)
        if self._life.state is State.FENCING:
            for ledger in [x for x, at in self._fence_retry_at_s.items() if now >= at]:
                del self._fence_retry_at_s[ledger]
                self._fence(ledger)

    @property
    def wake_at_s(self) -> float | None:
        """When `drive` has something to do."""
        return earliest(self.retry_at_s, *self._fence_retry_at_s.values())
