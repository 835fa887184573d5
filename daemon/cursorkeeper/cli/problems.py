"""Errors as people read them: what is wrong, what to do, and the exit code. One table for everything that is raised."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version

from cursorkeeper.cli.printable import printable
from cursorkeeper.core.errors import DamageError, RefusedError, TooNewError

NO, USAGE, AWAY, BUG = 1, 2, 3, 70
"""Exit codes; see `main`."""
REPORT = "run it again with --debug and report what it shows"


@dataclass(frozen=True, slots=True)
class Problem:
    """A message of one line, a remedy, an exit code."""

    message: str
    remedy: str
    exit_code: int

    def show(self) -> None:
        """Writes to standard error, without colours: it may end in a log."""
        sys.stderr.write(f"cursorkeeper: {printable(_one_line(self.message))}\n")
        if self.remedy:
            sys.stderr.write(f"What to do: {printable(_one_line(self.remedy))}\n")


def install(extra: str) -> str:
    """How an extra is installed. The package is on no index, so it is its wheel that is named."""
    return f"pip install 'cursorkeeper-{version('cursorkeeper')}-py3-none-any.whl[{extra}]', the wheel that `make dist` makes"


class CommandError(Exception):
    """A command cannot do what was asked."""

    def __init__(self, message: str, remedy: str, exit_code: int = NO) -> None:
        super().__init__(message)
        self.problem = Problem(message, remedy, exit_code)


class NotFound(CommandError):
    """There is no such cursor."""


def explain(error: BaseException) -> Problem:
    """The problem that an exception stands for. What is not known here is a bug, and says so."""
    if isinstance(error, CommandError):
        return error.problem
    # not needed above: `health` must start fast
    from cursorkeeper.pulsar_broker.settings import PulsarSettingsError
    from cursorkeeper.settings import SettingsError

    match error:
        case SettingsError():
            return Problem(error.message, error.remedy or "correct the setting; `cursorkeeper run --help` lists all of them", USAGE)
        case PulsarSettingsError():
            return Problem(error.message, error.remedy, USAGE)
        case RefusedError():
            return Problem(f"{error.cursor}: {error.message}", error.remedy, NO)
        case TooNewError():
            return Problem(str(error), "upgrade this program: older ones must not touch what newer ones wrote", NO)
        case DamageError():
            return Problem(str(error), "look closer with `cursorkeeper inspect` and `cursorkeeper verify`; change nothing before", NO)
        case OSError() if error.filename is not None:
            return Problem(f"{error.filename}: {error.strerror}", "check the path and its rights", USAGE)
    return _explain_foreign(error)


def _explain_foreign(error: BaseException) -> Problem:
    from cursorkeeper.bookkeeper import errors as bk
    from cursorkeeper.starting import StartError
    from cursorkeeper.zookeeper import errors as zk

    if isinstance(error, bk.GatewayError):
        where = f"ledger {error.ledger}: " if error.ledger >= 0 else ""
        said = f": {error.message}" if error.message else ""
        return Problem(f"the ledger gateway: {where}{error.reason}{said}", error.hint, NO if isinstance(error, bk.GatewayRefused) else AWAY)
    if isinstance(error, zk.ZooKeeperError):
        return Problem(f"ZooKeeper: {error}", error.hint, NO if error.kind is zk.Kind.REFUSED else AWAY)
    if isinstance(error, StartError):
        return Problem(error.message, error.remedy or "start it, or name another address", AWAY)
    return Problem(f"an internal error: {error!r}", REPORT, BUG)


def _one_line(text: str) -> str:
    return " ".join(text.split())
