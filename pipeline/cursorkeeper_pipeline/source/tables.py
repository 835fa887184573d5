"""Which tables there are, and where each is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.table import Table
from cursorkeeper_pipeline.spelling import guess

_MODULES = {
    "cursors": "footers:Cursors",
    "segments": "footers:Segments",
    "holes": "states:Holes",
    "hole_stats": "states:HoleStats",
    "batch_partials": "states:BatchPartials",
    "deltas": "history:Deltas",
    "ledgers": "ledgers:Ledgers",
    "pulsar_cursors": "pulsar:PulsarCursors",
    "checks": "checks:Checks",
}


def table_of(name: str) -> Table:
    """The table; its module is loaded when it is first asked for."""
    module, _, kind = _MODULES[name].partition(":")
    made: Table = getattr(import_module(f"cursorkeeper_pipeline.source.{module}"), kind)()
    return made


def columns_of(table: str, wanted: StructType) -> tuple[str, ...]:
    """The names of a query's schema. Raises OptionError where it is none of the table."""
    own = from_arrow_schema(schemas.TABLES[table])
    known = {field.name: field.dataType for field in own}
    if table in schemas.STATES:
        known |= {field.name: field.dataType for field in from_arrow_schema(schemas.NAMES)}
    for field in wanted:
        kind = known.get(field.name)
        if kind is None:
            raise OptionError(
                f"schema: {table} has no column {field.name}",
                f"{guess(field.name, known)}the columns are {', '.join(known)}",
            )
        if kind != field.dataType:
            said, real = field.dataType.simpleString(), kind.simpleString()
            raise OptionError(
                f"schema: {field.name} is {said} there and {real} in {table}",
                f"write {field.name} {real}",
            )
    if not wanted.names:
        raise OptionError(
            "schema: it names no column", f"leave it out, or name some of {', '.join(known)}"
        )
    return tuple(wanted.names)


def schema_of(given: Mapping[str, str]) -> StructType:
    """Raises OptionError."""
    return from_arrow_schema(schemas.TABLES[Options.parse(given).table])
