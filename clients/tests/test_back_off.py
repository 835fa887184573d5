"""The pauses of one wait: how they grow, how they spread, and when it is enough."""

from __future__ import annotations

import asyncio
import random

from cursorkeeper_client.back_off import BackOff
from daemon.tests.runtime.virtual import virtual


def test_back_off_doubles_to_its_most_and_spreads() -> None:
    back_off = BackOff(0.05, 1.0, random.Random(3))
    for _ in range(2):
        pauses = [back_off.next_s() for _ in range(20)]
        for step, pause in zip([0.05, 0.1, 0.2, 0.4, 0.8] + [1.0] * 15, pauses, strict=True):
            assert step / 2 <= pause <= step
        assert len({round(pause, 6) for pause in pauses}) == 20
        back_off.reset()


@virtual
async def test_the_limit_counts_from_the_first_failure_and_one_more_try_follows_it() -> None:
    back_off = BackOff(0.5, 2.0, limit_s=5.0)
    await asyncio.sleep(100.0)
    for _ in range(2):
        for _ in range(3):
            assert not back_off.is_over()
            await asyncio.sleep(back_off.next_s())
        assert back_off.is_over(), "after 3.5 s, one more pause would end after 5 s"
        back_off.reset()
    hasty = BackOff(0.5, 2.0, limit_s=0.0)
    assert not hasty.is_over()
    await asyncio.sleep(hasty.next_s())
    assert hasty.is_over()


@virtual
async def test_without_a_limit_it_is_never_over() -> None:
    back_off = BackOff(0.5, 2.0)
    for _ in range(100):
        assert not back_off.is_over()
        await asyncio.sleep(back_off.next_s())
