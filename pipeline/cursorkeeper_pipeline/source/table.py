"""What a table is: a schema, a plan, and a reader of one part of the plan. Knows no Spark, so that
tests need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.part import Part


class Table(Protocol):
    """One table. Stateless: modules in `source` make one and `tables` names them."""

    @property
    def schema(self) -> pa.Schema:
        """Of every batch, exactly."""
        ...

    def plan(self, options: Options) -> Sequence[Part]:
        """On the driver, once for each DataFrame or view, which may live for days: a part says
        where to look, and not what is there. Raises ProblemError.
        """
        ...

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        """In a task. Raises ProblemError when a system is away too long; damage is a row, or raised
        if `mode` is failfast.
        """
        ...
