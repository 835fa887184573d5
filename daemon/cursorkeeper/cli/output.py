"""What goes to the screen: JSON lines for programs, tables for people, and a bar for whatever takes more than two seconds."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

SHOW_AFTER_S = 2.0
PIPE_COLUMNS = 240
"""Width of a table that does not go to a terminal."""
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")


def json_line(value: Mapping[str, Any]) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")


def printable(text: str) -> str:
    """One line without control characters: names come from outside, and may hold anything."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def console() -> Console:
    """Standard output, for people. Brackets and colons in names are what they are."""
    out = _console()
    return out if out.is_terminal else _console(PIPE_COLUMNS)


def _console(width: int | None = None) -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)


def table(title: str, columns: Sequence[str], *, right: Sequence[str] = ()) -> Table:
    """An empty table; the columns in `right` hold numbers."""
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None, header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


class Bar:
    """Shows itself on standard error once the work has taken two seconds, and only on a terminal.

    A context manager. `total` None: nobody knows how much there is.
    """

    def __init__(
        self, what: str, total: int | None = None, *, err: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._done = what, total, 0
        self._err, self._clock, self._started_s = err or Console(stderr=True), clock, clock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    @property
    def is_shown(self) -> bool:
        """It took long enough."""
        return self._progress is not None

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self._done += count
        self._update()

    def grow(self, count: int) -> None:
        """There is more to do than was known."""
        self._total = (self._total or 0) + count
        self._update()

    def say(self, what: str) -> None:
        """Something else is being done, or waited for."""
        self._what = what
        self._update()

    def _update(self) -> None:
        if self._progress is None:
            if self._clock() - self._started_s < SHOW_AFTER_S or not self._err.is_terminal:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            # what is written meanwhile goes above the bar, but only where both are the same terminal: a pipe must get its lines
            same = sys.stdout.isatty()
            self._progress = Progress(*columns, console=self._err, transient=True, redirect_stdout=same)
            self._task = self._progress.add_task(self._what, total=self._total)
            self._progress.start()
        assert self._task is not None
        self._progress.update(self._task, completed=self._done, total=self._total, description=self._what)
