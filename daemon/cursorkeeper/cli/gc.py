"""`cursorkeeper gc`: ledgers that no footer names and none can name any more. The judgement is in
`runtime.gc`.
"""

from __future__ import annotations

from typing import Annotated

from cursorkeeper.cli.frame import opened
from cursorkeeper.repair.garbage import sweep
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import json_line, say


@options.command
async def gc(
    *,
    dry_run: Annotated[bool, "Only say which ledgers would be deleted."] = False,
    settings: options.Here,
    as_json: options.Json = False,
) -> int:
    """Delete cursor ledgers that no footer names and none can name any more.

    A ledger goes only if its cursor has a footer, which does not name it and whose epoch is beyond
    the ledger's (or equal and closed). Without a footer, or with an unreadable one, nothing is
    touched: age proves nothing. Nor is anything of a cursor whose ledgers show that its footer is
    not the newest one it had; such cursors are named, and the exit code is 1. The daemon does the
    same every `gc_interval_s`.
    """
    doing, role = "looking for ledgers without an owner", "reader" if dry_run else "writer"
    async with opened(settings, doing, role, needs_id=True) as (ports, bar):
        swept = await sweep(ports, bar, dry_run=dry_run)
    report, found = swept.report, swept.garbage
    if as_json:
        garbage = [{"ledger": g.ledger, "cursor": g.cursor.display} for g in found]
        doubts = [{"cursor": d.cursor.display, "problem": d.why} for d in swept.doubts]
        older = [{"ledger": k.ledger, "cursor": k.cursor.display} for k in swept.older]
        json_line(
            {
                **report.as_fields(),
                "dryRun": dry_run,
                "ledgers": garbage,
                "doubts": doubts,
                "olderThanFooter": older,
            }
        )
    else:
        for g in found:
            say(f"{'would delete' if dry_run else 'garbage'}: ledger {g.ledger} of {g.cursor}")
        for k in swept.older:
            say(
                f"kept: ledger {k.ledger} of {k.cursor}: older than its footer, which was made "
                f"anew, or put back after it was lost"
            )
        say(
            f"{report.named} named, {report.may_be_named} may be named yet, {report.unknown} of "
            f"unknown cursors, {report.garbage} garbage, {report.deleted} deleted, {report.failed} "
            f"not deleted, {report.kept} kept although no footer names them"
        )
    for d in swept.doubts:
        say(f"footer in doubt: {d.cursor}: {d.why}", err=True)
    if swept.doubts:
        say(
            "What to do: find out what wrote these footers, and put the *latest* bytes back with "
            "`cursorkeeper restore-footer`, which "
            "shows first what they hold; until then nothing of these cursors is deleted",
            err=True,
        )
    if report.failed:
        say("What to do: run it again when every bookie is back", err=True)
    return NO if report.failed or swept.doubts else 0
