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

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.migration.patience import Patience
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Batches, Column, same_text
from cursorkeeper_pipeline.decode.extents import carried, extents
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.decode.holes import Counts, HoleRuns, counts
from cursorkeeper_pipeline.decode.partials import living_partials, partial_columns
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.cuts import Splitter, pieces_wanted
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import CursorsTable
from cursorkeeper_pipeline.source.shards import Reader, now_us
from cursorkeeper_pipeline.source.side_by_side import Room, side_by_side
from cursorkeeper_pipeline.source.state_reader import Outcome, Piece, StateReader
from cursorkeeper_pipeline.source.state_size import state_bytes
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.units import Unit, found_in
from cursorkeeper_pipeline.source.wanted import OF_NAME

IN_MEMORY: Final = 2
"""x `splitBytes` of states are worked on at once."""


class Rows(Protocol):
    """Makes the rows of one cursor, of pieces that come in order of position. Pure but for the
    clock.
    """

    def add(self, outcome: Outcome) -> Iterator[Sequence[Column]]:
        """Columns of a table, some rows at a time."""
        ...

    def rest(self) -> Iterator[Sequence[Column]]:
        """The rows that can be said only when all is read."""
        ...


class _HoleRows:
    def __init__(self, unit: Unit) -> None:
        self._runs = HoleRuns(cursor_key(unit.name))

    def add(self, outcome: Outcome) -> Iterator[Sequence[Column]]:
        return (
            self._runs.add(extents(outcome.state, outcome.window))
            if outcome.state is not None
            else iter(())
        )

    def rest(self) -> Iterator[Sequence[Column]]:
        return self._runs.rest()


class _PartialRows:
    def __init__(self, unit: Unit) -> None:
        self._key = cursor_key(unit.name)

    def add(self, outcome: Outcome) -> Iterator[Sequence[Column]]:
        return (
            partial_columns(self._key, living_partials(outcome.state))
            if outcome.state is not None
            else iter(())
        )

    def rest(self) -> Iterator[Sequence[Column]]:
        return iter(())


class _StatsRow:
    def __init__(self, unit: Unit) -> None:
        self._key, self._number, self._parts, self._counts = (
            cursor_key(unit.name),
            unit.number,
            unit.parts,
            Counts(),
        )
        self._mark_delete, self._stored_bytes = Position(0, -1), 0
        self._last: Outcome | None = None
        self._error: str | None = None

    def add(self, outcome: Outcome) -> Iterator[Sequence[Column]]:
        self._last, self._error = outcome, outcome.error or self._error
        self._stored_bytes += outcome.stored_bytes
        if outcome.state is not None:
            batches = sum(1 for _ in living_partials(outcome.state))
            found = counts(
                extents(outcome.state, outcome.window), batches, cut=outcome.window.first
            )
            self._counts = self._counts.joined(found)
            self._mark_delete = outcome.state.mark_delete
        return iter(())

    def rest(self) -> Iterator[Sequence[Column]]:
        if self._last is None:
            return
        found, last = self._counts, self._last
        numbers: tuple[int | None, ...] = (
            *self._mark_delete,
            found.data_ledgers,
            found.span_entries,
            found.acked_entries,
            found.hole_entries,
            found.hole_runs,
            found.longest_run,
            *(found.first_hole or (None, None)),
            found.partial_batches,
            self._stored_bytes,
        )
        if last.state is None:
            numbers = (None,) * len(numbers)
        row = (
            self._key,
            self._number,
            self._parts,
            last.footer_version,
            *numbers,
            now_us(),
            last.status,
            self._error,
        )
        yield [
            pa.array([value], field.type)
            for value, field in zip(row, schemas.HOLE_STATS, strict=True)
        ]


class Columns(NamedTuple):
    name: CursorName
    columns: Sequence[Column]


class _States(CursorsTable):
    rows: Callable[[Unit], Rows]
    cursors_per_task = 256
    """An empty task costs some 50 ms; a cursor with a ledger or two costs several ms of reading."""

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        names = options.names_in(self.schema)
        batches = Batches(pa.schema([*self.schema, *(schemas.NAMES.field(name) for name in names)]))
        for name, columns in systems.iterate(_read(systems, options, part, self.rows)):
            yield from batches.add(with_names(name, columns, names))
        yield from batches.rest()


def with_names(
    name: CursorName, columns: Sequence[Column], names: Sequence[str]
) -> Sequence[Column]:
    """The columns, and behind them those of the cursor's name that were asked for."""
    return [*columns, *(same_text(OF_NAME[column](name), len(columns[0])) for column in names)]


async def _read(
    systems: Systems, options: Options, part: Part, rows: Callable[[Unit], Rows]
) -> AsyncIterator[Columns]:
    footers = Reader(await systems.zookeeper(), options)
    ledgers = await systems.ledgers()
    reader, splitter = (
        StateReader(footers, ledgers, options),
        Splitter(ledgers, Patience(options.wait_s)),
    )
    room = Room(IN_MEMORY * options.split_bytes)

    async def one(asked: tuple[Found, Unit]) -> AsyncIterator[Columns]:
        found, unit = asked
        made, footer = rows(unit), found.footer
        windows, held, generation = [WHOLE], 0, None
        if unit.piece is not None:
            windows, generation = [unit.piece.window], unit.piece.generation
        if isinstance(footer, Footer):
            held = state_bytes(footer) // unit.parts
            if unit.piece is None:
                windows = await splitter.windows(found.name, footer, pieces_wanted(footer, options))
        async for outcome in pieces(reader, room, found, windows, held // len(windows), generation):
            for columns in made.add(outcome):
                yield Columns(found.name, columns)
        for columns in made.rest():
            yield Columns(found.name, columns)

    async for columns in side_by_side(found_in(footers, part), one):
        yield columns


async def pieces(
    reader: StateReader,
    room: Room,
    found: Found,
    windows: Sequence[StateWindow],
    held: int,
    generation: int | None = None,
) -> AsyncIterator[Outcome]:
    """One cursor in these windows, each of `held` bytes of memory, up to the first that cannot be
    read; nothing if it is deleted by now. `generation`: of the footer that it was cut at; None: of
    this one.
    """
    if generation is None:
        generation = found.footer.generation if isinstance(found.footer, Footer) else 0
    reached = FIRST
    for window in windows:
        async with room.taken(held):
            outcome = await reader.read(
                found.name, found, None if window.is_whole else Piece(generation, window)
            )
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
    rows = _HoleRows


class HoleStats(_States):
    """One row a cursor: counted where it is decoded."""

    schema = schemas.HOLE_STATS
    rows = _StatsRow


class BatchPartials(_States):
    schema = schemas.BATCH_PARTIALS
    rows = _PartialRows
