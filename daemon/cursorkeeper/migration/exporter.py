"""Serves who goes back to Pulsar: our cursors become its own again, in a form that Pulsar opens,
and keeps.

Owns what is done with each cursor, and what it is refused for: a topic that a broker may have, a
state that Pulsar could not hold, a cursor that is there already and differs. What was written is
read back as Pulsar's and compared before it counts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.bookkeeper.port import Digest, LedgerSpec, LedgerStore
from cursorkeeper.connections import Ports
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.state import AckState
from cursorkeeper.format.pulsar.states import from_ack_state
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.inspection.progress import SILENT, Progress
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts, Selection, iter_ours
from cursorkeeper.migration.compare import as_pulsars, difference
from cursorkeeper.migration.cursor_maker import is_half_made
from cursorkeeper.migration.destination import Destination, destination_of
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.importer import KIND as IMPORT_KIND
from cursorkeeper.migration.journal import Journal
from cursorkeeper.migration.leftovers import RunMark, sweep
from cursorkeeper.migration.outcome import (
    BEFORE,
    FORESEEN,
    Outcome,
    Reporter,
    failed,
    numbers_of,
    run_all,
    text_of,
)
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.pulsar_writer import Writer, Written
from cursorkeeper.migration.repair import is_beyond, repair
from cursorkeeper.migration.string_properties import is_only_a_copy, noted_znode, string_properties
from cursorkeeper.migration.target import Target, WritePlan, plan_write
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.errors import ZooKeeperError

KIND_OF_RUN = "export-pulsar"
KEPT = "already there"
"""Status of a cursor that Pulsar has as ours is."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the options say; each allows what is refused without it."""

    replace: bool = False
    replace_newer: bool = False
    live: bool = False
    broker_is_stopped: bool = False
    allow_loss: bool = False


