"""Serves who reads many cursors and waits for systems that are away: the same call again, for a
limited time.

Only for what may be repeated as it is: reads, and ZooKeeper's `NotSent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_client.back_off import BackOff

T = TypeVar("T")

PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits `wait_s` for each call from its first failure on; `say` hears what it waits for ("" =
    for nothing any more).
    """

    wait_s: float = 30.0
    say: Callable[[str], None] = lambda _what: None

    async def repeat(self, cursor: object, call: Callable[[], Awaitable[T]]) -> T:
        """`call()` until its systems answer. Raises MigrationError AWAY, and what `call` raises
        otherwise.
        """
        back_off, what = BackOff(PAUSE_MIN_S, PAUSE_MAX_S, limit_s=self.wait_s), ""
        while True:
            try:
                result = await call()
                if what:
                    self.say("")
                return result
            except (zk.Disconnected, bk.GatewayRetry) as e:
                what = (
                    f"BookKeeper: {e.reason}"
                    if isinstance(e, bk.GatewayError)
                    else f"ZooKeeper: {e}"
                )
                if back_off.is_over():
                    raise MigrationError(
                        Kind.AWAY,
                        cursor,
                        "",
                        f"waited {self.wait_s:g} s for {what}",
                        "look at it and run this again: it is not damage",
                    ) from e
            self.say(f"waiting for {what}")
            await asyncio.sleep(min(back_off.next_s(), self.wait_s))
