"""The tables `holes`, `hole_stats` and `batch_partials`: what the states of cursors hold, read from
BookKeeper.

Owns how states become rows. Does not own the plan (`plan`), where a cursor is cut
(`cuts`), the reading of one cursor (`state_reader`) or the columns (`decode`). Invariants: in
a table that Spark loads a cursor is one task's, so it is one row of `hole_stats`; a cursor that
cannot be read is such a row, with null for what is not known, and none of the others (or the end of
the job, where `mode` is failfast); a task holds at most `IN_MEMORY` x `splitBytes` of states at a
time, and batches of some 64 Ki rows; a cursor for which BookKeeper does not answer within `waitS`
is `AWAY` in permissive mode, and too many of them in a row end the task.

A cursor that has a snapshot, and whose state is larger than `splitBytes`, is read piece by piece,
in order of position, and what comes out is that of the whole. A second pass (`units`) may have
given pieces to tasks of their own: then `hole_stats` has a row for each, and whoever asked joins
them. Each piece is read at the footer of its own moment. Acks only grow within a generation: every
piece holds at least what the first one was of, and nothing that was not acked. If the cursor was
reset or deleted between two pieces it is `MISSING`: the rows of `holes` that came before stay.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Batches, Column, same_text
from cursorkeeper_pipeline.decode.extents import carried, extents
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.decode.holes import Counts, hole_columns
from cursorkeeper_pipeline.decode.partials import living_partials, partial_columns
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.cuts import Splitter, Unit
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import CursorsTable
from cursorkeeper_pipeline.source.shards import Reader, now_us
from cursorkeeper_pipeline.source.side_by_side import Room, side_by_side
from cursorkeeper_pipeline.source.state_reader import Outcome, StateReader
from cursorkeeper_pipeline.source.state_size import state_bytes
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.units import found_in
from cursorkeeper_pipeline.source.wanted import OF_NAME

IN_MEMORY: Final = 2
"""x `splitBytes` of states are worked on at once."""


Rows = Callable[[Unit, AsyncIterator[Outcome]], AsyncIterator[Sequence[Column]]]


class Columns(NamedTuple):
    name: CursorName
    columns: Sequence[Column]


class _States(CursorsTable):
    cursors_per_task = 256
    """An empty task costs some 50 ms; a cursor with a ledger or two costs several ms of reading."""

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        names = options.names_in(self.schema)
        batches = Batches(pa.schema([*self.schema, *(schemas.NAMES.field(name) for name in names)]))
        for name, columns in systems.iterate(_read(systems, options, part, self.rows)):
            yield from batches.add(with_names(name, columns, names))
        yield from batches.rest()

    @abstractmethod
    def rows(self, unit: Unit, read: AsyncIterator[Outcome]) -> AsyncIterator[Sequence[Column]]:
        """Columns of the table, some rows at a time, of one cursor, whose pieces come in order of
        position.
        """


def with_names(
    name: CursorName, columns: Sequence[Column], names: Sequence[str]
) -> Sequence[Column]:
    """The columns, and behind them those of the cursor's name that were asked for."""
    return [*columns, *(same_text(OF_NAME[column](name), len(columns[0])) for column in names)]


async def _read(
    systems: Systems, options: Options, part: Part, rows: Rows
) -> AsyncIterator[Columns]:
    footers = Reader(await systems.zookeeper(), options)
    ledgers = await systems.ledgers()
    reader, splitter = (
        StateReader(footers, ledgers, options),
        Splitter(ledgers, options),
    )
    room = Room(IN_MEMORY * options.split_bytes)

    async def one(asked: tuple[Found, Unit]) -> AsyncIterator[Columns]:
        found, unit = asked
        units = await splitter.units(found) if unit.window.is_whole else [unit]
        whole = state_bytes(found.footer) if isinstance(found.footer, Footer) else 0
        read = pieces(reader, room, found, units, whole // units[0].parts)
        async for columns in rows(unit, read):
            yield Columns(found.name, columns)

    async for columns in side_by_side(found_in(footers, part), one):
        yield columns


async def pieces(
    reader: StateReader, room: Room, found: Found, units: Sequence[Unit], held: int
) -> AsyncIterator[Outcome]:
    """One cursor in these pieces, each of `held` bytes of memory, up to the first that cannot be
    read; nothing if it is deleted by now.
    """
    reached = FIRST
    for unit in units:
        async with room.taken(held):
            outcome = await reader.read(found, unit)
            if outcome is None:
                return
            if outcome.state is not None:
                reached = carried(outcome.state, reached)
            yield outcome
            if outcome.state is None:
                return


class Holes(_States):
    """Maximal ranges of un-acked entries."""

    schema = schemas.HOLES

    async def rows(
        self, unit: Unit, read: AsyncIterator[Outcome]
    ) -> AsyncIterator[Sequence[Column]]:
        async for one in read:
            if one.state is not None:
                for columns in hole_columns(cursor_key(unit.name), extents(one.state, one.window)):
                    yield columns


class BatchPartials(_States):
    schema = schemas.BATCH_PARTIALS

    async def rows(
        self, unit: Unit, read: AsyncIterator[Outcome]
    ) -> AsyncIterator[Sequence[Column]]:
        async for one in read:
            if one.state is not None:
                for columns in partial_columns(cursor_key(unit.name), living_partials(one.state)):
                    yield columns


class HoleStats(_States):
    """One row a cursor: counted where it is decoded."""

    schema = schemas.HOLE_STATS

    async def rows(
        self, unit: Unit, read: AsyncIterator[Outcome]
    ) -> AsyncIterator[Sequence[Column]]:
        found, stored_bytes = Counts(), 0
        error: str | None = None
        last: Outcome | None = None
        async for last in read:
            error = last.error or error
            stored_bytes += last.stored_bytes
            if last.state is not None:
                found.add(extents(last.state, last.window), cut=last.window.first)
                found.partial_batches += sum(1 for _ in living_partials(last.state))
        if last is None:
            return
        numbers: tuple[int | None, ...] = (None,) * 12
        if last.state is not None:
            numbers = (
                *last.state.mark_delete,
                found.data_ledgers,
                found.span_entries,
                found.acked_entries,
                found.hole_entries,
                found.hole_runs,
                found.longest_run,
                *(found.first_hole or (None, None)),
                found.partial_batches,
                stored_bytes,
            )
        head = (cursor_key(unit.name), unit.number, unit.parts, last.footer_version)
        yield [[value] for value in (*head, *numbers, now_us(), last.status, error)]
