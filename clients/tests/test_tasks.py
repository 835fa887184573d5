"""Closing while being cancelled."""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper_client import Client, ClientSettings, ConnectionLost, ConnectionRefused, tasks
from cursorkeeper_client.ack_stream.session import SourceSession

LIMIT_S = 30


class SlowToEnd:
    """A task that was cancelled goes on until `may_end`."""

    def __init__(self) -> None:
        self.began, self.cancelled, self.may_end = (asyncio.Event() for _ in range(3))
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.may_end.wait()


async def test_who_ends_a_task_and_is_cancelled_meanwhile_is_cancelled() -> None:
    slow = SlowToEnd()
    await asyncio.wait_for(slow.began.wait(), LIMIT_S)
    ending = asyncio.create_task(tasks.end(slow.task))
    await asyncio.wait_for(slow.cancelled.wait(), LIMIT_S)
    ending.cancel()
    await asyncio.wait({ending}, timeout=LIMIT_S)
    assert ending.cancelled()
    slow.may_end.set()
    await asyncio.wait({slow.task}, timeout=LIMIT_S)


async def test_what_a_task_raised_is_told() -> None:
    async def broken() -> None:
        raise ValueError("on purpose")

    task = asyncio.create_task(broken())
    await asyncio.wait({task}, timeout=LIMIT_S)
    with pytest.raises(ValueError, match="on purpose"):
        await tasks.end(task)


class Breaking:
    """The first session breaks at once, on a connection that takes its time to close; there must be
    no second one.
    """

    def __init__(self) -> None:
        self.connection = SlowToEnd()
        self.connects = 0

    async def connect(self) -> SourceSession:
        self.connects += 1
        if self.connects > 1:
            raise ConnectionRefused("it was closed")
        await self.connection.began.wait()
        session = SourceSession(ClientSettings())
        session.end(ConnectionLost("the daemon was killed"))
        return session

    async def hang_up(self) -> None:
        await tasks.end(self.connection.task)


async def test_a_source_is_closed_while_its_broken_connection_is() -> None:
    """A source that takes the end of its own task for the connection's connects again."""
    made = Breaking()
    source = Client(made)
    await source.start()
    await asyncio.wait_for(made.connection.cancelled.wait(), LIMIT_S)
    closing = asyncio.create_task(source.close())
    await asyncio.wait({closing}, timeout=LIMIT_S)
    assert closing.done() and made.connects == 1
