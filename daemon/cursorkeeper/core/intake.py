"""Serves sources: their messages are checked on arrival, kept whole or refused whole. Kept is
accepted.

A bad message refuses its handle, never the cursor: what was accepted before stays and becomes
durable.
"""

from __future__ import annotations

from collections.abc import Callable

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.core.proof import Proof
from cursorkeeper.core.questions import Questions, Wish
from cursorkeeper.core.shape import component
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import LayoutItem

CONTROL_BYTES = 0
"""Control messages cost no credit: there are few, and each is bounded by the stream's message
limit.
"""


@component
class Intake:
    _turn: Turn
    _life: Life
    _handles: Handles
    _questions: Questions
    _ownership: Ownership
    _flow: Flow
    _claim: Claim
    _proof: Proof

    # ---- handles

    def on_attach(self, event: ev.Attach) -> None:
        """A handle wants the state; it gets it when the footer is proved to be ours and everything
        accepted is durable (see `flush`). Or it goes on where its predecessor broke off.
        """
        if self._may_resume(event):
            self._handles.resume(event.attach)
            self._turn.emit(fx.ContinueHandle(event.attach))
            self._take_layout(event.attach, event.layout)
            return
        self._questions.drop(self._handles.waiting)
        self._handles.wait(event)
        self._claim.join()
        self._proof.ask(
            event.attach, Wish.STATE, waited_s=event.waited_s, fencing_token=event.fencing_token
        )

    def _may_resume(self, event: ev.Attach) -> bool:
        """Whether the handle can go on where its predecessor broke off. No proof is needed: it is
        shown nothing, and what it sends to a daemon that is no longer the owner is never confirmed
        by an append. It gets credit of its own beside what its predecessor left unconfirmed: so no
        third one does, before all that the first left is durable.
        """
        ownership, flow = self._ownership, self._flow
        return (
            event.resume == (ownership.epoch, ownership.generation)
            and self._life.state in LIVE
            and event.source == self._questions.answered
            and event.fencing_token == ownership.fencing.committed
            and self._handles.waiting is None
            and not flow.resets
            and flow.progress.is_of_one_handle
            and not ownership.is_deciding(Purpose.RESET, Purpose.CLOSE, Purpose.DELETE)
        )

    def on_detach(self, event: ev.Detach) -> None:
        """The handle is gone. Its unconfirmed messages stay accepted; nobody waits for their
        confirmation.
        """
        self._handles.detach(event.attach)
        if self._questions.drop(event.attach):
            self._claim.end_if_unwanted()

    def drive(self) -> None:
        """Takes the layout that the waiting handle told, once: a contradiction is an answer too, so
        not before the proof; and not while resets are decided, because it belongs to the last
        generation.
        """
        if not self._handles.layout or self._life.state not in LIVE or self._flow.resets:
            return
        waiting = self._ownership.fencing.answerable
        if waiting is not None:
            self._take_layout(waiting, self._handles.take_layout())

    def _take_layout(self, attach: int, run: tuple[LayoutItem, ...]) -> None:
        """The layout that came with OpenCursor; a wrong one refuses the handle."""
        if not run:
            return
        try:
            self._flow.join_layout(run)
        except RefusedError as e:
            self._questions.drop(attach)
            self._handles.send_away()
            self._refuse(attach, e)

    def _refuse(self, attach: int, error: RefusedError, seq: int = 0) -> None:
        self._handles.refuse()
        self._turn.emit(fx.RefuseHandle(attach, error.code, error.message, error.remedy, seq))

    # ---- messages

    def _take(
        self, attach: int, seq: int, generation: int, size: int, keep: Callable[[], None]
    ) -> None:
        """Keeps a message of the attached handle, or refuses the handle."""
        if attach != self._handles.attach or self._life.state not in LIVE:
            self._turn.late()
            return
        try:
            self._check(seq, generation)
            self._handles.heard(seq)
            keep()
        except RefusedError as e:
            self._refuse(attach, e, seq)
            return
        self._flow.progress.accept(attach, seq, size, self._turn.now)

    def _check(self, seq: int, generation: int) -> None:
        name = self._turn.name.display
        if seq <= self._handles.last_seq:
            message = f"seq {seq} after {self._handles.last_seq}"
            raise RefusedError(
                Refusal.SEQ_NOT_GROWING, name, message, "number messages upwards per handle"
            )
        if generation > self._ownership.generation:
            message = f"generation {generation}, the cursor is in {self._ownership.generation}"
            raise RefusedError(
                Refusal.WRONG_GENERATION, name, message, "use the generation of Opened or ResetDone"
            )

    def on_acks(self, event: ev.Acks) -> None:
        batch = event.batch
        self._take(
            event.attach,
            batch.seq,
            batch.generation,
            batch.size_bytes,
            lambda: self._flow.keep(batch),
        )
        self._flow.absorb_if_much()

    def on_control(self, event: ev.SetLayout | ev.SetProperties | ev.Reset) -> None:
        self._take(
            event.attach,
            event.seq,
            event.generation,
            CONTROL_BYTES,
            lambda: self._keep(event),
        )

    def _keep(self, event: ev.SetLayout | ev.SetProperties | ev.Reset) -> None:
        """A reset is decided once its footer write is sent; see `ending`."""
        if isinstance(event, ev.Reset):
            self._keep_reset(event)
            return
        if isinstance(event, ev.SetProperties):
            self._flow.check.cursor_properties(event.values)
        if self._flow.resets:
            self._flow.defer(event)
        else:
            self._flow.apply(event)

    def apply_deferred(self) -> None:
        """What was accepted while a reset was under way takes effect in the new generation, in its
        order. It was accepted then, so a handle that is gone by now changes nothing; a layout that
        the target contradicts refuses its handle.
        """
        for event in self._flow.take_deferred():
            try:
                self._flow.apply(event)
            except RefusedError as e:
                if event.attach == self._handles.attach:
                    self._refuse(event.attach, e, event.seq)

    def _keep_reset(self, event: ev.Reset) -> None:
        flow, generation = self._flow, self._ownership.generation
        told = [
            item
            for waiting in flow.deferred
            if isinstance(waiting, ev.SetLayout)
            for item in waiting.run
        ]
        flow.check.reset_target(event.target, flow.acks, told)
        if generation + len(flow.resets) + 1 >= NUMBER_MAX:  # the last one is for the tombstone
            message = f"generation {generation} is the last one that can be reset from"
            remedy = "export the cursor, delete it, and import it again"
            raise RefusedError(Refusal.BAD_MESSAGE, self._turn.name.display, message, remedy)
        flow.accept_reset(event)
