"""Several roots on one BookKeeper: each has an id, its ledgers carry it, and nobody deletes
another's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core.names import ROOT
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.ledgers import custom_metadata
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import ANY, NotNow, UnknownDone, UnknownNotDone
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, World, acks


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


async def store(
    server: FakeZooKeeperServer, new: Callable[[], str], root: str = ROOT
) -> FooterStore:
    session = server.session()
    await session.start()
    return FooterStore(session, EncodeSettings(), root=root, new_deployment=new)


@virtual
async def test_everybody_of_one_root_has_one_id() -> None:
    world, new = World(), ids()
    first, second, other = [
        await store(world.zookeeper, new, root) for root in (ROOT, ROOT, "/elsewhere")
    ]
    assert await first.known_deployment() is None, "looking writes nothing"
    assert (
        await first.deployment()
        == await second.deployment()
        == await first.known_deployment()
        == f"{1:032x}"
    )
    assert await other.deployment() == f"{2:032x}"
    assert [n async for n in first.names()] == []


@virtual
async def test_a_lost_answer_does_not_make_two_ids() -> None:
    world, new = World(), ids()
    world.zookeeper.faults.next("set", UnknownDone())
    made = await (await store(world.zookeeper, new)).deployment()
    assert made == f"{1:032x}" == await (await store(world.zookeeper, new)).deployment()
    world.zookeeper.faults.next("set", UnknownNotDone())
    made = await (await store(world.zookeeper, new, "/elsewhere")).deployment()
    assert (
        made == f"{3:032x}" == await (await store(world.zookeeper, new, "/elsewhere")).deployment()
    )


@virtual
async def test_a_root_is_asked_once() -> None:
    """Every ledger that is created carries the id: it must not cost a read, or wait for a ZooKeeper
    that is away.
    """
    world = World()
    footers = await store(world.zookeeper, ids())
    made = await footers.deployment()
    world.zookeeper.faults.next(ANY, NotNow(), times=9)
    assert await footers.deployment() == await footers.known_deployment() == made


@virtual
async def test_a_server_that_lags_hides_no_id() -> None:
    world = World()
    session = world.zookeeper.session()
    await session.start()
    session.lag()
    made = await (await store(world.zookeeper, ids())).deployment()
    assert await FooterStore(session, EncodeSettings()).known_deployment() == made


@virtual
async def test_what_is_not_an_id_is_replaced() -> None:
    world = World()
    session = world.zookeeper.session()
    await session.start()
    await session.ensure_path(ROOT)
    await session.set(ROOT, b"10.0.0.7", 0)  # what some clients put into a node by default
    footers = await store(world.zookeeper, ids())
    assert await footers.known_deployment() is None
    assert await footers.deployment() == f"{1:032x}"


@virtual
async def test_garbage_collection_leaves_another_deployment_alone() -> None:
    ours, theirs = World(seed=1), World(seed=2)
    ours.bookkeeper = theirs.bookkeeper
    made = Source(await theirs.keeper())
    await made.open()
    made.ack(acks(7, 1, 2))
    await made.durable()
    confirmed = set(theirs.bookkeeper.ledgers)
    assert confirmed
    for _ in range(2):  # the same cursor, at a higher epoch, below another root
        mine = Source(await ours.keeper())
        await mine.open()
        mine.ack(acks(7, 5))
        await mine.durable()
    report = await gc.collect(mine.keeper.ledgers, mine.keeper.footers)
    assert (report.garbage, report.unknown) == (0, len(confirmed))
    assert confirmed <= set(theirs.bookkeeper.ledgers)


@virtual
async def test_ledgers_without_an_id_and_those_of_a_warm_up_are_left_alone() -> None:
    world = World()
    for _ in range(2):
        made = Source(await world.keeper())
        await made.open()
        made.ack(acks(7, 1))
        await made.durable()
    ledgers, footers = made.keeper.ledgers, made.keeper.footers
    old = custom_metadata(NAME, 1, 1, "w", await footers.deployment())
    garbage = await ledgers.create(LedgerSpec(), old)
    nameless = await ledgers.create(
        LedgerSpec(), {k: v for k, v in old.items() if k != "deployment"}
    )
    warm_up = await ledgers.create(LedgerSpec(), {**old, "purpose": b"warm-up"})
    report = await gc.collect(ledgers, footers)
    assert (report.garbage, report.unknown) == (1, 2)
    assert (
        garbage not in world.bookkeeper.ledgers
        and {nameless, warm_up} <= world.bookkeeper.ledgers.keys()
    )
