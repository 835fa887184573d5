"""How a demo ends, for whoever runs one: its report or JSON line, or why it could not run, and the
exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import typer
from rich.console import Console
from rich.markup import escape

from cursorkeeper.demo.processes import ProcessFailed
from cursorkeeper.demo.stack import StackError
from cursorkeeper.demo.trace import TraceError


class Told(Protocol):
    @property
    def is_good(self) -> bool: ...

    def json_line(self) -> str: ...

    def show(self, console: Console) -> None: ...


def tell(play: Callable[[Console], Told], *, as_json: bool) -> None:
    """Plays and tells. Raises typer.Exit: 1 if the report is not good, 3 if it could not be
    played.
    """
    console = Console(stderr=as_json, quiet=as_json)
    try:
        report = play(console)
    except (ProcessFailed, StackError, TraceError) as e:
        Console(stderr=True).print(
            f"[red]the demo could not run:[/red] {escape(str(e))}", soft_wrap=True
        )
        raise typer.Exit(3) from e
    if as_json:
        print(report.json_line())
    else:
        report.show(console)
    if not report.is_good:
        raise typer.Exit(1)
