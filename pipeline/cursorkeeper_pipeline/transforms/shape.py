"""The last step of every transform: the columns of a schema constant, by name, type and order."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

READABLE = ("OK", "AT_LEAST")
"""Statuses whose numbers mean something."""


def shaped(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """A select of the schema's columns; what else the frame has is gone."""
    return frame.select(
        *[
            F.col(field.name).cast(field.dataType).alias(field.name)
            for field in from_arrow_schema(schema)
        ]
    )


def readable(cursors: DataFrame) -> DataFrame:
    """Cursors that are there and whose footer could be read."""
    return cursors.where(F.col("status").isin(*READABLE) & (F.col("state") != "deleted"))


def number(value: int) -> Column:
    return F.lit(value).cast("bigint")


def total(name: str) -> Column:
    """The sum of a column under its name, 0 where there is nothing."""
    return F.coalesce(F.sum(name), number(0)).alias(name)


def share(used: Column, allowed: int) -> Column:
    """`used` of `allowed`, 1.0 is all of it. Nothing allowed: 1 for each thing that is there."""
    return used.cast("double") / F.lit(float(max(1, allowed)))
