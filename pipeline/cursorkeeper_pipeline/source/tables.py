"""Which tables there are, and where each is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.table import Table

_MODULES = {
    "cursors": "footers:Cursors", "segments": "footers:Segments",
    "holes": "states:Holes", "hole_stats": "states:HoleStats", "batch_partials": "states:BatchPartials",
    "deltas": "history:Deltas", "ledgers": "ledgers:Ledgers", "pulsar_cursors": "pulsar:PulsarCursors",
    "checks": "checks:Checks",
}  # fmt: skip


def table_of(name: str) -> Table:
    """The table; its module is loaded when it is first asked for."""
    module, _, kind = _MODULES[name].partition(":")
    made: Table = getattr(import_module(f"cursorkeeper_pipeline.source.{module}"), kind)()
    return made


def schema_of(given: Mapping[str, str]) -> StructType:
    """As Spark wants it. Raises OptionError."""
    return from_arrow_schema(schemas.TABLES[Options.parse(given).table])
