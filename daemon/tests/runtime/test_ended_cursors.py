"""The state of a cursor that has ended goes without the collector of cycles: a daemon lets that
look seldom, and states are large.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from cursorkeeper.core.state import AckState
from cursorkeeper.runtime.runner import CursorRunner
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, World, acks

LOOKED_AT_S = 120.0
"""Timers and the slow poll have dropped what ended before that."""


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def alive(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


@virtual
async def test_a_cursor_that_has_ended_is_not_kept() -> None:
    keeper = await World().keeper()
    for entry in range(20):
        made = Source(keeper)
        await made.open()
        made.ack(acks(7, entry))
        await made.durable()
        assert alive(CursorRunner) and alive(AckState)
        made.send_close()
        await made.told.until(lambda made=made: bool(made.told.ended))
        del made
    await asyncio.sleep(LOOKED_AT_S)
    assert (alive(CursorRunner), alive(AckState)) == (0, 0)
