"""Serves what is to be durable: ledgers, created lazily, named by the footer, left by close or
recovery (ARCHITECTURE rules 7, 10 to 13).

A ledger is named once its first entry (the open record) is acknowledged; deltas may be sent
meanwhile and are confirmed only when it is named. Where every flush writes the whole state there is
no open record: a ledger is named, alone, once its first whole state is acknowledged. Leaving: a
planned roll drains and closes; a failed one waits for the outstanding footer write, reads the
footer, recovery-opens the ledger, and puts everything unconfirmed back.

Durable = acknowledged by the ack quorum, in a ledger that the committed footer names, in the
committed generation.
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Committed, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.footer import SnapshotBase
from cursorkeeper.core.form import Form
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Owner, Ownership
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshots import LOST, Snapshots
from cursorkeeper.core.table import LIVE, State, WriterPhase
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import OpenRecord
from cursorkeeper.core.writer import OpenLedger, Writer


@component
class Ledgers:
    _turn: Turn
    _life: Life
    _ownership: Ownership
    _flow: Flow
    _writer: Writer
    _form: Form
    _snapshots: Snapshots

    @property
    def live_state(self) -> State:
        """READY, or ROLLING while a ledger is being left or replaced."""
        return State.READY if self._writer.is_settled else State.ROLLING

    def drive(self) -> None:
        """Starts whatever is possible now."""
        w = self._writer
        if w.is_due() and w.phase is WriterPhase.ENDING:
            self._recover()
        match w.phase:
            case WriterPhase.IDLE:
                if w.retry_at_s is None and self._is_needed():
                    self._create()
            case WriterPhase.OPEN:
                assert w.current is not None
                unnamed = (
                    w.current.first_acked
                    and not w.current.named
                    and not self._snapshots.is_named_by_switch
                )
                if unnamed and not self._ownership.is_writing and not self._flow.resets:
                    self._name(w.current)
                if self._is_full(w.current):
                    w.drain()
            case WriterPhase.FAILED:
                if not self._ownership.is_writing and w.retry_at_s is None:
                    self._check()
            case _:
                pass
        if w.phase is WriterPhase.DRAINING:
            self._close_if_drained()

    # ---- create

    def _is_needed(self) -> bool:
        flow, life, snapshots = self._flow, self._life, self._snapshots
        if flow.resets or life.state is State.DELETING:
            return False
        if self._ownership.is_deciding(Purpose.INLINE, Purpose.CLOSE):
            return False  # it covers everything that is pending
        if snapshots.wants_ledger:
            return True
        if life.state is State.CLOSING and not life.closes_by_ledger:
            return False  # `ending` tries the footer first
        if snapshots.is_waited_for:
            # the snapshot that shortens the chain goes first; its own ledger is exempt
            self._turn.wait_for(snapshots.why_waited_for)
            return False
        if self._form.is_rewrite_due or self._writer.outbox:
            return True
        return flow.has_new and (flow.progress.has_unbound or life.state is State.CLOSING)

    def _create(self) -> None:
        token, ownership, form = self._writer.ask(WriterPhase.CREATING), self._ownership, self._form
        self._turn.emit(
            fx.CreateLedger(
                token, ownership.epoch, ownership.generation, form.name, form.ledger_metadata
            )
        )

    def on_created(self, event: ev.LedgerCreated) -> None:
        """Entry 0 says whose it is (where Pulsar's reader would not stumble over it); then the
        window is open.
        """
        if not self._writer.is_asking(WriterPhase.CREATING, event.token):
            # ours, never sent in any footer write
            self._turn.emit(fx.DeleteLedgers((event.ledger,)))
            return
        self._writer.created(event.ledger)
        self._turn.wait_for("")
        if self._form.has_records:
            turn, ownership = self._turn, self._ownership
            self._writer.append(
                OpenRecord(turn.name.canonical, ownership.epoch, ownership.generation, turn.writer)
            )

    def on_create_failed(self, event: ev.LedgerCreateFailed) -> None:
        """Too few bookies, or the gateway is away: again later."""
        if self._writer.is_asking(WriterPhase.CREATING, event.token):
            trouble = f"BookKeeper: creating a ledger: {event.reason}"
            self._turn.wait_for(trouble)
            self._writer.move(WriterPhase.IDLE)
            self._writer.back_off(trouble)

    # ---- name

    def _name(self, ledger: OpenLedger) -> None:
        self._ownership.propose(self._form.named(ledger.ledger), Purpose.NAME_LEDGER)

    def named(self, done: Committed) -> None:
        """The footer leads to the ledger: what it acknowledged is durable."""
        self._ownership.follow(done.after)
        self._writer.named()
        self.confirm()
        self._turn.counters.rolls += 1
        self._ownership.delete_dropped(done)

    def switched(self, done: Committed) -> None:
        """The footer leads to a snapshot in the ledger; what only the old previous named goes."""
        self._snapshots.committed(done)
        self.confirm()
        self._flow.confirm(self._flow.progress.confirmations())
        self._ownership.delete_dropped(done)

    def confirm(self) -> None:
        """Durable follows what is acknowledged, once the footer names the ledger and holds what
        only it can hold.
        """
        ledger, progress = self._writer.current, self._flow.progress
        if ledger is None or not ledger.named or ledger.acked_record is None:
            return
        upto = progress.durable
        for record in range(upto + 1, ledger.acked_record + 1):
            if not self._form.is_held(self._writer.unconfirmed[record]):
                break
            self._form.durable(self._writer.unconfirmed.pop(record))
            upto = record
        self._flow.confirm(progress.made_durable(upto))

    # ---- answers of appends

    def on_appended(self, event: ev.Appended) -> None:
        """An entry is acknowledged; answers of a ledger that was left are late."""
        sent = self._writer.answered(event.ledger, event.entry, event.stored_bytes)
        if sent is None:
            self._turn.late()
            return
        assert self._writer.current is not None
        self._form.answered(self._writer.current, sent, event.stored_bytes)
        if sent.record is None:
            self._snapshots.on_part_appended(event)
        self.confirm()

    def on_append_failed(self, event: ev.AppendFailed) -> None:
        """Refused, fenced or unknown: leave the ledger."""
        current = self._writer.current
        if current is None or current.ledger != event.ledger:
            self._turn.late()
            return
        self.fail(event.reason, is_handle_lost=event.is_handle_lost)

    # ---- leave

    def _is_full(self, ledger: OpenLedger) -> bool:
        if not ledger.named or self._snapshots.run is not None or self._life.state not in LIVE:
            return False
        if self._flow.resets or not self._form.is_between_states:
            return False
        limits = self._turn.limits
        aged = (
            self._turn.now - ledger.opened_at_s >= limits.ledger_age_max_s
            and ledger.next_entry > self._form.has_records
        )
        return ledger.stored_bytes >= limits.ledger_bytes_max or aged

    def on_roll(self, event: ev.Roll) -> None:
        """Leave the ledger when it suits; the next flush makes the new one."""
        current = self._writer.current
        if self._snapshots.run is None and current is not None and current.named:
            self._writer.drain()

    def _close_if_drained(self) -> None:
        w = self._writer
        assert w.current is not None
        if w.current.in_flight or self._ownership.is_writing:
            return
        if not w.current.named and w.current.first_acked and w.unconfirmed:
            self._name(w.current)
        else:
            self._turn.emit(fx.CloseLedger(w.ask(WriterPhase.ENDING), w.current.ledger))

    def fail(self, reason: str, *, is_handle_lost: bool = False) -> None:
        """The ledger is not to be used any more. A snapshot in it is aborted."""
        w = self._writer
        if w.phase not in (WriterPhase.OPEN, WriterPhase.DRAINING):
            return
        assert w.current is not None
        w.fail(
            f"BookKeeper: ledger {w.current.ledger}: {reason}",
            is_handle_lost=is_handle_lost and w.current.acked_record is not None,
        )
        self._turn.emit(fx.Report("ledger failed", {"ledger": w.current.ledger, "reason": reason}))
        self._snapshots.fail()

    # ---- is it still ours?

    def _check(self) -> None:
        self._turn.emit(
            fx.ReadFooter(self._writer.ask(WriterPhase.CHECKING), sync=self._writer.missing)
        )

    def awaits(self, token: int) -> bool:
        return self._writer.is_asking(WriterPhase.CHECKING, token)

    def on_read(self, event: ev.FooterRead) -> None:
        """The footer is still ours: recovery decides what the ledger holds; one that is gone all
        the same is nothing to go on from.
        """
        match self._ownership.owner(event.footer):
            case Owner.NOT_KNOWN:
                self._turn.emit(fx.ReadFooter(self._writer.ask_again(), sync=True))
            case Owner.WE if self._writer.missing:
                self._turn.emit(
                    fx.CheckFooter(self._writer.ask_again(), self._ownership.commit.version)
                )
            case Owner.WE:
                self._recover()

    def on_checked(self) -> None:
        """A ledger is gone, and the committed footer names it: no new owner has replaced it."""
        assert self._writer.current is not None
        self._ownership.refuse(
            Refusal.DAMAGED,
            f"ledger {self._writer.current.ledger} was deleted under its owner",
            "find out who deleted it; open the cursor again afterwards",
        )

    def on_check_failed(self) -> None:
        self.on_unknown("the footer has moved on")

    def on_unknown(self, reason: str) -> None:
        """The footer could not be read: again later."""
        self._writer.move(WriterPhase.FAILED)
        self._turn.wait_for(f"ZooKeeper: {reason}")
        self._writer.back_off()

    # ---- recover

    def _recover(self) -> None:
        assert self._writer.current is not None
        self._turn.emit(
            fx.FenceLedger(self._writer.ask(WriterPhase.ENDING), self._writer.current.ledger)
        )

    def on_ledger_ended(self, event: ev.LedgerEnded) -> None:
        """The end of the ledger that was left is known; everything not durable waits for the next
        one.
        """
        left = self._writer.current
        if not self._writer.is_asking(WriterPhase.ENDING, event.token) or left is None:
            self._turn.late()
            return
        if left.named:
            self._ownership.end_ledger(left.ledger, event.last_entry)
        else:
            self._turn.emit(fx.DeleteLedgers((left.ledger,)))
        self._abandon()
        if event.last_entry < left.acked_entry:
            self._entries_lost(left, event.last_entry)

    def _entries_lost(self, left: OpenLedger, last_entry: int) -> None:
        """BookKeeper has broken its promise. Of what it acknowledged, that may be confirmed which a
        committed footer led to: it is here still, so the whole state is written at once. What was
        not confirmed was put back.
        """
        self._turn.counters.lost_entries += left.acked_entry - last_entry
        fields: dict[str, str | int] = {
            "ledger": left.ledger,
            "expected_last_entry": left.acked_entry,
            "answered_last_entry": last_entry,
            "confirmed": "perhaps" if left.named else "no",
        }
        self._turn.emit(fx.Report("acknowledged entries lost", fields))
        if not left.named or self._life.state is State.DELETING:
            return
        base = self._ownership.base
        if (
            isinstance(base, SnapshotBase)
            and base.ledger == left.ledger
            and base.last_entry > last_entry
        ):
            self._ownership.fall_back()  # the end of the newest snapshot is among them
        self._flow.withhold(is_withheld=True)
        if self._form.has_records:
            self._snapshots.start(LOST)

    def _abandon(self) -> None:
        """Without a ledger again. What is not durable is carried."""
        left = self._writer.current
        self._form.left_behind()
        self._flow.put_back(self._writer.put_back())
        self._writer.forget()
        if left is not None and left.acked_record is None:
            self._writer.back_off()  # it took nothing: the next one may fare no better

    def on_ledger_end_failed(self, event: ev.LedgerEndFailed) -> None:
        """Recovery is retried for ever. A named ledger that is gone: a new owner may have replaced
        it, so the footer is asked after a sync.
        """
        w = self._writer
        if not w.is_asking(WriterPhase.ENDING, event.token) or w.current is None:
            return
        if event.missing and w.current.named:
            w.miss()
            self._check()
        elif event.missing:
            self._abandon()
        else:
            trouble = f"BookKeeper: recovering ledger {event.ledger}: {event.reason}"
            self._turn.wait_for(trouble)
            w.back_off(trouble)
