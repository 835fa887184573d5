"""An asyncio loop whose clock is a number: timers fire at once, in their order. For tests of what takes long."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it. No sockets."""

    def __init__(self) -> None:
        super().__init__(_NeverWaits(self))
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s


class _NeverWaits(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._loop.now_s += timeout
        assert timeout is not None, "nothing left to happen: a deadlock"
        return super().select(0)


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
