"""The stage of every demo: its folder, the stack, live progress; and how a demo ends for whoever
runs one: its report or JSON line, or why it could not run, and the exit code.

Invariant: whatever happens, the stack is stopped, and the folder goes unless it is to be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from cursorkeeper.demo.stack import StackError, Standalone, check_java, find_jar
from cursorkeeper.demo.trace import TraceError
from cursorkeeper_client import CursorKeeperError

Keep = Annotated[bool, typer.Option("--keep", help="Keep the folder with all data and logs.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Work in this folder (kept) instead of a temporary one.")
]


class Told(Protocol):
    seconds: float

    @property
    def is_good(self) -> bool: ...

    def json_line(self) -> str: ...

    def show(self, console: Console) -> None: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """`stack` is not started yet. `is_kept`: somebody will look into the folder."""

    folder: Path
    stack: Standalone
    progress: Progress
    is_kept: bool

    def say(self, text: str) -> None:
        self.progress.console.print(f"  [dim]{text}[/dim]")

    @contextlib.contextmanager
    def bar(
        self, label: str, total: int | None = None, note: str = "{rate:,.0f}/s"
    ) -> Iterator[Callable[..., None]]:
        """While something goes on. Gives what is called with how far it is, and with what is to be
        said instead of the note, in which are `rate`, of how much a second, and `millions` of it.
        """
        bar, began = self.progress.add_task(label, total=total, note=""), time.monotonic()

        def update(completed: int, instead: str = "") -> None:
            rate = completed / max(0.1, time.monotonic() - began)
            said = instead or note.format(rate=rate, millions=rate / 1e6)
            self.progress.update(bar, completed=completed, note=said)

        try:
            yield update
        finally:
            self.progress.remove_task(bar)


def perform(
    play: Callable[[Stage], Awaitable[Told]],
    *,
    bookies: int,
    keep: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Plays and tells. Raises typer.Exit: 1 if the report is not good, 3 if it could not be
    played.
    """
    console = Console(stderr=as_json, quiet=as_json)
    began = time.monotonic()
    try:
        check_java()  # before anything is started: both are things that a person has to do
        find_jar()
        report = asyncio.run(_played(play, bookies, keep, data_dir, console))
    except (StackError, TraceError, CursorKeeperError) as e:
        Console(stderr=True).print(
            f"[red]the demo could not run:[/red] {escape(str(e))}", soft_wrap=True
        )
        raise typer.Exit(3) from e
    report.seconds = time.monotonic() - began
    if as_json:
        print(report.json_line())
    else:
        report.show(console)
    if not report.is_good:
        raise typer.Exit(1)


async def _played(
    play: Callable[[Stage], Awaitable[Told]],
    bookies: int,
    keep: bool,
    data_dir: Path | None,
    console: Console,
) -> Told:
    folder = data_dir or Path(tempfile.mkdtemp(prefix="cursorkeeper-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(30),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=console.quiet,
    )
    stack = Standalone(folder / "stack", bookies=bookies, heap_mib=384)
    stage = Stage(folder, stack, progress, keep or data_dir is not None)
    try:
        with progress:
            return await play(stage)
    finally:
        await asyncio.to_thread(stack.stop)
        if stage.is_kept:
            console.print(f"  kept: {folder}", markup=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
