"""`cursorkeeper forget-token`: a cursor that was opened with a fencing token may be opened without one again. For operators, on the way
back to sources that have none.

The only write that lowers a token. One compare-and-set on the footer that was shown, of a cursor that nobody has open: a claim that
leaves everything else as it is. Its answer may be lost: the same bytes at the same version again, until it is decided.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from cursorkeeper import connections
from cursorkeeper.cli import cursor_name
from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.inspection import reader, roots
from cursorkeeper.inspection.footer_view import footer_json, footer_lines
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import json_line, say

TRIES_MAX = 30
PAUSE_S = 1.0
AGAIN = "look at it again"


@dataclass(frozen=True, slots=True)
class Seen:
    """A footer and the version of its znode."""

    name: CursorName
    footer: Footer
    version: int

    def check(self) -> None:
        """Raises ProblemError: whoever has the cursor open keeps its token."""
        footer = self.footer
        if footer.state is FooterState.OPEN:
            who = f"it is open (epoch {footer.epoch}, by {footer.writer})"
            raise ProblemError(f"{self.name}: {who}", "close it there, or unload its topic; then run this again")
        if footer.epoch >= NUMBER_MAX:
            raise ProblemError(f"{self.name}: its footer is of epoch {footer.epoch}, and there is none after that", "keep it as it is")

    def forgotten(self, writer: str) -> Footer:
        """What is written: a claim by a writer that nobody else is, with no token."""
        return replace(self.footer, epoch=self.footer.epoch + 1, writer=writer, write=1, fencing_token=0)


async def look(ports: Ports, name: CursorName) -> Seen:
    """A tombstone has a token, too. Raises ProblemError, DamageError."""
    return Seen(name, *await reader.read_footer(ports.footers, name))


async def forget(ports: Ports, seen: Seen, writer: str, *, pause_s: float = PAUSE_S) -> int:
    """The znode's version then. Raises ProblemError."""
    wanted = seen.forgotten(writer).written_at(seen.version + 1)
    for _ in range(TRIES_MAX):
        match await ports.footers.write(seen.name, 0, wanted, seen.version):
            case ev.FooterWritten(version=version):
                return version
            case ev.FooterWriteUnknown():
                await asyncio.sleep(pause_s)
            case _:
                now = await look(ports, seen.name)
                if now.footer.is_same_write(wanted):
                    return now.version
                raise ProblemError(f"{seen.name}: its footer has changed since it was shown", AGAIN)
    raise ProblemError(f"{seen.name}: ZooKeeper did not say whether it took the footer", f"when it is back, {AGAIN}", Kind.AWAY)


def as_json(seen: Seen, version: int | None) -> dict[str, Any]:
    head = {"cursor": seen.name.display, "fencingToken": seen.footer.fencing_token}
    return {**head, "footer": footer_json(seen.footer, seen.version), "written": version is not None, "version": version}


def show(seen: Seen) -> None:
    say(str(seen.name), bold=True)
    for label, text in footer_lines(seen.footer, seen.version):
        say(f"  {label:<12} {text}")


@options.located
def forget_token(
    *,
    cursor: Annotated[str, typer.Argument(help=f"{cursor_name.FORM}.", metavar="CURSOR")],
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    settings: Settings,
    json: options.Json = False,
) -> None:
    """Let sources without fencing tokens open a cursor again, after showing its footer.

    A source that gives a fencing token leaves it in the cursor's footer for good, so that a broker which was replaced while
    it stood still takes nothing back: without a token, or with a lower one, it is refused as FENCED. On the way back to
    sources without tokens this sets it to 0, for a cursor that is closed, or deleted.

    Be sure that no broker of before is left that stood still: it could open the cursor again, too.
    """
    name = cursor_name.parse(cursor)

    async def looked() -> Seen:
        async with connections.ports(settings) as ports:
            await roots.check_root(ports.zookeeper, settings, needs_id=True)
            return await look(ports, name)

    async def done(seen: Seen) -> int:
        async with connections.ports(settings) as ports:
            return await forget(ports, seen, f"{settings.identity}/forget-token/{secrets.token_hex(8)}")

    seen, version = asyncio.run(looked()), None
    if not json:
        show(seen)
    if not seen.footer.fencing_token:
        if json:
            json_line(as_json(seen, None))
        else:
            say("it has no fencing token: nothing is to be done")
        return
    seen.check()
    # a person may think for longer than a session of ZooKeeper lives
    if yes or (not json and sys.stdin.isatty() and typer.confirm("set its fencing token to 0?")):
        version = asyncio.run(done(seen))
    if json:
        json_line(as_json(seen, version))
    elif version is not None:
        say(f"written as version {version}: fencing token {seen.footer.fencing_token} is forgotten")
    if version is None:
        say(f"cursorkeeper: {name}: nothing was written\nWhat to do: add --yes", err=True)
        raise typer.Exit(NO)
