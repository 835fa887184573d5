"""Waiting for systems that are away: the same read again with a growing pause, for a limited time.

Owns the pause and the limit. Only for what may be repeated as it is: reads, and ZooKeeper's
`NotSent`.

The limit counts from the first failure, and one more try always follows it: a caller whose loop
stood still while a request was under way (a Spark task between two batches) finds that request too
late, however soon its system answered.
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
        loop = asyncio.get_running_loop()
        until: float | None = None
        pause_s = PAUSE_MIN_S
        while True:
            try:
                result = await call()
                if until is not None:
                    self.say("")
                return result
            except (zk.Disconnected, bk.GatewayRetry) as e:
                what = (
                    f"BookKeeper: {e.reason}"
                    if isinstance(e, bk.GatewayError)
                    else f"ZooKeeper: {e}"
                )
                if until is not None and loop.time() + pause_s > until:
                    raise MigrationError(
                        Kind.AWAY,
                        cursor,
                        "",
                        f"waited {self.wait_s:g} s for {what}",
                        "look at it and run this again: it is not damage",
                    ) from e
            until = loop.time() + self.wait_s if until is None else until
            self.say(f"waiting for {what}")
            await asyncio.sleep(min(pause_s, self.wait_s))
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)
