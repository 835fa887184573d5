"""What a table is: a schema, a plan, and a reader of one part of the plan. For whoever adds a
table; the tables know no Spark, so that tests need none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cursorkeeper_pipeline.failures import telling
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.systems import Systems


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads; pickled and sent to it. Tables have kinds of their own."""


class Table(ABC):
    """One table. Stateless: modules in `source` make one and `tables` names them."""

    schema: pa.Schema
    """Of every batch, exactly."""

    def plan(self, options: Options) -> Sequence[Part]:
        """On the driver, once for each DataFrame or view, which may live for days: a part says
        where to look, and not what is there. Raises ProblemError.
        """
        with telling(), Systems(self.place_of(options)) as systems:
            return systems.run(self.parts(systems, options))

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        """In a task. Raises ProblemError when a system is away too long; damage is a row, or raised
        if `mode` is failfast.
        """
        with telling(), Systems(self.place_of(options)) as systems:
            yield from self.batches(systems, options, part)

    def place_of(self, options: Options) -> Options:
        """The options that say where its systems are."""
        return options

    @abstractmethod
    async def parts(self, systems: Systems, options: Options) -> Sequence[Part]:
        """The plan."""

    @abstractmethod
    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        """What a part holds."""
