"""`cursorkeeper import`: a cursor from exported JSON lines, through the commit protocol. See
`cursor_import`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cursorkeeper import connections
from cursorkeeper.inspection import roots
from cursorkeeper.migration.export_file import run_import, scan
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.files import readable
from cursorkeeper.terminal.output import Bar, say, show
from cursorkeeper.terminal.prompt import ended_at_once


@options.command
async def restore(
    *,
    file: Annotated[
        Path, typer.Argument(help="What `cursorkeeper export` wrote; - for standard input.")
    ],
    cursor: Annotated[
        str | None, f"Under this name, {cursor_name.FORM}; default: the name in the file."
    ] = None,
    replace: Annotated[
        bool, "If the cursor exists: take it over, delete it, and make it anew from the file."
    ] = False,
    settings: options.Here,
    as_json: options.Json = False,
) -> None:
    """Make a cursor from an export: it is claimed, its acks are made durable and confirmed, and it
    is closed.

    The file is checked as a whole before anything is written. An existing cursor is refused without
    --replace. With it, whoever has the cursor open is deposed, the old state is deleted (its epoch
    and generation go on growing), and the state of the file is written: acks that are not in the
    file will be delivered again.
    """
    name = None if cursor is None else cursor_name.parse(cursor)
    with readable(file) as source:
        with Bar("checking the file") as bar, ended_at_once():
            plan = scan(source, str(file), name, bar)
        async with connections.ports(settings, "writer") as ports:
            if new := await roots.told_if_new(ports.zookeeper, settings.systems):
                say(new, err=True)
            with Bar("importing", plan.lines) as bar:
                done = await run_import(ports, settings, plan, bar, replace=replace)
    show(msgspec.to_builtins(done), "migration/templates/imported.txt", as_json=as_json)
    if plan.header.at_least and not as_json:
        say(
            "the export was of an open cursor: acks that were newer than it will be delivered "
            "again",
            err=True,
        )
