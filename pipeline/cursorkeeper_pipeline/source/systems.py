"""ZooKeeper and the gateway from a task: connected once, used by synchronous code, closed with the
task.

A Spark worker is plain synchronous Python; the clients are asyncio. `Systems` runs one event loop
for as long as a task reads, and hands async iterators out as ordinary ones. Invariants: the gateway
is spoken to as a reader, which cannot fence, write or delete; the loop's time stands still while
the loop does: Spark may look at a batch for minutes, and a request that is under way meanwhile is
not late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pace import paced

T = TypeVar("T")
READER = "reader"


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


class Systems:
    """A context manager; connects to each system when it is first asked for."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._start_timeout_s = min(connections.START_TIMEOUT_S, options.wait_s)
        self._runner = asyncio.Runner(loop_factory=lambda: PausedLoop(clock))
        self._open = AsyncExitStack()
        self._zookeeper: ZooKeeper | None = None
        self._ledgers: LedgerStore | None = None

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
            self._runner.run(self._open.aclose())
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

    async def zookeeper(self) -> ZooKeeper:
        """Raises ProblemError if it does not answer."""
        if self._zookeeper is None:
            opening = connections.zookeeper(self._options.settings, self._start_timeout_s)
            self._zookeeper = await self._open.enter_async_context(opening)
        return self._zookeeper

    async def ledgers(self) -> LedgerStore:
        """At the pace that a task may have. Raises ProblemError if the gateway does not answer."""
        if self._ledgers is None:
            opening = connections.gateway(self._options.settings, READER, self._start_timeout_s)
            ledgers = await self._open.enter_async_context(opening)
            self._ledgers = paced(ledgers, self._options.read_rate_mib_s)
        return self._ledgers

    async def footers(self) -> FooterStore:
        """The footers of the deployment. Raises ProblemError if ZooKeeper cannot be reached."""
        return connections.footer_store(await self.zookeeper(), self._options.settings)
