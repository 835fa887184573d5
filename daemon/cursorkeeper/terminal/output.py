"""What goes to the screen: JSON lines for programs, sentences and tables for people, and a bar for
whatever takes more than two seconds.

What is said is the engines': values for JSON lines, rows of tables, and beside them templates,
which make sentences of the same values.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, Protocol

import msgspec
import typer
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from cursorkeeper.terminal.printable import printable, printable_json

SHOW_AFTER_S = 2.0
ALIGNED_MAX = 100
"""Columns of a terminal."""


class Row(Protocol):
    """What a command tells of one of many things."""

    def as_json(self) -> Mapping[str, Any]: ...

    def as_row(self) -> Sequence[str]:
        """Its cells, in the order of the columns."""
        ...


def json_line(value: Mapping[str, Any] | msgspec.Struct) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(printable_json(msgspec.json.encode(value, enc_hook=str).decode()) + "\n")


def say(line: str, *, err: bool = False, bold: bool = False) -> None:
    """One line for people, whatever is in it. It is as long as it is: a terminal folds it without
    breaking it for who copies it.
    """
    typer.secho(printable(line), err=err, bold=bold or None)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("cursorkeeper", ""),
        finalize=lambda value: printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters |= {"n": "{:,}".format, "counts": counts}
    return found


def counts(found: Counter[Any]) -> str:
    """How many of each, the most first."""
    return ", ".join(f"{count:,} {what}" for what, count in found.most_common())


def lines(template: str, values: Mapping[str, Any]) -> list[str]:
    """Those of a template, a file of this package. What comes from outside is in its values alone,
    and is printable then.
    """
    return _templates().get_template(template).render(values).splitlines()


def tell(template: str, values: Mapping[str, Any], *, err: bool = False) -> None:
    """The lines of a template."""
    for line in lines(template, values):
        say(line, err=err)


def show(value: Mapping[str, Any], template: str, *, as_json: bool, **more: object) -> None:
    """One line of JSON, or the lines of a template, which knows its members, and `more`."""
    if as_json:
        json_line(value)
    else:
        tell(template, {**value, **more})


def labelled(title: str, width: int, told: Iterable[tuple[str, str]]) -> None:
    """A title, and (label, text) below it; the texts begin behind labels of `width`."""
    say(title, bold=True)
    for label, text in told:
        say(f"  {label:<{width}} {text}")


class Table:
    """Rows for people, a line each, as long as they are: nothing is cut or folded. The columns in
    `right` hold numbers. A cell that is longer than `ALIGNED_MAX` moves the rest of its own row and
    no other's. `as_json`: each row is a line for programs instead, at once.
    """

    def __init__(
        self, columns: Sequence[str], *, right: Sequence[str] = (), as_json: bool = False
    ) -> None:
        self._columns, self._as_json = columns, as_json
        self._right = [name in right for name in columns]
        self._rows: list[list[str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        if self._as_json:
            json_line(row.as_json())
        else:
            self.add_row(*row.as_row())

    def add_row(self, *cells: str) -> None:
        self._rows.append([printable(cell) for cell in cells])

    def show(self, *, apart: bool = False) -> None:
        """Prints the rows since the last time on standard output, under the names of the columns;
        nothing if there are none. Names are never cut. `apart`: an empty line comes first.
        """
        if not self._rows:
            return
        if apart:
            say("")
        rows, self._rows = [list(self._columns), *self._rows], []
        widths = [
            max(width for cell in column if (width := cell_len(cell)) <= ALIGNED_MAX)
            for column in zip_longest(*rows, fillvalue="")
        ]
        for number, row in enumerate(rows):
            say("  ".join(map(self._padded, row, widths, self._right)).rstrip(), bold=number == 0)

    @staticmethod
    def _padded(cell: str, width: int, right: bool) -> str:
        room = " " * (width - cell_len(cell))
        return room + cell if right else cell + room


class Bar:
    """Shows itself on standard error once the work has taken two seconds, and only on a terminal.

    A context manager. `total` None: nobody knows how much there is.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        err: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._err = err or Console(stderr=True, soft_wrap=True)
        self._clock, self._started_s, self.is_shown = clock, clock(), False
        self._progress = Progress(
            SpinnerColumn(),
            # names of cursors are in what it says: a bracket in one is no markup
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._err,
            transient=True,
            # what is written meanwhile goes above the bar, but only where both are the same
            # terminal: a pipe must get its lines
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(printable(what), total=total)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_shown:
            self._progress.stop()

    def advance(self, count: int = 1) -> None:
        self._update(advance=count)

    def grow(self, count: int) -> None:
        """There is more to do than was known."""
        self._update(total=(self._progress.tasks[0].total or 0) + count)

    def say(self, what: str) -> None:
        """Something else is being done, or waited for."""
        self._update(description=printable(what))

    def _update(self, **changed: Any) -> None:
        if not self._err.is_terminal:
            return
        self._progress.update(self._task, **changed)
        if not self.is_shown and self._clock() - self._started_s >= SHOW_AFTER_S:
            self._progress.start()
            self.is_shown = True
