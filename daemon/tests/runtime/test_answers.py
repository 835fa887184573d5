"""What a keeper answers whose cursor went to another one, while its own way to ZooKeeper is bad. In
virtual time, on the fakes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.stream.store_service import CursorStoreService
from cursorkeeper_client._proto import acks_pb2 as pb
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Recorder, Source, World, acks

DATA = 10
STALL_S = 8.0


def link_of(keeper: Keeper) -> FakeZooKeeper:
    """Its session."""
    zk = keeper.footers._zk
    assert isinstance(zk, FakeZooKeeper)
    return zk


async def moved(world: World, *, reset: bool = False) -> tuple[Keeper, Source]:
    """A holds the cursor with entry 1; its link stalls; B takes over, and what it does there is
    confirmed. A knows nothing.
    """
    a = Source(await world.keeper("a"))
    await a.open()
    a.ack(acks(DATA, 1))
    await a.durable()
    a.keeper.detach(NAME, a.attach)
    keeper_b = await world.keeper("b")
    link_of(a.keeper).stall(STALL_S)
    b = Source(keeper_b)
    await b.open()
    if reset:
        b.seq += 1
        b.send(ev.Reset(b.attach, b.seq, 1, Position(DATA, -1)))
        await b.durable()
    b.ack(acks(DATA, 2))
    await b.durable()
    return a.keeper, b


async def no_failures(world: World) -> None:
    for keeper in world.keepers:
        assert keeper.failures == []


@pytest.mark.parametrize("takeover", [False, True])
@virtual
async def test_a_link_that_comes_and_goes_keeps_nobody_waiting_longer(takeover: bool) -> None:
    """The open waits for proof that A still holds the cursor, then, when it does not, for a claim:
    together no longer than for one.
    """
    world = World(limits=Limits(answer_wait_max_ms=10_000))
    keeper, b = await moved(world)
    if not takeover:
        keeper.open(NAME, ev.Open(takeover=True), keeper.attach_id(), Recorder())
        b.send_close()
        await until(lambda: b.told.ended == "closed")
    again, began = Source(keeper), asyncio.get_running_loop().time()
    opening = asyncio.ensure_future(again.open(takeover=takeover))
    await asyncio.sleep(STALL_S - 1)
    world.zookeeper.faults.latency_s = (0.2, 0.2)
    await until(lambda: keeper.cursors[NAME].machine.state is State.CLAIMING)
    link_of(keeper).stall(100)
    told = await opening
    assert told.refused is not None and told.refused[0] == "UNAVAILABLE"
    assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=1)
    await no_failures(world)


@pytest.mark.parametrize("stall_s", [2.0, 100.0])
@virtual
async def test_an_open_behind_a_close_that_zookeeper_does_not_answer_is_told_so_in_time(
    stall_s: float,
) -> None:
    """The cursor is on its way out, and its end does not come: whoever waits for it is not kept
    waiting longer than anybody else.
    """
    world = World(limits=Limits(answer_wait_max_ms=10_000))
    a = Source(await world.keeper("a"))
    await a.open()
    await a.durable(a.ack(acks(DATA, 1)))
    link_of(a.keeper).stall(stall_s)
    a.send_close()
    again, began = Source(a.keeper), asyncio.get_running_loop().time()
    opening = asyncio.ensure_future(again.open())
    await until(lambda: a.keeper.ends_waited_for == 1)
    told = await opening
    assert a.keeper.ends_waited_for == 0
    waited_s = asyncio.get_running_loop().time() - began
    if stall_s < 10:
        assert told.refused is None and again.machine.acks.is_acked(DATA, 1)
    else:
        assert (
            told.refused is not None
            and told.refused[0] == "UNAVAILABLE"
            and "ZooKeeper" in told.refused[1]
        )
        assert 10 <= waited_s < 15
        await asyncio.sleep(stall_s)
        assert a.told.ended == "closed" and NAME not in a.keeper.cursors, "nobody wants it any more"
    await no_failures(world)


@pytest.mark.parametrize("reset", [False, True])
@virtual
async def test_an_open_with_takeover_waits_for_the_proof_and_then_shows_everything(
    reset: bool,
) -> None:
    world = World()
    keeper, b = await moved(world, reset=reset)
    again = Source(keeper)
    opening = asyncio.ensure_future(again.open())
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(STALL_S / 2)
    assert not opening.done(), "nothing is said while ZooKeeper has not answered"
    assert "ZooKeeper" in keeper.cursors[NAME].machine.waiting_for
    await opening
    assert asyncio.get_running_loop().time() - began >= STALL_S / 2
    machine = again.machine
    assert (machine.acks.is_acked(DATA, 2), machine.acks.is_acked(DATA, 1)) == (True, not reset)
    assert machine.generation == (2 if reset else 1)
    await until(lambda: b.told.ended == "deposed")
    again.ack(acks(DATA, 3))
    await again.durable()
    await no_failures(world)


@virtual
async def test_an_open_without_takeover_finds_the_new_owner() -> None:
    world = World()
    keeper, b = await moved(world)
    told = await Source(keeper).open(takeover=False)
    assert told.refused is not None and told.refused[0] == "OPEN_ELSEWHERE"
    b.ack(acks(DATA, 3))
    await b.durable()
    assert not b.told.ended
    await no_failures(world)


@virtual
async def test_that_another_handle_holds_it_is_an_answer_too() -> None:
    """A's handle is still there, but the cursor is B's: the second open must not hear
    ALREADY_OPEN.
    """
    world = World()
    a = Source(await world.keeper("a"))
    await a.open()
    b = Source(await world.keeper("b"))
    link_of(a.keeper).stall(STALL_S)
    await b.open()
    told = await Source(a.keeper).open(takeover=False)
    assert told.refused is not None and told.refused[0] == "OPEN_ELSEWHERE"
    assert a.told.ended == "deposed"
    await no_failures(world)


@virtual
async def test_a_leader_that_was_deposed_proves_nothing() -> None:
    """It answers A's sync and read with A's own footer; the open is answered when there is a quorum
    again.
    """
    world = World()
    a = Source(await world.keeper("a"))
    await a.open()
    a.keeper.detach(NAME, a.attach)
    b = Source(await world.keeper("b"))
    link_of(a.keeper).follow_old_leader(12.0)
    await b.open()
    b.ack(acks(DATA, 2))
    await b.durable()
    again = Source(a.keeper)
    opening = asyncio.ensure_future(again.open())
    await asyncio.sleep(6.0)
    assert not opening.done()
    await opening
    assert again.machine.acks.is_acked(DATA, 2)
    await no_failures(world)


@virtual
async def test_zookeeper_away_is_said_in_time_and_the_cursor_stays() -> None:
    world = World(limits=Limits(answer_wait_max_ms=3_000))
    a = Source(await world.keeper("a"))
    await a.open()
    a.ack(acks(DATA, 1))
    await a.durable()
    a.keeper.detach(NAME, a.attach)
    world.zookeeper.stop()
    began = asyncio.get_running_loop().time()
    told = await Source(a.keeper).open()
    assert (
        told.refused is not None
        and told.refused[0] == "UNAVAILABLE"
        and "ZooKeeper" in told.refused[1]
    )
    assert asyncio.get_running_loop().time() - began == pytest.approx(3.0, abs=0.5)
    resumed = Source(a.keeper)
    resumed.keeper.open(
        NAME, ev.Open(takeover=True, resume=ev.Resume(1, 1)), resumed.attach, resumed.told
    )
    assert resumed.told.continued, "who comes back with what it got goes on meanwhile"
    resumed.ack(acks(DATA, 5))
    await resumed.durable()
    world.zookeeper.start()
    again = Source(a.keeper)
    await again.open()
    assert again.machine is resumed.machine and again.machine.acks.is_acked(DATA, 5)
    await no_failures(world)


class Aborted(Exception):
    """What gRPC does on abort."""


class Context:
    """The one call of a service's context that is used."""

    code: grpc.StatusCode | None = None
    text = ""

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.code, self.text = code, text
        raise Aborted(text)


