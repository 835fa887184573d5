"""Serves who moves to CursorKeeper: cursors of a Pulsar cluster, live or stopped, become ours.
Pulsar's are only read.

Owns what is done with each cursor: made, made again where an import died half-way, left alone where
it is there already and the same, refused where it is there and differs. What was made is read back
and compared, entry by entry, before it counts.

Order: our footer, then Pulsar's state, then that very footer is claimed or nothing. So a state that
was read before another import's is never put in the place of what that one has made: its footer
would be another one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, islice
from typing import Any

from cursorkeeper.connections import Ports
from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.footer import Footer, FooterState, Mark, mark_of
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Partial
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.hold import Lost
from cursorkeeper.inspection.progress import SILENT, Progress, Silence
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration import outcome
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts, Selection, iter_cursors
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.cursor_maker import (
    Part,
    Source,
    footer_of,
    is_half_made,
    is_left_over,
    is_made_by,
    make_cursor,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.journal import Journal
from cursorkeeper.migration.outcome import BEFORE, FORESEEN, Outcome, Reporter, failed, run_all
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.settings import Settings

KIND = "import-pulsar"
"""Stands in the writer of a footer that an import makes."""
REPLACE = (
    "look at both; --replace deletes ours and makes it anew from Pulsar's: whoever has it open is "
    "deposed, and what only ours has acked is delivered again"
)


class Plan(StrEnum):
    """What is to be done with one cursor."""

    MAKE = "imported"
    REDO = "redone"  # an import died half-way: its cursor is deleted and made anew
    REPLACE = "replaced"
    # an import made it and nobody has opened it since: nobody has acked in it
    REFRESH = "refreshed"
    KEEP = "already there"
    # by this very run, see `Import.made_here`
    PAST = "imported before"


ENTRIES_PER_BATCH = 1 << 22
"""The widest range of one batch: half a MiB of bits at most."""
PARTIALS_PER_BATCH = 2_000
NOTHING = (Plan.KEEP, Plan.PAST)


@dataclass(frozen=True, slots=True)
class Import:
    """One run's settings; `one` does one cursor. `refresh`: a closed cursor that differs is made
    anew if nobody has had it open since an import made it. `left_over`: the open footer of an
    import that is gone, where that is known better than `is_left_over` does. `may_begin`: asked
    once the footer was seen, and raises where nothing is to be begun any more. `made_here`: whether
    this run made a closed footer and did not find it wrong, where a run is known: then it is done,
    though a live Pulsar moves on.
    """

    ports: Ports
    pulsar: PulsarPorts
    settings: Settings
    bar: Progress
    journal: Journal | None = None
    replace: bool = False
    dry_run: bool = False
    roll_back_unreadable: bool = False
    patience: Patience = field(default_factory=Patience)
    refresh: bool = False
    left_over: Mark | None = None
    may_begin: Callable[[], Awaitable[None]] | None = None
    made_here: Callable[[Footer], Awaitable[bool]] | None = None

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        numbers = dict[str, Any]()
        try:
            return await self.attempt(ref, numbers)
        except FORESEEN as e:
            return failed(ref, e, numbers)

    async def attempt(self, ref: PulsarCursorRef, numbers: dict[str, Any]) -> Outcome:
        """The same; `numbers` is filled as they become known. Raises one of FORESEEN; Raced:
        somebody else was quicker.
        """
        began_s, name = time.monotonic(), ref.name
        footer = await self.footer(name)  # before Pulsar's state, see the module
        if self.may_begin is not None:
            await self.may_begin()
        if self._is_done(name, footer):
            return Outcome(str(ref), BEFORE, True, f"{BEFORE}, as the journal says")
        cursor = await read_cursor(
            self.pulsar, ref, roll_back_unreadable=self.roll_back_unreadable, patience=self.patience
        )
        numbers |= numbers_of(cursor)
        state = cursor.acks
        self._check_batches(cursor)
        (plan, differs), seen = await self._plan(name, footer, state), mark_of(footer)
        numbers["epoch"] = seen.epoch
        if not self.dry_run and plan not in NOTHING:
            numbers["epoch"] = await self._make(cursor, state, plan, seen)
        numbers["seconds"] = round(time.monotonic() - began_s, 3)
        status = f"would be {plan}" if self.dry_run and plan not in NOTHING else str(plan)
        moved_on = (
            (
                "Pulsar's has moved on since this run imported it, or its task died before it "
                f"compared the two: {differs}",
            )
            if plan is Plan.PAST
            else ()
        )
        return Outcome(
            str(ref), status, True, text_of(cursor, numbers), (*cursor.warnings, *moved_on), numbers
        )

    async def footer(self, name: CursorName) -> Footer | None:
        """Waits for ZooKeeper as long as for Pulsar's. Raises ProblemError, DamageError,
        MigrationError.
        """
        try:
            return await footer_of(self.ports, name)
        except ProblemError as e:
            if e.kind is not Kind.AWAY:
                raise
        await self.patience.repeat(
            name.display, lambda: self.ports.zookeeper.sync(self.ports.footers.path(name))
        )
        return await footer_of(self.ports, name)

    def _is_done(self, name: CursorName, footer: Footer | None) -> bool:
        """The journal says so, and ZooKeeper does not say otherwise."""
        if self.journal is None or name.display not in self.journal.done:
            return False
        return (
            footer is not None
            and footer.state is not FooterState.DELETED
            and not self._is_left_over(footer)
        )

    def _is_left_over(self, footer: Footer) -> bool:
        if self.left_over is None:
            return is_left_over(footer, KIND, self.settings)
        return is_half_made(footer, KIND) and mark_of(footer) == self.left_over

    def _check_batches(self, cursor: PulsarCursor) -> None:
        """Raises MigrationError."""
        if cursor.state.batches and not self.settings.state.batch_index_acknowledge_enable:
            message = (
                f"{len(cursor.state.batches):,} partly acked batches would be lost: our "
                f"settings keep no batch indexes"
            )
            raise MigrationError(
                Kind.REFUSED,
                str(cursor.ref),
                "",
                message,
                "set batch_index_acknowledge_enable = true",
            )

    async def _plan(
        self, name: CursorName, footer: Footer | None, state: AckState
    ) -> tuple[Plan, str]:
        """What is to be done with the footer that was seen, and with no other one; how ours
        differs, if it was read. Raises Exists; Raced: it is another one by now.
        """
        if footer is None or footer.state is FooterState.DELETED:
            return Plan.MAKE, ""
        if self._is_left_over(footer):
            return Plan.REDO, ""
        if footer.state is FooterState.OPEN:
            if self.replace:
                return Plan.REPLACE, ""
            raise Exists(
                f"it exists and is open (epoch {footer.epoch}, by {footer.writer})",
                f"close it, or {REPLACE}",
            )
        now, is_read = footer, True
        try:
            now, ours = await self._read(name)
            differs = str(difference(state, ours) or "")
        except FORESEEN as e:
            differs, is_read = f"it cannot be read: {e}", False
        if not differs:
            return Plan.KEEP, ""
        if mark_of(now) != mark_of(footer):
            raise raced(now)
        if self.replace:
            return Plan.REPLACE, differs
        if is_read and self.made_here is not None and await self.made_here(footer):
            return Plan.PAST, differs
        if self.refresh and is_made_by(footer, KIND):
            return Plan.REFRESH, differs
        raise Exists(
            f"it exists (epoch {footer.epoch}, closed) and is not as Pulsar's is: {differs}",
            REPLACE,
        )

    async def _make(self, cursor: PulsarCursor, state: AckState, plan: Plan, seen: Mark) -> int:
        """The epoch. Raises ProblemError; Raced, and then what somebody else has done is as it
        was.
        """
        source = source_of(cursor)
        again = plan is not Plan.MAKE
        try:
            done = await make_cursor(
                self.ports,
                self.settings,
                source,
                _OneOfMany(self.bar),
                kind=KIND,
                replace=again,
                seen=seen,
            )
        except ProblemError as e:
            footer = await footer_of(self.ports, source.name)
            if footer is None or mark_of(footer) == seen:
                raise
            # who was deposed has a successor, of whatever name; another host may have ours
            if not isinstance(e, Lost) and footer.writer.startswith(
                f"{self.settings.daemon.identity}/"
            ):
                raise
            raise raced(footer) from e
        try:
            footer, ours = await self._read(source.name)
        except NotFound as e:
            raise Raced(
                "it was made, and deleted before it was read back",
                "run this again if it is to be here",
            ) from e
        wrong = difference(state, ours)
        if wrong and (footer.epoch, footer.state) != (done.epoch, FooterState.CLOSED):
            who = f"epoch {footer.epoch}, by {footer.writer}"
            message = f"it was made, and opened before it was read back ({who}): {wrong}"
            raise Raced(
                message, "its source acks here already: that is as it should be; else " + REPLACE
            )
        if wrong:
            raise Unlike(
                f"what was made is not what was read: {wrong}", "keep both and report this"
            )
        return done.epoch

    async def _read(self, name: CursorName) -> tuple[Footer, AckState]:
        """Footer and state of our cursor, read without a claim."""
        footer, answer, _ = await read_state(self.ports, name, SILENT, self.patience.wait_s)
        return footer, answer.state


class Exists(ProblemError):
    """Ours is there, and must not be touched."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy, Kind.REFUSED)


