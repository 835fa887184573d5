"""One cursor's import in a task: the command's own engine, under a record, again where somebody
else was quicker.

Owns what is asked before a cursor is begun, how long another attempt is waited for, and how often
it is looked at again. Does not own how a cursor is read and made (`migration.importer`). Why this
is exactly once: see `sinks`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from cursorkeeper.core.footer import Footer, FooterState, Mark, mark_of
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.cursor_maker import (
    host_of,
    is_gone,
    is_half_made,
    is_made_by,
    pid_of,
)
from cursorkeeper.migration.importer import KIND, Exists, Import, Unlike, raced
from cursorkeeper.migration.outcome import FORESEEN, Outcome, failed
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import LEFT, One, Places

RACES_MAX: Final = 4
WAIT_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.5
MARK: Final = "+"
"""In a writer's host: behind it is the run's id."""


@dataclass(frozen=True, slots=True)
class ImportWork:
    """See the module. `run`: the run's id; `wait_s`: see `OneImport`."""

    places: Places
    run: str
    dry_run: bool = False
    refresh: bool = False
    roll_back_unreadable: bool = False
    wait_s: float = WAIT_S

    @asynccontextmanager
    async def opened(self, who: str) -> AsyncIterator[One]:
        """Connections to both systems for as long as the context lasts. Raises ProblemError if one
        cannot be reached.
        """
        settings = self.places.settings
        async with self.places.opened("reader" if self.dry_run else "writer", "reader") as (
            ports,
            theirs,
        ):
            importing = Import(
                ports,
                theirs,
                named(settings, self.run),
                SILENT,
                dry_run=self.dry_run,
                refresh=self.refresh,
                roll_back_unreadable=self.roll_back_unreadable,
            )
            record = RunRecord(
                ports.zookeeper, folder_of(settings.systems.root, "import"), self.run
            )
            yield OneImport(importing, record, self.wait_s).one


@dataclass(frozen=True, slots=True)
class OneImport:
    """Imports one cursor at a time. `wait_s`: how long a footer that another attempt has open may
    stay as it is until that one counts as dead.
    """

    importing: Import
    record: RunRecord
    wait_s: float = WAIT_S

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        numbers = dict[str, Any]()
        try:
            return await self._one(ref, numbers)
        except RunDone:
            return Outcome(str(ref), LEFT, ok=True)
        except Unlike as e:
            with suppress(*FORESEEN):
                await self.importing.patience.repeat(
                    ref, lambda: self.record.note(_doubt(ref.name))
                )
            return failed(ref, e, numbers)
        except FORESEEN as e:
            return failed(ref, e, numbers)

    async def _one(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        engine = replace(self.importing, made_here=self._made_here)
        if engine.dry_run:
            return await engine.attempt(ref, numbers)
        for race in range(1, RACES_MAX + 1):
            seen = await self._settled(ref.name, race)
            work = replace(engine, left_over=seen, may_begin=lambda: self._may_begin(ref))
            try:
                return await work.attempt(ref, numbers)
            except Exists:
                footer = await engine.footer(ref.name)
                if race < RACES_MAX and mark_of(footer) != seen:
                    continue
                if footer is not None and is_half_made(footer, KIND):
                    raise raced(footer) from None
                raise
        raise AssertionError("the last race is returned or raised")

    async def _settled(self, name: CursorName, race: int) -> Mark:
        """Of the footer that is there when no other attempt works on the cursor. Whoever has it
        open and writes it lives. Who has lost a race has met somebody who lives: it believes no
        process number any more, and waits longer each time, so that two slow attempts do not
        depose one another in turn. Raises ProblemError, DamageError, MigrationError.
        """
        clock_s = asyncio.get_running_loop().time
        seen, until_s = None, 0.0
        while True:
            footer = await self.importing.footer(name)
            mark = mark_of(footer)
            if mark != seen:
                seen, until_s = mark, clock_s() + self.wait_s * race
            if (
                footer is None
                or not is_half_made(footer, KIND)
                or (race == 1 and is_dead(footer, self.importing.settings))
                or clock_s() >= until_s
            ):
                return mark
            await asyncio.sleep(min(LOOK_AGAIN_S, self.wait_s))

    async def _may_begin(self, ref: PulsarCursorRef) -> None:
        """Asked when the footer was seen: who finds the run open then claims a footer of before its
        end, or none. Raises RunDone, ProblemError, MigrationError.
        """
        await self.importing.patience.repeat(ref, lambda: self.record.check_open(sync=True))

    async def _made_here(self, footer: Footer) -> bool:
        """Closed by this run, and not found wrong when it was read back. Raises MigrationError."""
        name = CursorName(footer.topic, footer.subscription)
        if not is_of_run(footer, self.record.id):
            return False
        doubt = await self.importing.patience.repeat(
            name.display, lambda: self.record.noted(_doubt(name))
        )
        return doubt is None


def named(settings: Settings, run: str) -> Settings:
    """So that footers tell which run made them: host+run/pid/import-pulsar/nonce."""
    return settings.but(name=f"{settings.daemon.name or socket.gethostname()}{MARK}{run}")


def is_of_run(footer: Footer, run: str) -> bool:
    """Whether it is closed and an import of this run was the last to have it open: nobody has acked
    in it since.
    """
    return (
        footer.state is FooterState.CLOSED
        and is_made_by(footer, KIND)
        and host_of(footer).rpartition(MARK)[1:] == (MARK, run)
    )


def is_dead(footer: Footer, settings: Settings) -> bool:
    """Whether the import that has it open was a process of this host, of any run or of the command,
    and runs no more. Of one elsewhere only its footer tells; and so it does of one with the number
    of this process, which may be another container's.
    """
    here, pid = settings.daemon.identity.rsplit("/", 1)
    return (
        host_of(footer).partition(MARK)[0] == here.partition(MARK)[0]
        and pid_of(footer) != int(pid)
        and is_gone(footer)
    )


def _doubt(name: CursorName) -> str:
    return f"doubts/{name.znode}"
