"""Keepers that write whole states, on fakes that misbehave: every call may fail, formats switch,
daemons come and go.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import EmptyBase, PulsarBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.format.pulsar.values import Compression
from cursorkeeper.runtime.gc import collect
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.faults import Late, UnknownDone, UnknownNotDone
from daemon.tests.runtime.test_keeper import DATA, assert_recovered, confirmed, footer, source
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.whole import writer
from daemon.tests.support.world import NAME, Source, World, acks, opened, partial

FAR = 4_000
FAST = Limits(whole_state_interval_ms=5)


def whole_world(limits: Limits = FAST, **settings: Any) -> World:
    return World(limits=limits, state_writer=writer(**settings))


@pytest.mark.parametrize("compression", list(Compression))
@virtual
async def test_open_ack_crash_open(compression: Compression) -> None:
    world = whole_world(compression=compression)
    made = await source(world)
    await confirmed(made, 1, 2, FAR)
    [ledger] = footer(world).chain
    metadata = world.bookkeeper.ledgers[ledger.ledger].custom_metadata
    assert (metadata["application"], metadata["format"], metadata["entry-bytes-max"]) == (
        b"cursorkeeper",
        b"pulsar",
        b"64",
    )
    assert metadata.get("pulsar/cursor-compressionType") == (
        None if compression is Compression.NONE else compression.name.encode()
    )
    made.keeper.abandon()
    await assert_recovered(world, 1, 2, FAR, absent=(3,))


@virtual
async def test_metadata_that_nobody_gives_is_waited_for_and_the_operator_sees_it() -> None:
    world = whole_world()
    made = await source(world)
    await confirmed(made, 1)
    made.keeper.abandon()
    world.bookkeeper.faults.refuse(Operation.METADATA, times=5)
    slow = Source(await world.keeper("next"))
    opening = asyncio.get_running_loop().create_task(slow.open())
    await until(
        lambda: (
            NAME in slow.keeper.cursors
            and "metadata of ledger" in slow.keeper.cursors[NAME].machine.waiting_for
        )
    )
    await opening
    assert slow.machine.acks.is_acked(DATA, 1)


@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone(), Late(0.2), Late(3.0)], ids=str)
@pytest.mark.parametrize("which", range(5))
@virtual
async def test_any_footer_write_may_be_lost_or_late(fault: Any, which: int) -> None:
    """Create, name, note, reset, close."""
    world = whole_world()
    keeper = await world.keeper()
    session: Any = keeper.footers._zk
    if which == 0:
        session.faults.next("create", fault, NAME.path())
    made = Source(keeper)
    await made.open()
    if which == 1:
        session.faults.next("set", fault)
    await confirmed(made, 1, FAR)
    if which == 2:
        session.faults.next("set", fault)
    made.seq += 1
    made.send(ev.SetProperties(made.attach, made.seq, 1, {"a": "b"}))
    await made.durable()
    noted = footer(world).cursor_properties
    assert noted is not None and noted.values == {"a": "b"}, "confirmed means committed"
    if which == 3:
        session.faults.next("set", fault)
    made.seq += 1
    made.send(ev.Reset(made.attach, made.seq, 1, Position(DATA, -1)))
    await made.durable()
    await confirmed(made, 7)
    if which == 4:
        session.faults.next("set", fault)
    made.send_close()
    await made.told.until(lambda: made.told.ended == "closed")
    await asyncio.sleep(10)
    assert footer(world).generation == 2
    last = await assert_recovered(world, 7, absent=(1,))
    properties = last.machine.acks.cursor_properties
    assert properties is not None and properties.values == {"a": "b"}


@pytest.mark.parametrize(
    "operation",
    [Operation.CREATE, Operation.APPEND, Operation.FENCE, Operation.CLOSE, Operation.DELETE],
)
@pytest.mark.parametrize("how", ["refuse", "lose_before", "lose_after"])
@virtual
async def test_any_ledger_call_may_fail(operation: Operation, how: str) -> None:
    world = whole_world(Limits(ledger_bytes_max=2_000, whole_state_interval_ms=1))
    made = await source(world)
    for entry in range(30):
        if entry % 5 == 0:
            getattr(world.bookkeeper.faults, how)(operation)
        await confirmed(made, 2 * entry, FAR)
    assert len(footer(world).chain) == 1
    made.keeper.abandon()
    await assert_recovered(world, *range(0, 60, 2), absent=(1,))


@virtual
async def test_a_read_that_fails_for_a_while_is_waited_for_and_metadata_too() -> None:
    world = whole_world()
    made = await source(world)
    await confirmed(made, 1, FAR)
    made.keeper.abandon()
    for _ in range(3):
        world.bookkeeper.faults.refuse(Operation.READ)
    await assert_recovered(world, 1, FAR)


@virtual
async def test_a_spoilt_copy_of_the_newest_state_refuses_the_cursor() -> None:
    world = whole_world()
    made = await source(world)
    await confirmed(made, 1, FAR)
    await confirmed(made, 2)
    [item] = footer(world).chain
    last = len(world.bookkeeper.ledgers[item.ledger].entries) - 1
    made.keeper.abandon()
    for how in (Damage.DIGEST, Damage.FLIP, Damage.TRUNCATE):
        world.bookkeeper.damage(item.ledger, last - 1, how)
        refused = await source(world, f"after {how}")
        assert refused.told.refused is not None and refused.told.refused[0] == "DAMAGED", how
        assert str(item.ledger) in refused.told.refused[1]


@virtual
async def test_bookkeeper_away_a_small_state_goes_into_the_footer_as_pulsars_message() -> None:
    world = whole_world(Limits(whole_state_interval_ms=1_000))
    made = await source(world)
    await confirmed(made, 1)
    world.bookkeeper.bookies_up = 0
    started = asyncio.get_running_loop().time()
    seq = made.ack(acks(DATA, 5), partial(DATA, 7, 4, {2}))
    await made.durable(seq)
    assert 3.0 <= asyncio.get_running_loop().time() - started < 3.6, (
        "the rhythm of the mode is no outage"
    )
    assert isinstance(footer(world).base, PulsarBase) and footer(world).chain == ()
    world.bookkeeper.bookies_up = 3
    await confirmed(made, 20)
    assert isinstance(footer(world).base, EmptyBase) and len(footer(world).chain) == 1
    made.keeper.abandon()
    last = await assert_recovered(world, 1, 5, 20)
    assert last.machine.acks.partial(DATA, 7) is not None


@virtual
async def test_a_slow_rhythm_pauses_nobody() -> None:
    world = whole_world(Limits(whole_state_interval_ms=30_000))
    made = await source(world)
    await confirmed(made, 1)
    began = asyncio.get_running_loop().time()
    seq = made.ack(acks(DATA, 2))
    await made.durable(seq, limit_s=60)
    assert asyncio.get_running_loop().time() - began > 25 and not made.told.pauses


@virtual
async def test_formats_switch_with_every_owner_and_nothing_is_lost() -> None:
    world = whole_world()
    whole = world.state_writer
    sent: list[int] = []
    for turn in range(8):
        world.state_writer = whole if turn % 2 == 0 else None
        made = await source(world, f"turn {turn}", layout=(opened(DATA),))
        for entry in sent:
            assert made.machine.acks.is_acked(DATA, entry), (turn, entry)
        fresh = [10 * turn + 1, 10 * turn + 5, FAR + turn]
        await confirmed(made, *fresh)
        sent += fresh
        if turn % 3 == 2:
            await asyncio.sleep(5)  # long enough for both snapshots
        if turn % 3 == 1:
            made.send_close()
            await made.told.until(lambda made=made: made.told.ended == "closed")  # type: ignore[misc]
        else:
            made.keeper.abandon()
    await assert_recovered(world, *sent, absent=(2,))
    report = await collect(world.keepers[-1].ledgers, world.keepers[-1].footers)
    assert report.unknown == 0


@virtual
async def test_at_a_limit_the_daemon_closes_in_time_and_the_next_one_goes_on() -> None:
    world = whole_world(ranges_max=1)
    made = await source(world)
    await confirmed(made, 1)
    made.ack(acks(DATA, 5))
    await made.told.until(lambda: bool(made.told.pauses))
    assert made.machine.state is State.NOT_PERSISTABLE
    began = asyncio.get_running_loop().time()
    assert await made.keeper.close() == []
    assert (
        asyncio.get_running_loop().time() - began < 5
        and made.told.durable == 1
        and made.told.ended == "closed"
    )
    world.state_writer = writer()
    await assert_recovered(world, 1, absent=(5,))
