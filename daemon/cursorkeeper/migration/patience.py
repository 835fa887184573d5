"""Waiting for systems that are away: the same read again with a growing pause, for a limited time.

Owns the pause and the limit. Only for what may be repeated as it is: reads, and ZooKeeper's `NotSent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cursorkeeper.migration.errors import Kind, MigrationError
from cursorkeeper_clients.bookkeeper import errors as bk
from cursorkeeper_clients.zookeeper import errors as zk

T = TypeVar("T")

PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits `wait_s` in all for each call; `say` hears what it waits for ("" = for nothing any more)."""

    wait_s: float = 30.0
    say: Callable[[str], None] = lambda _what: None

    async def repeat(self, cursor: str, call: Callable[[], Awaitable[T]]) -> T:
        """`call()` until its systems answer. Raises MigrationError AWAY, and what `call` raises otherwise."""
        loop = asyncio.get_running_loop()
        until, pause_s, waited = loop.time() + self.wait_s, PAUSE_MIN_S, False
        while True:
            try:
                result = await call()
                if waited:
                    self.say("")
                return result
            except (zk.Disconnected, bk.GatewayRetry) as e:
                what = f"BookKeeper: {e.reason}" if isinstance(e, bk.GatewayError) else f"ZooKeeper: {e}"
                if loop.time() + pause_s > until:
                    raise MigrationError(
                        Kind.AWAY, cursor, "", f"waited {self.wait_s:.0f} s for {what}", "look at it and run this again: it is not damage"
                    ) from e
            waited = True
            self.say(f"waiting for {what}")
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)
