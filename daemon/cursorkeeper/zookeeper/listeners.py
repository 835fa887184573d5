"""A list of callbacks.

Owns who is called and the isolation between them: each is called by the event loop on its own, so
that one that raises reaches the loop's exception handler and nothing else. Invariant: callbacks of
one list are called in the order of the events, then of their arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec

from cursorkeeper.zookeeper.values import Unsubscribe

Args = ParamSpec("Args")


class Listeners(Generic[Args]):
    """Callbacks for one kind of event."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[Args, None]] = {}

    def add(self, callback: Callable[Args, None]) -> Unsubscribe:
        """Register; the answer ends it, and may be called again."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def call(self, *args: Args.args, **kwargs: Args.kwargs) -> None:
        """Have every callback called soon."""
        loop = asyncio.get_running_loop()
        for callback in list(self._callbacks.values()):
            loop.call_soon(partial(callback, *args, **kwargs))
