"""An event loop for the synchronous code of a task. For whoever reads or writes systems in one.

A Spark worker is plain synchronous Python; the clients are asyncio. `TaskLoop` runs one event loop
for as long as a task lasts, closes what was opened in it, and hands async iterators out as ordinary
ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class PausedLoop(asyncio.SelectorEventLoop):
    """Its time, and so every timeout and every patience, counts only while it runs. `clock` gives
    seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._stood_s = clock, 0.0
        self._stopped_at_s: float | None = clock()
        super().__init__()

    def time(self) -> float:
        """Seconds."""
        return (self._clock() if self._stopped_at_s is None else self._stopped_at_s) - self._stood_s

    def run_forever(self) -> None:
        """Until it is stopped; the same for `run_until_complete`."""
        if self._stopped_at_s is not None:
            self._stood_s += self._clock() - self._stopped_at_s
        self._stopped_at_s = None
        try:
            super().run_forever()
        finally:
            self._stopped_at_s = self._clock()


class TaskLoop:
    """A context manager. `factory` makes the loop; None: an ordinary one."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._runner = asyncio.Runner(loop_factory=factory)
        self.opened = AsyncExitStack()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self.opened.aclose())
        finally:
            self._runner.__exit__(kind, error, trace)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work to its end and returns its result."""
        results: list[T] = []

        async def working() -> None:
            results.append(await work)

        # Not by the task's own result: when the runner puts Python's SIGINT handler back, the task
        # is printed, and all of its result.
        self._runner.run(working())
        return results[0]

    def iterate(self, things: AsyncIterator[T]) -> Iterator[T]:
        """One at a time; the loop stands still between two, and its time with it."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(things)
            except StopAsyncIteration:
                return False, None

        while True:
            came, thing = self.run(following())
            if not came:
                return
            yield thing  # type: ignore[misc]  # None only if it did not come

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """What the context gives; it is closed with the loop."""
        return self.run(self.opened.enter_async_context(context))
