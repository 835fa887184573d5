"""Close and Delete belong to the handle that sent them: they end what that handle holds or waits
for, and nothing else.
"""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.table import State
from cursorkeeper.format import footer as footer_bytes
from daemon.tests.fakes.zookeeper.faults import UnknownNotDone
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.machine_bench import Bench, Owner
from daemon.tests.support.world import NAME, Recorder, Source, World, acks

DATA = 10


def footer(world: World) -> Footer:
    return footer_bytes.decode(world.zookeeper.tree.get(NAME.path()).data, NAME)


def opening(bench: Bench) -> tuple[Owner, fx.ReadFooter]:
    """An owner whose source (handle 1) waits for the claim."""
    owner = bench.owner("A").start()
    return owner, owner.hold(fx.ReadFooter)


# ---- the machine


def test_a_delete_is_not_replaced_by_the_close_behind_it() -> None:
    bench = Bench()
    a, read = opening(bench)
    a.step(ev.Delete(1))
    a.step(ev.Close(1))
    a.do(read)
    a.go()
    assert a.state is State.DELETED and bench.footer.state is FooterState.DELETED


@pytest.mark.parametrize("wish", [ev.Close(1), ev.Delete(1)])
def test_a_handle_that_was_replaced_ends_nothing(wish: ev.Event) -> None:
    bench = Bench()
    a = bench.opened("A")
    a.step(ev.Detach(1))
    a.step(ev.Attach(2))
    a.go()
    a.step(wish)
    a.go()
    assert a.state is State.READY and bench.footer.state is FooterState.OPEN
    a.attach = 2
    seq = a.ack(1)
    a.go()
    assert a.durable == seq
    a.step(ev.Close(2))
    a.go()
    assert a.state is State.CLOSED


@pytest.mark.parametrize(
    ("wish", "end"), [(ev.Close(1), State.READY), (ev.Delete(1), State.DELETED)]
)
def test_a_wish_before_the_claim_whose_handle_was_replaced_meanwhile(
    wish: ev.Event, end: State
) -> None:
    """A close has nobody any more who wants it; a delete was there before the successor."""
    bench = Bench()
    a, read = opening(bench)
    a.step(wish)
    a.step(ev.Attach(2))
    a.step(ev.Detach(1))
    a.do(read)
    a.go()
    assert a.state is end


def test_the_handle_that_closes_may_still_delete_and_no_other() -> None:
    bench = Bench()
    a = bench.opened("A")
    a.ack(1)
    a.go()
    a.step(ev.Close(1))
    write = a.hold(fx.WriteFooter)
    a.step(ev.Delete(2))
    assert a.state is State.CLOSING
    a.step(ev.Delete(1))
    a.do(write)
    a.go()
    assert a.state is State.DELETED


def test_a_stopping_keeper_does_not_repeat_a_lost_claim() -> None:
    bench = Bench()
    a = bench.owner("A").start()
    claim = a.hold(fx.WriteFooter)
    b = bench.opened("B")
    a.step(ev.Close())
    a.do(claim)
    a.go()
    assert a.state is State.CLOSED and a.refused is not None and a.refused.code == "SHUTTING_DOWN"
    assert b.machine.turn.writer == bench.footer.writer


# ---- who waits for a cursor that is on its way out


async def closing(world: World) -> tuple[Source, Source]:
    """The first handle closes, which takes a while; the second one waits for the cursor."""
    first = Source(await world.keeper())
    await first.open()
    await first.durable(first.ack(acks(DATA, 1)))
    world.zookeeper.faults.next("set", UnknownNotDone(), times=2)
    first.send_close()
    second = Source(first.keeper)
    second.keeper.open(NAME, ev.Open(takeover=True), second.attach, second.told)
    assert not first.told.ended and second.told.machine is None
    return first, second


@virtual
async def test_a_waiting_handle_deletes_what_it_waits_for() -> None:
    world = World()
    first, second = await closing(world)
    second.keeper.end(NAME, ev.Delete(second.attach))
    await second.told.until(lambda: bool(second.told.ended))
    assert (first.told.ended, second.told.ended) == ("closed", "deleted")
    assert footer(world).state is FooterState.DELETED and not second.keeper.cursors


@virtual
async def test_a_waiting_handle_that_closes_is_answered_and_holds_nothing() -> None:
    world = World()
    first, second = await closing(world)
    second.keeper.end(NAME, ev.Close(second.attach))
    assert second.told.ended == "closed"
    await first.told.until(lambda: bool(first.told.ended))
    await asyncio.sleep(1.0)
    assert footer(world).state is FooterState.CLOSED and not first.keeper.cursors


