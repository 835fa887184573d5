"""What may happen to a cursor in its life, each over a SIGKILL of its daemon and an opening by the
other one: the stories that the embedded stack is told, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from daemon.tests.end_to_end.stories import LIVES, live
from testcontainers_tests.cluster.stack import ContainerStack


class TakingTurns:
    """Two daemons: one is killed, the other one opens the cursors, the first is started again
    meanwhile.
    """

    def __init__(self, stack: ContainerStack) -> None:
        self._daemons = stack.daemons[:2]
        self.gateway, self.zookeeper = stack.gateway.client_address, stack.zookeeper.client_address

    @property
    def address(self) -> str:
        return self._daemons[0].client_address

    async def next(self) -> None:
        killed, successor = self._daemons
        await asyncio.to_thread(killed.kill)
        await asyncio.to_thread(killed.start_again)
        await successor.ready()
        self._daemons = [successor, killed]

    async def whole(self) -> None:
        """Both are there."""
        await asyncio.gather(*(daemon.ready() for daemon in self._daemons))


@pytest.fixture
async def owners(stack: ContainerStack) -> AsyncIterator[TakingTurns]:
    made = TakingTurns(stack)
    yield made
    await made.whole()


async def test_lives_of_cursors_over_their_owners_deaths(owners: TakingTurns) -> None:
    await live(owners, LIVES)
