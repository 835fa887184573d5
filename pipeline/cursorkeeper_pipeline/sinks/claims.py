"""Who works on a cursor now: an ephemeral znode for each, so that two attempts do not do the same
twice.

A claim is a courtesy: it goes with the session of its holder, which may live on. What must never
happen is kept from happening by footers (see `sinks`). A claim is waited for, for a limited time;
that of a process of this host that does not run any more is removed at once, any other one goes
when its session expires. Nobody waits while holding one, so nobody waits for each other.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from cursorkeeper.core.names import CursorName
from cursorkeeper.migration.cursor_maker import is_running
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Node, WatchFired

WAIT_S: Final = 600.0
LOOK_AGAIN_S: Final = 1.0
"""A watch may be lost, and a process that has died tells nobody."""
AWAY_FOR_NOW: Final = (zk.Disconnected, zk.SessionExpired, zk.Retry)


@dataclass(frozen=True, slots=True)
class Claims:
    """Of one attempt at one task. `who` is for people; `host` and `pid` say who holds it; `token`
    tells it from all others.
    """

    zookeeper: ZooKeeper
    folder: str
    who: str = ""
    wait_s: float = WAIT_S
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @asynccontextmanager
    async def held(self, name: CursorName) -> AsyncIterator[None]:
        """Raises ProblemError: another attempt has had it all the time, or ZooKeeper is away."""
        path = f"{self.folder}/{name.znode}"
        await self._take(path, name)
        try:
            yield
        finally:
            with suppress(zk.ZooKeeperError):  # it goes with the session anyway
                if _is(await self.zookeeper.get(path), self._data):
                    await self.zookeeper.delete(path, 0)

    async def _take(self, path: str, name: CursorName) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait_s
        while True:
            moved = asyncio.Event()
            holder, trouble = "", ""
            try:
                found = await self._try(path, moved)
                if found is None:
                    return
                holder = found.data.decode(errors="replace")
                if self._is_dead(holder):
                    with suppress(zk.NoNode, zk.BadVersion):
                        await self.zookeeper.delete(path, found.version)
                    continue
            except AWAY_FOR_NOW as e:
                trouble = str(e)
            left_s = until - loop.time()
            if left_s <= 0:
                raise self._given_up(name, holder, trouble)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_AGAIN_S if holder else 0.2)):
                    await moved.wait()

    async def _try(self, path: str, moved: asyncio.Event) -> Node | None:
        """None: it is ours. Raises Disconnected."""

        def tell(_fired: WatchFired) -> None:
            moved.set()

        while True:
            try:
                await self.zookeeper.create(path, self._data, ephemeral=True)
                return None
            except zk.NodeExists:
                with suppress(zk.NoNode):
                    node = await self.zookeeper.get(path, watch=tell)
                    return None if _is(node, self._data) else node  # ours: an answer was lost
            except zk.NoNode:
                await self.zookeeper.ensure_path(self.folder)

    @property
    def _data(self) -> bytes:
        return f"{self.host}\n{self.pid}\n{self.token}\n{self.who}".encode()

    def _is_dead(self, holder: str) -> bool:
        host, pid, *_ = [*holder.split("\n"), "", ""]
        return host == self.host and pid.isdecimal() and not is_running(int(pid))

    def _given_up(self, name: CursorName, holder: str, trouble: str) -> ProblemError:
        if not holder:
            return ProblemError(
                f"{name}: ZooKeeper: {trouble}",
                "look at it and run this again: it is not damage",
                Kind.AWAY,
            )
        host, pid, _, who = [*holder.split("\n"), "", "", ""][:4]
        message = (
            f"another attempt ({who}, process {pid} on {host}) has worked on it for "
            f"{self.wait_s:.0f} s"
        )
        return ProblemError(
            f"{name}: {message}",
            "let it finish, or end it; then run this again: what is done stays done",
        )


def _is(node: Node, data: bytes) -> bool:
    return node.data == data
