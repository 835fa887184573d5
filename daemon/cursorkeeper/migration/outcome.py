"""Serves who migrates many cursors: what became of each, told, kept in the journal and counted, and
a bounded number of them at once. One that fails harms no other.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.errors import CursorKeeperError
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.migration.cluster import SkippedPath
from cursorkeeper.migration.journal import Journal
from cursorkeeper.problems import Kind, Problem, problem_of
from cursorkeeper.pulsar_broker.model import count, range_count
from cursorkeeper.zookeeper.errors import ZooKeeperError

T = TypeVar("T")


JOBS_MAX = 64
"""Cursors at once."""
TEMPLATES = "migration/templates"


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


def failed(cursor: object, error: Exception, numbers: Mapping[str, Any]) -> Outcome:
    """The outcome that an error stands for."""
    problem = replace(problem_of(error), cursor="")
    status = "refused" if problem.kind in (Kind.REFUSED, Kind.CHANGED) else "failed"
    return Outcome(str(cursor), status, False, numbers=numbers, problem=problem)


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


class Reporter:
    """Of one run. `tell` prints a value, or the lines of a template that knows it."""

    def __init__(
        self, progress: Progress, journal: Journal | None, tell: Callable[..., None]
    ) -> None:
        self._progress, self._journal, self._tell = progress, journal, tell
        self.statuses: Counter[str] = Counter()
        self.failures: set[Kind] = set()
        """Of the cursors that are not done."""
        self._skipped = 0
        self._lock = asyncio.Lock()

    def found(self) -> None:
        self._progress.grow(1)

    def skip(self, skipped: SkippedPath) -> None:
        """A path that is no cursor of ours."""
        self._skipped += 1
        self._tell({"skipped": skipped.path, "reason": skipped.reason}, f"{TEMPLATES}/skipped.txt")

    def note(self, text: str) -> None:
        """Of the run, and of no cursor."""
        self._tell({"note": text}, f"{TEMPLATES}/note.txt")

    async def ended(self, outcome: Outcome) -> None:
        """Tells one cursor's outcome, and remembers it for the sums."""
        self.statuses[outcome.status] += 1
        if not outcome.ok:
            self.failures.add(outcome.problem.kind if outcome.problem else Kind.FAILED)
        if self._journal is not None and outcome.status != BEFORE:
            async with self._lock:
                await asyncio.to_thread(
                    self._journal.finished,
                    outcome.cursor,
                    outcome.status,
                    ok=outcome.ok,
                    **outcome.numbers,
                )
        self._progress.advance()
        said = outcome.problem.told if outcome.problem else outcome.text
        self._tell(outcome.as_json(), f"{TEMPLATES}/outcome.txt", said=said)

    def summary(self, selection: object, seconds: float) -> None:
        told: dict[str, Any] = {
            "summary": str(selection),
            "cursors": self.statuses.total(),
            "statuses": self.statuses,
            "skippedPaths": self._skipped,
            "journal": self._journal and str(self._journal.path),
            "seconds": round(seconds, 3),
        }
        self._tell(told, f"{TEMPLATES}/summary.txt")


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