async def exported(service: CursorStoreService, context: Context) -> list[pb.KeeperMessage]:
    ref = pb.CursorRef(topic=NAME.topic, subscription=NAME.subscription)
    return [message async for message in service.Export(pb.ExportRequest(cursor=ref), context)]


async def asked(service: CursorStoreService, context: Context) -> Any:
    ref = pb.CursorRef(topic=NAME.topic, subscription=NAME.subscription)
    return await service.AckState(
        pb.AckStateRequest(cursor=ref, ledger_id=DATA, entries=[1, 2]), context
    )


@pytest.mark.parametrize("question", [asked, exported])
@virtual
async def test_what_is_told_of_a_held_cursor_is_proved(question: Any) -> None:
    """AckState and Export at a daemon that has lost the cursor say so; where ZooKeeper is away they
    say that.
    """
    world = World(limits=replace(Limits(), answer_wait_max_ms=3_000))
    keeper, b = await moved(world)
    service, context = CursorStoreService(keeper), Context()
    waits = asyncio.ensure_future(question(service, context))
    with pytest.raises(Aborted):
        await waits
    assert context.code is grpc.StatusCode.UNAVAILABLE and "ZooKeeper" in context.text
    await asyncio.sleep(STALL_S)
    with pytest.raises(Aborted):
        await question(service, context)
    assert context.code is grpc.StatusCode.NOT_FOUND
    assert await question(CursorStoreService(b.keeper), Context())
    await no_failures(world)


