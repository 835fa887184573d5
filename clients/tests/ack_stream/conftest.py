"""Fixtures of the ack stream: a keeper, and names that no other test uses."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clients.tests.ack_stream.fake_keeper import FakeKeeper
from clients.tests.ack_stream.keepers import Keeper, fake
from cursorkeeper_client import ClientSettings
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.session import SourceSession

SETTINGS = ClientSettings(
    back_off_min_ms=10,
    back_off_max_ms=200,
    answer_timeout_s=60.0,
    open_timeout_s=60.0,
    connect_timeout_s=60.0,
)
_numbers = itertools.count(1)


@pytest_asyncio.fixture(params=["fake", "fake without groups", "fake at a socket"])
async def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeper]:
    """The contract's keepers."""
    made = fake(groups=request.param != "fake without groups")
    if request.param == "fake at a socket":
        made.address = f"unix:{tmp_path / 'acks.sock'}"
    await made.start()
    yield made
    await made.kill()


@pytest_asyncio.fixture
async def fake_keeper() -> AsyncIterator[FakeKeeper]:
    """For what only the fake can be told to do."""
    made = fake()
    await made.start()
    yield made
    await made.kill()


@pytest_asyncio.fixture
async def session(keeper: Keeper) -> AsyncIterator[SourceSession]:
    """A stream to the keeper."""
    async with SourceConnection(keeper.address, SETTINGS) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    """A topic of this test's own."""
    return f"persistent://public/default/t-{next(_numbers)}"


async def until(
    condition: Callable[[], object], *, what: str, limit_s: float = 60.0, pause_s: float = 0.002
) -> None:
    """Return as soon as the condition is true. Fails after the limit. With `pause_s` 0 it looks in
    every turn of the loop: no answer can have come over the network since it became true.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not condition():
        assert loop.time() < deadline_s, f"not within {limit_s} s: {what}"
        await asyncio.sleep(pause_s)


async def still_waiting(tasks: Collection[asyncio.Future[Any]], for_s: float = 0.05) -> None:
    """All of them have begun, and none ends in this time."""
    ended, _ = await asyncio.wait(tasks, timeout=for_s)
    assert not ended