@virtual
async def test_who_waits_behind_a_waiting_delete_gets_a_new_cursor() -> None:
    world = World()
    _, second = await closing(world)
    third = Source(second.keeper)
    third.keeper.open(NAME, ev.Open(takeover=True), third.attach, third.told)
    second.keeper.end(NAME, ev.Delete(second.attach))
    await third.told.until(lambda: third.told.machine is not None)
    assert second.told.ended == "deleted" and not third.machine.acks.is_acked(DATA, 1)
    await third.durable(third.ack(acks(DATA, 2)))


@virtual
async def test_a_delete_by_name_waits_for_a_cursor_that_closes() -> None:
    world = World()
    first, second = await closing(world)
    second.keeper.detach(NAME, second.attach)
    told = Recorder()
    first.keeper.delete_unopened(NAME, told)
    await told.until(lambda: bool(told.ended))
    assert (first.told.ended, told.ended) == ("closed", "deleted")


@virtual
async def test_a_broken_predecessors_close_does_not_close_its_successor() -> None:
    """The first source closes before it is opened, and its stream breaks; the second one comes
    while the claim goes on.
    """
    world = World()
    keeper = await world.keeper()
    first, second = Source(keeper), Source(keeper)
    keeper.open(NAME, ev.Open(), first.attach, first.told)
    first.send_close()
    keeper.detach(NAME, first.attach)
    await second.open(takeover=False)
    await second.durable(second.ack(acks(DATA, 1)))
    await asyncio.sleep(5.0)
    assert not second.told.ended and footer(world).state is FooterState.OPEN


# ---- the keeper stops


async def claiming(world: World) -> Source:
    """Who claims the cursor of an owner that died, and cannot fence its ledger: the bookies are
    away.
    """
    dead = Source(await world.keeper("dead"))
    await dead.open()
    await dead.durable(dead.ack(acks(DATA, 1)))
    dead.keeper.abandon()
    made = Source(await world.keeper())
    world.bookkeeper.bookies_up = 0
    made.keeper.open(NAME, ev.Open(takeover=True), made.attach, made.told)
    await until(lambda: made.keeper.cursors[NAME].machine.state is State.FENCING)
    return made


@virtual
async def test_a_stop_during_a_claim_closes_the_footer_again() -> None:
    world = World()
    made = await claiming(world)
    stop = asyncio.get_running_loop().create_task(made.keeper.close())
    await asyncio.sleep(1.0)
    assert footer(world).state is FooterState.OPEN
    world.bookkeeper.bookies_up = 3
    assert await stop == []
    assert footer(world).state is FooterState.CLOSED and footer(world).epoch == 2
    after = Source(await world.keeper("after"))
    await after.open(takeover=False)
    assert after.machine.acks.is_acked(DATA, 1)


@virtual
async def test_a_stop_says_which_claims_it_leaves_open_and_begins_none() -> None:
    world = World()
    made = await claiming(world)
    assert await made.keeper.close(timeout_s=2.0) == [NAME]
    # a claim that is not sent yet, and cannot be
    late = Source(await world.keeper("late"))
    world.zookeeper.faults.next("get", UnknownNotDone(), times=1_000)
    late.keeper.open(NAME, ev.Open(takeover=True), late.attach, late.told)
    assert await late.keeper.close(timeout_s=0.1) == []
    assert late.told.refused is not None and late.told.refused[0] == "SHUTTING_DOWN"
    assert footer(world).epoch == 2


# ---- a bug stops a cursor


@pytest.mark.interpreted
@virtual
async def test_a_cursor_that_a_bug_stopped_is_opened_again_where_it_was() -> None:
    """Its footer says open, by this very keeper: "open it again" needs no takeover here, and
    elsewhere it does.
    """
    world = World()
    first = Source(await world.keeper("one"))
    await first.open()
    await first.durable(first.ack(acks(DATA, 1)))
    first.machine.flow.acks = None  # type: ignore[assignment]
    first.ack(acks(DATA, 2))
    assert first.told.refused is not None and first.told.refused[0] == "UNAVAILABLE"
    elsewhere = Source(await world.keeper("one"))
    await elsewhere.open(takeover=False)
    assert elsewhere.told.refused is not None and elsewhere.told.refused[0] == "OPEN_ELSEWHERE"
    again = Source(first.keeper)
    await again.open(takeover=False)
    assert (
        again.told.refused is None
        and again.machine.epoch == 2
        and again.machine.acks.is_acked(DATA, 1)
    )
    await again.durable(again.ack(acks(DATA, 3)))
