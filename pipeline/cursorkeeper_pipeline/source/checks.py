"""The table `checks`: everything of every cursor that can be checked by reading it, for the audit.

Owns which cursor is checked when, what a finding is called, and that a cursor which changes under
the reader is looked at again before anything is said of it. What is checked is `inspection`'s:
every entry of every ledger that the footer names by itself, what a recovery would find, and the
same state from the previous snapshot. A ledger that is missing keeps the others of its cursor from
being read.

Rows: one of kind `checked` (or `unchecked`: why it could not be read) for each cursor, with the
counts, and one for each finding with its place and remedy; so counts add up. Tombstones are rows
only with the option `deleted`, as in every table: `checked`, there is nothing to read. `mode`
changes nothing here: damage is the answer.

Memory: a state is held twice (from the newest and from the previous snapshot); cursors are read at
once as long as four times what their states take unpacked (`state_size`) fits into `taskBytes`, a
larger one alone.

A root that is not there, or is nobody's, is an error and no empty table (`roots`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Footer, FooterState, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import checks, reader
from cursorkeeper.inspection.checks import Report
from cursorkeeper.inspection.reader import Moved
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import columns
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.away import AwayCount
from cursorkeeper_pipeline.source.cuts import Unit
from cursorkeeper_pipeline.source.options import MIB, Options
from cursorkeeper_pipeline.source.plan import CursorsTable
from cursorkeeper_pipeline.source.roots import check_root
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.side_by_side import Room, side_by_side
from cursorkeeper_pipeline.source.state_size import state_bytes
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.units import found_in

TRIES_MAX = 3
"""Of one cursor that changes while it is read."""
PAUSE_S = 1.0
"""Before a cursor that is too busy to be read is looked at again."""
BATCH_ROWS = 1024
EXPANSION = 4
"""Times a state, about: the state twice, what the comparison makes of it, and the batch being
read.
"""
FOOTER_REMEDY = (
    "do not overwrite it; put its *latest* bytes back with `cursorkeeper restore-footer`, or "
    "`cursorkeeper import --replace` an export of the cursor; its ledgers are kept, because "
    "nothing is known of them"
)
UPGRADE = "run the audit with the release that wrote it; nothing is wrong with the cursor"
MISSING_REMEDY = (
    "find out who deleted it; `cursorkeeper inspect --no-records` shows which snapshot needs it: "
    "unless only the previous one does, the cursor is refused when it is opened, and is made "
    "again from an export with `cursorkeeper import --replace`"
)
WRITER_REMEDY = "find out who wrote this footer; opening the cursor claims it with the next epoch"


class Finding(NamedTuple):
    """Something wrong with a cursor."""

    kind: str
    place: str
    message: str
    remedy: str


class Checked(NamedTuple):
    """What was found of one cursor. `unchecked`: why it could not be read; empty: it was."""

    name: CursorName
    state: str | None
    epoch: int | None
    ledgers: int = 0
    records: int = 0
    stored_bytes: int = 0
    at_least: bool = False
    findings: tuple[Finding, ...] = ()
    unchecked: str = ""

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """In the order of `schemas.CHECKS`."""
        who = (cursor_key(self.name), self.name.display, self.state, self.epoch)
        kind = schemas.UNCHECKED if self.unchecked else schemas.CHECKED
        remedy = "run the audit again when it is quieter" if self.unchecked else ""
        yield (
            *who,
            kind,
            "",
            self.unchecked,
            remedy,
            self.ledgers,
            self.records,
            self.stored_bytes,
            self.at_least,
        )
        for finding in self.findings:
            yield *who, *finding, 0, 0, 0, self.at_least


class Checks(CursorsTable):
    schema = schemas.CHECKS
    cursors_per_task = 128

    async def parts(self, systems: Systems, options: Options) -> Sequence[Part]:
        await check_root(await systems.zookeeper(), systems.ledgers, options)
        return await super().parts(systems, options)

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        checked = systems.iterate(_checked(systems, options, part))
        return columns.batches(
            chain.from_iterable(one.rows() for one in checked), self.schema, BATCH_ROWS
        )


async def _checked(systems: Systems, options: Options, part: Part) -> AsyncIterator[Checked]:
    zookeeper = await systems.zookeeper()
    ledgers = await systems.ledgers()
    # a view may be older than the loss of its root
    await check_root(zookeeper, systems.ledgers, options)
    reader = Reader(zookeeper, options)
    checker = Checker(await systems.footers(), ledgers, reader, options)
    room, away = Room(options.task_bytes), AwayCount()

    async def work(asked: tuple[Found, Unit]) -> AsyncIterator[Checked]:
        found, _ = asked
        async with room.taken(needed_bytes(found.footer)):
            checked = await checker.check(found)
        if checked is not None:
            yield checked

    async for checked in side_by_side(found_in(reader, part), work):
        if checked.unchecked:
            away.missed(checked.name, ProblemError(checked.unchecked, ""))
        else:
            away.answered()
        yield checked


class Checker:
    """Checks cursors of one root."""

    def __init__(
        self, footers: FooterStore, ledgers: LedgerStore, reader: Reader, options: Options
    ) -> None:
        self._footers, self._ledgers, self._reader = footers, ledgers, reader
        self._root, self._patience = options.settings.systems.root, options.patience

    async def check(self, found: Found) -> Checked | None:
        """None: its footer is gone. Raises ProblemError, GatewayError: a system does not answer as
        it must.
        """
        checked: Checked | None = None
        for _ in range(TRIES_MAX):
            checked = await self._once(found)
            if not checked.findings and not checked.unchecked:
                return checked
            now = await self._reader.one(found.name)
            if now is None:
                return None
            if not _has_moved(checked, found.footer, now.footer):
                return checked
            if checked.unchecked:
                await asyncio.sleep(PAUSE_S)
            found = now
        return checked  # found each time, however the footer moves

    async def _once(self, found: Found) -> Checked:
        footer, name = found.footer, found.name
        if isinstance(footer, DamageError):
            return self._unreadable(name, footer)
        known = Checked(name, str(footer.state), footer.epoch)
        if footer.state is FooterState.DELETED:
            return known
        try:
            return await self._read(known, footer)
        except ProblemError as e:
            if e.kind is not Kind.AWAY:
                raise
            return known._replace(unchecked=str(e))

    async def _read(self, known: Checked, footer: Footer) -> Checked:
        name = known.name
        try:
            report = await self._patience.repeat(
                name.display,
                lambda: checks.check(
                    self._footers, self._ledgers, name, wait_s=self._patience.wait_s
                ),
            )
        except NotFound:
            return known._replace(state=str(FooterState.DELETED))
        except DamageError as e:  # the footer, by now
            return self._unreadable(name, e)
        except ProblemError as e:
            if isinstance(e.__cause__, Moved):
                return await self._missing(known, footer, e.__cause__.ledger)
            raise
        findings = (*findings_of(report, self._path(name)), *self._without_owner(name, footer))
        return Checked(
            name,
            report.state,
            footer.epoch,
            report.ledgers,
            report.records,
            report.stored_bytes,
            report.at_least,
            findings,
        )

    def _path(self, name: CursorName) -> str:
        return name.path(self._root)

    def _unreadable(self, name: CursorName, error: DamageError) -> Checked:
        is_new = isinstance(error, TooNewError)
        kind, remedy = (
            ("footer_too_new", UPGRADE) if is_new else ("footer_unreadable", FOOTER_REMEDY)
        )
        return Checked(
            name, None, None, findings=(Finding(kind, self._path(name), error.message, remedy),)
        )

    def _without_owner(self, name: CursorName, footer: Footer) -> tuple[Finding, ...]:
        if footer.writer or footer.state is not FooterState.OPEN:
            return ()
        message = f"epoch {footer.epoch} is open and names no writer"
        return (Finding("epoch_without_owner", self._path(name), message, WRITER_REMEDY),)

    async def _missing(self, known: Checked, footer: Footer, first: int) -> Checked:
        """All of them, not only the first that a reader met."""
        ends = await self._patience.repeat(
            known.name.display, lambda: reader.ends_of(self._ledgers, footer, missing_ok=True)
        )
        gone = sorted({ledger for ledger, end in ends.items() if end.info is None} | {first})
        said = (
            "the footer names it, and it does not exist; what its cursor's other ledgers hold "
            "was not checked"
        )
        findings = tuple(
            Finding("ledger_missing", f"ledger {ledger}", said, MISSING_REMEDY) for ledger in gone
        )
        return known._replace(ledgers=len(ends) - len(gone), findings=findings)


def findings_of(report: Report, path: str) -> tuple[Finding, ...]:
    """A report's damage by its kind; what is said of the state as a whole is one. `path`: the place
    of what is in no ledger. Pure.
    """
    found = []
    for one in report.findings:
        if one.ledger is not None:
            kind = "record_damaged" if one.entry is not None else "ledger_damaged"
            found.append(Finding(kind, one.place, one.message, report.remedy))
    if of_state := [one.message for one in report.findings if one.ledger is None]:
        kind = "snapshot_differs" if report.previous == "differs" else "state_unreadable"
        found.append(Finding(kind, path, "; ".join(of_state), report.remedy))
    if report.findings_count > len(report.findings):
        message = (
            f"and {report.findings_count - len(report.findings)} more findings: "
            f"`cursorkeeper verify` shows the cursor alone"
        )
        found.append(Finding("record_damaged", path, message, report.remedy))
    return tuple(found)


def _has_moved(checked: Checked, before: Footer | DamageError, now: Footer | DamageError) -> bool:
    """Whether what was found may be of a footer that is none any more."""
    if isinstance(now, DamageError):
        return not isinstance(before, DamageError)
    if isinstance(before, DamageError) or checked.unchecked:
        return True
    named = {f"ledger {ledger}" for ledger in now.named_ledgers()}
    in_ledgers = all(finding.place.partition(" entry ")[0] in named for finding in checked.findings)
    return not (in_ledgers or before.is_same_write(now))


def needed_bytes(footer: Footer | DamageError) -> int:
    """Of memory while a cursor is checked, about."""
    if isinstance(footer, DamageError):
        return MIB
    previous = footer.previous.base if footer.previous is not None else None
    older = previous.length if isinstance(previous, SnapshotBase) else 0
    return MIB + EXPANSION * max(state_bytes(footer), older)
