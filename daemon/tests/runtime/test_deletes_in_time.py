"""Whoever deletes a cursor is answered in time when ZooKeeper or BookKeeper is away; what was not
sent by then is not done later, and what was sent is decided. In virtual time, on the fakes.
"""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.limits import Limits
from cursorkeeper.format import footer as footer_codec
from cursorkeeper.runtime.keeper import Keeper
from daemon.tests.fakes.zookeeper.faults import UnknownDone, UnknownNotDone
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Recorder, Source, World, acks

DATA = 10
LIMIT_S, AWAY_S = 10.0, 20.0


def a_world() -> World:
    return World(limits=Limits(answer_wait_max_ms=int(LIMIT_S * 1000)))


def footer(world: World) -> Footer:
    return footer_codec.decode(world.zookeeper.tree.get(NAME.path()).data, NAME)


def deletes(keeper: Keeper, token: int = 0) -> Recorder:
    told = Recorder()
    keeper.delete_unopened(NAME, told, fencing_token=token)
    return told


async def is_told_in_time(told: Recorder, began_s: float) -> str:
    """What it is told, by when an open is told at the latest."""
    await told.until(lambda: bool(told.ended), limit_s=60)
    assert (
        told.refused is not None
        and told.refused[0] == "UNAVAILABLE"
        and "delete it again" in told.refused[2]
    )
    assert LIMIT_S <= asyncio.get_running_loop().time() - began_s < LIMIT_S * 1.3
    return told.refused[1]


async def goes_on(keeper: Keeper, token: int = 0) -> str:
    """How a deletion ends that is asked for when all is there again."""
    told = deletes(keeper, token)
    await told.until(lambda: bool(told.ended))
    return told.ended if told.refused is None else told.refused[0]


async def holder(world: World, identity: str = "k") -> Source:
    """Of the cursor, with ack 1."""
    held = Source(await world.keeper(identity))
    await held.open()
    await held.durable(held.ack(acks(DATA, 1)))
    return held


async def left(world: World) -> Keeper:
    """A daemon, of a cursor that another one held when it was killed."""
    (await holder(world, "first")).keeper.abandon()
    return await world.keeper()


def closes_without_zookeeper(world: World, held: Source) -> float:
    """Gives the time at which it begins."""
    world.zookeeper.stop()
    held.send_close()
    return asyncio.get_running_loop().time()


@virtual
async def test_a_cursor_that_is_not_held_is_left_as_it_was() -> None:
    world = a_world()
    keeper = await left(world)
    before = world.zookeeper.tree.get(NAME.path())
    world.zookeeper.stop()
    began = asyncio.get_running_loop().time()
    told = deletes(keeper)
    await until(lambda: keeper.cursors[NAME].machine.questions.waiting == 1)
    assert "it was not deleted" in await is_told_in_time(told, began)
    assert not keeper.cursors
    world.zookeeper.start()
    await asyncio.sleep(60)
    assert world.zookeeper.tree.get(NAME.path()) == before, "nothing is claimed for nobody"
    assert await goes_on(keeper) == "deleted"
    assert keeper.failures == []


@pytest.mark.parametrize("lost", [UnknownDone(AWAY_S), UnknownNotDone(AWAY_S)])
@pytest.mark.parametrize("token", [0, 1])
@virtual
async def test_a_tombstone_that_was_sent_is_decided(
    token: int, lost: UnknownDone | UnknownNotDone
) -> None:
    """Held here: by no handle any more, or by one of a lower token. The write's answer is lost,
    whether or not it was done.
    """
    world = a_world()
    held = await holder(world)
    if not token:
        held.keeper.detach(NAME, held.attach)
    world.zookeeper.faults.next("set", lost)
    began = asyncio.get_running_loop().time()
    assert "may be deleted yet" in await is_told_in_time(deletes(held.keeper, token), began)
    assert footer(world).state is (
        FooterState.DELETED if isinstance(lost, UnknownDone) else FooterState.OPEN
    )
    await until(lambda: not held.keeper.cursors)
    assert footer(world).state is FooterState.DELETED
    assert await goes_on(held.keeper, token) == "NOT_FOUND"
    assert held.keeper.failures == []


@virtual
async def test_a_handles_own_delete_is_told_in_time_too() -> None:
    world = a_world()
    held = await holder(world)
    world.zookeeper.stop()
    began = asyncio.get_running_loop().time()
    held.keeper.end(NAME, ev.Delete(held.attach))
    assert "may be deleted yet" in await is_told_in_time(held.told, began)
    world.zookeeper.start()
    await until(lambda: not held.keeper.cursors)
    assert await goes_on(held.keeper) == "NOT_FOUND"


@virtual
async def test_a_delete_behind_a_close_waits_no_longer_in_all() -> None:
    """The close ends after most of the time; the claim that follows has the rest of it."""
    world = a_world()
    held = await holder(world)
    began = closes_without_zookeeper(world, held)
    told = deletes(held.keeper)
    await asyncio.sleep(LIMIT_S - 2)
    world.zookeeper.faults.latency_s = (0.2, 0.2)
    world.zookeeper.start()
    await until(lambda: held.told.ended == "closed")
    world.zookeeper.stop()
    await is_told_in_time(told, began)
    assert not held.keeper.cursors
    world.zookeeper.start()
    await asyncio.sleep(60)
    assert footer(world).state is FooterState.CLOSED


@virtual
async def test_a_delete_behind_an_end_that_does_not_come_is_not_done_later() -> None:
    world = a_world()
    held = await holder(world)
    began = closes_without_zookeeper(world, held)
    assert "it was not deleted" in await is_told_in_time(deletes(held.keeper), began)
    world.zookeeper.start()
    await until(lambda: held.told.ended == "closed")
    await asyncio.sleep(60)
    assert footer(world).state is FooterState.CLOSED and not held.keeper.cursors


@virtual
async def test_an_open_behind_a_delete_that_is_given_up_waits_no_longer_in_all() -> None:
    world = a_world()
    keeper = await left(world)
    world.zookeeper.stop()
    told = deletes(keeper)
    began = asyncio.get_running_loop().time()
    behind = await Source(keeper).open()
    assert (
        told.ended == "refused"
        and behind.refused is not None
        and behind.refused[0] == "UNAVAILABLE"
    )
    assert LIMIT_S <= asyncio.get_running_loop().time() - began < LIMIT_S * 1.3
    assert footer(world).epoch == 1 and not keeper.cursors


@pytest.mark.parametrize("is_opened", [False, True])
@virtual
async def test_the_bookies_are_away(is_opened: bool) -> None:
    """The claim is done, and its ledger cannot be fenced; or it is another handle's claim, which
    goes on.
    """
    world = a_world()
    keeper = await left(world)
    world.bookkeeper.bookies_up = 0
    opening = Source(keeper)
    if is_opened:
        keeper.open(NAME, ev.Open(takeover=True), opening.attach, opening.told)
    began = asyncio.get_running_loop().time()
    why = await is_told_in_time(deletes(keeper), began)
    world.bookkeeper.bookies_up = 3
    if is_opened:
        assert "it was not deleted" in why and "BookKeeper" in why
        await opening.told.until(lambda: opening.told.machine is not None)
        assert await goes_on(keeper) == "ALREADY_OPEN" and footer(world).state is FooterState.OPEN
    else:
        assert "may be deleted yet" in why and "BookKeeper" in why
        await until(lambda: not keeper.cursors)
        assert await goes_on(keeper) == "NOT_FOUND" and footer(world).state is FooterState.DELETED
    assert keeper.failures == []
