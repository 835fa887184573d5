"""`cursorkeeper restore-footer`: shows what bytes of a footer hold, and puts them back if it is
told to. See `repair.footer`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cursorkeeper import connections
from cursorkeeper.cli.frame import Cursor, Yes, confirmed, ended_at_once, not_written, opened
from cursorkeeper.core.names import CursorName
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.repair.footer import ABSENT, Plan, look, write
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.output import Bar, json_line, say

WRITES_MAX = 1_000_000
LATEST = (
    "find the *latest* bytes: in the log of the daemon that held the cursor (`footer to "
    "restore`), else in ZooKeeper's newest copy. If there are none, --older takes these: what was "
    "confirmed since is forgotten, and delivered again"
)


def show(plan: Plan) -> None:
    say(str(plan.name), bold=True)
    where = (
        "there is no znode" if plan.version == ABSENT else f"the znode has version {plan.version}"
    )
    said = (
        "an earlier release"
        if plan.given.written_as is None
        else f"version {plan.given.written_as}"
    )
    is_problem = plan.problem_there and plan.version != ABSENT
    say(f"  {where}{f'; {plan.problem_there}' if is_problem else ''}")
    say(f"  the bytes were written as {said}")
    for key, (there, given) in plan.differences().items():
        say(f"  {key:<11} there: {there}")
        say(f"  {'':<11} bytes: {given}")
    for note in plan.notes:
        say(f"  note: {note}")
    for problem in plan.problems:
        say(f"  NOT THE LATEST: {problem}")


def as_json(plan: Plan, written: int | None) -> dict[str, Any]:
    return {
        "cursor": plan.name.display,
        "znodeVersion": None if plan.version == ABSENT else plan.version,
        "problemThere": plan.problem_there,
        "writtenAs": plan.given.written_as,
        "differences": {
            key: {"there": there, "bytes": given}
            for key, (there, given) in plan.differences().items()
        },
        "notTheLatest": plan.problems,
        "notes": plan.notes,
        "written": written is not None,
        "version": written,
    }


def verification(name: CursorName) -> str:
    """The command that a person may give next, for a shell."""
    return f"cursorkeeper verify {shlex.quote(cursor_name.typed(name))}"


def bytes_of(file: Path) -> bytes:
    """Of a file, or of standard input; without the line end that an editor or a log adds."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return data.rstrip(b"\r\n")


@options.command
async def restore_footer(
    *,
    cursor: Cursor,
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
    yes: Yes = False,
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
        plan = await look(ports, name, settings.root, data)
    if not json:
        show(plan)
    plan.check_writes(writes_max)
    written, may = None, older or not plan.problems
    if may and confirmed("write this?", yes=yes, as_json=json):
        async with connections.ports(settings) as ports:
            with Bar("writing", plan.version_wanted - plan.version) as bar:
                written = await write(ports, plan, settings.root, bar)
    if json:
        json_line(as_json(plan, written))
    elif written is not None:
        say(f"written as version {written}; `{verification(name)}` says what a recovery finds")
    if written is not None:
        return 0
    return (
        not_written(name) if may else not_written(name, ": these bytes are not the latest", LATEST)
    )
