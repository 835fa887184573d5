"""Work that should never end begins again when it does, with growing pauses, and says each time
what ended it.
"""

from __future__ import annotations

import asyncio

from cursorkeeper.bookkeeper.port import GatewayInfo
from cursorkeeper.runtime.supervised import PAUSE_MAX_S, PAUSE_MIN_S, supervised
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import SilentTelemetry, Source, World


class Work:
    """Ends as told: after so many seconds, by an exception or by returning; at the end it goes
    on.
    """

    def __init__(self, *ends: tuple[float, Exception | None]) -> None:
        self.ends, self.began_s = list(ends), list[float]()

    async def __call__(self) -> None:
        self.began_s.append(asyncio.get_running_loop().time())
        if not self.ends:
            await asyncio.Event().wait()
        after_s, error = self.ends.pop(0)
        await asyncio.sleep(after_s)
        if error is not None:
            raise error


@virtual
async def test_it_begins_again_with_growing_pauses_and_tells_why() -> None:
    wrong = KeyError("x")
    work = Work(*[(0.0, wrong)] * 9, (2 * PAUSE_MAX_S, None))
    told: list[tuple[str, Exception | None]] = []
    task = asyncio.create_task(
        supervised("w", work, lambda what, error: told.append((what, error)))
    )
    await asyncio.sleep(1_000)
    assert told == [("w", wrong)] * 9 + [("w", None)] and not task.done()
    pauses = [b - a for a, b in zip(work.began_s, work.began_s[1:], strict=False)]
    assert (
        pauses[:3] == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]
        and max(pauses[:9]) == PAUSE_MAX_S
    )
    assert pauses[9] == 2 * PAUSE_MAX_S + PAUSE_MIN_S, "it had worked well for long"
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


@virtual
async def test_the_poll_of_footers_goes_on_after_a_bug_and_the_daemon_says_so() -> None:
    """Without it an owner that was deposed, and whose watch was lost, never learns it."""
    telemetry, world, broken = SilentTelemetry(), World(), ValueError("unforeseen")
    world.zookeeper.faults.watch_drop_probability = 1.0
    first = Source(await world.keeper("first", telemetry))
    await first.open()

    async def surprise() -> GatewayInfo:
        raise broken

    runner, gateway = first.keeper.cursors[first.name], first.keeper.ledgers
    runner.shrunk_ledger, gateway.describe = True, surprise  # type: ignore[method-assign]
    await until(
        lambda: any(event.startswith("bug: a task ended") for event, _ in telemetry.events), 200
    )
    (fields,) = (fields for event, fields in telemetry.events if event.startswith("bug"))
    assert (
        fields["task"] == "the poll of footers"
        and fields["exc_info"] is broken
        and first.keeper.failures == [broken]
    )
    runner.shrunk_ledger = False
    await Source(await world.keeper("other")).open()
    await first.told.until(lambda: first.told.ended == "deposed", limit_s=200)
