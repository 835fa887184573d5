"""`cursorkeeper verify`: reads everything of cursors and says whether it can be trusted. See
`checking`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from cursorkeeper.cli import cursor_name
from cursorkeeper.cli.frame import opened
from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import CursorKeeperError
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.checks import Report, check
from cursorkeeper.problems import Kind, NotFound, ProblemError, problem_of
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, json_line, say

OLDER_FOOTER = (
    "put the *latest* bytes of the footer back with `cursorkeeper restore-footer`, which shows "
    "first what they hold; an owner that opens "
    "the cursor as it is forgets what was confirmed since"
)


async def every_cursor(footers: FooterStore) -> AsyncIterator[CursorName]:
    """All that are not deleted; damaged footers too."""
    async for batch in footers.batches():
        for name in await footers.living(batch):
            yield name


async def verify_one(ports: Ports, name: CursorName, bar: Bar) -> Report:
    """A report, also of a footer that cannot be read. Raises ProblemError when something outside is
    away.
    """
    try:
        return await check(ports.footers, ports.ledgers, name, bar)
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


def show(report: Report) -> None:
    if report.is_good:
        t = report.totals
        assert t is not None
        more = " at least: it is open" if report.at_least else ""
        older = {"same": ", the previous snapshot gives the same state"}.get(report.previous, "")
        say(
            f"ok      {report.cursor}{more}: {report.records:,} records, {report.stored_bytes:,} "
            f"bytes in {report.ledgers} ledgers; {t.acked:,} acked above "
            f"{report.mark_delete_text}, {t.holes:,} holes, {t.partials:,} partial batches{older}"
        )
        if report.unfinished:
            say(
                f"        {report.unfinished:,} entries of a flush that was cut off: never "
                f"confirmed, walked over"
            )
        if report.truncated is not None:
            left_out = ", ".join(
                f"{report.truncated[key]:,} {key}" for key in ("acks", "batches", "properties")
            )
            say(
                f"        TRUNCATED by the operator's leave ({report.truncated['limit']}): "
                f"{left_out} are not stored"
            )
        return
    say(
        f"DAMAGED {report.cursor}: {report.findings_count} finding(s) in {report.records:,} records"
    )
    for finding in report.findings:
        say(f"        {finding}")
    if report.findings_count > len(report.findings):
        say(f"        ... and {report.findings_count - len(report.findings)} more")
    say(f"        What to do: {report.remedy}")


async def _doubts(ports: Ports, bar: Bar) -> dict[CursorName, str]:
    """Cursor -> why its ledgers show that its footer is not the newest one that it had. Lists every
    ledger.
    """
    bar.say("looking for ledgers that are later than their footers")
    found: dict[CursorName, str] = {}
    await gc.collect(ports.ledgers, ports.footers, dry_run=True, on_doubt=found.__setitem__)
    bar.say("reading records")
    return found


async def verify_all(
    ports: Ports, names: AsyncIterator[CursorName], bar: Bar, *, as_json: bool, every: bool = False
) -> tuple[int, int]:
    """(cursors, damaged ones); each is shown when it is done. `every`: one that was deleted
    meanwhile is left out, and a footer that is older than the cursor's ledgers is a finding.
    """
    count = damaged = 0
    doubts = await _doubts(ports, bar) if every else {}
    async for name in names:
        try:
            report = await verify_one(ports, name, bar)
        except NotFound:
            if every:
                continue
            raise
        if report.is_good and name in doubts:
            report.found(doubts[name])
            report.remedy = OLDER_FOOTER
        count += 1
        damaged += not report.is_good
        json_line(report.as_json()) if as_json else show(report)
    return count, damaged


async def _given(names: list[CursorName]) -> AsyncIterator[CursorName]:
    for name in names:
        yield name


@options.command
async def verify(
    *,
    cursors: Annotated[
        list[str] | None, typer.Argument(help=f"{cursor_name.FORM}; any number.", metavar="CURSOR")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every cursor.")] = False,
    settings: options.Here,
    as_json: options.Json = False,
) -> int:
    """Read everything of cursors: every checksum, the snapshot, and the same state from every older
    snapshot still kept.

    With --all also whether ledgers show that a footer is not the newest one its cursor had, as
    after a restore of ZooKeeper. Changes nothing and disturbs no owner. Of an open cursor the last
    ledger is read as far as a reader may see, so its numbers are "at least". Exit code 1 on damage,
    with ledger, entry, and what to do.
    """
    if bool(cursors) == every:
        raise ProblemError(
            "nothing to verify" if not every else "cursors and --all",
            "name cursors, or say --all",
            Kind.USAGE,
        )
    names = [cursor_name.parse(c) for c in cursors or []]
    async with opened(settings, "reading records") as (ports, bar):
        wanted = every_cursor(ports.footers) if every else _given(names)
        count, damaged = await verify_all(ports, wanted, bar, as_json=as_json, every=every)
    if not as_json and count != 1:
        say(f"{count} cursor(s), {damaged} damaged")
    return NO if damaged else 0
