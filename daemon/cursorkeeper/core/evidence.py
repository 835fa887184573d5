"""Serves sources that may be told "away": what was sent and is not answered, or has failed.

Acks that wait are no evidence by themselves. They may wait for this daemon: for a turn to create a
ledger, to write a footer, for room in its window. What is held back has not been sent (`ev.Sent`
tells when it was), and says nothing of anybody else.
"""

from __future__ import annotations

from cursorkeeper.core.claim import Claim
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.form import Form
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.shape import component
from cursorkeeper.core.snapshots import Snapshots
from cursorkeeper.core.table import WritePhase, WriterPhase
from cursorkeeper.core.turn import Turn, earlier
from cursorkeeper.core.writer import Writer

_ASKING = (WriterPhase.CREATING, WriterPhase.CHECKING, WriterPhase.ENDING)


@component
class Evidence:
    _turn: Turn
    _ownership: Ownership
    _flow: Flow
    _writer: Writer
    _form: Form
    _snapshots: Snapshots
    _claim: Claim

    @property
    def is_footer_held(self) -> bool:
        """What is to be asked of the footer next waits for its turn here: ZooKeeper does not know
        of it.
        """
        outstanding, held = self._ownership.commit.outstanding, self._turn.held
        return (outstanding is not None and outstanding.token in held) or (
            self._claim.reading and self._claim.token in held
        )

    @property
    def waited_at_s(self) -> float | None:
        """When the oldest unconfirmed message will have waited too long, for whatever reason."""
        oldest = self._flow.progress.oldest_unconfirmed_s
        return (
            None if oldest is None else max(oldest, self._form.fits_since_s) + self._form.patience_s
        )

    @property
    def away_at_s(self) -> float | None:
        """When the source may be told that what is behind this daemon is away: acks have waited for
        so long, and what they wait for has failed, or was sent and is not answered for so long.
        None: nothing says so.
        """
        waited = self.waited_at_s
        if waited is None:
            return None
        first = earlier(earlier(self._of_writer_s(), self._of_footer_s()), self._of_chain_s())
        return None if first is None else max(waited, first)

    @property
    def _away_s(self) -> float:
        return self._turn.limits.bookkeeper_away_ms / 1000

    def _of_writer_s(self) -> float | None:
        w = self._writer
        if w.current is not None and w.current.in_flight:
            sent = w.current.in_flight[0].at_s + self._away_s
            return sent if w.failed_at_s is None else min(sent, w.failed_at_s)
        if w.phase in _ASKING and w.retry_at_s is None:
            if w.token in self._turn.held:
                return None
            return w.asked_at_s + self._away_s if w.failed_at_s is None else w.failed_at_s
        if self._turn.no_room_since_s is not None and w.is_usable:
            return self._turn.no_room_since_s + self._away_s
        return w.failed_at_s

    def _of_footer_s(self) -> float | None:
        """An answer that was lost is evidence; so is one that does not come."""
        o = self._ownership.commit.outstanding
        if o is None or o.token in self._turn.held:
            return None
        return (
            o.sent_at_s + self._away_s
            if o.phase is WritePhase.SENT and o.tries == 1
            else o.sent_at_s
        )

    def _of_chain_s(self) -> float | None:
        """A chain at its hard limit waits for a snapshot, which is a failure of its own: it should
        have come long ago. So does what BookKeeper has lost, if the snapshot that stores it again
        has failed.
        """
        is_awaited = self._snapshots.is_waited_for or (self._flow.behind and self._form.has_records)
        return 0.0 if self._snapshots.run is None and is_awaited else None