class Raced(Exists):
    """It is there since a moment ago: somebody else was quicker."""


class Unlike(ProblemError):
    """What was made and closed is not what was read."""


def raced(footer: Footer) -> Raced:
    """The error where somebody has made the cursor meanwhile."""
    if is_made_by(footer, KIND):
        remedy = (
            "let one of the two runs finish, and run this again: what is the same is left alone"
        )
        return Raced(f"another import makes it at the same time ({footer.writer})", remedy)
    return Raced(
        f"it was opened meanwhile (epoch {footer.epoch}, by {footer.writer})",
        f"close it, or {REPLACE}",
    )


def source_of(cursor: PulsarCursor) -> Source:
    """A cursor that was read, as the engine wants it."""
    state = cursor.state
    return Source(
        cursor.ref.name,
        state.mark_delete,
        _parts(state),
        cursor.layout,
        cursor.cursor_properties or None,
        state.properties or None,
    )


def _parts(state: PositionInfo) -> Iterator[Part]:
    """Entries of each ledger, then the partly acked batches, whose sizes Pulsar's cursors do not
    know: 0.
    """
    for ledger, entries in state.acked.items():
        for first in range(entries.min(), entries.max() + 1, ENTRIES_PER_BATCH):
            part = bitmaps.between(entries, first, first + ENTRIES_PER_BATCH - 1)
            if part:
                yield Part((LedgerColumns(ledger, bitmap=part),), 0)
    batches = iter(state.batches.items())
    while some := list(islice(batches, PARTIALS_PER_BATCH)):
        columns = [
            LedgerColumns(
                ledger, partials=tuple((key.entry, Partial(0, missing)) for key, missing in items)
            )
            for ledger, items in groupby(some, key=lambda item: item[0].ledger)
        ]
        yield Part(tuple(columns), 0)


