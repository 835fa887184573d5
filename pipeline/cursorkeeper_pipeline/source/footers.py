"""The tables `cursors` and `segments`: everything that footers alone say, so that ZooKeeper is all that is read.

Owns the plan (groups of buckets, by the number of znodes that ZooKeeper counts in each) and what `mode` makes of a footer that cannot be
read. Does not own how footers are read (`shards`) nor the columns (`decode.footer_rows`).
Invariants: planning reads no footer and lists no name; every bucket is in exactly one part; a single named cursor is one part and one read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from cursorkeeper.cli.problems import CommandError, explain
from cursorkeeper.core.errors import DamageError

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import footer_rows
from cursorkeeper_pipeline.decode.footer_rows import Read, Row
from cursorkeeper_pipeline.source.fleet import BucketsPart, NamedPart, buckets_of
from cursorkeeper_pipeline.source.options import Mode, Options
from cursorkeeper_pipeline.source.planning import grouped, task_count
from cursorkeeper_pipeline.source.shards import Batch, Reader, read_batches
from cursorkeeper_pipeline.source.side_by_side import telling
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part

FOOTERS_PER_TASK: Final = 25_000
"""About a second of one core; an empty task costs some 50 ms."""
BATCH_ROWS: Final = 8_192


class Footers:
    """What both tables do."""

    schema: pa.Schema
    rows: Callable[[Iterable[Read]], Iterator[Row]]

    def plan(self, options: Options) -> Sequence[Part]:
        selection = options.selection
        if selection.topic and selection.subscription:
            return [NamedPart()]
        with telling(), Systems(options) as systems:

            async def sizes() -> dict[str, int]:
                reader = Reader(await systems.zookeeper(), options)
                await reader.sync()
                return await reader.bucket_sizes()

            return plan_of(systems.run(sizes()), options)

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        buckets = buckets_of(part)
        with telling(), Systems(options) as systems:
            rows = (self.rows(_checked(batch, options.mode)) for batch in read_batches(systems, options, buckets))
            yield from footer_rows.batches(rows, self.schema, BATCH_ROWS)


class Cursors(Footers):
    """One row a cursor."""

    schema = schemas.CURSORS
    rows = staticmethod(footer_rows.cursors)


class Segments(Footers):
    """One row for each ledger, or snapshot in one, that a footer names."""

    schema = schemas.SEGMENTS
    rows = staticmethod(footer_rows.segments)


def plan_of(sizes: dict[str, int], options: Options) -> list[BucketsPart]:
    """One part for each `FOOTERS_PER_TASK` begun, or as many as `tasks` says, but no more than there are buckets."""
    tasks = task_count(options.tasks, sum(sizes.values()), FOOTERS_PER_TASK)
    return [BucketsPart(group) for group in grouped(sizes, tasks)]


def _checked(batch: Batch, mode: Mode) -> list[Read]:
    if mode is Mode.FAILFAST:
        for name, footer, _ in batch:
            if isinstance(footer, DamageError):
                problem = explain(footer)
                raise CommandError(f"{name}: {problem.message}", f"{problem.remedy}; mode permissive makes it a row", problem.exit_code)
    return [Read(*found, batch.read_at_us) for found in batch]
