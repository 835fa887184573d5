"""Many cursors at once within one task, and what a task says when a system outside is away.

Owns the bound on how much is worked on and waits to be taken, and how many may be out of reach in a row. Does not own what is read of each.
Invariants: at most `at_once` workers and 2 x `at_once` results are there at any time; the first error ends all of them; nothing runs on
when the reader leaves early.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cursorkeeper.cli.problems import AWAY, NO, CommandError, explain
from cursorkeeper.core.errors import CursorKeeperError
from cursorkeeper.migration.errors import Kind, MigrationError
from cursorkeeper_clients.bookkeeper.errors import GatewayError
from cursorkeeper_clients.zookeeper.errors import ZooKeeperError

AT_ONCE = 8
"""Cursors that one task reads at once: a read of a small ledger waits for the network most of its time."""

AWAY_IN_A_ROW_MAX = 3 * AT_ONCE
"""So many cursors that cannot be read for now, one after another, are no trouble of single cursors but a system that is away."""

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def telling() -> Iterator[None]:
    """Errors of a task as CommandError whose text holds the remedy too: Spark carries nothing of an exception but its text."""
    try:
        yield
    except MigrationError as e:
        raise _told(str(e), e.remedy, AWAY if e.kind is Kind.AWAY else NO) from e
    except (CommandError, CursorKeeperError, GatewayError, ZooKeeperError) as e:
        problem = explain(e)
        raise _told(problem.message, problem.remedy, problem.exit_code) from e


def _told(message: str, remedy: str, exit_code: int) -> CommandError:
    text = message if " What to do: " in message else f"{message}. What to do: {remedy}"
    return CommandError(" ".join(text.split()), remedy, exit_code)


class Setbacks:
    """How many cursors of a task, one after another, could not be read because of something that may be well later."""

    def __init__(self, most: int = AWAY_IN_A_ROW_MAX) -> None:
        self._most, self._count = most, 0

    def clear(self) -> None:
        """One could: the systems answer."""
        self._count = 0

    def count(self, cursor: str, why: str) -> None:
        """One could not. Raises CommandError if they are too many."""
        self._count += 1
        if self._count > self._most:
            raise CommandError(
                f"{self._count} cursors one after another could not be read; the last: {cursor}: {why}",
                "look at BookKeeper and ZooKeeper and run it again", AWAY,
            )  # fmt: skip


async def side_by_side(things: AsyncIterator[T], work: Callable[[T], AsyncIterator[R]], at_once: int = AT_ONCE) -> AsyncIterator[R]:
    """Everything that `work` gives for each thing, in no order. Raises what `things` or `work` raises."""
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
