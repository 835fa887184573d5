"""`cursorkeeper ls`: every cursor that has a footer, from ZooKeeper alone, in bulk."""

from __future__ import annotations

from typing import Annotated

import typer

from cursorkeeper import connections
from cursorkeeper.inspection import roots
from cursorkeeper.inspection.footer_list import COLUMNS, NUMBERS, Listed, list_cursors
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, Table, json_line, say
from cursorkeeper.terminal.printable import printable

TABLE_ROWS_MAX = 2_000
"""A longer list is printed as it comes, in plain columns."""


async def show(
    footers: FooterStore,
    bar: Bar,
    *,
    as_json: bool,
    deleted: bool,
    table_rows_max: int = TABLE_ROWS_MAX,
) -> int:
    """Prints the list; returns the number of damaged footers."""
    rows, damaged, is_long = list[Listed](), list[Listed](), False
    async for item in list_cursors(footers, bar):
        if item.footer is None:
            damaged.append(item)
        elif item.footer.state == "deleted" and not deleted:
            continue
        if as_json:
            json_line(item.as_json())
            continue
        rows.append(item)
        if is_long or len(rows) > table_rows_max:
            for cells in [*([] if is_long else [COLUMNS]), *(row.as_row() for row in rows)]:
                typer.echo("\t".join(map(printable, cells)))
            rows, is_long = [], True
    table = Table(COLUMNS, right=NUMBERS)
    for row in sorted(rows, key=lambda row: row.name.canonical):
        table.add(row)
    table.show()
    if not (rows or is_long or as_json):
        say("no cursors")
    for item in damaged:
        say(f"{item.name}: {item.problem}", err=True)
    return len(damaged)


@options.command
async def ls(
    *,
    settings: options.HereWithoutGateway,
    deleted: Annotated[bool, "Tombstones of deleted cursors too."] = False,
    as_json: options.Json = False,
) -> int:
    """List every cursor with its footer: state, owner's epoch, mark-delete, base, chain, holes.

    Reads ZooKeeper alone. The numbers are those of the moment a footer was written; of an open
    cursor `markDelete` is a lower bound. A footer that cannot be read is listed as damaged, and the
    exit code is 1.
    """
    async with connections.zookeeper(settings.systems) as keeper:
        await roots.check_root(keeper, settings.systems)
        footers = connections.footer_store(keeper, settings)
        with Bar("reading footers") as bar:
            damaged = await show(footers, bar, as_json=as_json, deleted=deleted)
    if damaged:
        say(
            f"{damaged} footer(s) cannot be read. What to do: `cursorkeeper inspect` shows the "
            "bytes, and `cursorkeeper restore-footer` puts the *latest* ones back",
            err=True,
        )
        return NO
    return 0
