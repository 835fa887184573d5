"""Footers in ZooKeeper: which answer becomes which event."""

from __future__ import annotations

import asyncio

from cursorkeeper.core import events as ev
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.footers import ABSENT, FooterStore
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, World, acks


class ParentsVanish:
    """A session whose new nodes are removed by somebody at once."""

    def __init__(self, inner: FakeZooKeeper, times: int) -> None:
        self._inner, self._times = inner, times

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def ensure_path(self, path: str) -> None:
        self._times -= 1
        if self._times < 0:
            await self._inner.ensure_path(path)


@virtual
async def test_a_parent_that_is_missing_twice_is_tried_again() -> None:
    world = World()
    made = Source(await world.keeper())
    await made.open()
    footer = made.machine.ownership.commit.committed
    assert footer is not None
    session = World().zookeeper.session()
    await session.start()
    footers = FooterStore(ParentsVanish(session, 1), EncodeSettings())  # type: ignore[arg-type]
    assert isinstance(await footers.write(NAME, 7, footer, ABSENT), ev.FooterWriteUnknown), (
        "a footer that never was is not gone"
    )
    assert await footers.write(NAME, 8, footer, ABSENT) == ev.FooterWritten(8, 0)
    await session.delete(NAME.path(), 0)
    assert await footers.write(NAME, 9, footer, 0) == ev.FooterGone(9)


@virtual
async def test_what_is_read_behind_a_sync_is_no_older_than_the_sync() -> None:
    """A server that lags shows the tree of before; after a write without an answer that would be
    taken for the outcome.
    """
    world = World()
    made = Source(await world.keeper())
    await made.open()
    session = world.zookeeper.session()
    await session.start()
    footers = FooterStore(session, EncodeSettings())
    session.lag()
    await Source(await world.keeper("other")).open()
    shown = await footers.read(NAME, 1, sync=False)
    assert isinstance(shown, ev.FooterRead) and shown.footer is not None and shown.footer.epoch == 1
    shown = await footers.read(NAME, 2, sync=True)
    assert isinstance(shown, ev.FooterRead) and shown.footer is not None and shown.footer.epoch == 2


@virtual
async def test_a_znode_that_was_made_anew_is_somebody_elses_though_its_version_is_the_same() -> (
    None
):
    world = World()
    a = Source(await world.keeper("a"))
    await a.open()
    a.ack(acks(10, 1))
    await a.durable()
    zookeeper = a.keeper.footers._zk
    assert isinstance(zookeeper, FakeZooKeeper)
    zookeeper.stall(3.0)
    session = world.zookeeper.session()
    await session.start()
    version = world.zookeeper.tree.get(NAME.path()).stat.version
    await session.delete(NAME.path(), version)
    b = Source(await world.keeper("b"))
    await b.open()
    b.ack(acks(10, 5))
    await b.durable()
    assert world.zookeeper.tree.get(NAME.path()).stat.version == version
    await asyncio.sleep(60)
    assert a.told.ended == "deposed"
    assert not b.told.ended and b.machine.acks.is_acked(10, 5)
