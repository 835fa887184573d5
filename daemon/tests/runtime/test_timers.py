"""One timer for many keys, in virtual time; and the beat of the machines' clock, which is one
however much is unanswered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.runtime.patience import BEAT_S, PatientClock
from cursorkeeper.runtime.timers import Timers
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.virtual_loop import VirtualLoop


class Key:
    """As cursors are: of equal ones none is less."""


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


@virtual
async def test_each_key_fires_once_when_its_last_time_has_come() -> None:
    fired: list[tuple[float, Key]] = []
    timers: Timers[Key] = Timers(lambda key: fired.append((loop().time(), key)))
    later, earlier, removed, same, again = (Key() for _ in range(5))
    for key, at in ((later, 1.0), (earlier, 9.0), (removed, 2.0), (same, 3.0), (again, 3.0)):
        timers.set(key, at)
    timers.set(later, 5.0)
    timers.set(earlier, 0.5)
    timers.set(removed, None)
    assert len(timers) == 4
    await asyncio.sleep(20)
    assert fired == [(0.5, earlier), (3.0, same), (3.0, again), (5.0, later)] and len(timers) == 0
    timers.set(again, 30.0)
    await asyncio.sleep(20)
    assert fired[4:] == [(30.0, again)]


@virtual
async def test_the_loop_has_one_timer_for_all_and_the_earliest_sets_it() -> None:
    timers: Timers[Key] = Timers(lambda _key: None)
    timers.set(Key(), 5.0)
    armed = timers._handle
    assert armed is not None
    for at in (5.0, 6.0):
        timers.set(Key(), at)
        assert timers._handle is armed
    timers.set(Key(), 4.0)
    assert armed.cancelled() and timers._handle is not None and timers._handle.when() == 4.0


@virtual
async def test_a_time_that_has_come_may_get_a_handle_that_does_not_say_when() -> None:
    """uvloop's loop answers so."""
    at_a_time = loop().call_at

    def call_at(when: float, callback: Callable[..., object], *args: Any, **how: Any) -> Any:
        if when <= loop().time():
            return loop().call_soon(callback, *args, **how)
        return at_a_time(when, callback, *args, **how)

    loop().call_at = call_at  # type: ignore[assignment]
    fired: list[Key] = []
    timers: Timers[Key] = Timers(fired.append)
    first, second = Key(), Key()
    timers.set(first, 0.0)
    timers.set(second, -1.0)
    await asyncio.sleep(0.1)
    assert fired == [second, first]


@virtual
async def test_a_time_that_is_moved_ever_later_waits_once() -> None:
    fired, key, others = list[tuple[float, Key]](), Key(), [Key() for _ in range(3)]
    timers: Timers[Key] = Timers(lambda key: fired.append((loop().time(), key)))
    for number, other in enumerate(others):
        timers.set(other, 3.0 - number)
    for number in range(1_000):
        timers.set(key, 10.0 + number)
        assert len(timers._heap) == 4
        if number % 2:
            timers.set(key, None)
            timers.set(key, 10.0 + number)
    turns = loop().turns
    await asyncio.sleep(900)
    assert fired == [(1.0, others[2]), (2.0, others[1]), (3.0, others[0])]
    assert loop().turns - turns < 20
    await asyncio.sleep(200)
    assert fired[3:] == [(1_009.0, key)] and not timers._heap


@virtual
async def test_a_time_that_is_moved_ever_earlier_is_forgotten_now_and_then() -> None:
    fired, key, others = list[Key](), Key(), [Key() for _ in range(3)]
    timers: Timers[Key] = Timers(fired.append)
    for other in others:
        timers.set(other, 2_000.0)
    sizes = set[int]()
    for number in range(1_000):
        timers.set(key, 1_999.0 - number)
        sizes.add(len(timers._heap))
    assert max(sizes) == 64 + 4 * len(timers)
    await asyncio.sleep(1_999)
    assert fired == [key]
    await asyncio.sleep(2)
    assert fired[1:] == others


@virtual
async def test_a_time_that_comes_back_is_in_the_heap_once() -> None:
    fired, keys = list[Key](), [Key() for _ in range(20)]
    timers: Timers[Key] = Timers(fired.append)
    for round_ in range(20):
        for key in keys:
            timers.set(key, 1_000.0)
            timers.set(key, round_ + 0.5)
        await asyncio.sleep(1)
        for key in keys:
            timers.set(key, 1_000.0)
        assert len(timers._heap) <= 64 + 4 * len(timers)
    timers._tidy()
    assert len(timers._heap) == len(keys)
    await asyncio.sleep(1_000)
    assert fired == 20 * keys + keys


@virtual
async def test_what_was_removed_is_not_kept_for_long() -> None:
    timers: Timers[Key] = Timers(lambda _key: None)
    for number in range(1_000):
        key = Key()
        timers.set(key, 1_000.0 - number)
        timers.set(key, None)
        assert len(timers._queued) <= len(timers._heap) <= 64 + 4
    timers.set(key, 500.0)
    await asyncio.sleep(1_001)
    assert len(timers) == len(timers._heap) == len(timers._queued) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 12)), max_size=40))
def test_a_key_fires_at_the_time_that_was_set_last(steps: list[tuple[int, int | None]]) -> None:
    """A step a second: a key gets a time of so many seconds from now, or none."""
    expected, due = set[tuple[int, float]](), dict[int, float]()
    for now, (key, after) in enumerate(steps):
        expected |= {(k, at) for k, at in due.items() if at <= now}
        due = {k: at for k, at in due.items() if at > now}
        due.pop(key, None)
        if after is not None:
            due[key] = now + 0.5 + after
    expected |= set(due.items())

    @virtual
    async def seen() -> None:
        fired = list[tuple[int, float]]()
        timers: Timers[int] = Timers(lambda key: fired.append((key, loop().time())))
        for now, (key, after) in enumerate(steps):
            timers.set(key, None if after is None else now + 0.5 + after)
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        assert sorted(fired) == sorted(expected)

    seen()


@virtual
async def test_after_a_close_nothing_fires() -> None:
    fired, key = list[Key](), Key()
    timers: Timers[Key] = Timers(fired.append)
    timers.close()
    timers.set(Key(), 1.0)
    armed = timers._handle
    timers.close()
    assert len(timers) == len(timers._heap) == len(timers._queued) == 0
    assert armed is not None and armed.cancelled()
    await asyncio.sleep(5)
    timers.set(key, 6.0)
    await asyncio.sleep(5)
    assert fired == [key]


@virtual
async def test_a_clock_has_one_beat_and_none_when_nothing_is_unanswered() -> None:
    clock = PatientClock()
    for _ in range(50):
        clock.watch()
        await asyncio.sleep(0.001)
    turns = loop().turns
    await asyncio.sleep(10)
    assert loop().turns - turns < 2 * 10 / BEAT_S
    for _ in range(50):
        clock.rest()
    turns = loop().turns
    await asyncio.sleep(10)
    assert loop().turns - turns < 10
    clock.watch()
    clock.close()
    turns = loop().turns
    await asyncio.sleep(10)
    assert loop().turns - turns < 10, "a clock that was closed beats no more"
    clock.close()
