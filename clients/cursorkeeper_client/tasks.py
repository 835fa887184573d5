"""How a client ends the tasks that it began; for whoever closes it, and may be cancelled
meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any


async def end(task: asyncio.Task[Any]) -> None:
    """Cancels it and returns when it has ended; raises what it raised. A caller that is cancelled
    meanwhile hears of it: awaiting the task and suppressing CancelledError would take the caller's
    for the task's, and the caller would go on for ever.
    """
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
