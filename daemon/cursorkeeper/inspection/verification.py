"""Serves who verifies cursors: a report of each, also of those that cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import CursorKeeperError
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.checks import Report, check
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import Kind, NotFound, problem_of
from cursorkeeper.runtime import gc

OLDER_FOOTER = (
    "put the *latest* bytes of the footer back with `cursorkeeper restore-footer`, which shows "
    "first what they hold; an owner that opens "
    "the cursor as it is forgets what was confirmed since"
)


async def verify(ports: Ports, name: CursorName, progress: Progress) -> Report:
    """A report, also of a footer that cannot be read. Raises ProblemError when something outside is
    away, NotFound.
    """
    try:
        return await check(ports.footers, ports.ledgers, name, progress)
    except NotFound:
        raise
    except CursorKeeperError as e:
        problem = problem_of(e)
        if problem.kind is Kind.AWAY:
            raise
        report = Report(name.display)
        report.found(problem.message)
        report.remedy = problem.remedy
        return report


async def verify_some(
    ports: Ports, names: Iterable[CursorName], progress: Progress
) -> AsyncIterator[Report]:
    """Of each of the names. Raises as `verify`."""
    for name in names:
        yield await verify(ports, name, progress)


async def verify_all(ports: Ports, progress: Progress) -> AsyncIterator[Report]:
    """Of every cursor that is not deleted; a footer that is older than the cursor's ledgers is a
    finding. Raises ProblemError when something outside is away.
    """
    progress.say("looking for ledgers that are later than their footers")
    doubts = dict[CursorName, str]()
    await gc.collect(ports.ledgers, ports.footers, dry_run=True, on_doubt=doubts.__setitem__)
    progress.say("reading records")
    async for batch in ports.footers.batches():
        for name, _, _ in await ports.footers.living(batch):
            try:
                report = await verify(ports, name, progress)
            except NotFound:
                continue  # deleted meanwhile
            if report.is_good and name in doubts:
                report.found(doubts[name])
                report.remedy = OLDER_FOOTER
            yield report
