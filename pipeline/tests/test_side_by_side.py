"""Many at once: everything comes, never more than allowed is worked on, an error or an early end
stops all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cursorkeeper.core.errors import DamageError
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.terminal.failure import NO, exit_code
from cursorkeeper_pipeline.failures import telling
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.side_by_side import side_by_side
from cursorkeeper_pipeline.source.systems import Systems


class Work:
    """Three results for each thing; remembers how many were under way."""

    def __init__(self, fails_at: int = -1) -> None:
        self.now = self.most = self.started = 0
        self.fails_at = fails_at

    async def things(self, count: int) -> AsyncIterator[int]:
        for at in range(count):
            yield at

    async def __call__(self, thing: int) -> AsyncIterator[tuple[int, int]]:
        self.now, self.started = self.now + 1, self.started + 1
        self.most = max(self.most, self.now)
        try:
            for at in range(3):
                await asyncio.sleep(0)
                if thing == self.fails_at:
                    raise ValueError(f"thing {thing}")
                yield thing, at
        finally:
            self.now -= 1


async def test_everything_comes_and_the_bound_holds() -> None:
    work = Work()
    found = [result async for result in side_by_side(work.things(100), work, 4)]
    assert sorted(found) == [(thing, at) for thing in range(100) for at in range(3)]
    assert work.most == 4 and work.now == 0
    assert [result async for result in side_by_side(work.things(0), work, 4)] == []


async def test_an_error_ends_it() -> None:
    work = Work(fails_at=10)
    with pytest.raises(ValueError, match="thing 10"):
        async for _ in side_by_side(work.things(100), work, 4):
            pass
    assert work.started < 20


async def test_who_takes_nothing_stops_it() -> None:
    work = Work()
    results = side_by_side(work.things(1000), work, 4)
    await anext(results)
    for _ in range(100):
        await asyncio.sleep(0)
    assert work.started < 12  # what waits to be taken is bounded
    await results.aclose()
    await asyncio.sleep(0)
    assert work.now == 0


def test_a_request_is_not_late_because_its_caller_stood_still() -> None:
    """Spark takes ten minutes for a batch while a request with a limit of ten seconds is under
    way.
    """
    now = [1000.0]
    answered: asyncio.Queue[str] = asyncio.Queue()

    async def request() -> str:
        async with asyncio.timeout(10):
            return await answered.get()

    async def things() -> AsyncIterator[str]:
        under_way = asyncio.create_task(request())
        await asyncio.sleep(0)
        yield "a batch"
        answered.put_nowait("the answer")
        yield await under_way
        under_way = asyncio.create_task(request())
        await asyncio.sleep(0)
        now[0] += 11
        with pytest.raises(TimeoutError):
            await under_way
        yield "late"

    with Systems(Options.parse({"zookeeper": "z:1"}), clock=lambda: now[0]) as systems:
        got = []
        for thing in systems.iterate(things()):
            got.append(thing)
            now[0] += 600
    assert got == ["a batch", "the answer", "late"]


def test_errors_carry_their_remedy_in_their_text() -> None:
    with pytest.raises(ProblemError, match=r"^c: p: m\. What to do: r$") as told, telling():
        raise MigrationError(Kind.AWAY, "c", "p", "m", "r")
    assert told.value.kind is Kind.AWAY
    with pytest.raises(ProblemError, match=r"x is wrong\. What to do: .*verify") as told, telling():
        raise DamageError("x is wrong")
    assert exit_code(told.value.problem) == NO
