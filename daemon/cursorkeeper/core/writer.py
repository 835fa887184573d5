"""Serves what is to be durable: the ledger that is being written, what was sent to it, what came
back, and how it is left.

Data and small questions; when a ledger is created, named and left is decided by `ledgers`, what
goes into it by `flushing` and `snapshots`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from cursorkeeper.core import effects as fx
from cursorkeeper.core.footer import Truncation
from cursorkeeper.core.join import NOTHING
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.shape import component, frozen
from cursorkeeper.core.table import WRITER_PHASES, WriterPhase
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import Delta, RawEntry, Record, RecordBody


@frozen
class Outgoing:
    """One entry that was taken. `delta`: what is new in the record, to be put back should the
    ledger fail; `body`: what is written for it, the delta itself or a part of the whole state. Only
    the last entry of a record carries its number.
    """

    record: int | None
    body: Delta | RawEntry
    delta: Delta = NOTHING
    truncated: Truncation | None = None


@component
class Sent:
    """One entry that was sent. `record` is its number in `Progress`; None for snapshot parts, the
    open record, and all but the last entry of a whole state.
    """

    entry: int
    record: int | None
    acks: int = 0
    at_s: float = 0.0


@component
class OpenLedger:
    ledger: int
    opened_at_s: float
    next_entry: int = 0
    stored_bytes: int = 0
    named: bool = False
    """The committed footer names it."""
    first_acked: bool = False
    """What a reader needs first is acknowledged: the open record, or a whole state. Before that it
    is not named.
    """
    in_flight: deque[Sent] = field(default_factory=deque)
    acked_entry: int = -1
    """Newest entry acknowledged by the quorum: recovery that answers less has lost entries."""
    acked_record: int | None = None
    """Newest record acknowledged here; durable only if `named`."""

    def has_first(self, *, is_first: bool) -> None:
        """Whether the newest answer brought what a reader needs first."""
        self.first_acked = self.first_acked or is_first


@component
class Writer:
    _turn: Turn
    _ownership: Ownership
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
    """The ledger is gone although the footer named it: the footer is read after a sync before
    anything is said.
    """
    trouble: str = ""
    """Why the last attempt failed; empty when all is well."""
    is_handle_lost: bool = False
    """The ledger failed because the handles of all ledgers were lost, and nothing was done about it
    yet.
    """
    outbox: deque[Outgoing] = field(default_factory=deque)
    """Entries that were taken and not sent yet."""
    unconfirmed: dict[int, Outgoing] = field(default_factory=dict)
    """By record number: every record sent to the current ledger that is not durable."""

    # ---- questions

    @property
    def in_flight(self) -> int:
        """Entries sent and not answered."""
        current = self.current
        return len(current.in_flight) if current else 0

    @property
    def has_window(self) -> bool:
        """One more entry may be sent before an answer comes."""
        return self.in_flight < self._turn.limits.appends_in_flight_max

    @property
    def is_usable(self) -> bool:
        return self.phase is WriterPhase.OPEN

    @property
    def is_settled(self) -> bool:
        """There is no ledger, or one that the footer names: none is being left or replaced."""
        return self.phase in (WriterPhase.OPEN, WriterPhase.IDLE) and (
            self.current is None or self.current.named
        )

    @property
    def is_without_ledger(self) -> bool:
        """There is none, and none is asked for."""
        return self.phase is WriterPhase.IDLE

    @property
    def is_truncated(self) -> bool:
        """A part of the whole was taken and is not durable yet."""
        return any(o.truncated is not None for o in (*self.outbox, *self.unconfirmed.values()))

    @property
    def own_ledger(self) -> tuple[int, ...]:
        return (self.current.ledger,) if self.current else ()

    def is_asking(self, phase: WriterPhase, token: int) -> bool:
        """Whether this is the answer that is waited for in this phase."""
        return self.phase is phase and token == self.token

    # ---- phases

    def move(self, phase: WriterPhase) -> None:
        WRITER_PHASES.check(self.phase, phase)
        self.phase = phase

    def ask(self, phase: WriterPhase) -> int:
        """The token of a question that this phase waits for the answer of."""
        self.move(phase)
        self.token, self.asked_at_s, self.retry_at_s = self._turn.token(), self._turn.now, None
        return self.token

    def ask_again(self) -> int:
        """The token of one more question of the same phase."""
        self.token = self._turn.token()
        return self.token

    def asked_now(self, token: int) -> None:
        """The question has waited for its turn until now."""
        if token == self.token:
            self.asked_at_s = self._turn.now

    def created(self, ledger: int) -> None:
        self.move(WriterPhase.OPEN)
        self.trouble, self.failed_at_s = "", None
        self.current = OpenLedger(ledger, self._turn.now)

    def drain(self) -> None:
        """No more appends; the ledger is closed when what is in flight was answered."""
        if self.phase is WriterPhase.OPEN:
            self.move(WriterPhase.DRAINING)

    def fail(self, trouble: str, *, is_handle_lost: bool = False) -> None:
        """The ledger is not to be used any more."""
        self.move(WriterPhase.FAILED)
        self.trouble, self.retry_at_s, self.is_handle_lost = trouble, None, is_handle_lost
        self.failed_at_s = self._turn.now if self.failed_at_s is None else self.failed_at_s

    def miss(self) -> None:
        """BookKeeper has no such ledger, although the footer names it."""
        self.missing = True

    def back_off(self, trouble: str = "") -> None:
        """The question failed: it is asked again later."""
        self.trouble = trouble or self.trouble
        self.failed_at_s = self._turn.now if self.failed_at_s is None else self.failed_at_s
        self.retry_at_s = self._turn.retry_at_s(self.tries)
        self.tries += 1

    def is_due(self) -> bool:
        """The time to ask again has come; True once."""
        if self.retry_at_s is None or self._turn.now < self.retry_at_s:
            return False
        self.retry_at_s = None
        return True

    def take_lost_handle(self) -> bool:
        """Whether the ledger failed because the handles of all ledgers were lost; True once."""
        lost = self.phase is WriterPhase.FAILED and self.is_handle_lost
        self.is_handle_lost = False
        return lost

    def forget(self) -> None:
        self.move(WriterPhase.IDLE)
        self.current, self.retry_at_s, self.missing = None, None, False

    def named(self) -> None:
        """The committed footer leads to the current ledger."""
        assert self.current is not None, (
            "no ledger is left while a write that names it is undecided"
        )
        self.current.named = True

    # ---- entries

    def append(self, body: RecordBody | RawEntry, record: int | None = None) -> int:
        """Sends one entry to the current ledger; returns its id."""
        ledger, turn, ownership = self.current, self._turn, self._ownership
        assert ledger is not None
        entry = ledger.next_entry
        ledger.next_entry += 1
        sequence = ownership.next_sequence()
        acks = (
            sum(map(len, body.acks.values())) + len(body.partials) if isinstance(body, Delta) else 0
        )
        ledger.in_flight.append(Sent(entry, record, acks, turn.now))
        if not isinstance(body, RawEntry):
            turn.emit(
                fx.Append(
                    ledger.ledger,
                    entry,
                    Record(
                        turn.name.record_hash, ownership.epoch, ownership.generation, sequence, body
                    ),
                )
            )
        else:
            turn.emit(fx.Append(ledger.ledger, entry, body))
        turn.use_room()
        return entry

    def put(self, outgoing: list[Outgoing]) -> None:
        """Entries that were taken leave in this order."""
        self.outbox.extend(outgoing)

    def send(self) -> None:
        """Sends what was taken, as far as the window allows."""
        while self.outbox and self._turn.room > 0 and self.has_window:
            outgoing = self.outbox.popleft()
            if outgoing.record is not None:
                self.unconfirmed[outgoing.record] = outgoing
            self.append(outgoing.body, outgoing.record)

    def answered(self, ledger: int, entry: int, stored_bytes: int) -> Sent | None:
        """An entry is acknowledged. Answers come in order; None: it is one of a ledger that was
        left.
        """
        current = self.current
        if (
            current is None
            or current.ledger != ledger
            or not current.in_flight
            or current.in_flight[0].entry != entry
        ):
            return None
        sent = current.in_flight.popleft()
        current.acked_entry = entry
        current.stored_bytes += stored_bytes
        if sent.record is not None:
            current.acked_record = sent.record
            self.tries = 0
        return sent

    def put_back(self) -> list[Delta]:
        """Everything that is not durable, to be written again elsewhere."""
        deltas = [self.unconfirmed[n].delta for n in sorted(self.unconfirmed)] + [
            o.delta for o in self.outbox
        ]
        self.unconfirmed.clear()
        self.outbox.clear()
        return deltas
