"""The tables `holes`, `hole_stats` and `batch_partials`: what the states of cursors hold, read from BookKeeper.

Owns how states become rows. Does not own the plan (`state_plan`), the reading of one cursor (`state_reader`) or the columns (`decode`).
Invariants: each cursor is read whole and at one footer, so its rows are of one state; a cursor that cannot be read is a row of `hole_stats`
and none of the others (or the end of the job, where `mode` is failfast); a cursor that was deleted after the plan is no row; a task holds
at most `IN_MEMORY` x `splitBytes` of stored states at a time, and batches of some 64 Ki rows.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Batches, Column
from cursorkeeper_pipeline.decode.extents import extents
from cursorkeeper_pipeline.decode.holes import Counts, counts, hole_columns
from cursorkeeper_pipeline.decode.partials import living_partials, partial_columns
from cursorkeeper_pipeline.source.fleet import cursor_key
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.shards import READ_BATCH, Found, Reader, decoded, read_footers
from cursorkeeper_pipeline.source.side_by_side import side_by_side, telling
from cursorkeeper_pipeline.source.state_plan import Item, StatesPart, item_of, plan
from cursorkeeper_pipeline.source.state_reader import Budget, Outcome, StateReader
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part

IN_MEMORY: Final = 4
"""x `splitBytes` of stored states are worked on at once."""


class Work(NamedTuple):
    """A planned cursor, and its footer as the task found it."""

    item: Item
    found: Found


Rows = Callable[[Outcome], Iterator[Sequence[Column]]]
"""How one state becomes columns of a table, some at a time. Pure but for the clock."""


def _holes(outcome: Outcome) -> Iterator[Sequence[Column]]:
    if outcome.state is not None:
        yield from hole_columns(cursor_key(outcome.name), extents(outcome.state))


def _partials(outcome: Outcome) -> Iterator[Sequence[Column]]:
    if outcome.state is not None:
        yield from partial_columns(cursor_key(outcome.name), living_partials(outcome.state))


def _stats(outcome: Outcome) -> Iterator[Sequence[Column]]:
    state = outcome.state
    found, mark_delete = Counts(), (0, -1)
    if state is not None:
        found, mark_delete = counts(extents(state), sum(1 for _ in living_partials(state))), state.mark_delete
    ledger, entry = found.first_hole or (None, None)
    row = (
        cursor_key(outcome.name), 0, 1, outcome.footer_version, *mark_delete,
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
            return plan((item for found in read_footers(systems, options) if (item := item_of(found)) is not None), options)

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, StatesPart)
        batches = Batches(self.schema)
        with telling(), Systems(options) as systems:
            for columns in systems.iterate(_read(systems, options, part, self.rows)):
                yield from batches.add(columns)
            yield from batches.rest()


async def _read(systems: Systems, options: Options, part: StatesPart, rows: Rows) -> AsyncIterator[Sequence[Column]]:
    footers = Reader(await systems.zookeeper(), options)
    reader = StateReader(footers, await systems.ledgers(), options)
    budget = Budget(IN_MEMORY * options.split_bytes)

    async def one(work: Work) -> AsyncIterator[Sequence[Column]]:
        async with budget.of(work.item.stored_bytes):
            outcome = await reader.read(work.found)
            if outcome is not None:
                for columns in rows(outcome):
                    yield columns

    async for columns in side_by_side(_work(footers, part.items), one):
        yield columns


async def _work(footers: Reader, items: Sequence[Item]) -> AsyncIterator[Work]:
    """With the footers as they are now; what has none any more is left out."""
    await footers.sync()
    for start in range(0, len(items), READ_BATCH):
        some = items[start : start + READ_BATCH]
        found = {name: decoded(name, node) for name, node in await footers.read(list({item.name for item in some}))}
        for item in some:
            if item.name in found:
                yield Work(item, found[item.name])


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
