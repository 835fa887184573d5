"""A table of states for the cursors of a DataFrame, in two passes: the first has seen their sizes,
the second is spread by them.

For users of notebooks and for our jobs: what a query has left of the table `cursors` is all that is
read of BookKeeper, by whatever filters, joins or limits it was chosen. Owns how the first pass's
rows become tasks: executors weigh them and look where large ones may be cut, one of them deals all
units out, and each task reads what it was dealt. Nothing is read on the driver, nothing before an
action, and everything anew by each action. Invariants: what comes out is what the table of the same
name says of these cursors; every cursor is read at the footer of its own moment, so one that is
gone by then is no row.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from cursorkeeper.core.names import CursorName
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import BATCH_ROWS, batches
from cursorkeeper_pipeline.failures import OptionError, telling
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.state_size import held_bytes
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.tables import table_of
from cursorkeeper_pipeline.source.units import (
    DEALT,
    UNITS,
    Sized,
    UnitsPart,
    dealt,
    units_of,
)
from cursorkeeper_pipeline.transforms.shape import READABLE, shaped

TABLES: Final = (*schemas.STATES, "checks")
"""Those that can be read of chosen cursors so; a check needs all of its cursor."""
WEIGHED_BY: Final = (
    "topic",
    "subscription",
    "snapshot_bytes",
    "delta_bytes",
    "span_entries",
    "hole_entries",
    "partial_batches",
)
"""The columns of `cursors` that are needed: a name, what is stored, what that describes."""
NEVER_BYTES: Final = (1 << 63) - 1
Pass = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def read_of(cursors: DataFrame, source: Options, tasks: int) -> DataFrame:
    """The table `source.table` for these cursors: rows of `cursors`, as many as there may be, each
    cursor once. `tasks`: how many read it. Raises OptionError.
    """
    table = source.table
    if table not in TABLES:
        raise OptionError(
            f"table {table} is not read of chosen cursors. What to do: choose by options; "
            f"{', '.join(TABLES)} can be"
        )
    missing = [name for name in WEIGHED_BY if name not in cursors.columns]
    if missing:
        raise OptionError(
            f"the chosen cursors have no {missing[0]}. What to do: give whole rows of the table "
            f"cursors"
        )
    weigh, read = passes(source, tasks)
    weighed = (
        cursors.select(*WEIGHED_BY).coalesce(tasks).mapInArrow(weigh, from_arrow_schema(UNITS))
    )
    spread = (
        weighed.repartition(1)
        .mapInArrow(partial(_dealt, tasks), from_arrow_schema(DEALT))
        .repartitionById(tasks, "task")
    )
    found = spread.mapInArrow(read, from_arrow_schema(schemas.TABLES[table]))
    return _joined(found) if table == "hole_stats" else found


def passes(source: Options, tasks: int) -> tuple[Pass, Pass]:
    """What each of at most `tasks` tasks of either pass does, with its share of the job's budgets.
    Pure.
    """
    each = source.of_tasks(tasks)
    split_bytes = source.split_bytes if source.table in schemas.STATES else NEVER_BYTES
    return partial(_weighed, each, split_bytes), partial(_read, each)


def _weighed(
    source: Options, split_bytes: int, given: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of `WEIGHED_BY` as `UNITS`. A state that is in the footer counts as what it is unpacked;
    of a footer that cannot be read nothing is known.
    """
    with telling(), Systems(source) as systems:
        for batch in given:
            columns = (column.to_pylist() for column in batch.columns)
            sized = []
            for topic, subscription, *known in zip(*columns, strict=True):
                snapshot, deltas, *described = (count or 0 for count in known)
                size = held_bytes(snapshot + deltas, *described)
                sized.append(Sized(CursorName(topic, subscription), size))
            found = units_of(systems, source, sized, split_bytes)
            rows = ((pickle.dumps(one.unit), one.cost) for one in found)
            yield from batches(rows, UNITS, BATCH_ROWS)


def _dealt(tasks: int, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `UNITS`, all of them, as `DEALT`."""
    table = pa.Table.from_batches(list(given), schema=UNITS)
    places = dealt(table.column("cost").to_pylist(), tasks)
    units = table.column("unit").take(pa.array([place for place, _ in places], pa.int64()))
    yield from pa.Table.from_arrays(
        [units, pa.array([task for _, task in places], DEALT[1].type)], schema=DEALT
    ).to_batches()


def _read(source: Options, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `DEALT`, those of one task, as rows of the table."""
    units = [pickle.loads(unit) for batch in given for unit in batch.column("unit").to_pylist()]
    if units:
        yield from table_of(source.table).read(source, UnitsPart(tuple(units)))


def _joined(pieces: DataFrame) -> DataFrame:
    """One row a cursor, of the rows of its pieces. One of which a piece is missing or cannot be
    read is such a row.
    """
    is_read = F.col("status").isin(*READABLE)
    at, hole = (
        F.struct("mark_delete_ledger", "mark_delete_entry"),
        F.struct("first_hole_ledger", "first_hole_entry"),
    )
    sums = (
        "data_ledgers",
        "span_entries",
        "acked_entries",
        "hole_entries",
        "hole_runs",
        "partial_batches",
        "stored_bytes",
    )
    found = pieces.groupBy("cursor_key").agg(
        F.struct(
            F.max(at).alias("at"),
            F.min(F.when(F.col("first_hole_ledger").isNotNull(), hole)).alias("hole"),
            F.max("longest_run").alias("longest_run"),
            *[F.sum(name).alias(name) for name in sums],
        ).alias("numbers"),
        *[F.max(name).alias(name) for name in ("footer_version", "error", "parts")],
        F.min("read_at").alias("read_at"),
        F.min("status").alias("least"),  # of the two that are read: AT_LEAST before OK
        F.max(F.when(~is_read, F.col("status"))).alias("unread"),
        F.count("*").alias("pieces"),
    )
    lost = F.when(F.col("pieces") < F.col("parts"), F.lit(schemas.MISSING))
    status = F.coalesce(F.col("unread"), lost, F.col("least"))
    said = F.when(
        F.col("unread").isNull() & lost.isNotNull(), F.lit("was reset or deleted while it was read")
    )
    one = {
        "part_no": F.lit(0),
        "parts": F.lit(1),
        "status": status,
        "error": F.coalesce(said, F.col("error")),
        "numbers": F.when(status.isin(*READABLE), F.col("numbers")),
    }
    row = found.withColumns(one).select("*", "numbers.*", "numbers.at.*", "numbers.hole.*")
    return shaped(row, schemas.HOLE_STATS)
