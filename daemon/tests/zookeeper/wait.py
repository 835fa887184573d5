"""Waiting for conditions in tests, with a limit; nothing here sleeps for a fixed time and hopes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LIMIT_S = 60.0


async def until(condition: Callable[[], object], limit_s: float = LIMIT_S, what: str = "") -> None:
    """Return as soon as the condition is true. Fails after the limit."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not condition():
        assert loop.time() < deadline_s, f"not within {limit_s} s: {what or condition}"
        await asyncio.sleep(0.002)
