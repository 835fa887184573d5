"""Deleting an orphan, and everybody who comes in between: each story is played at every request
that ZooKeeper gets of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from cursorkeeper.core.footer import FooterState, tombstone_of
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.orphans.removal import Ending, Removed, Remover
from cursorkeeper.repair.garbage import sweep
from cursorkeeper.runtime.footers import FooterStore
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.fakes.zookeeper.faults import (
    Fault,
    Faults,
    Late,
    NotNow,
    UnknownDone,
    UnknownNotDone,
)
from daemon.tests.orphans.conftest import AGAIN_S, OrphanWorld
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, acks

REQUESTS = range(12)
"""More than one deletion takes; the last stories have no part in it any more."""
BEFORE, AFTER = (1, 2, 3), (20, 21)
"""Entries that were acked before the topic was deleted, and by who came back."""
LONG_S = 60.0


async def test_tombstone_then_ledgers(world: OrphanWorld) -> None:
    orphan, before = await world.orphan()
    assert before.chain, "there are ledgers to delete"
    removed = await world.removed(orphan)
    assert (removed.ending, removed.ledgers_left) == (Ending.DELETED, 0)
    now = await world.footer()
    assert now.state is FooterState.DELETED and (now.epoch, now.generation) == (
        before.epoch + 1,
        before.generation + 1,
    )
    assert not now.named_ledgers() and not (
        before.named_ledgers() & world.bookkeeper.ledgers.keys()
    )
    told = await Source(await world.keeper()).open(create=True)
    assert told.created and told.machine is not None and told.machine.epoch == now.epoch + 1, (
        "it can be made anew"
    )


async def test_ledgers_that_stay_are_garbage(world: OrphanWorld) -> None:
    orphan, before = await world.orphan()
    world.bookkeeper.faults.refuse(Operation.DELETE)
    removed = await world.removed(orphan)
    assert (removed.ending, removed.ledgers_left) == (Ending.DELETED, 1)
    swept = await sweep(await world.ports("writer"), world.bar, dry_run=False)
    assert (
        swept.report.deleted == 1
        and not swept.doubts
        and not (before.named_ledgers() & world.bookkeeper.ledgers.keys())
    )


async def test_who_opened_it_since_the_search_keeps_it(world: OrphanWorld) -> None:
    orphan, _ = await world.orphan()
    source = await world.source()
    removed = await world.removed(orphan)
    assert removed.ending is Ending.TAKEN and source.machine.turn.writer in removed.said
    await world.close(source)
    assert (await world.removed(orphan)).ending is Ending.TAKEN, (
        "closed again, and not the footer that was found"
    )


async def test_a_server_that_lags_proves_nothing(world: OrphanWorld) -> None:
    """It shows the cursor as it was while it was deleted; the quorum knows better."""
    orphan, before = await world.orphan()
    session = world.zookeeper.session()
    await session.start()
    session.lag()
    await world.subscribed()
    ports, pulsar = await world.ports("writer"), PulsarStore(session)
    assert await pulsar.gone(NAME) is not None
    removed = await Remover(pulsar, ports.footers, ports.ledgers, lambda: "w").remove(orphan)
    assert removed.ending is Ending.CAME_BACK and await world.footer() == before


async def test_an_open_cursor_is_its_owners(world: OrphanWorld) -> None:
    source = await world.source()
    footer = await world.footer()
    with pytest.raises(ValueError, match="is open"):
        tombstone_of(footer, "w")
    [orphan] = (await world.searched()).orphans
    assert orphan.is_open and (await world.removed(orphan)).ending is Ending.TAKEN
    assert await world.footer() == footer and not source.told.ended


# ---- everybody who comes in between


class Interrupted:
    """A session before whose request number `at` something happens."""

    def __init__(
        self, inner: FakeZooKeeper, at: int, happens: Callable[[], Awaitable[None]]
    ) -> None:
        self._inner, self._left, self._happens = inner, at, happens
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self.happened:
                self.happened = True
                await self._happens()
            return await method(*args, **kwargs)

        return call


class Story:
    """One deletion, and what happens in its middle."""

    def __init__(self, world: OrphanWorld) -> None:
        self.world = world
        self.confirmed = BEFORE

    async def nothing(self) -> None:
        """Nobody comes."""

    async def znode_returns(self) -> None:
        """The topic is created again, or its metadata restored; the broker has not come to us
        yet.
        """
        await self.world.subscribed()

    async def broker_opens(self) -> Source:
        """The topic is created again, and its broker is quick."""
        await self.world.subscribed()
        source = Source(await self.world.keeper("broker"))
        told = await source.open(create=True)
        if told.created:
            self.confirmed = ()
        source.ack(acks(7, *AFTER))
        await source.durable()
        self.confirmed += AFTER
        return source

    async def broker_opens_and_closes(self) -> None:
        source = await self.broker_opens()
        source.send_close()
        await source.told.until(lambda: source.told.ended == "closed")

    async def play(self, name: str, at: int, fault: Fault | None) -> tuple[Removed, Interrupted]:
        orphan, _ = await self.world.orphan()
        faults = Faults(self.world.rng)
        if fault is not None:
            faults.next("set", fault, NAME.path())
        session = self.world.zookeeper.session(faults=faults)
        await session.start()
        ports = await self.world.ports("writer")
        interrupted = Interrupted(session, at, getattr(self, name))
        footers = FooterStore(interrupted, self.world.settings.encode)  # type: ignore[arg-type]
        remover = Remover(
            PulsarStore(interrupted), footers, ports.ledgers, lambda: "host/1/orphans/0", AGAIN_S
        )  # type: ignore[arg-type]
        removed = await remover.remove(orphan)
        await asyncio.sleep(LONG_S)  # what is late arrives
        return removed, interrupted


FAULTS = {
    "none": None,
    "not sent": NotNow(),
    "lost before": UnknownNotDone(disconnect_s=0.2),
    "lost behind": UnknownDone(disconnect_s=0.2),
    "late": Late(1.0),
    "very late": Late(AGAIN_S + 1),
}
STORIES = ("nothing", "znode_returns", "broker_opens", "broker_opens_and_closes")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", STORIES)
@virtual
async def test_whoever_comes_in_between_loses_nothing(name: str, fault: str) -> None:
    endings: set[Ending] = set()
    for at in REQUESTS:
        world = OrphanWorld()
        story = Story(world)
        removed, interrupted = await story.play(name, at, FAULTS[fault])
        endings.add(removed.ending)
        where = f"{name} before request {at}, {fault}: {removed}"
        now = await world.footer()
        assert not (now.writer == "host/1/orphans/0" and now.state is FooterState.OPEN), where
        if removed.ending is Ending.DELETED:
            assert now.state is FooterState.DELETED or now.writer != "host/1/orphans/0", where
        elif removed.ending is Ending.CAME_BACK:
            assert interrupted.happened and now.state is not FooterState.DELETED, where
        elif removed.ending is Ending.TAKEN:
            assert interrupted.happened and now.writer != "host/1/orphans/0", where
        assert now.named_ledgers() <= world.bookkeeper.ledgers.keys(), (
            f"{where}: named ledgers are there"
        )
        if now.state is FooterState.DELETED:
            continue
        told = await Source(await world.keeper("next")).open(create=False)
        assert told.machine is not None, where
        state = told.machine.acks
        assert all(state.is_acked(7, entry) for entry in story.confirmed), (
            f"{where}: what was confirmed is there"
        )
    expected = {Ending.DELETED} if name == "nothing" else {Ending.DELETED, Ending.CAME_BACK}
    assert endings == expected | ({Ending.TAKEN} if name.startswith("broker") else set())


@virtual
async def test_a_broker_of_a_higher_token_is_not_kept_out(world: OrphanWorld) -> None:
    """The tombstone keeps the token of the footer: a zombie does not get the cursor of who comes
    after it.
    """
    source = Source(await world.keeper())
    await source.open(fencing_token=7)
    source.ack(acks(7, *BEFORE))
    await source.durable()
    await world.close(source)
    await world.subscribed()
    await world.deleted_by_force()
    [orphan] = (await world.searched()).orphans
    assert (await world.removed(orphan)).ending is Ending.DELETED
    assert (await world.footer()).fencing_token == 7
    told = await Source(await world.keeper("zombie")).open(create=True, fencing_token=6)
    assert told.refused is not None and told.refused[0] == "FENCED"
    told = await Source(await world.keeper("next")).open(create=True, fencing_token=8)
    assert told.created and not told.refused


@virtual
async def test_zookeeper_that_stays_away_leaves_it_undecided_and_the_next_search_tells(
    world: OrphanWorld,
) -> None:
    orphan, before = await world.orphan()
    faults = Faults(world.rng)
    faults.next("set", UnknownDone(disconnect_s=LONG_S))
    session = world.zookeeper.session(faults=faults)
    await session.start()
    ports = await world.ports("writer")
    remover = Remover(
        PulsarStore(session),
        FooterStore(session, world.settings.encode),
        ports.ledgers,
        lambda: "w",
        AGAIN_S,
    )
    removed = await remover.remove(orphan)
    assert removed.ending is Ending.UNDECIDED and "NotConnected" in removed.said
    assert (await world.footer()).state is FooterState.DELETED and (
        await world.searched()
    ).orphans == []
    swept = await sweep(await world.ports("writer"), world.bar, dry_run=False)
    assert swept.report.deleted == len(before.named_ledgers()), "its ledgers are garbage"


@pytest.mark.parametrize("late_s", [0.5, LONG_S])
@virtual
async def test_a_tombstone_on_its_way_is_kept_out_when_the_cursor_comes_back(
    late_s: float, world: OrphanWorld
) -> None:
    """Its answer is lost, and before the next try Pulsar has the cursor again: it is given back,
    closed as it was.
    """
    orphan, before = await world.orphan()
    faults = Faults(world.rng)
    faults.next("set", Late(late_s))
    session = world.zookeeper.session(faults=faults)
    await session.start()
    ports, pulsar = await world.ports("writer"), await world.store()
    asked = 0

    class ThenBack(PulsarStore):
        async def is_proved_gone(self, name: CursorName) -> bool:
            nonlocal asked
            asked += 1
            if asked == 2:
                await world.subscribed()
            return await pulsar.is_proved_gone(name)

    footers = FooterStore(session, world.settings.encode)
    removed = await Remover(ThenBack(session), footers, ports.ledgers, lambda: "w", AGAIN_S).remove(
        orphan
    )
    await asyncio.sleep(LONG_S)
    now = await world.footer()
    assert (removed.ending, asked) == (Ending.CAME_BACK, 2)
    assert now == replace(before, epoch=before.epoch + 1, writer="w", write=2, written=now.written)
    told = await Source(await world.keeper("next")).open()
    assert told.machine is not None and all(
        told.machine.acks.is_acked(7, entry) for entry in BEFORE
    )
