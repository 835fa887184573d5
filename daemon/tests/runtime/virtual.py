"""Runs an async test in virtual time: minutes cost nothing, nothing sleeps, and a deadlock is an
error at once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from daemon.tests.support.virtual_loop import run as run_story


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Waits for a condition that nobody announces, in virtual milliseconds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorates an async test function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_story(test(*args, **kwargs))

    del run.__wrapped__  # type: ignore[attr-defined]
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
