"""An event loop whose clock jumps to the next timer: hours of simulated time in milliseconds, the same every run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Instead of waiting for a timer, move the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout:
            self.skipped_s += timeout
        assert timeout is not None, "everything waits for something that no timer will bring"
        return list(super().select(0))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time` begins at 0."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
