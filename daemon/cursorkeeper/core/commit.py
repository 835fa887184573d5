"""Serves the owner of a cursor: one footer, one compare-and-set at a time, and what to do when its
answer is lost (ARCHITECTURE rules 1 to 5).

Unknown: the same bytes at the same expected version again, until OK or BadVersion: both are final
because versions never restart. BadVersion: sync, read, compare (epoch, writer, write): mine means
that an earlier try was applied. A plain read alone never decides.
"""

from __future__ import annotations

from enum import Enum, auto

from cursorkeeper.core import effects as fx
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.shape import component, direct, frozen
from cursorkeeper.core.table import WRITE_PHASES, WritePhase
from cursorkeeper.core.turn import Turn

ABSENT = -1


@direct
class Purpose(Enum):
    """What a footer write is for; decides what its OK means."""

    CLAIM = auto()
    NAME_LEDGER = auto()
    NOTE = auto()
    """What only the footer can hold has changed."""
    SWITCH = auto()
    TOKEN = auto()
    """A higher fencing token, and nothing else."""
    RESET = auto()
    INLINE = auto()
    CLOSE = auto()
    DELETE = auto()


@component
class Outstanding:
    """A write that is not decided."""

    footer: Footer
    expected: int
    purpose: Purpose
    token: int
    sent_at_s: float
    """Of the first try, since its turn came: a repetition keeps it."""
    phase: WritePhase = WritePhase.SENT
    retry_at_s: float = 0.0
    tries: int = 1

    def move(self, phase: WritePhase) -> None:
        WRITE_PHASES.check(self.phase, phase)
        self.phase = phase


@frozen
class Committed:
    """The write was applied, by this try or an earlier one. `before` is the footer it replaced."""

    purpose: Purpose
    before: Footer | None
    after: Footer


@frozen
class Lost:
    """Another write was applied instead: `now` is what is there, at `version`."""

    purpose: Purpose
    now: Footer | None
    version: int


Decision = Committed | Lost


@component
class FooterCommit:
    _turn: Turn
    committed: Footer | None = None
    version: int = ABSENT
    outstanding: Outstanding | None = None

    def adopt(self, footer: Footer | None, version: int) -> None:
        """Content and version from one read: what the next write is derived from."""
        self.committed, self.version = footer, version

    def forget(self) -> None:
        """Whether the outstanding write is applied does not matter any more."""
        self.outstanding = None

    def propose(self, footer: Footer, purpose: Purpose) -> None:
        """Sends a write, which says the version that it makes."""
        assert self.outstanding is None, "one compare-and-set at a time"
        turn, footer = self._turn, footer.written_at(self.version + 1)
        self.outstanding = Outstanding(footer, self.version, purpose, turn.token(), turn.now)
        self._ask(self.outstanding)

    def _ask(self, o: Outstanding) -> None:
        self._turn.emit(
            fx.WriteFooter(o.token, o.footer, o.expected)
            if o.phase is WritePhase.SENT
            else fx.ReadFooter(o.token, sync=True)
        )

    def sent(self) -> None:
        """The outstanding write has waited for its turn until now."""
        o = self._need()
        if o.tries == 1:
            o.sent_at_s = self._turn.now

    @property
    def retry_at_s(self) -> float | None:
        """When the outstanding write has to be looked at again."""
        o = self.outstanding
        return (
            o.retry_at_s if o and o.phase in (WritePhase.WAITING, WritePhase.READ_WAITING) else None
        )

    def awaits(self, token: int) -> bool:
        """Whether an answer with this token belongs to the outstanding write."""
        return self.outstanding is not None and self.outstanding.token == token

    def on_written(self, version: int) -> Decision:
        o = self._need()
        before, self.committed, self.version = self.committed, o.footer, version
        self.outstanding = None
        return Committed(o.purpose, before, o.footer)

    def on_unknown(self, reason: str) -> None:
        """The answer was lost, or nobody says whose write is there: the same again, later."""
        o = self._need()
        is_write = o.phase in (WritePhase.SENT, WritePhase.WAITING)
        o.move(WritePhase.WAITING if is_write else WritePhase.READ_WAITING)
        o.retry_at_s = self._turn.retry_at_s(o.tries - 1)
        self._turn.wait_for(f"ZooKeeper: {reason}")

    def on_bad_version(self) -> None:
        """Final for this version. Who won? Ask after a sync."""
        o = self._need()
        o.move(WritePhase.READING)
        o.token = self._turn.token()
        self._ask(o)

    def on_read(self, footer: Footer | None, version: int) -> Decision:
        """The answer to the question after a BadVersion."""
        o = self._need()
        if footer is not None and footer.is_same_write(o.footer):
            return self.on_written(version)
        self.outstanding = None
        return Lost(o.purpose, footer, version)

    def drive(self) -> None:
        """Sends the write, or the question whose write was applied, that is due again."""
        due, o = self.retry_at_s, self.outstanding
        if o is None or due is None or self._turn.now < due:
            return
        o.tries += 1
        o.token = self._turn.token()
        o.move(WritePhase.SENT if o.phase is WritePhase.WAITING else WritePhase.READING)
        self._ask(o)

    def _need(self) -> Outstanding:
        assert self.outstanding is not None, "no compare-and-set is outstanding"
        return self.outstanding
