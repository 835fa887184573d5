"""What a table is: a schema, a plan, and a reader of one part of the plan. Knows no Spark, so that tests need none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from cursorkeeper_pipeline.source.options import Options


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads; pickled and sent to it. Each table has its own kind."""


class Table(Protocol):
    """One table. Stateless: modules in `source` make one and `tables` names them."""

    @property
    def schema(self) -> pa.Schema:
        """Of every batch, exactly."""
        ...

    def plan(self, options: Options) -> Sequence[Part]:
        """On the driver, once for each DataFrame or view, which may live for days: a part says where to look, and not what is there.
        Raises CommandError."""
        ...

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        """In a task. Raises CommandError when a system is away too long; damage is a row, or raised if `mode` is failfast."""
        ...
