"""One cursor of both sides, entry by entry: what Pulsar would recover against what we would. Writes
nothing.

The same = nothing differs, or only in what no broker would see: positions that the topic does not
have (any more), which Pulsar drops when it recovers a cursor; properties of the subscription that
ours was never told. A note says so. Never the same: what an import has open. It may hold every ack
already; that it does, the import says by closing it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cursorkeeper.connections import Ports
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.state import AckState
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.compare import Difference, as_pulsars, difference
from cursorkeeper.migration.cursor_maker import is_half_made
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.importer import KIND, numbers_of, text_of
from cursorkeeper.migration.outcome import FORESEEN, Outcome, failed
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.repair import is_beyond
from cursorkeeper.problems import Kind, NotFound, Problem
from cursorkeeper_pipeline.sinks.tasks import One, Places

SAME, DIFFERS, ONLY_PULSAR, ONLY_HERE = "same", "differs", "only in Pulsar", "only here"
HALF_MADE = "half-made"
AT_LEAST = "ours is open: its newest acks may not be seen yet"
UNTOLD = "ours was never told the subscription's properties: Pulsar's stay its own"
REMEDY = (
    "the notes and `cursorkeeper inspect` show both; acks made here since an import are no fault"
)


class Ours(NamedTuple):
    """A state of ours, and under which footer."""

    state: AckState
    footer: Footer
    notes: tuple[str, ...]


class Found(NamedTuple):
    """What differs (falsy: nothing), and what is to be said of what was not counted."""

    wrong: Difference
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareWork:
    places: Places

    @asynccontextmanager
    async def opened(self, who: str) -> AsyncIterator[One]:
        """Connections to both systems for as long as the context lasts. Raises ProblemError if one
        cannot be reached.
        """
        async with self.places.opened("reader", "reader") as (ports, theirs):
            yield Comparison(ports, theirs).one


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares one cursor at a time."""

    ports: Ports
    pulsar: PulsarPorts
    patience: Patience = field(default_factory=Patience)

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        began_s, numbers = time.monotonic(), dict[str, Any]()
        try:
            cursor, ours = await self._theirs(ref), await self._ours(ref)
            numbers["seconds"] = round(time.monotonic() - began_s, 3)
            if cursor is not None:
                numbers |= numbers_of(cursor)
            if cursor is None or ours is None:
                return self._alone(ref, cursor, ours, numbers)
            wrong, more = differs(cursor, ours.state)
            numbers |= {"missing": wrong.missing, "extra": wrong.extra, "epoch": ours.footer.epoch}
            notes = (*cursor.warnings, *ours.notes, *more)
            if is_half_made(ours.footer, KIND):
                maker = f"epoch {ours.footer.epoch}, by {ours.footer.writer}"
                what = f"half-made: an import has it open ({maker})"
                return _found(ref, HALF_MADE, what, numbers, notes, "run the import again")
            if not wrong:
                return Outcome(str(ref), SAME, True, text_of(cursor, numbers), notes, numbers)
            return _found(ref, DIFFERS, str(wrong), numbers, notes)
        except FORESEEN as e:
            return failed(ref, e, numbers)

    def _alone(
        self,
        ref: PulsarCursorRef,
        cursor: PulsarCursor | None,
        ours: Ours | None,
        numbers: dict[str, Any],
    ) -> Outcome:
        if cursor is None and ours is None:
            return Outcome(str(ref), SAME, True, "deleted on both sides", (), numbers)
        status, where = (ONLY_PULSAR, "Pulsar") if ours is None else (ONLY_HERE, "CursorKeeper")
        return _found(ref, status, f"only {where} has this cursor", numbers)

    async def _theirs(self, ref: PulsarCursorRef) -> PulsarCursor | None:
        try:
            return await read_cursor(self.pulsar, ref, patience=self.patience)
        except MigrationError as e:
            if e.kind is not Kind.NOT_FOUND:
                raise
            return None

    async def _ours(self, ref: PulsarCursorRef) -> Ours | None:
        try:
            footer, answer, at_least = await read_state(
                self.ports, ref.name, SILENT, self.patience.wait_s
            )
        except NotFound:
            return None
        return Ours(answer.state, footer, (AT_LEAST,) if at_least else ())


def _found(
    ref: PulsarCursorRef,
    status: str,
    what: str,
    numbers: dict[str, Any],
    notes: tuple[str, ...] = (),
    remedy: str = REMEDY,
) -> Outcome:
    return Outcome(str(ref), status, False, "", notes, numbers, Problem(what, remedy))


def differs(theirs: PulsarCursor, ours: AckState) -> Found:
    """From Pulsar's to ours. Pure."""
    wrong = difference(theirs.acks, ours)
    if not wrong:
        return Found(wrong)
    if is_beyond(ours.mark_delete, theirs.layout):
        return Found(wrong, ("our mark-delete lies behind the topic's last ledger",))
    fitted, notes = as_pulsars(ours, theirs.layout, theirs.cursor_properties)
    if ours.cursor_properties is None and theirs.cursor_properties:
        notes = [*notes, UNTOLD]
    left = difference(theirs.acks, fitted)
    return Found(wrong) if left else Found(left, tuple(notes))
