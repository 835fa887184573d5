"""Serves the end of a daemon: every cursor of it is closed, in the order that loses least time.

It is no machine code, as the modules beside it are: at the end of its `async with` an exception may
be handled while others run (CONTRIBUTING, source and machine code).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from cursorkeeper.core import events as ev
from cursorkeeper.core.table import OPENING
from cursorkeeper.runtime.runner import CursorRunner

TOLD_AT_ONCE = 32
"""Cursors that are told before the loop looks at everything else."""


async def close_all(runners: Sequence[CursorRunner], at_once_max: int, ends_s: float) -> None:
    """Until all have ended, or the loop's clock says `ends_s`. Claims that were not sent are given
    up first. Of the others, those with acks that are not durable go first; one that is being opened
    closes when it is open, and keeps nobody else from closing meanwhile.
    """
    live = [runner for runner in runners if runner.machine.state not in OPENING]
    opening = [runner for runner in runners if runner.machine.state in OPENING]
    places = asyncio.Semaphore(at_once_max)

    async def close(runner: CursorRunner) -> None:
        async with places:
            runner.dispatch(ev.Close())
            await runner.wait_ended()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(ends_s):
            for number, runner in enumerate(opening):
                runner.dispatch(ev.Close())
                if number % TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)
            live.sort(key=lambda runner: runner.machine.progress.is_clear)
            async with asyncio.TaskGroup() as closing:
                for runner in live:
                    closing.create_task(close(runner))
                    await asyncio.sleep(0)  # what one cursor writes leaves before the next one's
                for runner in opening:
                    closing.create_task(runner.wait_ended())
