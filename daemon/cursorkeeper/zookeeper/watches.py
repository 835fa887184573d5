"""Which callbacks wait for which node.

Owns the table of one-shot watches of one session, as ZooKeeper's own client keeps it: data watches
of nodes that were there, exist watches of nodes that were not. Does not own the server's table;
after a reconnect the session makes that one again from this one.

Invariants: a callback is in the table from the moment its read was answered until its path fires;
it is called at most once for each time it was registered; the same function on the same path is one
entry, so a poller that watches again each time does not grow the table.
"""

from __future__ import annotations

import asyncio

from cursorkeeper.zookeeper.values import WatchCallback, WatchFired, WatchKind


class WatchTable:
    """Watches by path; paths are the server's, `WatchFired` gets the caller's path from whoever
    fires.
    """

    def __init__(self) -> None:
        self.data: dict[str, dict[WatchCallback, None]] = {}
        self.exist: dict[str, dict[WatchCallback, None]] = {}

    def add(self, path: str, callback: WatchCallback, *, node_exists: bool) -> None:
        """The server answered the read that set this watch."""
        (self.data if node_exists else self.exist).setdefault(path, {})[callback] = None

    def fire(self, path: str, kind: WatchKind, shown_path: str) -> None:
        """The path changed: all that wait for it are called, and gone from the table."""
        callbacks = self.data.pop(path, {}) | self.exist.pop(path, {})
        loop = asyncio.get_running_loop()
        for callback in callbacks:
            loop.call_soon(callback, WatchFired(shown_path, kind))

    def __contains__(self, path: object) -> bool:
        return path in self.data or path in self.exist

    @property
    def paths(self) -> list[str]:
        """Every path that is waited for, once."""
        return list(self.data | self.exist)

    def clear(self) -> None:
        self.data.clear()
        self.exist.clear()
