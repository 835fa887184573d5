"""The tables `cursors` and `segments`: everything that footers alone say, so that ZooKeeper is all
that is read.

Owns how many footers a task is worth, and what `mode` makes of a footer that cannot be read. Does
not own the plan (`plan`), how footers are read (`shards`) nor the columns (`decode.footer_rows`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from typing import Final

import pyarrow as pa

from cursorkeeper.core.errors import DamageError
from cursorkeeper.problems import ProblemError, problem_of
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import footer_rows
from cursorkeeper_pipeline.decode.columns import Row, batches
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BucketsPart, CursorsTable
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part

BATCH_ROWS: Final = 8_192


class Footers(CursorsTable):
    rows: Callable[[Iterable[Found]], Iterator[Row]]
    cursors_per_task = 25_000
    """About a second of one core; an empty task costs some 50 ms."""
    is_deep = False

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, BucketsPart)
        found = chain.from_iterable(systems.iterate(_found(systems, options, part)))
        return batches(self.rows(found), self.schema, BATCH_ROWS)


class Cursors(Footers):
    """One row a cursor."""

    schema = schemas.CURSORS
    rows = staticmethod(footer_rows.cursors)


class Segments(Footers):
    """One row for each ledger, or snapshot in one, that a footer names."""

    schema = schemas.SEGMENTS
    rows = staticmethod(footer_rows.segments)


async def _found(
    systems: Systems, options: Options, part: BucketsPart
) -> AsyncIterator[list[Found]]:
    """Raises ProblemError for a footer that cannot be read, where `mode` is failfast."""
    async for batch in Reader(await systems.zookeeper(), options).in_buckets(part.buckets):
        for found in batch if options.is_strict else ():
            if isinstance(found.footer, DamageError):
                problem = problem_of(found.footer)
                raise ProblemError(
                    f"{found.name}: {problem}",
                    f"{problem.remedy}; mode permissive makes it a row",
                    problem.kind,
                )
        yield batch
