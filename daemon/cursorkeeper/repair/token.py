"""Serves who lets sources without fencing tokens open a cursor again: a claim with no token, by
nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.inspection import reader
from cursorkeeper.problems import Kind, ProblemError

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
            raise ProblemError(
                f"{self.name}: {who}", "close it there, or unload its topic; then run this again"
            )
        if footer.epoch >= NUMBER_MAX:
            raise ProblemError(
                f"{self.name}: its footer is of epoch {footer.epoch}, and there is none after that",
                "keep it as it is",
            )

    def forgotten(self, writer: str) -> Footer:
        """What is written: a claim by a writer that nobody else is, with no token."""
        return replace(
            self.footer, epoch=self.footer.epoch + 1, writer=writer, write=1, fencing_token=0
        )


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
    raise ProblemError(
        f"{seen.name}: ZooKeeper did not say whether it took the footer",
        f"when it is back, {AGAIN}",
        Kind.AWAY,
    )
