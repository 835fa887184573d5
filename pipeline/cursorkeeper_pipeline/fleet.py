"""The tables as a user of a notebook asks for them, so that no more is read of BookKeeper than is
asked for.

Spark gives a Python source no filter of a join, and mixes up the filters of one DataFrame's queries
(`source.reader`). Here which cursors are read is said when the table is asked for: by options, or
by a DataFrame of cursors, chosen in any way that Spark knows.

    fleet = Fleet(spark, zookeeper="zk1:2181", gateway="gw:7651")
    behind = fleet.table("cursors", tenant="shop").where("hole_entries > 100000")
    fleet.table("holes", of=behind).join(behind, "cursor_key")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from cursorkeeper_pipeline.by_size import read_of
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.session import slots_of
from cursorkeeper_pipeline.source.options import FOOTERS_ONLY, TABLES, Options, text_of
from cursorkeeper_pipeline.source.plan import TASKS_A_SLOT
from cursorkeeper_pipeline.spelling import camel

TASKS: Final = 64
"""For chosen cursors, where nobody says how many slots there are."""


class Fleet:
    """Every option of the source may be given here, for all tables, or to one of them: `wait_s=60`
    as `waitS="60"`.
    """

    def __init__(self, spark: SparkSession, **options: object) -> None:
        self._spark, self._options = spark, options

    def table(self, name: str, *, of: DataFrame | None = None, **options: object) -> DataFrame:
        """A new DataFrame, read anew by each action. `of`: rows of the table `cursors`, the only
        ones that are read for; large ones are read by several tasks. Raises OptionError, and
        Spark's errors.
        """
        if of is None:
            return self._load(name, options)
        chosen = [
            key
            for key in ("tenant", "namespace", "topic", "subscription", "keys")
            if key in options
        ]
        if chosen:
            raise OptionError(
                f"of and {chosen[0]} are given. What to do: choose in the DataFrame of cursors"
            )
        source = Options.parse(self._given(name, options))
        source = replace(source, slots=source.slots or slots_of(self._spark))
        source.check()  # a budget may be too small for so many slots
        return read_of(of, source, source.tasks or TASKS_A_SLOT * source.slots or TASKS)

    def views(self, prefix: str = "", **options: object) -> list[str]:
        """Makes a temporary view of each table that can be read with what is given, for SQL; their
        names. `fleet.views("shop_", tenant="shop")`: then `shop_holes JOIN shop_cursors USING
        (cursor_key)` reads that tenant alone.
        """
        has_gateway = "gateway" in {**self._options, **options}
        names = [name for name in TABLES if has_gateway or name in FOOTERS_ONLY]
        for name in names:
            self._load(name, options).createOrReplaceTempView(f"{prefix}{name}")
        return [f"{prefix}{name}" for name in names]

    def _given(self, table: str, options: Mapping[str, object]) -> dict[str, str]:
        given = {**self._options, **options, "table": table}
        return {camel(key): text_of(value) for key, value in given.items()}

    def _load(self, table: str, options: Mapping[str, object]) -> DataFrame:
        return self._spark.read.format("cursorkeeper").options(**self._given(table, options)).load()
