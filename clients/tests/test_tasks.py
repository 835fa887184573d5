"""Closing while being cancelled."""

from __future__ import annotations

import asyncio

import pytest
from cursorkeeper_clients import tasks
from cursorkeeper_clients.ack_stream.errors import SessionLost
from cursorkeeper_clients.ack_stream.resuming import ResumingSource
from cursorkeeper_clients.ack_stream.session import SourceSession
from cursorkeeper_clients.ack_stream.settings import SourceSettings


async def slow_to_end() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)


async def test_who_ends_a_task_and_is_cancelled_meanwhile_is_cancelled() -> None:
    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(tasks.end(task))
    await asyncio.sleep(0.01)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await asyncio.wait({task})


async def test_what_a_task_raised_is_told() -> None:
    async def broken() -> None:
        raise ValueError("on purpose")

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="on purpose"):
        await tasks.end(task)


class Breaking:
    """A session that breaks at once, on a connection that takes its time to close."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()

    async def connect(self) -> SourceSession:
        self._task = asyncio.create_task(slow_to_end())
        session = SourceSession(SourceSettings())
        session.end(SessionLost("the daemon was killed"))
        return session

    async def close(self) -> None:
        self.closing.set()
        await tasks.end(self._task)


async def test_a_source_is_closed_while_its_broken_connection_is() -> None:
    """The source would connect again and again, and its close wait for ever."""
    made = Breaking()
    source = ResumingSource(lambda: made, SourceSettings())
    await source.start()
    await made.closing.wait()
    async with asyncio.timeout(30):
        await source.close()
