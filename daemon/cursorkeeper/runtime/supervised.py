"""Work that goes on for as long as the daemon does: garbage collection, the poll of footers,
subscriptions.

Owns what happens if such work ends: that is a bug, it is told with its exception, and the work
begins again after a growing pause. In silence nobody would collect, poll or dial any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cursorkeeper_client.back_off import BackOff

PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 60.0
"""Before it begins again; doubles, and is the shortest again after work that lasted longer than the
longest.
"""


async def supervised(
    what: str,
    work: Callable[[], Awaitable[None]],
    ended: Callable[[str, Exception | None], None],
    min_s: float = PAUSE_MIN_S,
    max_s: float = PAUSE_MAX_S,
) -> None:
    """Until cancelled. `ended` hears what ended, and by which exception; None: it returned."""
    loop, back_off = asyncio.get_running_loop(), BackOff(min_s, max_s)
    while True:
        began_s, error = loop.time(), None
        try:
            await work()
        except Exception as e:  # whoever awaits this task, awaits it when the daemon stops
            error = e
        ended(what, error)
        if loop.time() - began_s > max_s:
            back_off.reset()
        await asyncio.sleep(back_off.next_s())