@dataclass(frozen=True, slots=True)
class Export:
    """One run's settings; `one` does one cursor. `may_begin`: asked before the first change, and
    raises where nothing is to be begun any more. `run`: on new ledgers, so that a later run finds
    those that nobody names.
    """

    ports: Ports
    pulsar: PulsarPorts
    settings: Settings
    target: Target
    spec: LedgerSpec
    bar: Progress
    journal: Journal | None = None
    rules: Rules = Rules()
    dry_run: bool = False
    patience: Patience = field(default_factory=Patience)
    may_begin: Callable[[], Awaitable[None]] | None = None
    run: RunMark | None = None

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        numbers = dict[str, Any]()
        try:
            if await self._is_done(ref):
                return Outcome(str(ref), BEFORE, True, f"{BEFORE}, as the journal says")
            return await self.attempt(await self.destination(ref), numbers)
        except FORESEEN as e:
            return failed(ref, e, numbers)

    async def destination(self, ref: PulsarCursorRef) -> Destination:
        """What Pulsar has there now. Raises MigrationError."""
        return await destination_of(self.pulsar, ref, self.patience)

    async def attempt(self, there: Destination, numbers: dict[str, Any]) -> Outcome:
        """One cursor, in the place of what was seen there and of nothing else; `numbers` is filled
        as they become known. Raises one of FORESEEN.
        """
        began_s, ref = time.monotonic(), there.ref
        state, notes = await self._ours(ref)
        info = self._fitted(ref, state, there, notes)
        numbers |= numbers_of(info)
        status = await self._status(ref, state, there)
        text = f"{text_of(numbers)}, {numbers['properties']} mark-delete properties"
        if status != KEPT:
            plan = self._plan(ref, info, state, there)
            notes += plan.notes
            notes += await self._check_broker(there)
            ledger = -1
            if self.dry_run:
                status = f"would be {status}"
            else:
                written = await self._write(state, plan, there)
                ledger = written.ledger
                notes += written.notes
            numbers |= {"form": plan.form, "bytes": plan.size_bytes, "ledger": ledger}
            text += f"; {where_of(plan, ledger)}"
        numbers["seconds"] = round(time.monotonic() - began_s, 3)
        return Outcome(str(ref), status, True, text, tuple(notes), numbers)

    async def _is_done(self, ref: PulsarCursorRef) -> bool:
        """The journal says so, and ZooKeeper does not say otherwise."""
        if self.journal is None or str(ref) not in self.journal.done:
            return False
        return (
            await self.patience.repeat(ref, lambda: self.pulsar.zookeeper.exists(ref.path))
            is not None
        )

    async def _ours(self, ref: PulsarCursorRef) -> tuple[AckState, list[str]]:
        """Our state, and what is to be said of it. Raises ProblemError, MigrationError."""
        footer, answer, at_least = await read_state(
            self.ports, ref.name, SILENT, self.patience.wait_s
        )
        notes = []
        if footer.state is FooterState.OPEN:
            if is_half_made(footer, IMPORT_KIND):
                raise self._refused(
                    ref,
                    "an import of it is under way, or died half-way: it does not hold everything",
                    "let the import end, or run import-pulsar again first",
                )
            if not self.rules.live:
                remedy = (
                    "close it (stop its source, or the daemon), or take what is durable now "
                    "with --live"
                )
                raise self._refused(
                    ref, f"it is open (epoch {footer.epoch}, by {footer.writer})", remedy
                )
            notes.append("it is open: acks that become durable from now on are not in Pulsar")
        if at_least:
            notes.append(
                "its newest acks may be missing: readers do not see the newest entry of an open "
                "ledger"
            )
        if answer.fell_back:
            notes.append(
                "its newest snapshot is damaged; this is the state from the previous one, and it "
                "is complete"
            )
        if is_only_a_copy(answer.state):
            raise self._refused(
                ref,
                "a broker made it as a part or a copy of Pulsar's own state",
                "leave Pulsar's as it is",
            )
        return answer.state, notes

    def _fitted(
        self, ref: PulsarCursorRef, state: AckState, there: Destination, notes: list[str]
    ) -> PositionInfo:
        """Ours, fitted to the topic as it is. Raises MigrationError REFUSED."""
        info = from_ack_state(state)
        if is_beyond(info.mark_delete, there.layout):
            message = (
                f"its mark-delete {info.mark_delete} lies behind the topic's last ledger "
                f"{there.layout[-1].ledger}"
            )
            remedy = (
                "the topic was deleted and made anew since, and this state is not of it: "
                "delete ours, or reset it"
            )
            raise self._refused(ref, message, remedy)
        fitted, done = repair(info, there.layout)
        notes += done
        return fitted

    def _plan(
        self, ref: PulsarCursorRef, info: PositionInfo, state: AckState, there: Destination
    ) -> WritePlan:
        properties = string_properties(
            state, there.znode.cursor_properties if there.znode is not None else {}
        )
        return plan_write(
            str(ref),
            info,
            properties,
            self.target,
            now_ms=int(time.time() * 1000),
            unknown=there.znode.unknown if there.znode is not None else b"",
            allow_loss=self.rules.allow_loss,
        )

    async def _status(self, ref: PulsarCursorRef, state: AckState, there: Destination) -> str:
        """What it will be. Raises MigrationError REFUSED."""
        if not there.exists:
            return "exported"
        try:
            theirs = await read_cursor(self.pulsar, ref, patience=self.patience)
            differs = self._difference(state, there, theirs)
        except MigrationError as e:
            if e.kind in (Kind.AWAY, Kind.TOO_NEW):
                raise
            differs = f"it cannot be read: {e}"
        if not differs:
            return KEPT
        noted = noted_znode(state)
        past = there.gone_past(noted) if noted is not None else ""
        if past and not self.rules.replace_newer:
            remedy = (
                "leave Pulsar's as it is; --replace-newer puts ours in its place: what "
                "Pulsar has acked meanwhile is then delivered again"
            )
            raise self._refused(
                ref, f"Pulsar itself changed this cursor since the daemon held it: {past}", remedy
            )
        if self.rules.replace or past:
            return "replaced"
        remedy = (
            "look at both; --replace puts ours in its place: what only Pulsar's has acked "
            "is then delivered again"
        )
        raise self._refused(
            ref, f"Pulsar has this cursor and it is not as ours is: {differs}", remedy
        )

    def _difference(self, state: AckState, there: Destination, theirs: PulsarCursor) -> str:
        """Of what Pulsar would recover, from ours as the topic is now; empty: nothing."""
        ours, _ = as_pulsars(state, there.layout, theirs.cursor_properties)
        return str(difference(ours, replace(theirs, layout=there.layout).acks) or "")

    async def _check_broker(self, there: Destination) -> list[str]:
        """Raises MigrationError REFUSED."""
        signs = await there.signs_of_a_broker()
        if not signs:
            return []
        if self.rules.broker_is_stopped:
            return [f"not heeded, as told: {sign}" for sign in signs]
        remedy = (
            "unload the topic (`pulsar-admin topics unload`) or stop the broker; if it is "
            "stopped or has died, say --broker-is-stopped"
        )
        raise self._refused(there.ref, f"a broker may have the topic: {'; '.join(signs)}", remedy)

    async def sweep(self) -> list[str]:
        """Ledgers that an interrupted run of this journal has left go: notes."""
        journal = self.journal
        if journal is None or not journal.is_resumed or self.run is None:
            return []
        notes = []
        try:
            async for one, went in sweep(self.pulsar, self.run.token, self.patience):
                if went:
                    notes.append(f"deleted ledger {one.ledger} of an interrupted run")
        except (GatewayError, MigrationError, ZooKeeperError) as e:
            notes.append(
                f"ledgers of an interrupted run may be left, which hold nothing: {e}. What to "
                f"do: run this again"
            )
        return notes

    async def _write(self, state: AckState, plan: WritePlan, there: Destination) -> Written:
        ref = there.ref
        if self.may_begin is not None:
            await self.may_begin()
        written = await self.writer(there).write(plan, there)
        theirs = await read_cursor(self.pulsar, ref, patience=self.patience)
        wrong = self._difference(state, there, theirs)
        if wrong:
            raise ProblemError(
                f"what Pulsar would read is not what was exported: {wrong}",
                "do not start the broker; report this",
            )
        owner = await there.owner()
        if owner and not self.rules.broker_is_stopped:
            note = (
                f"a broker took the topic meanwhile ({owner}): unload it and look whether it "
                f"has this state"
            )
            return Written(written.ledger, (*written.notes, note))
        return written

    def writer(self, there: Destination) -> Writer:
        marks = self.run.of(there) if self.run is not None else {}
        return Writer(self.pulsar, there.ref, self.spec, self.patience, marks)

    def _refused(self, ref: PulsarCursorRef, message: str, remedy: str) -> MigrationError:
        return MigrationError(Kind.REFUSED, ref, "", message, remedy)


