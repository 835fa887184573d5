"""Many cursors at once within one task.

Owns the bound on how much is worked on and waits to be taken. Does not own what is read of each.
Invariants: at most `at_once` workers and 2 x `at_once` results are there at any time; the first
error ends all of them; nothing runs on when the reader leaves early.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

AT_ONCE = 8
"""Cursors that one task reads at once: a read of a small ledger waits for the network most of its
time.
"""

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(
    things: AsyncIterator[T], work: Callable[[T], AsyncIterator[R]], at_once: int = AT_ONCE
) -> AsyncIterator[R]:
    """Everything that `work` gives for each thing, in no order. Raises what `things` or `work`
    raises.
    """
    results: asyncio.Queue[R] = asyncio.Queue(2 * at_once)
    turn = asyncio.Lock()

    async def worker() -> None:
        while True:
            async with turn:
                try:
                    thing = await anext(things)
                except StopAsyncIteration:
                    return
            async for result in work(thing):
                await results.put(result)

    workers = [asyncio.create_task(worker()) for _ in range(at_once)]
    running = set(workers)
    try:
        while running or not results.empty():
            taking = asyncio.ensure_future(results.get())
            done, _ = await asyncio.wait({taking, *running}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
            for ended in done - {taking}:
                running.discard(ended)
                ended.result()
            if taking.done():
                yield taking.result()
            while not results.empty():
                yield results.get_nowait()
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class Room:
    """Bytes of memory that cursors share; one that needs more than there is gets all of it,
    alone.
    """

    def __init__(self, size: int) -> None:
        self._free = self._size = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, wanted: int) -> AsyncIterator[None]:
        """While it is used. Waits; whoever is in gives it back."""
        size = min(wanted, self._size)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            async with self._changed:
                self._free += size
                self._changed.notify_all()
