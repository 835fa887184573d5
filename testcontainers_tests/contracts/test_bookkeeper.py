"""What every `LedgerStore` does, checked on a gateway and three bookies in containers: the tests
that the fake passes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from cursorkeeper.bookkeeper.port import LedgerStore
from daemon.tests.bookkeeper.test_contract import *  # noqa: F403
from daemon.tests.bookkeeper.worlds import RealWorld, World
from testcontainers_tests.cluster.stack import ContainerStack


@pytest_asyncio.fixture
async def world(systems: ContainerStack) -> AsyncIterator[World]:
    async def restart() -> None:
        await asyncio.to_thread(systems.gateway.kill)
        await asyncio.to_thread(systems.gateway.start_again)
        await systems.gateway.ready()

    real = RealWorld(systems.gateway.client_address, restart)
    yield real
    await real.close()


@pytest_asyncio.fixture
async def store(world: World) -> LedgerStore:
    """A writer."""
    return await world.client()
