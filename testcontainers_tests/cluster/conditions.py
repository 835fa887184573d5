"""Waiting for conditions, with a limit. Nothing here sleeps for a fixed time and hopes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.1
LIMIT_S = 180.0
"""Ten times what a quiet machine needs: a busy one takes longer, and only a failure waits so
long.
"""


class NotInTime(AssertionError):
    """A condition did not come true within its limit; the message says which, and what the last
    look found.
    """


class Hopeless(AssertionError):
    """Raised by a look: the condition can no longer come true."""


async def until(look: Callable[[], T | Awaitable[T]], what: str, limit_s: float = LIMIT_S) -> T:
    """The first true answer of `look`, asked again and again. What it raises counts as no (not
    Hopeless); NotInTime shows the last.

    Does not block the loop: a `look` that talks to Docker runs in a thread.
    """
    began, last = time.monotonic(), "nothing"
    while True:
        try:
            found = await _ask(look)
            if found:
                return found
            last = repr(found)
        except Hopeless:
            raise
        except Exception as e:  # whatever is not there yet
            last = f"{type(e).__name__}: {e}"
        if time.monotonic() - began > limit_s:
            raise NotInTime(f"not within {limit_s:.0f} s: {what}; the last look found {last[:500]}")
        await asyncio.sleep(POLL_S)


async def _ask(look: Callable[[], T | Awaitable[T]]) -> T:
    if inspect.iscoroutinefunction(look):
        return await look()  # type: ignore[no-any-return]
    found = await asyncio.to_thread(look)
    return await found if inspect.isawaitable(found) else found
