"""Fixtures: our cursors beside a Pulsar cluster, in memory."""

from __future__ import annotations

import itertools

import pytest

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.orphans.fleet import Fleet, Orphan
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.orphans.removal import Removed, Remover
from cursorkeeper.orphans.search import search
from daemon.tests.migration.pulsar_world import PulsarWorld
from daemon.tests.support.world import NAME

AGAIN_S = 5.0
"""Of the fakes' time: so long a remover waits for ZooKeeper."""


class OrphanWorld(PulsarWorld):
    """A cluster in which subscriptions come and go without a word."""

    writers = itertools.count()

    async def subscribed(self, name: CursorName = NAME) -> None:
        """Pulsar's znodes of a subscription and its topic."""
        await self.put(names.topic_path(name.topic), b"topic")
        await self.put(names.cursor_path(name.topic, name.subscription), b"cursor")

    async def unsubscribed(self, name: CursorName = NAME) -> None:
        """The cursor's alone is gone."""
        await self.remove(names.cursor_path(name.topic, name.subscription))

    async def deleted_by_force(self, name: CursorName = NAME) -> None:
        """The topic's, too, as by a forced delete."""
        await self.unsubscribed(name)
        await self.remove(names.topic_path(name.topic))

    async def store(self) -> PulsarStore:
        """Asked through a session of its own."""
        session = self.zookeeper.session()
        await session.start()
        return PulsarStore(session)

    async def searched(self) -> Fleet:
        """One search."""
        return await search((await self.ports()).footers, await self.store())

    async def orphan(
        self, name: CursorName = NAME, *, with_ledgers: bool = True
    ) -> tuple[Orphan, Footer]:
        """A closed cursor whose topic was deleted by force, beside one that is well."""
        footer = await self.closed(name, **({"l7": ((1, 3),)} if with_ledgers else {}))
        await self.subscribed(name)
        await self.deleted_by_force(name)
        [found] = [one for one in (await self.searched()).orphans if one.name == name]
        return found, footer

    async def remover(self) -> Remover:
        """As a tool has it, with sessions of its own."""
        ports = await self.ports("writer")
        return Remover(
            await self.store(),
            ports.footers,
            ports.ledgers,
            lambda: f"host/1/orphans/{next(self.writers)}",
            AGAIN_S,
        )

    async def removed(self, orphan: Orphan) -> Removed:
        """By a tool."""
        return await (await self.remover()).remove(orphan)


@pytest.fixture
def world() -> OrphanWorld:
    """Without topics and cursors."""
    return OrphanWorld()