@virtual
async def test_many_that_come_back_share_a_request() -> None:
    """A broker's stream breaks with 500 cursors on it: proving all of them takes a few requests."""
    world = World()
    keeper = await world.keeper("a")
    names = [CursorName("persistent://t/ns/topic", f"sub-{n}") for n in range(500)]
    firsts = [Source(keeper, name) for name in names]
    await asyncio.gather(*(one.open() for one in firsts))
    for one in firsts:
        keeper.detach(one.name, one.attach)
    before = keeper.footers.checks.requests
    agains = [Source(keeper, name) for name in names]
    await asyncio.gather(*(one.open() for one in agains))
    assert all(again.machine is first.machine for first, again in zip(firsts, agains, strict=True))
    assert keeper.footers.checks.requests - before <= 4
    await no_failures(world)


@virtual
async def test_a_delete_of_a_cursor_that_is_open_here_is_not_decided_without_zookeeper() -> None:
    world = World(limits=Limits(answer_wait_max_ms=3_000))
    made = Source(await world.keeper())
    await made.open()
    world.zookeeper.stop()
    told = Recorder()
    made.keeper.delete_unopened(NAME, told)
    await told.until(lambda: bool(told.ended), limit_s=10)
    assert told.refused is not None and told.refused[0] == "UNAVAILABLE" and not made.told.ended


@virtual
async def test_a_delete_of_a_cursor_held_elsewhere_by_now_is_not_refused_for_its_handle_here() -> (
    None
):
    world = World()
    world.zookeeper.faults.watch_drop_probability = 1.0
    made = Source(await world.keeper("a"))
    await made.open()
    other = Source(await world.keeper("b"))
    await other.open()
    other.send_close()
    await other.told.until(lambda: other.told.ended == "closed")
    told = Recorder()
    made.keeper.delete_unopened(NAME, told)
    await told.until(lambda: bool(told.ended), limit_s=10)
    assert (told.ended, made.told.ended) == ("deleted", "deposed")


@virtual
async def test_a_delete_goes_on_when_the_handle_goes_while_it_asks_who_holds_the_cursor() -> None:
    world = World()
    made = Source(await world.keeper())
    await made.open()
    told = Recorder()
    made.keeper.delete_unopened(NAME, told)
    made.keeper.detach(NAME, made.attach)
    await told.until(lambda: bool(told.ended), limit_s=10)
    assert told.ended == "deleted"