class _OneOfMany(Silence):
    """The bar of one cursor among many: it counts cursors, not what one of them takes."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar

    def say(self, what: str, /) -> None:
        self._bar.say(what)


def numbers_of(cursor: PulsarCursor) -> dict[str, Any]:
    """The numbers of the report, of the state that was read."""
    return {
        **outcome.numbers_of(cursor.state),
        "cursorProperties": len(cursor.cursor_properties),
        "layoutLedgers": len(cursor.layout),
        "bytesRead": cursor.bytes_read,
        "freshness": cursor.freshness.as_json(),
    }


def text_of(cursor: PulsarCursor, numbers: dict[str, Any]) -> str:
    return (
        f"{outcome.text_of(numbers)}, "
        f"{numbers['properties'] + numbers['cursorProperties']} properties, {cursor.bytes_read:,} "
        f"bytes read; {cursor.freshness.sentence}"
    )


async def import_all(
    importing: Import, selection: Selection, reporter: Reporter, *, jobs: int
) -> None:
    """Every cursor of the selection. Raises ProblemError."""
    refs: AsyncIterator[PulsarCursorRef] = iter_cursors(
        importing.pulsar.zookeeper, selection, skipped=reporter.skip, patience=importing.patience
    )
    await run_all(refs, importing.one, reporter, jobs=jobs)
