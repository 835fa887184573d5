"""Runs an async test in virtual time: minutes cost nothing, nothing sleeps, and a deadlock is an error at once."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from daemon.tests.simulator.virtual_loop import VirtualLoop


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Waits for a condition that nobody announces, in virtual milliseconds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorates an async test function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = VirtualLoop(turns_max=2_000_000)
        loop.run(test(*args, **kwargs))
        assert loop.errors == []

    del run.__wrapped__  # type: ignore[attr-defined]
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
