"""What comes with an open is checked before anything is written, and what goes wrong on the way is
answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from daemon.tests.fakes.bookkeeper.faults import Fault
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.faults import Meanwhile
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Recorder, Source, World, acks, closed, opened, partial

BAD_OPENS: dict[str, tuple[dict[str, Any], Refusal]] = {
    "a layout that does not ascend": (
        {"layout": (closed(9, 10), closed(5, 10))},
        Refusal.LAYOUT_CONTRADICTS,
    ),
    "an open ledger in the middle": (
        {"layout": (opened(5), closed(9, 10))},
        Refusal.LAYOUT_CONTRADICTS,
    ),
    "a start before -1": ({"start": Position(5, -2)}, Refusal.POSITION_OUT_OF_RANGE),
    "a start in ledger 2^64 - 1": (
        {"start": Position((1 << 64) - 1, 3)},
        Refusal.POSITION_OUT_OF_RANGE,
    ),
    "a start at entry 2^33": ({"start": Position(5, 1 << 33)}, Refusal.POSITION_OUT_OF_RANGE),
    "a start beyond its ledger": (
        {"start": Position(5, 10), "layout": (closed(5, 10),)},
        Refusal.POSITION_OUT_OF_RANGE,
    ),
    "a start between two ledgers": (
        {"start": Position(7, 0), "layout": (closed(5, 10), closed(9, 10))},
        Refusal.POSITION_OUT_OF_RANGE,
    ),
    "properties that no footer holds": (
        {"cursor_properties": {"k": "v" * 20_000}},
        Refusal.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("case", BAD_OPENS)
@virtual
async def test_a_bad_open_leaves_nothing_behind(case: str) -> None:
    request, code = BAD_OPENS[case]
    world = World()
    made = Source(await world.keeper())
    with pytest.raises(RefusedError) as caught:
        await made.open(**request)
    assert caught.value.code is code
    assert caught.value.remedy
    [stored] = await world.keepers[0].footers.read_stored([NAME])
    assert stored.footer is None, "no cursor was created"
    await made.open()
    assert made.machine.state is State.READY


@pytest.mark.parametrize("sizes", [(10, 0), (0, 10)])
@pytest.mark.parametrize("flushed", [True, False])
@virtual
async def test_an_ack_set_that_contradicts_a_known_size_acks_nothing(
    sizes: tuple[int, int], flushed: bool
) -> None:
    """Joined with what is missing already, index 70 of a batch of 10 would leave nothing missing: a
    phantom ack.
    """
    world = World()
    made = Source(await world.keeper())
    await made.open()
    missing = {10: {1, 2}, 0: {70}}
    made.ack(partial(1, 0, sizes[0], missing[sizes[0]]))
    if flushed:
        await made.durable()
    made.ack(partial(1, 0, sizes[1], missing[sizes[1]]))
    await made.told.until(lambda: bool(made.told.ended))
    assert made.told.refused is not None
    assert made.told.refused[0] == "BATCH_CONTRADICTS"
    assert not made.machine.acks.is_acked(1, 0)


@virtual
async def test_a_ledger_that_takes_nothing_is_not_replaced_in_a_hot_loop() -> None:
    world = World(limits=Limits(inline_state_max_bytes=0))
    made = Source(await world.keeper())
    await made.open()
    world.bookkeeper.faults.chance[(Operation.APPEND, Fault.REFUSE)] = 1.0
    made.ack(acks(1, 1, 2, 3))
    await asyncio.sleep(30)
    assert world.bookkeeper._next_ledger < 60, f"{world.bookkeeper._next_ledger} ledgers in 30 s"
    world.bookkeeper.faults.clear()
    world.bookkeeper.faults.chance.clear()
    await made.durable()


@virtual
async def test_a_bug_in_a_task_is_answered_and_harms_no_neighbour() -> None:
    world = World()
    keeper = await world.keeper()
    neighbour = Source(keeper, type(NAME)("persistent://t/ns/other", "sub"))
    await neighbour.open()

    async def broken() -> None:
        raise ValueError("a defect")

    world.zookeeper.faults.next("create", Meanwhile(broken), NAME.path())
    made = Source(keeper)
    told = await made.open()
    assert told.refused is not None
    assert told.refused[0] == "UNAVAILABLE"
    assert NAME not in keeper.cursors
    neighbour.ack(acks(1, 1))
    await neighbour.durable()
    assert len(keeper.failures) == 1


@virtual
async def test_a_second_source_may_allow_more_while_the_claim_is_under_way() -> None:
    world = World()
    keeper = await world.keeper()
    first, second = Source(keeper), Source(keeper)
    keeper.open(NAME, ev.Open(create=False), first.attach, first.told)
    await second.open(create=True, takeover=True)
    assert second.machine.state is State.READY
    assert first.told.ended == "deposed"


@virtual
async def test_a_cursor_with_a_lost_ledger_can_be_deleted() -> None:
    world = World(limits=Limits(inline_state_max_bytes=0))
    made = Source(await world.keeper())
    await made.open()
    made.ack(acks(1, 1))
    await made.durable()
    made.keeper.abandon()
    for ledger in list(world.bookkeeper.ledgers):
        world.bookkeeper.lose_ledger(ledger)
    keeper, told = await world.keeper("deletes"), Recorder()
    keeper.delete_unopened(NAME, told)
    await until(lambda: bool(told.ended))
    assert told.ended == "deleted"


@virtual
async def test_ledgers_that_were_trimmed_while_nobody_listened() -> None:
    """The new run does not touch the known ledgers: mark-delete says that nothing between them is
    missing.
    """
    world = World()
    made = Source(await world.keeper())
    await made.open(layout=(closed(1, 10), closed(2, 10)))
    made.ack(mark_delete=Position(7, -1))
    await made.durable()
    made.seq += 1
    made.send(ev.SetLayout(made.attach, made.seq, 1, (closed(7, 5), opened(8))))
    made.ack(acks(8, 3))
    await made.durable()
    assert made.machine.acks.mark_delete == Position(7, -1)


@virtual
async def test_a_seek_below_the_known_layout_forgets_it() -> None:
    world = World()
    made = Source(await world.keeper())
    await made.open(layout=(closed(5, 10), opened(9)))
    made.seq += 1
    made.send(ev.Reset(made.attach, made.seq, 1, Position(1, 4)))
    await made.durable()
    made.ack(acks(2, 1))
    await made.durable()
    assert made.machine.acks.is_acked(2, 1)
    assert not made.machine.acks.is_acked(2, 0)
