"""Fixtures: the two worlds of the contract suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.demo.stack import Standalone
from daemon.tests.bookkeeper.worlds import FakeWorld, RealWorld, World


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """One JVM for all tests of the session."""
    folder: Path = tmp_path_factory.mktemp("standalone")
    with Standalone(folder, bookies=3, arguments=["--migrator"]) as stack:
        yield stack


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.jvm)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The contract's two worlds."""
    if request.param == "fake":
        yield FakeWorld(seed=7)
        return
    stack: Standalone = request.getfixturevalue("standalone")
    real = RealWorld(stack.gateway, lambda: asyncio.to_thread(stack.restart))
    yield real
    await real.close()


@pytest_asyncio.fixture
async def store(world: World) -> LedgerStore:
    """A writer."""
    return await world.client()
