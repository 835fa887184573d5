"""Garbage collection on fakes: what is looked at before something goes, and what a server that lags must not decide."""

from __future__ import annotations

from cursorkeeper.core.names import CursorName
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper_clients.bookkeeper.port import LedgerSpec

from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, World, acks


async def owned(world: World, identity: str, name: CursorName = NAME) -> Source:
    made = Source(await world.keeper(identity), name)
    await made.open()
    made.ack(acks(7, 1))
    await made.durable()
    return made


async def orphan(world: World, made: Source, epoch: int = 0, name: CursorName | None = None) -> int:
    """A ledger of an owner before this one, which no footer names."""
    deployment = await made.keeper.footers.deployment()
    return await made.keeper.ledgers.create(LedgerSpec(), custom_metadata(name or made.name, epoch, 1, "before", deployment))


@virtual
async def test_a_server_that_lags_puts_no_footer_in_doubt() -> None:
    """It shows the footer of before; the ledgers are of the owner after."""
    world = World()
    await owned(world, "first")
    session = world.zookeeper.session()
    await session.start()
    footers = FooterStore(session, EncodeSettings())
    await footers.known_deployment()
    session.lag()
    made = await owned(world, "second")
    left = await orphan(world, made)
    report = await gc.collect(made.keeper.ledgers, footers)
    assert (report.doubtful, report.garbage, report.deleted) == (0, 1, 1)
    assert left not in world.bookkeeper.ledgers
