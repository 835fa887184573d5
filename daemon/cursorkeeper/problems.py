"""Serves everybody who is told that something went wrong, whoever found it: one shape of an error,
and what foreign errors are in it.

Owns which reaction an error calls for. Does not own exit codes, lines on a terminal or a status:
each boundary has a table of its own for the kinds (`terminal.failure` for command lines).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cursorkeeper.core.errors import (
    CursorKeeperError,
    DamageError,
    ExplainedError,
    RefusedError,
    TooNewError,
)

REPORT = "run it again with --debug and report what it shows"


class Kind(StrEnum):
    """Only AWAY may be well later without anybody doing something."""

    FAILED = "failed"  # the answer is no
    REFUSED = "refused"  # it could be done, but must not
    CHANGED = "changed"  # somebody else was quicker, and nothing was done
    USAGE = "usage"  # what was given cannot be meant
    NOT_FOUND = "not found"
    MISSING = "missing"  # something that the cursor needs is gone: its ledger, the topic's znode
    DAMAGED = "damaged"
    TOO_NEW = "too new"
    AWAY = "away"
    BUG = "bug"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and what to do, for people. `cursor` and `where` (a znode, "ledger L entry E",
    or whose footer it is): empty if the message says it.
    """

    message: str
    remedy: str
    kind: Kind = Kind.FAILED
    where: str = ""
    cursor: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.cursor, self.where, self.message) if part)

    @property
    def told(self) -> str:
        """With the remedy, on one line."""
        return " ".join(
            (f"{self}. What to do: {self.remedy}" if self.remedy else str(self)).split()
        )


class ProblemError(CursorKeeperError):
    """A problem that somebody has to be told."""

    def __init__(
        self,
        message: str,
        remedy: str,
        kind: Kind = Kind.FAILED,
        *,
        where: str = "",
        cursor: str = "",
    ) -> None:
        self.problem = Problem(message, remedy, kind, where, cursor)
        self.message, self.remedy, self.kind = message, remedy, kind
        self.where, self.cursor = where, cursor
        super().__init__(str(self.problem))


class NotFound(ProblemError):
    """There is no such cursor."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy, Kind.NOT_FOUND)


def problem_of(error: BaseException) -> Problem:
    """The problem that an exception stands for. What is not known here is a bug, and says so."""
    match error:
        case ProblemError():
            return error.problem
        case RefusedError():
            return Problem(error.message, error.remedy, where=error.cursor)
        case ExplainedError():
            return _of_explained(error)
        case TooNewError():
            return Problem(
                error.message,
                "upgrade this program: older ones must not touch what newer ones wrote",
                Kind.TOO_NEW,
                error.place,
            )
        case DamageError():
            return Problem(
                error.message,
                "look closer with `cursorkeeper inspect` and `cursorkeeper verify`; change "
                "nothing before",
                Kind.DAMAGED,
                error.place,
            )
        case OSError() if error.filename is not None:
            return Problem(
                f"{error.filename}: {error.strerror}", "check the path and its rights", Kind.USAGE
            )
    return _of_foreign(error)


def _of_explained(error: ExplainedError) -> Problem:
    from cursorkeeper.readiness import StartError
    from cursorkeeper.settings import SettingsError  # not needed above: `health` must start fast

    if isinstance(error, StartError):
        return Problem(
            error.message, error.remedy or "start it, or name another address", Kind.AWAY
        )
    usual = (
        "correct the setting; `cursorkeeper run --help` lists all of them"
        if isinstance(error, SettingsError)
        else ""
    )
    return Problem(error.message, error.remedy or usual, Kind.USAGE)


def _of_foreign(error: BaseException) -> Problem:
    from cursorkeeper.bookkeeper import errors as bk
    from cursorkeeper.zookeeper import errors as zk

    if isinstance(error, bk.GatewayError):
        where = f"ledger {error.ledger}: " if error.ledger >= 0 else ""
        said = f": {error.message}" if error.message else ""
        kind = Kind.FAILED if isinstance(error, bk.GatewayRefused) else Kind.AWAY
        return Problem(f"the ledger gateway: {where}{error.reason}{said}", error.remedy, kind)
    if isinstance(error, zk.ZooKeeperError):
        return Problem(
            f"ZooKeeper: {error}",
            error.remedy,
            Kind.FAILED if error.kind is zk.Kind.REFUSED else Kind.AWAY,
        )
    return Problem(f"an internal error: {error!r}", REPORT, Kind.BUG)
