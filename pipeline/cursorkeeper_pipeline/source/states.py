"""The tables `holes`, `hole_stats` and `batch_partials`: what the states of cursors hold, read from BookKeeper.

Owns how states become rows. Does not own the plan (`state_plan`, `splitting`), the reading of one cursor (`state_reader`) or the columns
(`decode`). Invariants: each cursor is read at one footer, so its rows are of one state; a cursor that cannot be read is a row of
`hole_stats` and none of the others (or the end of the job, where `mode` is failfast); a cursor that was deleted after the plan is no row;
a task holds at most `IN_MEMORY` x `splitBytes` of states at a time, and batches of some 64 Ki rows; a cursor for which BookKeeper does not
answer within `waitS` is `AWAY` in permissive mode, and too many of them in a row end the task.

A cursor that has a snapshot, and whose state and rows are larger than `splitBytes`, is read in pieces by several tasks, each at the
footer of its own moment. Acks only grow within a generation: every piece holds at least what was planned, and nothing that was not
acked. If the cursor was reset or deleted between two pieces, the later ones are `MISSING`: what there is of it then is a part.
Mark-delete of a later piece is a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from cursorkeeper.core.footer import Footer
from cursorkeeper.migration.patience import Patience

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Batches, Column
from cursorkeeper_pipeline.decode.extents import extents
from cursorkeeper_pipeline.decode.holes import Counts, counts, hole_columns
from cursorkeeper_pipeline.decode.partials import living_partials, partial_columns
from cursorkeeper_pipeline.source.fleet import cursor_key
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pacing import paced
from cursorkeeper_pipeline.source.shards import READ_BATCH, Found, Reader, decoded, read_footers
from cursorkeeper_pipeline.source.side_by_side import side_by_side, telling
from cursorkeeper_pipeline.source.splitting import Splitter
from cursorkeeper_pipeline.source.state_plan import (
    IN_MEMORY,
    Item,
    StatesPart,
    is_large,
    item_of,
    piece_bytes,
    pieces_of,
    pieces_wanted,
    plan,
)
from cursorkeeper_pipeline.source.state_reader import Budget, Outcome, StateReader
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part


class Work(NamedTuple):
    """A planned cursor, and its footer as the task found it; None: it has none any more."""

    item: Item
    found: Found | None


Rows = Callable[[Outcome], Iterator[Sequence[Column]]]
"""How one state becomes columns of a table, some at a time. Pure but for the clock."""


def _holes(outcome: Outcome) -> Iterator[Sequence[Column]]:
    if outcome.state is not None:
        yield from hole_columns(cursor_key(outcome.name), extents(outcome.state, outcome.window))


def _partials(outcome: Outcome) -> Iterator[Sequence[Column]]:
    if outcome.state is not None:
        yield from partial_columns(cursor_key(outcome.name), living_partials(outcome.state))


def _stats(outcome: Outcome) -> Iterator[Sequence[Column]]:
    state = outcome.state
    found, mark_delete = Counts(), (0, -1)
    if state is not None:
        batches = sum(1 for _ in living_partials(state))
        found, mark_delete = counts(extents(state, outcome.window), batches, cut=outcome.window.first), state.mark_delete
    ledger, entry = found.first_hole or (None, None)
    part_no, parts = (0, 1) if outcome.piece is None else outcome.piece[:2]
    row = (
        cursor_key(outcome.name), part_no, parts, outcome.footer_version, *mark_delete,
        found.data_ledgers, found.span_entries, found.acked_entries, found.hole_entries, found.hole_runs, found.longest_run, ledger,
        entry, found.partial_batches, outcome.stored_bytes, time.time_ns() // 1000, outcome.status, outcome.error,
    )  # fmt: skip
    yield [pa.array([value], field.type) for value, field in zip(row, schemas.HOLE_STATS, strict=True)]


class _States:
    """What the three tables have in common."""

    schema: pa.Schema
    rows: staticmethod[[Outcome], Iterator[Sequence[Column]]]

    def plan(self, options: Options) -> Sequence[Part]:
        with telling(), Systems(options) as systems:
            whole: list[Item] = []
            large: list[Found] = []
            for found in read_footers(systems, options):
                if is_large(found, options):
                    large.append(found)
                elif (item := item_of(found, options.table)) is not None:
                    whole.append(item)
            return plan([*whole, *systems.iterate(_cut(systems, options, whole, large))], options)

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, StatesPart)
        batches = Batches(self.schema)
        with telling(), Systems(options) as systems:
            for columns in systems.iterate(_read(systems, options, part, self.rows)):
                yield from batches.add(columns)
            yield from batches.rest()


async def _cut(systems: Systems, options: Options, whole: Sequence[Item], large: Sequence[Found]) -> AsyncIterator[Item]:
    """Asks for the gateway only if there is anything to cut."""
    if not large:
        return
    costs = [item.cost_bytes for item in (*whole, *(item_of(found, options.table) for found in large)) if item is not None]
    each_bytes = piece_bytes(costs, options)
    splitter = Splitter(paced(await systems.ledgers(), options.read_rate_mib_s), Patience(options.wait_s))

    async def each() -> AsyncIterator[Found]:
        for found in large:
            yield found

    async def pieces(found: Found) -> AsyncIterator[Item]:
        assert isinstance(found.footer, Footer)
        shares = await splitter.shares(found.name, found.footer, pieces_wanted(found.footer, options, each_bytes))
        for item in pieces_of(found, options.table, shares):
            yield item

    async for item in side_by_side(each(), pieces):
        yield item


async def _read(systems: Systems, options: Options, part: StatesPart, rows: Rows) -> AsyncIterator[Sequence[Column]]:
    footers = Reader(await systems.zookeeper(), options)
    reader = StateReader(footers, paced(await systems.ledgers(), options.read_rate_mib_s), options)
    budget = Budget(IN_MEMORY * options.split_bytes)

    async def one(work: Work) -> AsyncIterator[Sequence[Column]]:
        async with budget.of(work.item.state_bytes):
            outcome = await reader.read(work.item.name, work.found, work.item.piece)
            if outcome is not None:
                for columns in rows(outcome):
                    yield columns

    async for columns in side_by_side(_work(footers, part.items), one):
        yield columns


async def _work(footers: Reader, items: Sequence[Item]) -> AsyncIterator[Work]:
    """With the footers as they are now."""
    await footers.sync()
    for start in range(0, len(items), READ_BATCH):
        some = items[start : start + READ_BATCH]
        found = {name: decoded(name, node) for name, node in await footers.read(list({item.name for item in some}))}
        for item in some:
            yield Work(item, found.get(item.name))


class Holes(_States):
    """Maximal ranges of un-acked entries."""

    schema = schemas.HOLES
    rows = staticmethod(_holes)


class HoleStats(_States):
    """One row a cursor: counted where it is decoded."""

    schema = schemas.HOLE_STATS
    rows = staticmethod(_stats)


class BatchPartials(_States):
    """Partly acked batches."""

    schema = schemas.BATCH_PARTIALS
    rows = staticmethod(_partials)
