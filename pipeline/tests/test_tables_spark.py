"""Tables of states and histories of real cursors, in Spark: the same rows as without it, and errors
with cursor and remedy.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.failures import problem_of_job
from cursorkeeper_pipeline.keys import cursor_key
from pipeline.tests.real_cursors import fleet, options_of
from pipeline.tests.test_history_table import NAMES
from pipeline.tests.test_states_real import CUT, DAMAGED, GOOD, LOST, Told, entries, make, wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.jvm
ROOT = "/pipeline-states-in-spark/cursors"


@pytest.fixture(scope="module")
def told(stack: Standalone) -> dict[CursorName, Told]:
    """One cursor of each kind; no test changes them."""
    return asyncio.run(make(stack, ROOT))


def load(spark: SparkSession, stack: Standalone, table: str, **given: str) -> DataFrame:
    return (
        spark.read.format("cursorkeeper")
        .options(**options_of(stack, ROOT, table, **given).as_text())
        .load()
    )


def test_the_same_in_spark(
    spark: SparkSession, stack: Standalone, told: dict[CursorName, Told]
) -> None:
    """Cut, in four tasks; without Spark it was shown that cut and whole are the same."""
    holes, stats = load(spark, stack, "holes", **CUT), load(spark, stack, "hole_stats", **CUT)
    assert entries(holes.collect()) == wanted(told)
    found = [row.asDict() for row in stats.collect()]
    good = [row for row in found if row["status"] == "OK"]
    assert {row["cursor_key"] for row in good} == {cursor_key(name) for name in GOOD}
    assert sum(row["hole_entries"] for row in good) == len(wanted(told))
    assert {(row["cursor_key"], row["status"]) for row in found if row not in good} == {
        (cursor_key(DAMAGED), "DAMAGED"),
        (cursor_key(LOST), "MISSING"),
    }


def test_a_strict_job_ends_and_names_cursor_and_remedy(
    spark: SparkSession, stack: Standalone, told: dict[CursorName, Told]
) -> None:
    with pytest.raises(Exception, match="cursorkeeper") as error:
        load(spark, stack, "holes", mode="failfast", topic=DAMAGED.topic).count()
    problem = problem_of_job(error.value)
    assert (
        str(DAMAGED) in problem.message
        and "entry 2" in problem.message
        and "cursorkeeper verify" in problem.remedy
    )


def test_histories_are_the_same_in_spark(spark: SparkSession, stack: Standalone, root: str) -> None:
    async def make() -> None:
        async with fleet(stack, root) as made:
            for name in NAMES[:5]:
                await made.closed(name, rounds=2)

    asyncio.run(make())
    options = options_of(stack, root, "deltas", tasks="2")
    frame = spark.read.format("cursorkeeper").options(**options.as_text()).load()
    read = frame.where("kind = 'ack'").selectExpr(
        "count(*)", "count(distinct cursor_key)", "sum(last_entry - first_entry + 1)", "max(at)"
    )
    assert frame.rdd.getNumPartitions() == 2 and read.first()[:] == (200, 5, 200, None)
    elsewhere = (
        spark.read.format("cursorkeeper")
        .options(**options_of(stack, "/nobody/cursors", "deltas").as_text())
        .load()
    )
    with pytest.raises(Exception, match=r"/nobody/cursors .* does not exist"):
        elsewhere.count()
