"""One cursor's export in a task: the command's own engine, under a record, again where somebody
else was quicker. Why this is exactly once: see `sinks`.

Order of an attempt, and why nothing goes wrong wherever it stands still or dies:

1. a look at Pulsar's versions, synced; then the record, synced: who has slept until the run was
   decided changes nothing. What comes after the look is told from what was there by its version, so
   sleeping between the two, or after, is harmless;
2. before the first change (a new ledger, or the swap) the pin, if the run replaces, else the record
   again. The pin is made in one transaction with a check of the record, because the pins of a
   decided run go: what was not found may have been there;
3. the new ledger, marked with the version that its maker will replace;
4. the swap: at the version of 1 and no other, and only while the topic's znode is as it was. If it
   fails, its maker deletes its ledger. If its maker dies, `migration.leftovers` does;
5. the old ledger goes. If its maker dies before, it is in the pin: the next attempt finds the
   cursor "already there" and deletes it.

Why a run that replaces needs pins: a second look must not take what Pulsar has acked since for what
is to be replaced, and nothing else remembers the first one. Ours may have changed, an attempt's row
is lost with it, a driver dies, and Pulsar's znode says what is there and not who wrote it. So the
first attempt of a run that would change the cursor, or finds it well, notes the version that it has
seen, and no attempt of that run, however late, replaces another one. A cursor that is refused
before that (a broker may have it, Pulsar could not hold it) is not pinned: the run was told what to
do, and looks anew. An import needs none: the footer says who made it and who had it since.

Ours may change between two looks (a daemon opens and closes it, or --live), so that one attempt
finds the cursor well and the next one replaces it, at the same version: no decision of one attempt
rests on what another one found, only on versions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.destination import Destination
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.exporter import KEPT, Export, Rules, target_of
from cursorkeeper.migration.leftovers import RunMark
from cursorkeeper.migration.outcome import FORESEEN, Outcome, failed
from cursorkeeper.migration.pulsar_writer import AGAIN, CHANGED
from cursorkeeper.problems import Kind
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import LEFT, One, Places

RACES_MAX: Final = 4
PINS: Final = "pins"
"""Where a run notes, below its record, what it may replace."""
CHANGED_SINCE: Final = "Pulsar's cursor has changed since this run first looked at it"
WHO: Final = "find out who has acked there; a run with another --id looks anew"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExportWork:
    """See the module. `limits`: of the Pulsar that will open the cursors; `spec`: of its cursor
    ledgers.
    """

    places: Places
    run: str
    limits: PulsarSettings
    spec: LedgerSpec
    rules: Rules
    dry_run: bool = False

    @asynccontextmanager
    async def opened(self, who: str) -> AsyncIterator[One]:
        """Connections to both systems for as long as the context lasts. Raises ProblemError if one
        cannot be reached.
        """
        settings, role = self.places.settings, "reader" if self.dry_run else "migrator"
        async with self.places.opened("reader", role) as (ports, theirs):
            target = await target_of(self.limits, self.places.pulsar, theirs.ledgers)
            exporting = Export(
                ports,
                theirs,
                settings,
                target,
                self.spec,
                SILENT,
                rules=self.rules,
                dry_run=self.dry_run,
            )
            folder = folder_of(settings.systems.root, "export")
            yield OneExport(exporting, RunRecord(ports.zookeeper, folder, self.run)).one


class Pin(NamedTuple):
    """What a run may replace: this version of the znode (ABSENT: none), which named this ledger
    (-1: none).
    """

    version: int
    old_ledger: int


@dataclass(frozen=True, slots=True)
class OneExport:
    """Exports one cursor at a time."""

    exporting: Export
    record: RunRecord

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        if self.exporting.dry_run:
            return await self.exporting.one(ref)
        numbers = dict[str, Any]()
        try:
            return await self._one(ref, numbers)
        except RunDone:
            return Outcome(str(ref), LEFT, ok=True)
        except FORESEEN as e:
            return failed(ref, e, numbers)

    async def _one(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        for race in range(1, RACES_MAX + 1):
            try:
                return await self._attempt(ref, numbers)
            except NoSuchLedger:  # a sweep has seen that this attempt is too late
                if race == RACES_MAX:
                    raise
            except MigrationError as e:
                if race == RACES_MAX or e.kind is not Kind.CHANGED:
                    raise
        raise AssertionError("the last race is returned or raised")

    async def _attempt(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        given, rules = self.exporting, self.exporting.rules
        replaces = rules.replace or rules.replace_newer
        there = await given.destination(ref)
        run = await self._repeat(ref, lambda: self.record.check_open(sync=True))
        pin = await self._pinned(ref) if replaces else None
        is_late = pin is not None and pin.version != there.version

        async def may_begin() -> None:
            if not replaces:
                await self._repeat(ref, lambda: self.record.check_open(sync=True))
            elif (await self._pin(there)).version != there.version:
                raise MigrationError(Kind.CHANGED, ref, ref.path, CHANGED, AGAIN)

        if is_late:
            rules = replace(rules, replace=False, replace_newer=False)
        mark = RunMark(run.id, run.token)
        engine = replace(given, rules=rules, may_begin=may_begin, run=mark)
        try:
            outcome = await engine.attempt(there, numbers)
        except MigrationError as e:
            if is_late and e.kind is Kind.REFUSED:
                told = f"{CHANGED_SINCE}: {e.message}"
                raise MigrationError(Kind.REFUSED, ref, e.where, told, WHO) from e
            raise
        if not replaces or outcome.status != KEPT:
            return outcome
        # also of one that is well: what Pulsar acks from now on is not this run's to replace
        old = (pin or await self._pin(there)).old_ledger
        if old in (-1, there.cursor_ledger):
            return outcome
        told = f"deleted the old cursor ledger {old} of {ref}"
        notes = await engine.writer(there).drop_old(old, told)
        return replace(outcome, notes=(*outcome.notes, *notes))

    async def _pinned(self, ref: PulsarCursorRef) -> Pin | None:
        """None: no attempt of the run has pinned the cursor."""
        found = await self._repeat(ref, lambda: self.record.noted(_place(ref)))
        return None if found is None else msgspec.json.decode(found, type=Pin)

    async def _pin(self, there: Destination) -> Pin:
        """What the run may replace; from now on, if this is its first attempt."""
        seen = msgspec.json.encode(Pin(there.version, there.cursor_ledger))
        ref = there.ref
        found = await self._repeat(ref, lambda: self.record.note(_place(ref), seen))
        return msgspec.json.decode(found, type=Pin)

    async def _repeat(self, ref: PulsarCursorRef, call: Callable[[], Awaitable[T]]) -> T:
        return await self.exporting.patience.repeat(ref, call)


def _place(ref: PulsarCursorRef) -> str:
    return f"{PINS}/{ref.name.bucket[:2]}/{ref.name.znode}"
