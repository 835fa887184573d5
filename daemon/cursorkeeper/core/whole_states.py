"""Flushes that write the whole state (`format = "pulsar"`): what a flush is then, when it is due, and what may not be written.

The machine still takes deltas: they say what is new, drive progress and are put back. What is appended is the state of
the same instant, encoded by a `StateWriter`; a record is durable when its last entry is. Invariants: the second state is
taken when the first has left completely (the newest wins); nothing is appended that does not fit; a state that leaves
something out is appended only while the committed footer says so; what only the footer holds (the subscription's
properties) is confirmed only when the committed footer holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cursorkeeper.core import effects as fx
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.footer import Footer, PulsarBase, Truncation, is_native, is_pulsar
from cursorkeeper.core.joining import NOTHING
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.values import Delta, RawEntry
from cursorkeeper.core.writer import Outgoing

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


@dataclass(frozen=True, slots=True)
class Taken:
    """A whole state as entries of one ledger, in order. `encoded_bytes`: its size before compression, properties included."""

    entries: tuple[bytes, ...]
    encoded_bytes: int
    truncated: Truncation | None = None


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Why it may not be written, with the numbers and the name of the setting."""

    reason: str
    encoded_bytes: int


class StateWriter(Protocol):
    """How a whole state becomes bytes. Pure: the state is not changed, equal states give equal bytes."""

    @property
    def format(self) -> str:
        """The format's name, as footers spell it."""
        ...

    @property
    def ledger_metadata(self) -> Mapping[str, bytes]:
        """What a reader of a ledger must know, as custom metadata."""
        ...

    def take(self, state: AckState) -> Taken | DoesNotFit:
        """The entries of one flush. Sizes are checked before anything is encoded where that can be known."""
        ...

    def inline(self, state: AckState, bytes_max: int) -> bytes | None:
        """The whole state as one value for the footer; None: it does not fit `bytes_max` or a limit."""
        ...


@dataclass(frozen=True, slots=True)
class Unfit:
    """The last attempt found that the state does not fit. As long as `carried` is the same value, it would find it again.
    None: the state has changed since in a way that is not written (a ledger was trimmed)."""

    why: DoesNotFit
    carried: Delta | None


# ---- questions


def is_stuck(m: CursorMachine) -> bool:
    """Nothing that is pending can become durable before something more is acked."""
    return m.unfit is not None and not m.queue and m.carried is m.unfit.carried


def is_foreign(m: CursorMachine) -> bool:
    """The footer still leads to something in the other form than the one that is written here."""
    other = is_pulsar if m.state_writer is None else is_native
    committed = m.commit.committed
    if m.state_writer is None and committed is not None and _has_notes(committed):
        return True
    if other(m.base) or any(map(other, m.chain)):
        return True
    return m.previous is not None and (other(m.previous.base) or any(map(other, m.previous.chain)))


def _has_notes(footer: Footer) -> bool:
    return footer.cursor_properties is not None or footer.truncated is not None


def are_notes_needed(m: CursorMachine, footer: Footer) -> bool:
    """Whether a footer of the native form must repeat what was noted beside Pulsar's form: as long as a base is named that this
    owner has not written, and which therefore may not hold it."""
    bases = [footer.base] if footer.previous is None else [footer.base, footer.previous.base]
    return any(base in m.claimed_bases or not is_native(base) for base in bases)


def is_rewrite_due(m: CursorMachine) -> bool:
    """A whole state is to be written although nothing is new: none is on its way that would replace the native chain."""
    if m.state_writer is None or is_stuck(m):
        return False
    wanted = m.behind or (m.state in LIVE and not m.closing and is_foreign(m))
    return wanted and not m.writer.outbox and not m.writer.unconfirmed


def flush_at(m: CursorMachine, *, urgent: bool) -> float | None:
    """When the next whole state should be taken; None: not before something changes. The outbox is empty."""
    waiting = max(m.writer.in_flight, len(m.writer.unconfirmed))  # answered ones too: each is kept whole until the footer leads to it
    if waiting >= m.limits.appends_in_flight_max or is_stuck(m) or _wants_note(m):
        return None
    after = m.state_taken_s + m.limits.whole_state_interval_ms / 1000 if m.state_taken_s is not None and not urgent else 0.0
    if is_rewrite_due(m):
        return after if m.unfit is not None else 0.0  # the size of what did not fit is not looked at for every ack
    oldest = m.progress.oldest_unbound_s
    if oldest is None and urgent and (m.queue or m.carried):
        oldest = 0.0
    return None if oldest is None else max(oldest, after)


def patience_s(m: CursorMachine) -> float:
    """How long acks may wait before something must be wrong. A slow rhythm is not wrong."""
    interval = m.limits.whole_state_interval_ms if m.state_writer is not None else 0
    return (m.limits.bookkeeper_away_ms + interval) / 1000


# ---- a flush


