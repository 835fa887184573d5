"""Serves whoever runs a command that failed: one line, what to do, and the exit code of each kind
of problem.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Final

from cursorkeeper.problems import Kind, Problem
from cursorkeeper.terminal.printable import printable

NO, USAGE, AWAY, BUG = 1, 2, 3, 70
"""Exit codes; see `cli.main`."""
_CODES: Final = {Kind.USAGE: USAGE, Kind.AWAY: AWAY, Kind.BUG: BUG}


def exit_code(problem: Problem) -> int:
    """With which a command ends that this problem has ended."""
    return _CODES.get(problem.kind, NO)


def show(problem: Problem) -> None:
    """Writes to standard error, without colours: it may end in a log."""
    sys.stderr.write(f"cursorkeeper: {printable(_one_line(str(problem)))}\n")
    if problem.remedy:
        sys.stderr.write(f"What to do: {printable(_one_line(problem.remedy))}\n")


def install(*, distribution: str) -> str:
    """How a distribution of ours is installed. They are on no index, so it is the wheel that is
    named.
    """
    wheel = f"{distribution}-{version('cursorkeeper')}-py3-none-any.whl"
    return f"pip install {wheel}, the wheel that `make dist` makes"


def _one_line(text: str) -> str:
    return " ".join(text.split())
