"""Serves sources: from accepted to in flight. A record is taken at one instant and leaves as one
effect; and who waits for the state gets it when everything accepted is durable.
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.form import Form
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.questions import Questions
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshots import Snapshots
from cursorkeeper.core.table import LIVE, State
from cursorkeeper.core.turn import Turn, earlier
from cursorkeeper.core.writer import Writer


@component
class Flush:
    _turn: Turn
    _life: Life
    _handles: Handles
    _questions: Questions
    _ownership: Ownership
    _flow: Flow
    _writer: Writer
    _form: Form
    _snapshots: Snapshots
    _claim: Claim

    @property
    def _may_append(self) -> bool:
        return (
            self._writer.is_usable
            and not self._flow.resets
            and self._life.state is not State.DELETING
        )

    def _flush_at_s(self, *, at_once: bool) -> float | None:
        if not self._may_append:
            return None
        if self._writer.outbox:
            return 0.0 if self._writer.has_window else None
        urgent = (
            self._life.state is State.CLOSING
            or self._handles.waiting is not None
            or self._snapshots.wants_flush
        )
        return self._form.flush_at(urgent=urgent, at_once=at_once)

    def drive(self) -> None:
        """Flushes when the policy says so and the daemon has room; answers a waiting handle when
        all is durable and the footer is proved to be ours.
        """
        if self._may_append and self._turn.room > 0:
            self._writer.send()
            if (
                self.is_due(at_once=self._turn.at_once, now=self._turn.now)
                and not self._writer.outbox
            ):
                self._flow.absorb()
                self._form.take()
                self._writer.send()
            self._snapshots.write()
        self.settle_without_writing()
        if self._handles.waiting is not None and self._is_clear:
            self._serve(self._ownership.fencing.answerable)

    @property
    def _is_clear(self) -> bool:
        """What is here is what is durable, or as much of it as may be written."""
        flow = self._flow
        if (
            self._life.state not in LIVE
            or not flow.progress.is_clear
            or flow.queued.messages
            or flow.resets
        ):
            return False
        return not flow.behind or self._form.is_stuck

    def _serve(self, waiting: int | None) -> None:
        if waiting is None:
            return
        self._handles.serve()
        created = self._claim.created and not self._questions.is_told
        self._questions.tell(waiting, self._handles.source)
        self._turn.emit(fx.StreamState(waiting, created))

    def settle_without_writing(self) -> None:
        """Messages that changed nothing need no ledger: they bind to the newest record, durable or
        not. Asked before a ledger is created: a source that repeats what was recovered must not
        cost one.
        """
        flow = self._flow
        if self._writer.is_usable or flow.resets or not flow.progress.has_unbound:
            return
        flow.absorb()
        if not flow.carried and not self._writer.outbox:
            flow.bind_to_newest()

    @property
    def wake_at_s(self) -> float | None:
        """When `drive` has something to do, given room."""
        return earlier(self._flush_at_s(at_once=False), self._snapshots.write_at_s)

    def is_due(self, *, at_once: bool, now: float) -> bool:
        """Whether `drive` appends at this time; `at_once`: in a Tick that says so."""
        due = self._flush_at_s(at_once=at_once)
        return due is not None and due <= now
