"""One cursor's export in a task: the command's own engine, under a claim and a record.

The cursor's znode decides, by its version: of two attempts that read the same version one swaps it,
the other's compare-and-set fails and its new ledger is deleted. With --replace a second look must
not take what Pulsar has acked since for what is to be replaced: the first attempt of a run that
would change the cursor, or finds it well, *pins* the version it has seen, and no attempt of that
run, however late, replaces another one. A cursor that is refused before that (a broker may have it,
Pulsar could not hold it) is not pinned: the run was told what to do, and looks anew.

Order of an attempt, and why nothing goes wrong wherever it stands still, dies, or loses its claim:

1. the claim: nobody else works on the cursor, as long as sessions tell the truth;
2. a look at Pulsar's versions, synced; then the record, synced: who has waited for the claim, or
   slept, until the run was decided changes
   nothing. What comes after the look is told from what was there by its version, so sleeping
   between the two, or after, is harmless;
3. before the first change (a new ledger, or the swap) the pin, then the record again: the pins of a
   decided run are purged, so the
   one who made it anew must not go on;
4. the new ledger, marked with the version that its maker will replace;
5. the swap: at the version of 2 and no other, and only while the topic's znode is as it was
   (`swap`). If it fails, its maker deletes
   its ledger. If its maker dies, `leftovers` does, once the znode is past that version: then no
   swap of that maker can be done any more, by
   a holder of the claim or by one who has lost it and wakes late. As long as it could, the ledger
   stays;
6. the old ledger goes. If its maker dies before, it is in the pin: the next attempt finds the
   cursor "already there" and deletes it.

Ours may change between two looks (a daemon opens and closes it, or --live), so that one attempt
finds the cursor well and the next one replaces it, at the same version: no decision of one attempt
rests on what another one found, only on versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.exporter import Export
from cursorkeeper.migration.outcome import FORESEEN, Outcome, failed
from cursorkeeper.migration.target import Target
from cursorkeeper.problems import Kind, Problem
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_pipeline.sinks.claims import WAIT_S, Claims
from cursorkeeper_pipeline.sinks.leftovers import Leftovers
from cursorkeeper_pipeline.sinks.pins import Pins
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.swap import SWAP_BYTES, Seen, Swap, look
from cursorkeeper_pipeline.sinks.tasks import JOBS, LEFT, One, Places

RACES_MAX: Final = 4
CHANGED_SINCE: Final = "Pulsar's cursor has changed since this run first looked at it"
WHO: Final = "find out who has acked there; a run with another --id looks anew"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the command's options say; see `Export`."""

    replace: bool = False
    replace_newer: bool = False
    live: bool = False
    broker_is_stopped: bool = False
    allow_loss: bool = False
    dry_run: bool = False


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
    jobs: int = JOBS
    claim_wait_s: float = WAIT_S

    @asynccontextmanager
    async def opened(self, who: str) -> AsyncIterator[One]:
        """Connections to both systems for as long as the context lasts. Raises ProblemError if one
        cannot be reached.
        """
        places, rules = self.places, self.rules
        async with places.opened("reader", "reader" if rules.dry_run else "migrator") as (
            ports,
            theirs,
        ):
            znode_bytes = places.pulsar.zookeeper_jute_maxbuffer_bytes
            entry_bytes = (await theirs.ledgers.describe()).entry_bytes_max
            target = Target(
                dataclasses.replace(self.limits, znode_bytes_max=znode_bytes),
                entry_bytes,
                znode_bytes - SWAP_BYTES,
            )
            exporting = Export(
                ports,
                theirs,
                places.settings,
                target,
                self.spec,
                SILENT,
                **asdict(rules),
            )
            claims = Claims(
                ports.zookeeper, folder_of(places.settings.root, "claim"), who, self.claim_wait_s
            )
            record = RunRecord(ports.zookeeper, folder_of(places.settings.root, "export"), self.run)
            yield OneExport(exporting, claims, record, Pins(ports.zookeeper, record.path)).one


@dataclass(frozen=True, slots=True)
class OneExport:
    """Exports one cursor at a time."""

    exporting: Export
    claims: Claims
    record: RunRecord
    pins: Pins

    @property
    def _replaces(self) -> bool:
        return self.exporting.replace or self.exporting.replace_newer

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        if self.exporting.dry_run:
            return await self.exporting.one(ref)
        try:
            return await self._one(ref)
        except RunDone:
            return Outcome(str(ref), LEFT, ok=True)
        except FORESEEN as e:
            return failed(str(ref), e)

    async def _one(self, ref: PulsarCursorRef) -> Outcome:
        repeat = self.exporting.patience.repeat
        for race in range(1, RACES_MAX + 1):
            await repeat(str(ref), self.record.check_open)  # before a claim is waited for
            async with self.claims.held(ref.name):
                seen = await repeat(str(ref), lambda: look(self.exporting.pulsar.zookeeper, ref))
                await repeat(str(ref), lambda: self.record.check_open(sync=True))
                outcome = await (
                    self._replacing(ref, seen)
                    if self._replaces
                    else self._engine(Swap(ref, seen, self.record))
                )
            if (
                race == RACES_MAX
                or outcome.ok
                or outcome.problem is None
                or outcome.problem.kind is not Kind.CHANGED
            ):
                return outcome
        raise AssertionError("the last race is returned")

    async def _engine(self, swap: Swap, *, may_replace: bool = False) -> Outcome:
        """Raises RunDone: before it could change anything."""
        ours = self.exporting
        engine = replace(
            ours,
            replace=may_replace and ours.replace,
            replace_newer=may_replace and ours.replace_newer,
            pulsar=swap.ports(ours.pulsar),
        )
        outcome = await engine.one(swap.ref)
        if swap.late is not None:
            raise swap.late
        return outcome

    async def _replacing(self, ref: PulsarCursorRef, seen: Seen) -> Outcome:
        repeat = self.exporting.patience.repeat
        found = await repeat(str(ref), lambda: self.pins.find(ref))
        may_replace = found is None or found.version == seen.cursor.version
        swap = Swap(ref, seen, self.record, self.pins)
        outcome = await self._engine(swap, may_replace=may_replace)
        if outcome.ok:
            pin = swap.pinned or found
            # also of one that is well: what Pulsar acks from now on is not this run's to replace
            if pin is None:
                pin = await repeat(str(ref), swap.pin)
            if pin.old_ledger >= 0:
                left = await Leftovers(self.exporting.pulsar).drop_old(pin.old_ledger, ref)
                return replace(outcome, notes=(*outcome.notes, *left))
        if outcome.status == "refused" and not may_replace and outcome.problem is not None:
            return replace(outcome, problem=Problem(f"{CHANGED_SINCE}: {outcome.problem}", WHO))
        return outcome