def where_of(plan: WritePlan, ledger: int) -> str:
    """In words: how many bytes, in the znode or in which cursor ledger."""
    if plan.entry is None:
        return f"{plan.size_bytes:,} bytes in the znode"
    return (
        f"{plan.size_bytes:,} bytes in cursor ledger {ledger if ledger >= 0 else '(new)'}, as "
        f"{plan.form}"
    )


# ---- the command


def ledger_spec(conf: Mapping[str, str]) -> LedgerSpec:
    """As Pulsar makes cursor ledgers: 2/2/2, CRC32C and no password unless its broker.conf says
    otherwise. Raises ProblemError.
    """
    try:
        ensemble, write, ack = (
            int(conf.get(f"managedLedgerDefault{name}") or 2)
            for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")
        )
        digest = Digest[conf.get("managedLedgerDigestType") or "CRC32C"]
        return LedgerSpec(
            ensemble, write, ack, digest, conf.get("managedLedgerPassword", "").encode()
        )
    except (ValueError, KeyError) as e:
        raise ProblemError(
            f"Pulsar's broker.conf: quorums or digest: {e}",
            "correct it: Pulsar itself would not start with it",
            Kind.USAGE,
        ) from None


async def target_of(limits: PulsarSettings, pulsar: Settings, ledgers: LedgerStore) -> Target:
    """`limits`: of the brokers; `pulsar`: our settings, pointed at Pulsar's systems. Raises
    GatewayError.
    """
    znode_bytes_max = pulsar.systems.zookeeper_jute_maxbuffer_bytes
    entry_bytes_max = (await ledgers.describe()).entry_bytes_max
    return Target(replace(limits, znode_bytes_max=znode_bytes_max), entry_bytes_max)


async def export_all(
    exporting: Export, selection: Selection, reporter: Reporter, *, jobs: int
) -> None:
    """Every cursor of the selection. Raises ProblemError, ZooKeeperError."""
    refs: AsyncIterator[PulsarCursorRef] = iter_ours(
        exporting.ports.footers, selection, skipped=reporter.skip
    )
    await run_all(refs, exporting.one, reporter, jobs=jobs)
    for note in await exporting.sweep():
        reporter.note(note)
