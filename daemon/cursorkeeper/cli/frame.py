"""Serves every command that reads cursors: the systems, connected, the root looked at, and a bar
for who waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import roots
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, say


@asynccontextmanager
async def opened(
    settings: Settings, doing: str, role: str = "reader", *, needs_id: bool = False
) -> AsyncIterator[tuple[Ports, Bar]]:
    """Raises ProblemError, also where the root is none; `needs_id`: or nobody's."""
    async with connections.ports(settings, role) as ports:
        await roots.check_root(ports.zookeeper, settings.systems, needs_id=needs_id)
        with Bar(doing) as bar:
            yield ports, bar


def not_written(name: CursorName, why: str = "", remedy: str = "add --yes") -> int:
    say(f"cursorkeeper: {name}: nothing was written{why}", err=True)
    say(f"What to do: {remedy}", err=True)
    return NO


def written_json(version: int | None) -> dict[str, Any]:
    """Whether a footer was written, and as which version of its znode."""
    return {"written": version is not None, "version": version}
