"""Where there is little to do, an ack is appended at once; where there is more, the interval is the
longest wait, and records are not smaller than they need be.
"""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.intake import AT_ONCE_MAX, AT_ONCE_PER_S, Spare
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.machine_bench import DATA
from daemon.tests.support.world import Source, World, acks

APPEND_S, INTERVAL_S = 0.004, 0.1


def now() -> float:
    return asyncio.get_running_loop().time()


async def with_ledgers(count: int) -> list[Source]:
    """Sources of one daemon, each with a named ledger, at rest; an append takes `APPEND_S`."""
    world = World(limits=Limits(flush_interval_ms=round(INTERVAL_S * 1000)))
    keeper = await world.keeper()
    made = [
        Source(keeper, CursorName("persistent://t/ns/a", f"s{number}")) for number in range(count)
    ]
    for one in made:
        await one.open()
        one.ack(acks(DATA, 0))
        await one.durable()
    world.bookkeeper.faults.ack_delay_min_s = world.bookkeeper.faults.ack_delay_max_s = APPEND_S
    await asyncio.sleep(1)
    return made


async def waits_s(one: Source, entry: int) -> float:
    """From an ack to its confirmation."""
    began = now()
    one.ack(acks(DATA, entry))
    await one.durable()
    return now() - began


@virtual
async def test_an_ack_with_nothing_in_flight_costs_one_append() -> None:
    [one] = await with_ledgers(1)
    assert [await waits_s(one, entry) for entry in range(1, 50)] == pytest.approx(
        [APPEND_S] * 49, abs=0.001
    )


@virtual
async def test_an_ack_that_comes_while_one_is_in_flight_waits_for_that_one() -> None:
    one, two = await with_ledgers(2)
    first = asyncio.ensure_future(waits_s(one, 1))
    await asyncio.sleep(0.001)
    second = await waits_s(two, 1)
    assert await first == pytest.approx(APPEND_S, abs=0.001)
    assert second == pytest.approx(2 * APPEND_S - 0.001, abs=0.001)


@virtual
async def test_what_comes_meanwhile_becomes_one_record() -> None:
    [one] = await with_ledgers(1)
    before = one.machine.counters.flushes
    for entry in range(1, 8):
        one.ack(acks(DATA, entry))
        await asyncio.sleep(APPEND_S / 10)
    await one.durable()
    assert one.machine.counters.flushes - before == 2


@virtual
async def test_more_cursors_than_a_few_wait_for_their_interval() -> None:
    made = await with_ledgers(AT_ONCE_MAX + 2)
    first, *others = made
    first.ack(acks(DATA, 1))
    await asyncio.sleep(0.001)
    waits = await asyncio.gather(*(waits_s(one, 1) for one in others))
    assert waits == pytest.approx([INTERVAL_S + APPEND_S] * len(others), abs=0.003)


def test_no_more_leave_at_once_than_so_many_a_second() -> None:
    """Where appends are answered in no time, the daemon's own time is what they cost."""
    spare, count = Spare(), 0
    for step in range(100_000):
        if spare.has(1, step / 100_000):
            spare.used(1, step / 100_000)
            count += 1
    assert count == pytest.approx(AT_ONCE_PER_S, abs=AT_ONCE_MAX + 1)
    assert (
        not spare.has(2, 1.0)
        and spare.has(AT_ONCE_MAX, 2.0)
        and not spare.has(AT_ONCE_MAX + 1, 2.0)
    )
