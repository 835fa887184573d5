"""What a source may rely on, checked on a daemon in a container: the tests that the fake keeper
passes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from clients.tests.ack_stream.conftest import session, topic  # noqa: F401
from clients.tests.ack_stream.test_contract import *  # noqa: F403
from testcontainers_tests.cluster.nodes import DaemonNode
from testcontainers_tests.cluster.stack import ContainerStack


class ContainerKeeper:
    """A daemon whose container is killed and started again."""

    def __init__(self, daemon: DaemonNode) -> None:
        self._daemon = daemon

    @property
    def address(self) -> str:
        return self._daemon.client_address

    async def kill(self) -> None:
        await asyncio.to_thread(self._daemon.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._daemon.start_again)
        await self._daemon.ready()


@pytest_asyncio.fixture
async def keeper(systems: ContainerStack) -> AsyncIterator[ContainerKeeper]:
    made = ContainerKeeper(systems.daemon)
    yield made
    if systems.daemon.status == "exited":
        await made.start()
