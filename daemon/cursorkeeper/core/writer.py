"""The ledger that is being written: what was sent to it, what came back, and how it is left.

Data and small questions only; the decisions are in `rolling` and `flushing`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from cursorkeeper.core.footer import Truncation
from cursorkeeper.core.joining import NOTHING
from cursorkeeper.core.values import Delta, RawEntry


class WriterPhase(Enum):
    """Where the writer is with its ledger."""

    IDLE = auto()
    """No ledger. The next flush creates one."""
    CREATING = auto()
    OPEN = auto()
    """Entries may be appended; confirmed only once the footer names it."""
    DRAINING = auto()
    """A planned roll: nothing more is appended, what is in flight is waited for."""
    FAILED = auto()
    """An append failed: nothing more is appended; the outstanding footer write is waited for."""
    CHECKING = auto()
    """The footer is being read: is there a new owner?"""
    ENDING = auto()
    """Close or recovery is on its way."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One entry that was taken. `delta`: what is new in the record, to be put back should the ledger fail; `body`: what is
    written for it, the delta itself or a part of the whole state. Only the last entry of a record carries its number."""

    record: int | None
    body: Delta | RawEntry
    delta: Delta = NOTHING
    truncated: Truncation | None = None


@dataclass(slots=True)
class Sent:
    """One entry that was sent. `record` is its number in `Progress`; None for snapshot parts, the open record, and all but
    the last entry of a whole state."""

    entry: int
    record: int | None
    acks: int = 0
    at_s: float = 0.0


@dataclass(slots=True)
class OpenLedger:
    """A ledger of our own."""

    ledger: int
    opened_at_s: float
    next_entry: int = 0
    stored_bytes: int = 0
    named: bool = False
    """The committed footer names it."""
    first_acked: bool = False
    """What a reader needs first is acknowledged: the open record, or a whole state. Before that it is not named."""
    in_flight: deque[Sent] = field(default_factory=deque)
    acked_entry: int = -1
    """Newest entry acknowledged by the quorum: recovery that answers less has lost entries."""
    acked_record: int | None = None
    """Newest record acknowledged here; durable only if `named`."""


@dataclass(slots=True)
class LedgerWriter:
    phase: WriterPhase = WriterPhase.IDLE
    current: OpenLedger | None = None
    token: int = 0
    """The token of what is asked: a ledger, the footer, an end."""
    asked_at_s: float = 0.0
    failed_at_s: float | None = None
    """Since when nothing but failures came; a ledger that was created ends it."""
    retry_at_s: float | None = None
    tries: int = 0
    """Failures in a row, over ledgers; a ledger that acknowledges a record ends the row."""
    missing: bool = False
    """The ledger is gone although the footer named it: the footer is read after a sync before anything is said."""
    trouble: str = ""
    """Why the last attempt failed; empty when all is well."""
    outbox: deque[Outgoing] = field(default_factory=deque)
    """Entries that were taken and not sent yet."""
    unconfirmed: dict[int, Outgoing] = field(default_factory=dict)
    """By record number: every record sent to the current ledger that is not durable."""

    @property
    def in_flight(self) -> int:
        """Entries sent and not answered."""
        return len(self.current.in_flight) if self.current else 0

    @property
    def is_usable(self) -> bool:
        return self.phase is WriterPhase.OPEN

    @property
    def is_settled(self) -> bool:
        """There is no ledger, or one that the footer names: none is being left or replaced."""
        return self.phase in (WriterPhase.OPEN, WriterPhase.IDLE) and (self.current is None or self.current.named)

    @property
    def is_truncated(self) -> bool:
        """A part of the whole was taken and is not durable yet."""
        return any(o.truncated is not None for o in (*self.outbox, *self.unconfirmed.values()))

    def put_back(self) -> list[Delta]:
        """Everything that is not durable, to be written again elsewhere."""
        deltas = [self.unconfirmed[n].delta for n in sorted(self.unconfirmed)] + [o.delta for o in self.outbox]
        self.unconfirmed.clear()
        self.outbox.clear()
        return deltas

    def forget(self) -> None:
        self.phase, self.current, self.retry_at_s, self.missing = WriterPhase.IDLE, None, None, False
