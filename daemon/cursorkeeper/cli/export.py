"""`cursorkeeper export`: one cursor's state as JSON lines. Reads only."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper.cli.frame import CursorOrTopic, Subscription, opened
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration import exchange
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.files import whole_file
from cursorkeeper.terminal.output import Bar, say, show
from cursorkeeper.terminal.printable import printable_json


def write(lines: Iterable[bytes], output: Path | None, bar: Bar) -> int:
    """Writes all lines; a file appears only when it is complete. Returns the bytes."""
    size = 0
    bar.say("writing")
    if output is None:
        for line in lines:
            sys.stdout.write(printable_json(line.decode().rstrip("\n")) + "\n")
            size += len(line)
        return size
    with whole_file(output) as out:
        for line in lines:
            size += out.write(line)
            bar.advance(0)
    return size


@options.command
async def export(
    *,
    cursor: CursorOrTopic,
    subscription: Subscription = None,
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
        size = write(exchange.lines_of(footer, answer.state, at_least=at_least), output, bar)
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
