"""Serves the owner of a cursor: one footer, one compare-and-set at a time, and what to do when its
answer is lost (ARCHITECTURE rules 1 to 5).

Unknown: the same bytes at the same expected version again, until OK or BadVersion: both are final
because versions never restart. BadVersion: sync, read, compare (epoch, writer, write): mine means
that an earlier try was applied. A plain read alone never decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from cursorkeeper.core import effects as fx
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.shape import component, frozen
from cursorkeeper.core.table import WRITE_PHASES, WritePhase

ABSENT = -1


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


@dataclass(slots=True)
class Outstanding:
    """A write that is not decided."""

    footer: Footer
    expected: int
    purpose: Purpose
    token: int
    phase: WritePhase = WritePhase.SENT
    retry_at_s: float = 0.0
    tries: int = 1
    sent_at_s: float = 0.0
    """When it was sent first."""

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
    """See the module. Backs off with doubled delays between `retry_min_s` and `retry_max_s`."""

    _retry_min_s: float
    _retry_max_s: float
    committed: Footer | None = None
    version: int = ABSENT
    outstanding: Outstanding | None = None

    def adopt(self, footer: Footer | None, version: int) -> None:
        """Content and version from one read: what the next write is derived from."""
        self.committed, self.version = footer, version

    def forget(self) -> None:
        """Whether the outstanding write is applied does not matter any more."""
        self.outstanding = None

    def propose(self, footer: Footer, purpose: Purpose, token: int, now: float = 0.0) -> fx.Effect:
        """Send a write, which says the version that it makes. Raises AssertionError if one is
        outstanding.
        """
        if self.outstanding is not None:
            raise AssertionError("one compare-and-set at a time")
        footer = footer.written_at(self.version + 1)
        self.outstanding = Outstanding(footer, self.version, purpose, token, sent_at_s=now)
        return fx.WriteFooter(token, footer, self.version)

    def sent(self, now: float) -> None:
        """The outstanding write has waited for its turn until now."""
        o = self._need()
        if o.tries == 1:
            o.sent_at_s = now

    @property
    def retry_at_s(self) -> float | None:
        """When the outstanding write has to be looked at again."""
        o = self.outstanding
        return (
            o.retry_at_s if o and o.phase in (WritePhase.WAITING, WritePhase.READ_WAITING) else None
        )

    def is_waiting_for(self, token: int) -> bool:
        """Whether an answer with this token belongs to the outstanding write."""
        return self.outstanding is not None and self.outstanding.token == token

    def on_written(self, version: int) -> Decision:
        o = self._take()
        before, self.committed, self.version = self.committed, o.footer, version
        return Committed(o.purpose, before, o.footer)

    def on_unknown(self, now: float) -> None:
        """The answer was lost: repeat later, the same bytes at the same version."""
        o = self._need()
        o.move(WritePhase.WAITING)
        o.retry_at_s = now + self._delay(o)

    def on_bad_version(self, token: int) -> fx.Effect:
        """Final for this version. Who won? Ask after a sync."""
        o = self._need()
        o.move(WritePhase.READING)
        o.token = token
        return fx.ReadFooter(token, sync=True)

    def on_read(self, footer: Footer | None, version: int) -> Decision:
        """The answer to the question after a BadVersion."""
        o = self._take()
        if footer is not None and footer.is_same_write(o.footer):
            before, self.committed, self.version = self.committed, o.footer, version
            return Committed(o.purpose, before, o.footer)
        return Lost(o.purpose, footer, version)

    def on_read_failed(self, now: float) -> None:
        o = self._need()
        o.move(WritePhase.READ_WAITING)
        o.retry_at_s = now + self._delay(o)

    def on_time(self, now: float, token: int) -> fx.Effect | None:
        """The write or the read that is due again, or None."""
        o = self.outstanding
        if (
            o is None
            or o.phase not in (WritePhase.WAITING, WritePhase.READ_WAITING)
            or now < o.retry_at_s
        ):
            return None
        o.tries += 1
        o.token = token
        if o.phase is WritePhase.WAITING:
            o.move(WritePhase.SENT)
            return fx.WriteFooter(token, o.footer, o.expected)
        o.move(WritePhase.READING)
        return fx.ReadFooter(token, sync=True)

    def _delay(self, o: Outstanding) -> float:
        return min(self._retry_max_s, self._retry_min_s * 2.0 ** min(o.tries - 1, 16))

    def _need(self) -> Outstanding:
        if self.outstanding is None:
            raise AssertionError("no compare-and-set is outstanding")
        return self.outstanding

    def _take(self) -> Outstanding:
        o = self._need()
        self.outstanding = None
        return o