def take(m: CursorMachine) -> None:
    """The state as it is now goes to the outbox, if it may. What is queued was absorbed."""
    assert m.state_writer is not None
    if not m.carried and not is_rewrite_due(m):
        m.progress.bind_to_newest()
        m.confirmed(m.progress.confirmations())
        return
    taken = m.state_writer.take(m.acks)
    m.metadata_bytes = taken.encoded_bytes
    if isinstance(taken, DoesNotFit):
        _hold_back(m, taken)
        return
    if m.unfit is not None:
        m.unfit, m.fits_since_s, m.waiting_for = None, m.now, ""
    if taken.truncated is not None:
        _note_truncation(m, taken.truncated)
        if m.note_awaited:
            return  # the footer says it first: see `drive`
    m.note_awaited = False
    delta, m.carried = m.carried, NOTHING
    record = m.progress.take().start
    m.writer.outbox.extend(Outgoing(None, RawEntry(entry)) for entry in taken.entries[:-1])
    m.writer.outbox.append(Outgoing(record, RawEntry(taken.entries[-1]), delta, taken.truncated))
    m.state_taken_s = m.now
    m.counters.flushes += 1
    m.counters.truncated_flushes += taken.truncated is not None


def _hold_back(m: CursorMachine, why: DoesNotFit) -> None:
    """Acks stay accepted and unconfirmed. Their bytes go back to the source's credit: they are in the state now, and the
    acks that would make it fit again must be able to come."""
    if m.unfit is None:
        m.counters.limit_crossings += 1
        m.emit(fx.Report("state does not fit", {"reason": why.reason, "encoded_bytes": why.encoded_bytes}))
    m.unfit = Unfit(why, m.carried)
    m.state_taken_s = m.now  # to know the size costs as much as the state is large: not for every ack
    m.confirmed(m.progress.released())


def _note_truncation(m: CursorMachine, truncated: Truncation) -> None:
    if m.stored_truncation is None and not m.writer.is_truncated and not m.note_awaited:
        m.counters.truncations += 1
        m.emit(fx.Report("state truncated", truncated.as_fields()))
    m.truncated = truncated
    m.note_awaited = not _is_noted(m)


def _is_noted(m: CursorMachine) -> bool:
    """The committed footer says that the state may be a part, and no footer write is on its way that would not."""
    committed, outstanding = m.commit.committed, m.commit.outstanding
    said = committed is not None and committed.truncated is not None
    return said and (outstanding is None or outstanding.footer.truncated is not None)


# ---- what only the footer holds


def _wants_note(m: CursorMachine) -> bool:
    return m.note_awaited and not _is_noted(m)


def is_held(m: CursorMachine, outgoing: Outgoing) -> bool:
    """What the record changed outside the ledger is in the committed footer."""
    properties, committed = outgoing.delta.cursor_properties, m.commit.committed
    if m.state_writer is None or properties is None:
        return True
    held = committed.cursor_properties if committed is not None else None
    return held is not None and held.stamp >= properties.stamp


def durable(m: CursorMachine, outgoing: Outgoing) -> None:
    """A record is durable: it is what a reader would find."""
    if m.state_writer is not None:
        m.stored_truncation, m.behind = outgoing.truncated, False


def left_behind(m: CursorMachine) -> None:
    """The ledger is left with states that are not durable: a reader may find the newest of them until another one is named."""
    ledger = m.writer.current
    parts = [o.truncated for o in m.writer.unconfirmed.values() if o.truncated is not None]
    if parts and ledger is not None and ledger.named:
        m.stored_truncation = parts[-1]


def switched(m: CursorMachine) -> None:
    """A native base replaced what was named before: when the footer's note goes, nothing that is stored is a part any more."""
    committed = m.commit.committed
    if committed is not None and committed.truncated is None:
        m.truncated = m.stored_truncation = None


def drive(m: CursorMachine) -> None:
    """A small footer write of its own where no other one is on its way."""
    if m.state_writer is None or m.commit.outstanding is not None or m.resets or m.deleting:
        return
    if m.stored_truncation is None and not m.writer.is_truncated and not m.note_awaited:
        m.truncated = None  # the newest state is whole, or will be when it is written
    committed = m.commit.committed
    assert committed is not None
    if (m.truncated is None) != (committed.truncated is None) or _has_newer_properties(m):
        m.propose(m.footer(), Purpose.NOTE)


def _has_newer_properties(m: CursorMachine) -> bool:
    committed, mine = m.commit.committed, m.acks.cursor_properties
    held = committed.cursor_properties if committed is not None else None
    return mine is not None and (held is None or mine.stamp > held.stamp)


def inline_base(m: CursorMachine) -> PulsarBase | None:
    """The whole state for the footer; None: it is too large for it, or for a limit."""
    assert m.state_writer is not None
    if is_stuck(m):
        return None
    info = m.state_writer.inline(m.acks, m.limits.inline_state_max_bytes)
    return PulsarBase(info, m.epoch) if info is not None else None


def carried_of(m: CursorMachine, delta: Delta) -> Delta:
    """What of a change has to be written. The layout is the topic's: the source tells it at each open."""
    return replace(delta, layout=()) if m.state_writer is not None and delta.layout else delta


def is_between_states(m: CursorMachine) -> bool:
    """No state is half sent: a good moment to leave the ledger."""
    return m.state_writer is None or not m.writer.outbox
