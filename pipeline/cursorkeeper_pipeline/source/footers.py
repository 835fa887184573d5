"""The tables `cursors` and `segments`: everything that footers alone say, so that ZooKeeper is all
that is read.

Owns how many footers a task is worth, and what `mode` makes of a footer that cannot be read. Does
not own the plan (`cursor_plan`), how footers are read (`shards`) nor the columns
(`decode.footer_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from cursorkeeper.core.errors import DamageError
from cursorkeeper.problems import ProblemError, problem_of
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import footer_rows
from cursorkeeper_pipeline.decode.footer_rows import Read, Row
from cursorkeeper_pipeline.failures import telling
from cursorkeeper_pipeline.source.cursor_plan import plan_buckets
from cursorkeeper_pipeline.source.fleet import BucketsPart
from cursorkeeper_pipeline.source.options import Mode, Options
from cursorkeeper_pipeline.source.part import Part
from cursorkeeper_pipeline.source.shards import Batch, read_batches
from cursorkeeper_pipeline.source.systems import Systems

FOOTERS_PER_TASK: Final = 25_000
"""About a second of one core; an empty task costs some 50 ms."""
BATCH_ROWS: Final = 8_192


class Footers:
    schema: pa.Schema
    rows: Callable[[Iterable[Read]], Iterator[Row]]

    def plan(self, options: Options) -> Sequence[Part]:
        with telling(), Systems(options) as systems:

            async def work() -> Sequence[Part]:
                return await plan_buckets(
                    await systems.zookeeper(), options, FOOTERS_PER_TASK, is_deep=False
                )

            return systems.run(work())

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, BucketsPart)
        with telling(), Systems(options) as systems:
            rows = (
                self.rows(_checked(batch, options.mode))
                for batch in read_batches(systems, options, part.buckets)
            )
            yield from footer_rows.batches(rows, self.schema, BATCH_ROWS)


class Cursors(Footers):
    """One row a cursor."""

    schema = schemas.CURSORS
    rows = staticmethod(footer_rows.cursors)


class Segments(Footers):
    """One row for each ledger, or snapshot in one, that a footer names."""

    schema = schemas.SEGMENTS
    rows = staticmethod(footer_rows.segments)


def _checked(batch: Batch, mode: Mode) -> list[Read]:
    if mode is Mode.FAILFAST:
        for name, footer, _ in batch:
            if isinstance(footer, DamageError):
                problem = problem_of(footer)
                raise ProblemError(
                    f"{name}: {problem}",
                    f"{problem.remedy}; mode permissive makes it a row",
                    problem.kind,
                )
    return [Read(*found, batch.read_at_us) for found in batch]
