"""One cursor's import in a task: the command's own engine, under a claim and a record, again where
somebody else was quicker.

Owns what is asked before a cursor is begun, and how often it is looked at again. Does not own how a
cursor is read and made (`cli.import_pulsar`). Why this is exactly once: see `sinks`.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.cursor_maker import footer_of, is_left_over, is_made_by
from cursorkeeper.migration.importer import KIND, Exists, Import, Raced, Unlike
from cursorkeeper.migration.outcome import FORESEEN, Outcome, failed
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.sinks.claims import WAIT_S, Claims
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import JOBS, LEFT, One, Places

RACES_MAX: Final = 4
MARK: Final = "+"
"""In a writer's host: behind it is the run's id. Such a writer holds the cursor's claim while it
lives.
"""


@dataclass(frozen=True, slots=True)
class ImportWork:
    """See the module. `run`: the run's id."""

    places: Places
    run: str
    jobs: int = JOBS
    dry_run: bool = False
    refresh: bool = False
    roll_back_unreadable: bool = False
    claim_wait_s: float = WAIT_S

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
                is_left_over=lambda footer: is_nobodys(footer, settings),
            )
            claims = Claims(
                ports.zookeeper, folder_of(settings.root, "claim"), who, self.claim_wait_s
            )
            record = RunRecord(ports.zookeeper, folder_of(settings.root, "import"), self.run)
            yield OneImport(importing, claims, record).one


@dataclass(frozen=True, slots=True)
class OneImport:
    """Imports one cursor at a time."""

    importing: Import
    claims: Claims
    record: RunRecord

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        numbers = dict[str, Any]()
        try:
            return await (
                self._look(ref, numbers) if self.importing.dry_run else self._one(ref, numbers)
            )
        except RunDone:
            return Outcome(str(ref), LEFT, ok=True)
        except Unlike as e:
            with suppress(*FORESEEN):
                await self.importing.patience.repeat(str(ref), lambda: self.record.doubt(ref.name))
            return failed(str(ref), e, numbers=numbers)
        except Exists as e:
            return failed(str(ref), e, status="refused", numbers=numbers)
        except FORESEEN as e:
            return failed(str(ref), e, numbers=numbers)

    async def _one(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        for race in range(1, RACES_MAX + 1):
            # else a claim is waited for in vain
            await self.importing.patience.repeat(str(ref), self.record.check_open)
            try:
                return await self._looked(ref, numbers) or await self._claimed(ref, numbers)
            except Raced:
                if race == RACES_MAX:
                    raise
        raise AssertionError("the last race is returned or raised")

    async def _looked(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome | None:
        """Most of a second run: only looked at, so nobody need be kept away. None: there is
        something to do.
        """
        if not await self._is_closed(ref.name):
            return None
        looked = await self._look(ref, numbers)
        return None if looked.status.startswith("would be") else looked

    async def _look(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        return await replace(self.importing, dry_run=True, made_here=self._made_here).attempt(
            ref, numbers
        )

    async def _claimed(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        engine = replace(
            self.importing, may_begin=lambda: self._may_begin(ref), made_here=self._made_here
        )
        async with self.claims.held(ref.name):
            return await engine.attempt(ref, numbers)

    async def _may_begin(self, ref: PulsarCursorRef) -> None:
        """Asked when the claim is held and the footer was seen: who finds the run open then claims
        a footer of before its end, or none. Raises RunDone, ProblemError, MigrationError.
        """
        await self.importing.patience.repeat(str(ref), lambda: self.record.check_open(sync=True))

    async def _made_here(self, footer: Footer) -> bool:
        """Closed by this run, and not found wrong when it was read back. Raises MigrationError."""
        name = CursorName(footer.topic, footer.subscription)
        if not is_of_run(footer, self.record.id):
            return False
        return not await self.importing.patience.repeat(
            name.display, lambda: self.record.is_doubted(name)
        )

    async def _is_closed(self, name: CursorName) -> bool:
        footer = await footer_of(self.importing.ports, name)
        return footer is not None and footer.state is FooterState.CLOSED


def named(settings: Settings, run: str) -> Settings:
    """So that footers tell which run made them: host+run/pid/import-pulsar/nonce."""
    return replace(settings, name=f"{settings.name or socket.gethostname()}{MARK}{run}")


def is_of_run(footer: Footer, run: str) -> bool:
    """Whether it is closed and an import of this run was the last to have it open: nobody has acked
    in it since.
    """
    host = footer.writer.rsplit("/", 3)[0]
    return (
        footer.state is FooterState.CLOSED
        and is_made_by(footer, KIND)
        and host.rpartition(MARK)[1:] == (MARK, run)
    )


def is_nobodys(footer: Footer, settings: Settings) -> bool:
    """Whether an open footer is what a dead import left, as who holds the cursor's claim may judge:
    one of ours holds the claim as long as it lives, or has lost it and is deposed. Of the command's
    own imports, which know no claims, their process decides.
    """
    if footer.state is not FooterState.OPEN or not is_made_by(footer, KIND):
        return False
    host = footer.writer.rsplit("/", 3)[0]
    return MARK in host or is_left_over(footer, KIND, settings)
