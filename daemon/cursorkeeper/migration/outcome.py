"""Serves who migrates many cursors: what became of each, and a bounded number of them at once. One
that fails harms no other.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.errors import CursorKeeperError
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.migration.cluster import SkippedPath
from cursorkeeper.problems import Kind, Problem, problem_of
from cursorkeeper.pulsar_broker.model import count, range_count
from cursorkeeper.zookeeper.errors import ZooKeeperError

T = TypeVar("T")


JOBS_MAX = 64
"""Cursors at once."""


class Reporter(Protocol):
    """Is told what a run over many cursors finds and does."""

    def found(self) -> None: ...

    def skip(self, skipped: SkippedPath) -> None: ...

    def note(self, text: str) -> None: ...

    async def ended(self, outcome: Outcome) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one cursor. `numbers` go into the JSON line, `text` is the line for people,
    `notes` are lines below it.
    """

    cursor: str
    status: str
    ok: bool
    text: str = ""
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None

    def as_json(self) -> dict[str, Any]:
        told = {"problem": str(self.problem), "remedy": self.problem.remedy} if self.problem else {}
        return {
            "cursor": self.cursor,
            "status": self.status,
            "ok": self.ok,
            **self.numbers,
            "notes": list(self.notes),
            **told,
        }


def failed(
    cursor: str,
    error: Exception,
    *,
    status: str = "failed",
    numbers: Mapping[str, Any] | None = None,
) -> Outcome:
    """The outcome that an error stands for."""
    problem = replace(problem_of(error), cursor="")
    if problem.kind in (Kind.REFUSED, Kind.CHANGED):
        status = "refused"
    return Outcome(cursor, status, False, numbers=numbers or {}, problem=problem)


def numbers_of(state: PositionInfo) -> dict[str, Any]:
    """The numbers of a report, of a state as Pulsar has it."""
    return {
        "markDelete": list(state.mark_delete),
        "acked": count(state.acked),
        "ranges": range_count(state.acked),
        "ledgers": len(state.acked),
        "partialBatches": len(state.batches),
        "properties": len(state.properties),
    }


def text_of(numbers: Mapping[str, Any]) -> str:
    """The same in one line, but for the properties."""
    return (
        "mark-delete {}:{}, ".format(*numbers["markDelete"])
        + f"{numbers['acked']:,} acked entries in {numbers['ranges']:,} ranges, "
        f"{numbers['partialBatches']:,} partial batches"
    )


FORESEEN = (CursorKeeperError, GatewayError, ZooKeeperError)
"""What may go wrong with one cursor. Anything else is a bug and ends the run."""


BEFORE = "done before"
"""Status of a cursor that the journal says is done."""


async def run_all(
    things: AsyncIterator[T],
    work: Callable[[T], Awaitable[Outcome]],
    reporter: Reporter,
    *,
    jobs: int,
) -> None:
    """`work` for each, `jobs` at once. What has begun is finished even if finding more fails; that
    is raised at the end.

    Raises ProblemError; BrokenPipeError: nobody reads the report any more, and the run ends as if
    it was interrupted.
    """
    queue: asyncio.Queue[T | None] = asyncio.Queue(maxsize=jobs)

    async def worker() -> None:
        while (thing := await queue.get()) is not None:
            await reporter.ended(await work(thing))

    problem: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(worker())
            try:
                async for thing in things:
                    reporter.found()
                    await queue.put(thing)
            except FORESEEN as e:
                problem = e
            for _ in range(jobs):
                await queue.put(None)
    except ExceptionGroup as several:
        pipes, others = several.split(BrokenPipeError)
        if pipes is None or others is not None:
            raise
        raise BrokenPipeError(errno.EPIPE, "nobody reads the report") from several
    if problem is not None:
        raise problem
