"""`cursorkeeper verify`: reads everything of cursors and says whether it can be trusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from cursorkeeper.cli.frame import opened
from cursorkeeper.inspection.checks import Report
from cursorkeeper.inspection.verification import verify_all, verify_some
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import say, show


async def told(reports: AsyncIterator[Report], *, as_json: bool) -> tuple[int, int]:
    """(cursors, damaged ones); each is shown when it is done."""
    count = damaged = 0
    async for report in reports:
        count += 1
        damaged += not report.is_good
        show(report.as_json(), "inspection/templates/report.txt", as_json=as_json)
    return count, damaged


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
        reports = verify_all(ports, bar) if every else verify_some(ports, names, bar)
        count, damaged = await told(reports, as_json=as_json)
    if not as_json and count != 1:
        say(f"{count} cursor(s), {damaged} damaged")
    return NO if damaged else 0
