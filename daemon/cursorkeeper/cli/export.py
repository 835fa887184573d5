"""`cursorkeeper export`: one cursor's state as JSON lines. Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper.cli.frame import opened
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration import exchange
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.files import write_lines
from cursorkeeper.terminal.output import say, show


@options.command
async def export(
    *,
    cursor: cursor_name.CursorOrTopic,
    subscription: cursor_name.Subscription = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Into this file; default: standard output.", dir_okay=False
        ),
    ] = None,
    settings: options.Here,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="With -o: a JSON line about the export. The export is JSON lines anyway."
        ),
    ] = False,
) -> None:
    """Write a cursor's state as JSON lines: a header, the acked ranges of each data ledger, partly
    acked batches, an end.

    Reads without claiming. Of an open cursor the newest acks may be missing ("atLeast" in the
    header): close it first for an exact copy.
    """
    name = cursor_name.parse(cursor, subscription)
    async with opened(settings, "reading") as (ports, bar):
        footer, answer, at_least = await read_state(ports, name, bar)
        bar.say("writing")
        size = write_lines(exchange.lines_of(footer, answer.state, at_least=at_least), output, bar)
    if answer.fell_back:
        say(
            "the newest snapshot is damaged; this is the state from the previous one, and it is "
            "complete",
            err=True,
        )
    if footer.truncated is not None:
        say(
            f"the stored state was truncated when it was written ({footer.truncated.limit}): "
            f"{footer.truncated.acks:,} acks, {footer.truncated.batches:,} partial batches and "
            f"{footer.truncated.properties:,} properties are not in it",
            err=True,
        )
    if output is not None:
        told = {
            "cursor": name.display,
            "file": str(output),
            "bytes": size,
            "epoch": footer.epoch,
            "atLeast": at_least,
        }
        show(told, "migration/templates/exported.txt", as_json=as_json)
