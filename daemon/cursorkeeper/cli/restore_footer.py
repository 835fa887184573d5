"""`cursorkeeper restore-footer`: shows what bytes of a footer hold, and puts them back if it is
told to. See `repair.footer`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper import connections
from cursorkeeper.cli.frame import not_written, opened, written_json
from cursorkeeper.core.names import CursorName
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.repair.footer import look, write
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.files import bytes_of
from cursorkeeper.terminal.output import Bar, json_line, say, tell
from cursorkeeper.terminal.prompt import confirmed, ended_at_once

WRITES_MAX = 1_000_000
LATEST = (
    "find the *latest* bytes: in the log of the daemon that held the cursor (`footer to "
    "restore`), else in ZooKeeper's newest copy. If there are none, --older takes these: what was "
    "confirmed since is forgotten, and delivered again"
)


def verification(name: CursorName) -> str:
    """The command that a person may give next, for a shell."""
    return f"cursorkeeper verify {shlex.quote(cursor_name.typed(name))}"


@options.command
async def restore_footer(
    *,
    cursor: cursor_name.Cursor,
    file: Annotated[
        Path | None, typer.Argument(help="The latest bytes of its footer; - for standard input.")
    ] = None,
    as_it_is: Annotated[bool, "The bytes that are in the znode now, instead of a file."] = False,
    older: Annotated[
        bool, "Also bytes that are not the latest: what was confirmed since is forgotten."
    ] = False,
    writes_max: Annotated[
        int, "So many writes may be made: the znode's version grows by one with each.", {"min": 1}
    ] = WRITES_MAX,
    yes: options.Yes = False,
    settings: options.Here,
    json: options.Json = False,
) -> int:
    """Put the bytes of a cursor's footer back into ZooKeeper, after showing what they hold.

    For a cursor that is refused with FOOTER_REPLACED, FOOTER_LOST, or a DAMAGED footer. Bytes
    written by other means are refused, because nothing says that they are the latest; with older
    ones, confirmed acks are delivered again. What is there is compared with the bytes, and both
    with the cursor's ledgers. Whoever holds the cursor meanwhile is deposed.

    The znode's version is brought above the one that the bytes were written as, a write for each.
    If that is interrupted, run the command again: it goes on.
    """
    if (file is None) == (not as_it_is):
        raise ProblemError("what is to be put back?", "name a FILE, or say --as-it-is", Kind.USAGE)
    name = cursor_name.parse(cursor)
    with ended_at_once():
        data = None if file is None else bytes_of(file)
    async with opened(settings, "reading", needs_id=True) as (ports, _):
        plan = await look(ports, name, data)
    if not json:
        say(name.display, bold=True)
        tell("repair/templates/plan.txt", plan.as_json())
    plan.check_writes(writes_max)
    written, may = None, older or not plan.problems
    if may and confirmed("write this?", yes=yes, as_json=json):
        async with connections.ports(settings) as ports:
            with Bar("writing", plan.version_wanted - plan.version) as bar:
                written = await write(ports, plan, bar)
    if json:
        json_line({**plan.as_json(), **written_json(written)})
    elif written is not None:
        say(f"written as version {written}; `{verification(name)}` says what a recovery finds")
    if written is not None:
        return 0
    return (
        not_written(name) if may else not_written(name, ": these bytes are not the latest", LATEST)
    )
