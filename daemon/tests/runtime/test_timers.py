"""One timer for many keys, in virtual time; and the beat of the machines' clock, which is one
however much is unanswered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

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
async def test_a_time_that_is_moved_ever_again_is_forgotten_now_and_then() -> None:
    fired, key, others = list[Key](), Key(), [Key() for _ in range(3)]
    timers: Timers[Key] = Timers(fired.append)
    for number, other in enumerate(others):
        timers.set(other, 3.0 - number)
    sizes = set[int]()
    for number in range(1_000):
        timers.set(key, 10.0 + number)
        timers.set(key, 10.0 + number)
        sizes.add(len(timers._heap))
    assert max(sizes) == 64 + 4 * len(timers)
    await asyncio.sleep(900)
    assert fired == others[::-1]
    await asyncio.sleep(200)
    assert fired[3:] == [key]


@virtual
async def test_after_a_close_nothing_fires() -> None:
    fired, key = list[Key](), Key()
    timers: Timers[Key] = Timers(fired.append)
    timers.close()
    timers.set(Key(), 1.0)
    armed = timers._handle
    timers.close()
    assert len(timers) == len(timers._heap) == 0 and armed is not None and armed.cancelled()
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
