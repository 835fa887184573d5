"""When "away" may be said: what was sent and is not answered, or has failed.

Acks that wait are no evidence by themselves. They may wait for this daemon: for a turn to create a ledger, to write a footer,
for room in its window. What is held back has not been sent (`ev.Sent` tells when it was), and says nothing of anybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cursorkeeper.core import whole_states
from cursorkeeper.core.commit import Phase
from cursorkeeper.core.writer import WriterPhase

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine

_ASKING = (WriterPhase.CREATING, WriterPhase.CHECKING, WriterPhase.ENDING)


def is_footer_held(m: CursorMachine) -> bool:
    """What is to be asked of the footer next waits for its turn here: ZooKeeper does not know of it."""
    o = m.commit.outstanding
    return (o is not None and o.token in m.held) or (m.opening.reading_footer and m.opening.token in m.held)


def waited_at_s(m: CursorMachine) -> float | None:
    """When the oldest unconfirmed message will have waited too long, for whatever reason."""
    oldest = m.progress.oldest_unconfirmed_s
    return None if oldest is None else max(oldest, m.fits_since_s) + whole_states.patience_s(m)


def away_at_s(m: CursorMachine) -> float | None:
    """When the source may be told that what is behind this daemon is away: acks have waited for so long, and what they wait
    for has failed, or was sent and is not answered for so long. None: nothing says so."""
    waited = waited_at_s(m)
    if waited is None:
        return None
    times = [at for at in (_of_writer_s(m), _of_footer_s(m), _of_chain_s(m)) if at is not None]
    return max(waited, min(times)) if times else None


def _of_writer_s(m: CursorMachine) -> float | None:
    w, patience = m.writer, m.limits.bookkeeper_away_ms / 1000
    if w.current is not None and w.current.in_flight:
        sent = w.current.in_flight[0].at_s + patience
        return sent if w.failed_at_s is None else min(sent, w.failed_at_s)
    if w.phase in _ASKING and w.retry_at_s is None:
        if w.token in m.held:
            return None
        return w.asked_at_s + patience if w.failed_at_s is None else w.failed_at_s
    if m.no_room_since_s is not None and w.is_usable:
        return m.no_room_since_s + patience
    return w.failed_at_s


def _of_footer_s(m: CursorMachine) -> float | None:
    """An answer that was lost is evidence; so is one that does not come."""
    o = m.commit.outstanding
    if o is None or o.token in m.held:
        return None
    return o.sent_at_s + m.limits.bookkeeper_away_ms / 1000 if o.phase is Phase.SENT and o.tries == 1 else o.sent_at_s


def _of_chain_s(m: CursorMachine) -> float | None:
    """A chain at its hard limit waits for a snapshot, which is a failure of its own: it should have come long ago. So does what
    BookKeeper has lost, if the snapshot that stores it again has failed."""
    is_awaited = len(m.chain) >= m.limits.chain_ledgers_hard_max or m.behind
    return 0.0 if m.snapshot is None and is_awaited and m.state_writer is None else None
