"""The pause between two messages of a stream."""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper_client.gap import Gap

HOURS_MS = 1e7


async def test_the_first_message_leaves_at_once_and_the_next_one_waits() -> None:
    gap = Gap(HOURS_MS)
    await gap.wait()
    await gap.wait()
    gap.sent()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gap.wait(), 0.01)


async def test_after_the_pause_it_leaves_at_once() -> None:
    gap = Gap(0)
    gap.sent()
    await asyncio.wait_for(gap.wait(), 60)


async def test_who_waits_long_for_answers_gathers_longer_and_not_without_end() -> None:
    gap = Gap(HOURS_MS)
    for _ in range(100):
        gap.answered(3600)
    assert gap.pause_s == HOURS_MS / 1000
    for _ in range(100):
        gap.answered(1_000_000)
    assert gap.pause_s == 3 * HOURS_MS / 1000
    for _ in range(100):
        gap.answered(0)
    assert gap.pause_s == HOURS_MS / 1000


async def test_without_a_pause_there_is_none_however_long_answers_take() -> None:
    gap = Gap(0)
    gap.answered(3600)
    gap.sent()
    await asyncio.wait_for(gap.wait(), 60)
