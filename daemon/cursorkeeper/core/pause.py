"""Serves sources: acks that wait too long, or a state that may not be written, pause them; and the
cursor's state says so.
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core.evidence import Evidence
from cursorkeeper.core.form import Form
from cursorkeeper.core.ledgers import Ledgers
from cursorkeeper.core.life import Life
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshots import Snapshots
from cursorkeeper.core.table import LIVE, State
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.writer import Writer


@component
class Pause:
    _turn: Turn
    _life: Life
    _writer: Writer
    _form: Form
    _snapshots: Snapshots
    _ledgers: Ledgers
    _evidence: Evidence
    paused_for: str = ""
    """`away`, `limit` or `chain` while NOT_PERSISTABLE."""
    reason: str = ""
    """What the source was told; empty: it was not told to pause."""

    def drive(self) -> None:
        if self._life.state not in LIVE:
            return
        stuck_for = self._stuck_for()
        if not stuck_for:
            self.paused_for = ""
            self._life.move(self._ledgers.live_state)
            self._tell("")
            return
        unfit = self._form.unfit
        if unfit:
            # with the numbers of now, whatever else was waited for meanwhile
            self._turn.wait_for(unfit)
        if stuck_for != self.paused_for:
            self.paused_for = stuck_for
            self._life.move(State.NOT_PERSISTABLE)
            if stuck_for == "chain":
                self._tell(self._snapshots.why_waited_for)
            elif unfit:
                self._tell(unfit if self._turn.limits.pause_at_limit else "")
            else:
                self._tell(
                    self._writer.trouble or self._turn.waiting_for or "acks are not durable yet"
                )

    def _stuck_for(self) -> str:
        if self._form.unfit:
            return "limit"
        if not self._is_away:
            return ""
        return "chain" if self._snapshots.is_given_little_hope else "away"

    @property
    def _is_away(self) -> bool:
        """Once said it holds until acks are durable again: an answer alone does not make them
        so.
        """
        waited_at, now = self._evidence.waited_at_s, self._turn.now
        if waited_at is None or now < waited_at:
            return False
        away_at = waited_at if self.paused_for == "away" else self._evidence.away_at_s
        return away_at is not None and now >= away_at

    def _tell(self, reason: str) -> None:
        told, self.reason = self.reason, reason
        if reason:
            self._turn.emit(fx.Pause(reason))
        elif told:
            self._turn.emit(fx.Resume())
