"""`cursorkeeper gc`: ledgers that no footer names and none can name any more. The judgement is in
`runtime.gc`.
"""

from __future__ import annotations

from typing import Annotated

from cursorkeeper.cli.frame import opened
from cursorkeeper.repair.garbage import sweep
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import show, tell


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
    told = swept.as_json()
    show(told, "repair/templates/swept.txt", as_json=as_json)
    tell("repair/templates/unswept.txt", told, err=True)
    return NO if swept.report.failed or swept.doubts else 0
