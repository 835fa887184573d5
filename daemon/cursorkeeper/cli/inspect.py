"""`cursorkeeper inspect`: one cursor's footer, its ledgers and every record, without claiming or
fencing anything.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from cursorkeeper.cli.frame import opened
from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import reader
from cursorkeeper.inspection.cursor_view import LedgerView, raw_json
from cursorkeeper.inspection.entry_view import COLUMNS, NUMBERS
from cursorkeeper.inspection.footer_view import footer_json, footer_lines
from cursorkeeper.terminal import cursor_name, options, output
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, Table, say
from cursorkeeper.zookeeper import errors as zk

TEMPLATES = "inspection/templates"
PAGE_ROWS = 1_000
"""Records per table: a long chain is shown as it is read."""


async def show(ports: Ports, name: CursorName, bar: Bar, *, records: bool, as_json: bool) -> int:
    """Prints everything; returns how many records are bad. Raises ProblemError, DamageError."""
    try:
        footer, version = await reader.read_footer(ports.footers, name)
    except DamageError:
        path = ports.footers.path(name)
        with suppress(zk.ZooKeeperError):
            raw = raw_json(path, await ports.zookeeper.get(path))
            output.show(raw, f"{TEMPLATES}/raw_footer.txt", as_json=as_json)
        raise
    ends = await reader.ends_of(ports.ledgers, footer, missing_ok=True)
    if as_json:
        head = {"type": "footer", "cursor": name.display}
        output.json_line({**head, **footer_json(footer, version)})
    else:
        output.labelled(name.display, 13, footer_lines(footer, version))
    table = Table(LedgerView.COLUMNS, right=LedgerView.NUMBERS, as_json=as_json)
    for ledger, end in ends.items():
        table.add(LedgerView.of(footer, ledger, end))
    table.show(apart=True)
    if not records:
        return 0
    bar.grow(sum(end.last_entry + 1 for end in ends.values()))
    bad = sum(end.info is None for end in ends.values())
    whole = reader.whole_state_ledgers(footer)
    for ledger, end in ends.items():
        if end.info is None:
            continue  # counted as missing
        columns = tuple(COLUMNS["state_entry" if ledger in whole else "record"])
        page = Table(columns, right=NUMBERS, as_json=as_json)
        try:
            written = reader.written_in(footer, name, ledger, end)
            async for row in reader.views(ports.ledgers, name, ledger, end, written, bar.say):
                bad += not row.is_good
                bar.advance()
                page.add(row)
                if len(page) == PAGE_ROWS:
                    page.show()
        except DamageError as e:
            bad += 1
            told = {"type": "ledger_problem", "ledger": ledger, "ok": False, "problem": e.message}
            output.show(told, f"{TEMPLATES}/ledger_problem.txt", as_json=as_json)
        page.show(apart=True)
    return bad


@options.command
async def inspect(
    *,
    cursor: cursor_name.CursorOrTopic,
    subscription: cursor_name.Subscription = None,
    records: Annotated[
        bool, typer.Option("--records/--no-records", help="Read and check every record.")
    ] = True,
    settings: options.Here,
    as_json: options.Json = False,
) -> int:
    """Show a cursor's footer, its ledgers, and every record with its sizes and whether its checksum
    is right.

    Changes nothing: the ledgers are read without recovery, so an owner at work is not disturbed; of
    a ledger that is still written, the newest entries may not be visible yet ("or more"). Exit code
    1 if a record is bad.
    """
    name = cursor_name.parse(cursor, subscription)
    async with opened(settings, "reading records") as (ports, bar):
        bad = await show(ports, name, bar, records=records, as_json=as_json)
    if not bad:
        return 0
    say(
        f"{bad} record(s) or ledgers are bad. What to do: `cursorkeeper verify` says what that "
        "means for the cursor",
        err=True,
    )
    return NO
