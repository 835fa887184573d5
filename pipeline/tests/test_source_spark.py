"""The source as users meet it: found by its name, in Python and SQL, with rows of a real ZooKeeper, and errors that say what to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import footer as codec
from cursorkeeper_clients.stack import Standalone
from cursorkeeper_clients.zookeeper.client import ZooKeeperClient
from cursorkeeper_clients.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import problem_of
from cursorkeeper_pipeline.source.fleet import cursor_key
from pyspark.errors import PySparkException
from pyspark.sql.functions import broadcast, count
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.testing import assertSchemaEqual

from pipeline.tests.fleet_maker import footer_of, name_of, write_footers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.jvm
MANY = 500
DAMAGED, GONE = name_of(MANY), name_of(MANY + 1)


@pytest.fixture(scope="module")
def fleet(stack: Standalone) -> dict[str, str]:
    """Options of a fleet that no test changes: many cursors, one of them damaged, one a tombstone."""
    root = "/spark-source/cursors"
    footers: list[Footer | tuple[CursorName, bytes]] = [footer_of(name_of(at), at) for at in range(MANY)]
    footers += [(DAMAGED, codec.encode(footer_of(DAMAGED))[:-9]), footer_of(GONE, state=FooterState.DELETED)]

    async def work() -> None:
        client = ZooKeeperClient(ZooKeeperSettings(servers=parse_servers(stack.zookeeper)[0]))
        await client.start()
        await write_footers(client, root, footers)
        await client.close()

    asyncio.run(work())
    return {"zookeeper": stack.zookeeper, "root": root}


def load(spark: SparkSession, fleet: dict[str, str], **given: str) -> DataFrame:
    return spark.read.format("cursorkeeper").options(**fleet, **given).load()


def test_a_fleet_in_python(spark: SparkSession, fleet: dict[str, str]) -> None:
    cursors, segments = load(spark, fleet, tasks="3"), load(spark, fleet, table="segments", tasks="2")
    assertSchemaEqual(cursors.schema, from_arrow_schema(schemas.CURSORS))
    assertSchemaEqual(segments.schema, from_arrow_schema(schemas.SEGMENTS))
    assert cursors.rdd.getNumPartitions() == 3
    rows = {row["cursor"]: row for row in cursors.collect()}
    assert rows.keys() == {name_of(at).display for at in range(MANY + 1)}
    assert all(rows[name_of(at).display]["cursor_key"] == cursor_key(name_of(at)) for at in range(MANY))
    assert rows[DAMAGED.display]["status"] == "DAMAGED" and rows[DAMAGED.display]["error"] == "footer: not JSON"
    assert all(row["footer_modified"] <= row["read_at"] for row in rows.values())
    named = segments.where("status = 'OK'").groupBy("cursor_key").agg(count("*").alias("parts"))
    joined = named.join(broadcast(cursors), "cursor_key").groupBy("base", "parts").count().orderBy("parts")
    assert [tuple(row) for row in joined.collect()] == [("empty", 2, MANY // 2), ("snapshot", 3, MANY // 2)]


def test_the_same_in_sql(spark: SparkSession, fleet: dict[str, str]) -> None:
    given = ", ".join(f"{key} '{value}'" for key, value in {**fleet, "table": "cursors", "namespace": "t1/n0", "deleted": "true"}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW fleet USING cursorkeeper OPTIONS ({given})")
    try:
        counted = spark.sql("SELECT tenant, namespace, state, count(*) AS n FROM fleet GROUP BY ALL ORDER BY n DESC").collect()
    finally:
        spark.catalog.dropTempView("fleet")
    chosen = [at for at in range(MANY) if at % 3 == 1 and at % 2 == 0]
    assert [tuple(row) for row in counted] == [("t1", "t1/n0", "open", len(chosen))]


def test_nothing_chosen_is_an_empty_frame(spark: SparkSession, fleet: dict[str, str]) -> None:
    nobody = load(spark, fleet, topic="persistent://t/n/none", subscription="s")
    assert nobody.collect() == [] and nobody.columns == schemas.CURSORS.names
    assert load(spark, fleet, tenant="nobody").count() == 0
    elsewhere = load(spark, {**fleet, "root": "/nothing/here"}, table="segments")
    assert elsewhere.count() == 0, "there is no root: the plan is empty"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "cursor"}, "there is no such table. What to do: did you mean cursors?"),
        ({"zookeper": "x"}, "unknown option zookeper. What to do: did you mean zookeeper?"),
        ({"namespace": "t"}, "namespace: 't' is not tenant/namespace"),
        ({"table": "holes"}, "gateway is not given. What to do"),
    ],
)
def test_wrong_options_are_told_at_load(spark: SparkSession, fleet: dict[str, str], given: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as told:
        load(spark, fleet, **given)
    assert said in str(told.value)
    problem = problem_of(told.value)
    assert said in f"{problem.message}. What to do: {problem.remedy}"


def test_damage_ends_a_strict_job_and_names_the_cursor(spark: SparkSession, fleet: dict[str, str]) -> None:
    assert load(spark, fleet, mode="failfast", topic=name_of(1).topic).count() == 1
    with pytest.raises(PySparkException) as told:
        load(spark, fleet, mode="failfast").count()
    problem = problem_of(told.value)
    assert problem.message == f"{DAMAGED}: footer: not JSON" and "cursorkeeper inspect" in problem.remedy
