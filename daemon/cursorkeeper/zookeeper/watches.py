"""Which callbacks wait for which node.

Owns the table of one-shot watches of one session, as ZooKeeper's own client keeps it, of nodes that
were there when they were read. Does not own the server's table; after a reconnect the session makes
that one again from this one.

Invariants: a callback is in the table from the moment its read was answered until its path fires;
it is called at most once for each time it was registered; the same function on the same path is one
entry, so a poller that watches again each time does not grow the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cursorkeeper.zookeeper.values import WatchCallback


class WatchTable:
    """Watches by path. Paths are the server's; `shown` maps them to the caller's."""

    def __init__(self, shown: Callable[[str], str]) -> None:
        self._shown = shown
        self.callbacks: dict[str, dict[WatchCallback, None]] = {}

    def add(self, path: str, callback: WatchCallback) -> None:
        """The server answered the read that set this watch."""
        self.callbacks.setdefault(path, {})[callback] = None

    def fire(self, path: str) -> None:
        """The path changed: all that wait for it are called, and gone from the table."""
        loop = asyncio.get_running_loop()
        for callback in self.callbacks.pop(path, ()):
            loop.call_soon(callback, self._shown(path))
