"""A keeper on fakes, in virtual time: opening, taking over, waiting for services, closing,
thousands of idle cursors.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.footer import Footer, FooterState, InlineBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.limits import KeeperLimits
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.faults import Late, NotNow, UnknownDone, UnknownNotDone
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Recorder, Source, World, acks, closed, opened

DATA = 10


def footer(world: World, name: CursorName = NAME) -> Footer:
    return footer_bytes.decode(world.zookeeper.tree.get(name.path()).data, name)


def named(number: int) -> CursorName:
    return CursorName("persistent://t/ns/topic", f"sub-{number}")


async def source(world: World, identity: str = "k", **request: Any) -> Source:
    made = Source(await world.keeper(identity))
    await made.open(**request)
    return made


async def confirmed(made: Source, *entries: int) -> None:
    made.ack(acks(DATA, *entries))
    await made.durable()


async def assert_recovered(world: World, *entries: int, absent: tuple[int, ...] = ()) -> Source:
    """The next keeper has them, and can work."""
    made = await source(world, "recovers")
    assert made.told.refused is None, made.told.refused
    for entry in entries:
        assert made.machine.acks.is_acked(DATA, entry), entry
    for entry in absent:
        assert not made.machine.acks.is_acked(DATA, entry), entry
    await confirmed(made, 900_000)
    for keeper in world.keepers:
        assert keeper.failures == []
    return made


# ---- opening


@virtual
async def test_open_ack_crash_open() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1, 2, 5)
    made.keeper.abandon()
    await assert_recovered(world, 1, 2, 5, absent=(3,))


@virtual
async def test_decision_09_a_second_handle_of_this_daemon() -> None:
    world = World()
    first = await source(world)
    await confirmed(first, 1)
    second = Source(first.keeper)
    told = await second.open(takeover=False)
    assert told.refused is not None and told.refused[0] == "ALREADY_OPEN"
    second = Source(first.keeper)
    await second.open(takeover=True)
    assert first.told.ended == "deposed"
    assert second.machine is first.machine and second.machine.epoch == 1, (
        "re-attached in the same epoch"
    )
    await confirmed(second, 2)
    # without a handle anybody may attach
    second.keeper.cursors[NAME].detach(second.attach)
    third = Source(first.keeper)
    await third.open(takeover=False)
    await confirmed(third, 3)


@virtual
async def test_decision_09_a_cursor_that_is_open_elsewhere() -> None:
    world = World()
    first = await source(world, "first")
    await confirmed(first, 1)
    other = Source(await world.keeper("other"))
    await other.open(takeover=False)
    assert other.told.refused is not None and other.told.refused[0] == "OPEN_ELSEWHERE"
    assert "first" in other.told.refused[1], "says by whom"
    again = Source(other.keeper)
    await again.open(takeover=True)
    assert again.machine.epoch == 2 and again.machine.acks.is_acked(DATA, 1)
    # the first one learns it from its watch, while idle
    await first.told.until(lambda: first.told.ended == "deposed", limit_s=1.0)
    assert NAME not in first.keeper.cursors


@virtual
async def test_a_deposed_owner_learns_it_from_the_slow_poll_if_its_watch_is_lost() -> None:
    world = World()
    world.zookeeper.faults.watch_drop_probability = 1.0
    first = await source(world, "first")
    await confirmed(first, 1)
    await source(world, "other")
    await asyncio.sleep(30)
    assert not first.told.ended
    await first.told.until(lambda: first.told.ended == "deposed", limit_s=31.0)


@virtual
async def test_it_learns_it_so_after_many_looks_that_found_nothing_new() -> None:
    world = World()
    world.zookeeper.faults.watch_drop_probability = 1.0
    first = await source(world, "first")
    await confirmed(first, 1)
    await asyncio.sleep(500)
    await source(world, "other")
    assert not first.told.ended
    await first.told.until(lambda: first.told.ended == "deposed", limit_s=61.0)


@virtual
async def test_it_learns_it_though_the_read_after_a_look_has_failed() -> None:
    world = World()
    world.zookeeper.faults.watch_drop_probability = 1.0
    first = await source(world, "first")
    await confirmed(first, 1)
    await asyncio.sleep(100)
    await source(world, "other")
    await asyncio.sleep(50)
    world.zookeeper.faults.next("get", NotNow(), NAME.path())
    await asyncio.sleep(50)
    assert not first.told.ended and not world.zookeeper.faults._script, "its read has failed"
    await first.told.until(lambda: first.told.ended == "deposed", limit_s=25.0)


@virtual
async def test_not_found() -> None:
    world = World()
    made = await source(world, create=False)
    assert made.told.refused is not None and made.told.refused[0] == "NOT_FOUND"
    assert not made.keeper.cursors and not world.zookeeper.tree.mzxid(NAME.path())


@virtual
async def test_too_many_cursors() -> None:
    world = World(keeper_limits=KeeperLimits(cursors_max=2))
    keeper = await world.keeper()
    for number in range(2):
        await Source(keeper, named(number)).open()
    with pytest.raises(RefusedError) as refused:
        await Source(keeper, named(3)).open()
    assert refused.value.code == "TOO_MANY_CURSORS" and refused.value.remedy
    # one that is open already, or on its way out, is not one more
    again = Source(keeper, named(0))
    keeper.cursors[named(0)].dispatch(ev.Close())
    await again.open()
    assert not again.told.ended
    await again.durable(again.ack(acks(DATA, 1)))


@virtual
async def test_opening_while_it_closes_waits_and_opens_again() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    made.send_close()
    again = Source(made.keeper)
    await again.open()
    assert again.machine is not made.machine and again.machine.epoch == 2
    assert made.told.ended == "closed"
    await confirmed(again, 2)


@virtual
async def test_a_keeper_that_stops_takes_no_more() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    assert await made.keeper.close() == []
    assert made.told.ended == "closed"
    for ask in (
        lambda: made.keeper.open(NAME, ev.Open(), 99, Recorder()),
        lambda: made.keeper.delete_unopened(NAME, Recorder()),
    ):
        with pytest.raises(RefusedError) as refused:
            ask()
        assert refused.value.code == "SHUTTING_DOWN"


@pytest.mark.interpreted
@virtual
async def test_a_bug_in_one_cursor_ends_that_cursor_only() -> None:
    world = World()
    keeper = await world.keeper()
    broken, healthy = Source(keeper, named(1)), Source(keeper, named(2))
    await broken.open()
    await healthy.open()
    waits = Source(keeper, named(1))
    broken.machine.flow.acks = None  # type: ignore[assignment]
    broken.ack(acks(DATA, 1))
    assert broken.told.refused is not None and broken.told.refused[0] == "UNAVAILABLE"
    await healthy.durable(healthy.ack(acks(DATA, 1)))
    # and it can be opened again
    await waits.open()
    await waits.durable(waits.ack(acks(DATA, 1)))
    assert len(keeper.failures) == 1


@pytest.mark.interpreted
@virtual
async def test_a_bug_while_the_keeper_closes_does_not_hold_it_up() -> None:
    world = World()
    keeper = await world.keeper()
    broken = Source(keeper)
    await broken.open()
    await confirmed(broken, 1)
    runner = keeper.cursors[NAME]
    world.bookkeeper.bookies_up = 0
    world.zookeeper.faults.next("set", UnknownNotDone(), times=3)
    closing = asyncio.get_running_loop().create_task(keeper.close(timeout_s=15.0))
    await asyncio.sleep(0.01)
    runner.machine.ownership.commit = None  # type: ignore[assignment]
    started = asyncio.get_running_loop().time()
    await closing
    assert asyncio.get_running_loop().time() - started < 5.0


# ---- idle cursors


@virtual
async def test_decision_09_a_detached_cursor_closes_after_its_time() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    made.keeper.cursors[NAME].detach(made.attach)
    await asyncio.sleep(59)
    assert footer(world).state is FooterState.OPEN and NAME in made.keeper.cursors
    await asyncio.sleep(2)
    assert footer(world).state is FooterState.CLOSED and not made.keeper.cursors
    await assert_recovered(world, 1)


@virtual
async def test_a_handle_in_time_keeps_the_cursor() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    made.keeper.cursors[NAME].detach(made.attach)
    await asyncio.sleep(59)
    again = Source(made.keeper)
    await again.open(takeover=False)
    await asyncio.sleep(600)
    await confirmed(again, 2)
    assert again.machine.epoch == 1


@pytest.mark.slow
@virtual
async def test_thousands_of_idle_cursors_cost_no_task() -> None:
    world = World()
    keeper = await world.keeper()
    tasks = len(asyncio.all_tasks())
    recorders = [Recorder() for _ in range(3_000)]
    for number, told in enumerate(recorders):
        keeper.open(named(number), ev.Open(takeover=True), keeper.attach_id(), told)
    await until(lambda: all(r.machine is not None for r in recorders))
    await asyncio.sleep(1)
    assert len(keeper.cursors) == 3_000
    assert len(asyncio.all_tasks()) == tasks
    assert all(
        r.machine is not None and r.machine.timer_at_s is r.machine.append_at_s is None
        for r in recorders
    ), "nothing to wait for"
    assert not world.bookkeeper.ledgers, "and no ledger"


@virtual
async def test_the_daemons_window_is_shared() -> None:
    """Forty cursors, a window of six appends: all get their turn, never more are in flight."""
    world = World(keeper_limits=KeeperLimits(daemon_appends_in_flight_max=6))
    world.bookkeeper.faults.ack_delay_min_s = world.bookkeeper.faults.ack_delay_max_s = 0.01
    keeper = await world.keeper()
    sources = [Source(keeper, named(number)) for number in range(40)]
    for made in sources:
        await made.open()
    highest = 0
    for entry in range(5):
        for made in sources:
            made.ack(acks(DATA, entry))
            highest = max(highest, keeper.appends_in_flight)
        await asyncio.sleep(0.02)
        highest = max(highest, keeper.appends_in_flight)
    for made in sources:
        await made.durable()
    assert highest <= 6 + 1 and keeper.appends_in_flight == 0


# ---- services away


@virtual
async def test_bookkeeper_away_pauses_and_its_return_resumes() -> None:
    # nothing fits the footer: only BookKeeper helps
    world = World(limits=Limits(inline_state_max_bytes=0))
    made = await source(world)
    await confirmed(made, 1)
    world.bookkeeper.bookies_up = 0
    seq = made.ack(acks(DATA, 2))
    await made.told.until(lambda: bool(made.told.pauses), limit_s=3.0)
    assert "BookKeeper" in made.told.pauses[0]
    assert made.machine.state is State.NOT_PERSISTABLE
    await asyncio.sleep(100)
    assert made.told.durable < seq
    world.bookkeeper.bookies_up = 3
    await made.durable(seq)
    assert made.told.resumes == 1 and made.machine.state is State.READY
    made.keeper.abandon()
    await assert_recovered(world, 1, 2)


@virtual
async def test_decision_18_the_inline_backstop() -> None:
    """BookKeeper is away: after two seconds the whole state goes into the footer, then at most once
    a second.
    """
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    world.bookkeeper.bookies_up = 0
    started = asyncio.get_running_loop().time()
    seq = made.ack(acks(DATA, 2))
    await made.durable(seq)
    assert 2.0 <= asyncio.get_running_loop().time() - started < 2.5
    assert made.told.pauses and made.told.resumes == 1
    written = footer(world)
    assert isinstance(written.base, InlineBase) and written.chain == ()
    for entry in range(3, 9):
        seq = made.ack(acks(DATA, entry))
        await asyncio.sleep(0.4)
    await made.durable(seq, limit_s=5.0)
    assert made.machine.counters.inline_backstops <= 4
    # one more ack, in a ledger beside that base
    world.bookkeeper.bookies_up = 3
    await confirmed(made, 20)
    assert isinstance(footer(world).base, InlineBase) and len(footer(world).chain) == 1
    made.keeper.abandon()
    await assert_recovered(world, *range(1, 9), 20)


@virtual
async def test_zookeeper_away_holds_up_only_what_needs_a_footer() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    world.zookeeper.stop()
    await confirmed(made, 2)  # the ledger is named already
    assert not made.told.pauses
    world.bookkeeper.fence_behind(footer_chain(made)[-1])
    seq = made.ack(acks(DATA, 3))
    await made.told.until(lambda: bool(made.told.pauses), limit_s=4.0)
    await asyncio.sleep(20)
    assert made.told.durable < seq
    world.zookeeper.start()
    await made.durable(seq)
    assert made.told.resumes == 1
    made.keeper.abandon()
    await assert_recovered(world, 1, 2, 3)


def footer_chain(made: Source) -> list[int]:
    committed = made.machine.ownership.commit.committed
    assert committed is not None
    return [c.ledger for c in committed.chain]


@virtual
async def test_opening_waits_for_zookeeper() -> None:
    world = World()
    keeper = await world.keeper()
    world.zookeeper.stop()
    made = Source(keeper)
    opening = asyncio.get_running_loop().create_task(made.open())
    await asyncio.sleep(15)
    assert not opening.done() and "ZooKeeper" in keeper.cursors[NAME].machine.waiting_for
    world.zookeeper.start()
    await opening
    await confirmed(made, 1)


@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone(), Late(0.2), Late(3.0)], ids=str)
@pytest.mark.parametrize("which", range(4))
@virtual
async def test_any_footer_write_may_be_lost_or_late(fault: Any, which: int) -> None:
    """Create, name, reset, close: the n-th write of a life is lost, done or not, or comes late."""
    world = World()
    keeper = await world.keeper()
    session = keeper.footers._zk
    if which == 0:
        session.faults.next("create", fault, NAME.path())  # type: ignore[attr-defined]
    made = Source(keeper)
    await made.open()
    if which == 1:
        session.faults.next("set", fault)  # type: ignore[attr-defined]
    await confirmed(made, 1)
    if which == 2:
        session.faults.next("set", fault)  # type: ignore[attr-defined]
    made.seq += 1
    made.send(ev.Reset(made.attach, made.seq, 1, Position(DATA, -1)))
    await made.durable()
    await confirmed(made, 7)
    if which == 3:
        session.faults.next("set", fault)  # type: ignore[attr-defined]
    made.send_close()
    await made.told.until(lambda: made.told.ended == "closed")
    await asyncio.sleep(10)
    assert footer(world).generation == 2
    await assert_recovered(world, 7, absent=(1,))


@pytest.mark.parametrize(
    "operation",
    [Operation.CREATE, Operation.APPEND, Operation.FENCE, Operation.CLOSE, Operation.DELETE],
)
@pytest.mark.parametrize("how", ["refuse", "lose_before", "lose_after"])
@virtual
async def test_any_ledger_call_may_fail(operation: Operation, how: str) -> None:
    world = World(limits=Limits(ledger_bytes_max=200))
    made = await source(world)
    for entry in range(30):
        if entry % 5 == 0:
            getattr(world.bookkeeper.faults, how)(operation)
        await confirmed(made, 2 * entry)
    made.keeper.abandon()
    await assert_recovered(world, *range(0, 60, 2), absent=(1,))


@virtual
async def test_the_gateway_restarts() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    gateway = made.keeper.ledgers
    seq = made.ack(acks(DATA, 2))
    gateway.restart()  # type: ignore[attr-defined]
    await made.durable(seq)
    await confirmed(made, 3)
    gateway.break_stream()  # type: ignore[attr-defined]
    await confirmed(made, 4)
    made.keeper.abandon()
    await assert_recovered(world, 1, 2, 3, 4)


@virtual
async def test_auto_recovery_fences_the_ledger_of_a_healthy_owner() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    world.bookkeeper.faults.fence_next_append()
    await confirmed(made, 2)
    assert made.machine.epoch == 1 and len(footer(world).chain) == 2
    assert footer(world).chain[0].last_entry is not None
    await assert_recovered(world, 1, 2)


# ---- close, delete, reset, properties


@virtual
async def test_close_into_the_footer_and_open_again() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1, 5)
    seq = made.ack(acks(DATA, 7))
    made.send_close()
    await made.told.until(lambda: made.told.ended == "closed")
    assert made.told.durable == seq
    await made.keeper.wait_tasks(5.0)
    assert footer(world).state is FooterState.CLOSED and isinstance(footer(world).base, InlineBase)
    assert not world.bookkeeper.ledgers, "nothing is left in BookKeeper"
    await assert_recovered(world, 1, 5, 7, absent=(6,))


@virtual
async def test_a_state_that_does_not_fit_the_footer_is_closed_in_bookkeeper() -> None:
    world = World(limits=Limits(inline_state_max_bytes=100))
    made = await source(world)
    await confirmed(made, *range(0, 4_000, 3))
    seq = made.ack(acks(DATA, 1))
    made.send_close()
    await made.told.until(lambda: made.told.ended == "closed")
    assert made.told.durable == seq
    written = footer(world)
    assert written.state is FooterState.CLOSED and written.chain
    assert all(c.last_entry is not None for c in written.chain)
    assert all(
        world.bookkeeper.ledgers[c.ledger].state is LedgerState.CLOSED for c in written.chain
    )
    # the next owner fences nothing
    world.bookkeeper.faults.refuse(Operation.FENCE, times=1)
    await assert_recovered(world, *range(0, 4_000, 3), 1, absent=(2,))


@pytest.mark.parametrize(
    "writer", [None, PulsarStateWriter(WholeStateSettings())], ids=["native", "pulsar"]
)
@virtual
async def test_a_close_behind_a_message_that_changes_nothing_ends_at_once(
    writer: PulsarStateWriter | None,
) -> None:
    """The flush that finds nothing to write brings no answer that would go on with the close."""
    world = World(limits=Limits(inline_state_max_bytes=0), state_writer=writer)
    made = await source(world)
    await confirmed(made, 1)
    await asyncio.sleep(0.1)  # nothing is on its way any more
    made.ack(acks(DATA, 1))
    made.send_close()
    await made.told.until(lambda: made.told.ended == "closed", limit_s=1.0)
    assert made.told.durable == made.seq


@pytest.mark.parametrize("target", [-1, 3, 30])
@virtual
async def test_seek_back_and_forward(target: int) -> None:
    """Pending acks are dropped and decided; the new generation begins at the target."""
    world = World()
    made = await source(world, layout=(closed(DATA, 50), opened(20)))
    await confirmed(made, 0, 1, 2, 10)
    pending = made.ack(acks(DATA, 11))
    made.seq += 1
    made.send(ev.Reset(made.attach, made.seq, 1, Position(DATA, target)))
    made.ack(acks(DATA, 12))
    await made.durable()
    assert made.told.durable == made.seq > pending
    assert [(r.generation, r.mark_delete) for r in made.told.resets] == [
        (2, Position(DATA, target))
    ]
    assert made.machine.acks.mark_delete == Position(DATA, target)
    assert not made.machine.acks.is_acked(DATA, 31)
    await confirmed(made, 40)
    made.keeper.abandon()
    after = await source(world, "after")
    assert after.machine.acks.mark_delete == Position(DATA, target)
    assert [e for e in range(50) if after.machine.acks.is_acked(DATA, e)] == [
        *range(target + 1),
        40,
    ]
    assert [i.ledger for i in after.machine.acks.layout] == [DATA, 20]


@virtual
async def test_delete_and_create_again_on_the_tombstone() -> None:
    world = World()
    made = await source(world)
    await confirmed(made, 1)
    made.send(ev.Delete())
    await made.told.until(lambda: made.told.ended == "deleted")
    await made.keeper.wait_tasks(5.0)
    tombstone = footer(world)
    assert (
        tombstone.state is FooterState.DELETED
        and not tombstone.chain
        and not world.bookkeeper.ledgers
    )
    gone = Source(made.keeper)
    await gone.open(create=False)
    assert gone.told.refused is not None and gone.told.refused[0] == "NOT_FOUND"
    again = Source(made.keeper)
    await again.open()
    assert (
        again.machine.epoch == tombstone.epoch + 1
        and again.machine.generation == tombstone.generation
    )
    assert not again.machine.acks.is_acked(DATA, 1)
    again.keeper.abandon()
    await assert_recovered(world, absent=(1,))


@virtual
async def test_decision_25_delete_of_an_unopened_cursor() -> None:
    world = World()
    made = await source(world, "owner")
    await confirmed(made, 1)
    keeper = await world.keeper("deletes")
    told = Recorder()
    keeper.delete_unopened(NAME, told)
    await told.until(lambda: bool(told.ended))
    assert told.ended == "deleted"
    await keeper.wait_tasks(5.0)
    assert footer(world).state is FooterState.DELETED and not world.bookkeeper.ledgers
    await made.told.until(lambda: made.told.ended == "deposed", limit_s=2.0)
    # one that is not there
    told = Recorder()
    keeper.delete_unopened(named(7), told)
    await told.until(lambda: bool(told.ended))
    assert told.refused is not None and told.refused[0] == "NOT_FOUND"


@virtual
async def test_a_delete_that_an_open_handle_forbids() -> None:
    world = World()
    made = await source(world)
    refused = Recorder()
    made.keeper.delete_unopened(NAME, refused)
    await refused.until(lambda: bool(refused.ended))
    assert refused.refused is not None and refused.refused[0] == "ALREADY_OPEN"
    made.keeper.cursors[NAME].detach(made.attach)
    told = Recorder()
    made.keeper.delete_unopened(NAME, told)
    await told.until(lambda: told.ended == "deleted")


@pytest.mark.parametrize("end", ["crash", "close"])
@virtual
async def test_properties_survive(end: str) -> None:
    world = World()
    made = await source(world, cursor_properties={"created": "yes"})
    made.ack(acks(DATA, 1), properties={"horizon": 5})
    made.ack(acks(DATA, 2), properties={"horizon": 7, "other": -1})
    await made.durable()
    made.keeper.abandon()
    again = await source(world, "again")
    properties = again.machine.acks.cursor_properties
    assert properties is not None and properties.values == {"created": "yes"}
    again.seq += 1
    again.send(ev.SetProperties(again.attach, again.seq, 1, {"k": "v"}))
    await again.durable()
    if end == "close":
        again.send_close()
        await again.told.until(lambda: again.told.ended == "closed")
    again.keeper.abandon()
    last = await source(world, "last")
    assert last.machine.acks.mark_delete_properties is not None
    assert last.machine.acks.mark_delete_properties.values == {"horizon": 7, "other": -1}
    assert last.machine.acks.cursor_properties is not None
    assert last.machine.acks.cursor_properties.values == {"k": "v"}


# ---- ensembles


@virtual
async def test_a_missing_bookie_shrinks_the_ensemble_and_its_return_rolls_back() -> None:
    world = World()
    world.bookkeeper.bookies_up = 2
    made = await source(world)
    await confirmed(made, 1)
    [small] = footer_chain(made)
    assert world.bookkeeper.ledgers[small].spec.ensemble == 2
    world.bookkeeper.bookies_up = 3
    await asyncio.sleep(61)  # the slow poll
    await confirmed(made, 2)
    full = footer_chain(made)[-1]
    assert full != small and world.bookkeeper.ledgers[full].spec.ensemble == 3
    await asyncio.sleep(200)
    assert footer_chain(made)[-1] == full, "once"
    await assert_recovered(world, 1, 2)


@virtual
async def test_garbage_of_an_earlier_epoch_only() -> None:
    from cursorkeeper.runtime import gc

    world = World()
    made = await source(world)
    world.bookkeeper.faults.lose_after(Operation.CREATE)  # an orphan of the current epoch
    await confirmed(made, 1)
    assert len(world.bookkeeper.ledgers) == 2
    keeper: Keeper = made.keeper
    report = await gc.collect(keeper.ledgers, keeper.footers)
    assert (report.deleted, report.may_be_named) == (0, 1)
    keeper.abandon()
    after = await assert_recovered(world, 1)
    report = await gc.collect(after.keeper.ledgers, after.keeper.footers)
    assert report.deleted == 1
    await assert_recovered(world, 1)
