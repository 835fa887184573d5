"""Serves every command that reads cursors: the systems, connected, the root looked at, and a bar
for who waits.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import typer

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import roots
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import cursor_name
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, say

Cursor = Annotated[str, typer.Argument(help=f"{cursor_name.FORM}.", metavar="CURSOR")]
CursorOrTopic = Annotated[
    str, typer.Argument(help=f"{cursor_name.FORM}; or the topic alone.", metavar="CURSOR")
]
Subscription = Annotated[
    str | None, typer.Argument(help="The subscription, if CURSOR is the topic alone.")
]

Yes = Annotated[bool, "Write without asking."]


@asynccontextmanager
async def opened(
    settings: Settings, doing: str, role: str = "reader", *, needs_id: bool = False
) -> AsyncIterator[tuple[Ports, Bar]]:
    """Raises ProblemError, also where the root is none; `needs_id`: or nobody's."""
    async with connections.ports(settings, role) as ports:
        await roots.check_root(ports.zookeeper, settings, needs_id=needs_id)
        with Bar(doing) as bar:
            yield ports, bar


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Ctrl-C ends what waits here for a person, or for standard input: the handler of asyncio only
    cancels at the next await, and there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def confirmed(question: str, *, yes: bool, as_json: bool) -> bool:
    """A person may think for longer than a session of ZooKeeper lives: ask between two."""
    with ended_at_once():
        return yes or (not as_json and sys.stdin.isatty() and typer.confirm(question))


def not_written(name: CursorName, why: str = "", remedy: str = "add --yes") -> int:
    say(f"cursorkeeper: {name}: nothing was written{why}\nWhat to do: {remedy}", err=True)
    return NO
