"""What one task does: the systems are opened, the task's cursors worked on, a bounded number at
once, and each becomes a row.

Owns the event loop of a task and the rows. A cursor that goes wrong in a foreseen way is a row; a
system that does not answer at the start, or a bug, ends the attempt, and Spark tries again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.core.names import CursorName
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.pulsar_systems import pulsar_ports
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.files import here
from cursorkeeper_pipeline.task_loop import TaskLoop
from cursorkeeper_pipeline.transforms.migration import OUTCOMES

One = Callable[[PulsarCursorRef], Awaitable[Outcome]]
"""Works on one cursor; never raises for what is wrong with it."""
JOBS: Final = 8
NUMBERS: Final = {
    "epoch": "epoch",
    "acked_entries": "acked",
    "ranges": "ranges",
    "partial_batches": "partialBatches",
    "missing_entries": "missing",
    "extra_entries": "extra",
    "seconds": "seconds",
}
"""Columns of `OUTCOMES`, and what an outcome's numbers call them."""
LEFT: Final = "left to another"
"""The status of a cursor that was not looked at: another driver has found all of the run's cursors
well.
"""


class Work(Protocol):
    """What is done with each cursor. Pickled to the tasks: settings, and no connection."""

    def opened(self, who: str) -> AbstractAsyncContextManager[One]:
        """In a task; `who` is the attempt, for people. Raises ProblemError if a system does not
        answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Places:
    """The systems of a task. `pulsar`: the same settings, pointed at Pulsar's metadata store and
    password.
    """

    settings: Settings
    pulsar: Settings

    @asynccontextmanager
    async def opened(self, role: str, pulsar_role: str) -> AsyncIterator[tuple[Ports, PulsarPorts]]:
        """Roles of the gateway: reader, writer or migrator. Any role's token is good for a reader,
        so one file is enough: of an import the writer's, of an export the migrator's. Raises
        ProblemError, OptionError for files.
        """
        async with AsyncExitStack() as stack:
            with here(self.settings.systems):
                ports = await stack.enter_async_context(connections.ports(self.settings, role))
                own = role != pulsar_role
                theirs = await stack.enter_async_context(
                    pulsar_ports(self.settings, self.pulsar, ports, pulsar_role, own=own)
                )
            yield ports, theirs


@dataclass(frozen=True, slots=True)
class Task:
    """As `mapInArrow` calls it: batches of (topic, subscription) in, rows of `OUTCOMES` out."""

    work: Work
    run: str
    """The run's id, for people."""
    jobs: int = JOBS
    """How many cursors are worked on at once."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        who = f"run {self.run}, {_attempt()}"
        with TaskLoop() as loop:
            one = loop.enter(self.work.opened(who))
            for batch in batches:
                refs = [
                    PulsarCursorRef(row["topic"], row["subscription"]) for row in batch.to_pylist()
                ]
                outcomes = loop.run(each(refs, one, self.jobs))
                yield pa.RecordBatch.from_pylist(
                    [row_of(*pair, who) for pair in zip(refs, outcomes, strict=True)],
                    schema=OUTCOMES,
                )


async def each(refs: Sequence[PulsarCursorRef], one: One, jobs: int) -> list[Outcome]:
    """Every cursor once, though the plan may name it twice; outcomes in the plan's order."""
    done: dict[PulsarCursorRef, Outcome] = {}
    todo = iter(dict.fromkeys(refs))

    async def worker() -> None:
        for ref in todo:
            done[ref] = await one(ref)

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(worker())
    return [done[ref] for ref in refs]


def row_of(ref: PulsarCursorRef, outcome: Outcome, who: str = "") -> dict[str, Any]:
    """A row of `OUTCOMES`."""
    numbers, problem = outcome.numbers, outcome.problem
    return {
        "cursor_key": cursor_key(CursorName(*ref)),
        "cursor": str(ref),
        "status": outcome.status,
        "ok": outcome.ok,
        **{column: numbers.get(key) for column, key in NUMBERS.items()},
        "problem": str(problem) if problem else None,
        "remedy": problem.remedy if problem else None,
        "notes": "\n".join(outcome.notes) or None,
        "attempt": who,
    }


def _attempt() -> str:
    """Which attempt at which task this is; outside of Spark, which process."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = (
        f"stage {context.stageId()} task {context.partitionId()} attempt {context.attemptNumber()}"
        if context
        else "no task"
    )
    return f"{task} on {socket.gethostname()}/{os.getpid()}"
