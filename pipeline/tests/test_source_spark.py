"""The source as users meet it: found by its name, in Python and SQL, with rows of a real ZooKeeper,
and errors that say what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import broadcast, count
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.testing import assertSchemaEqual

from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format import footer as codec
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError, problem_of_job
from cursorkeeper_pipeline.fleet import Fleet
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.options import TABLES
from pipeline.tests.fleet_maker import footer_of, name_of, write_footers
from pipeline.tests.real_cursors import EAGER, LEDGERS
from pipeline.tests.real_cursors import fleet as real_fleet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.jvm
MANY = 500
DAMAGED, GONE = name_of(MANY), name_of(MANY + 1)


@pytest.fixture(scope="module")
def fleet(stack: Standalone) -> dict[str, str]:
    """Options of a fleet that no test changes: many cursors, one of them damaged, one a
    tombstone.
    """
    root = "/spark-source/cursors"
    footers: list[Footer | tuple[CursorName, bytes]] = [
        footer_of(name_of(at), at) for at in range(MANY)
    ]
    footers += [
        (DAMAGED, codec.encode(footer_of(DAMAGED))[:-9]),
        footer_of(GONE, state=FooterState.DELETED),
    ]

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
    cursors, segments = (
        load(spark, fleet, tasks="3"),
        load(spark, fleet, table="segments", tasks="2"),
    )
    assertSchemaEqual(cursors.schema, from_arrow_schema(schemas.CURSORS))
    assertSchemaEqual(segments.schema, from_arrow_schema(schemas.SEGMENTS))
    assert cursors.rdd.getNumPartitions() == 3
    rows = {row["cursor"]: row for row in cursors.collect()}
    assert rows.keys() == {name_of(at).display for at in range(MANY + 1)}
    assert all(
        rows[name_of(at).display]["cursor_key"] == cursor_key(name_of(at)) for at in range(MANY)
    )
    assert (
        rows[DAMAGED.display]["status"] == "DAMAGED"
        and rows[DAMAGED.display]["error"] == "footer: not JSON"
    )
    assert all(row["footer_modified"] <= row["read_at"] for row in rows.values())
    named = segments.where("status = 'OK'").groupBy("cursor_key").agg(count("*").alias("parts"))
    joined = (
        named.join(broadcast(cursors), "cursor_key")
        .groupBy("base", "parts")
        .count()
        .orderBy("parts")
    )
    assert [tuple(row) for row in joined.collect()] == [
        ("empty", 2, MANY // 2),
        ("snapshot", 3, MANY // 2),
    ]


def test_the_same_in_sql(spark: SparkSession, fleet: dict[str, str]) -> None:
    given = ", ".join(
        f"{key} '{value}'"
        for key, value in {
            **fleet,
            "table": "cursors",
            "namespace": "t1/n0",
            "deleted": "true",
        }.items()
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW fleet USING cursorkeeper OPTIONS ({given})")
    try:
        counted = spark.sql(
            "SELECT tenant, namespace, state, count(*) AS n FROM fleet GROUP BY ALL ORDER BY n DESC"
        ).collect()
    finally:
        spark.catalog.dropTempView("fleet")
    chosen = [at for at in range(MANY) if at % 3 == 1 and at % 2 == 0]
    assert [tuple(row) for row in counted] == [("t1", "t1/n0", "open", len(chosen))]


def test_nothing_chosen_is_an_empty_frame(spark: SparkSession, fleet: dict[str, str]) -> None:
    nobody = load(spark, fleet, topic="persistent://t/n/none", subscription="s")
    assert nobody.collect() == [] and nobody.columns == schemas.CURSORS.names
    assert load(spark, fleet, tenant="nobody").count() == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "cursor"}, "there is no such table. What to do: did you mean cursors?"),
        ({"zookeper": "x"}, "unknown option zookeper. What to do: did you mean zookeeper?"),
        ({"namespace": "t"}, "namespace: 't' is not tenant/namespace"),
        ({"table": "holes"}, "gateway is not given. What to do"),
    ],
)
def test_wrong_options_are_told_at_load(
    spark: SparkSession, fleet: dict[str, str], given: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as told:
        load(spark, fleet, **given)
    assert said in str(told.value)
    problem = problem_of_job(told.value)
    assert said in f"{problem.message}. What to do: {problem.remedy}"


@pytest.mark.parametrize("table", ["cursors", "segments"])
def test_a_root_that_is_not_there_is_refused_as_commands_refuse_it(
    spark: SparkSession, fleet: dict[str, str], table: str
) -> None:
    with pytest.raises(PySparkException) as told:
        load(spark, {**fleet, "root": "/nothing/here"}, table=table).count()
    problem = problem_of_job(told.value)
    assert problem.message.startswith(
        f"/nothing/here in ZooKeeper at {fleet['zookeeper']} does not exist, so nothing can be said"
    )
    assert problem.remedy.startswith("correct the root, or the chroot")


def test_damage_ends_a_strict_job_and_names_the_cursor(
    spark: SparkSession, fleet: dict[str, str]
) -> None:
    assert load(spark, fleet, mode="failfast", topic=name_of(1).topic).count() == 1
    with pytest.raises(PySparkException) as told:
        load(spark, fleet, mode="failfast").count()
    problem = problem_of_job(told.value)
    assert (
        problem.message == f"{DAMAGED}: footer: not JSON"
        and "cursorkeeper inspect" in problem.remedy
    )


# ---- what lives longer than a query


def test_a_view_shows_what_came_and_what_broke_since(
    spark: SparkSession, stack: Standalone, root: str
) -> None:
    """Spark plans a view once. The plan names no cursor, so the view is what the fleet is, each
    time.
    """
    names = [CursorName(f"persistent://t/n/{topic}", "s") for topic in ("one", "two", "late")]
    source = {"zookeeper": stack.zookeeper, "gateway": stack.gateway, "root": root}
    tables = ("checks", "cursors", "hole_stats", "deltas")

    async def first() -> None:
        async with real_fleet(stack, root) as made:
            for name in names[:2]:
                await made.closed(name)

    async def later() -> None:
        async with real_fleet(stack, root) as made:
            await made.closed(names[2])
            await made.flip(names[0], 1)

    asyncio.run(first())
    for table in tables:
        given = ", ".join(
            f"{key} '{value}'" for key, value in {**source, "table": table, "tasks": "3"}.items()
        )
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW view_{table} USING cursorkeeper OPTIONS ({given})"
        )
    try:
        keys = {
            table: [
                row[0]
                for row in spark.sql(f"SELECT DISTINCT cursor_key FROM view_{table}").collect()
            ]
            for table in tables
        }
        assert all(
            set(found) == {cursor_key(name) for name in names[:2]} for found in keys.values()
        ), keys
        assert spark.sql("SELECT * FROM view_checks WHERE kind <> 'checked'").collect() == []
        asyncio.run(later())
        keys = {
            table: [
                row[0]
                for row in spark.sql(f"SELECT DISTINCT cursor_key FROM view_{table}").collect()
            ]
            for table in tables
        }
        assert all(set(found) == {cursor_key(name) for name in names} for found in keys.values()), (
            keys
        )
        (damage,) = spark.sql("SELECT * FROM view_checks WHERE kind <> 'checked'").collect()
        assert (damage["cursor"], damage["kind"]) == (names[0].display, "record_damaged")
        states = {
            row["cursor_key"]: row["status"]
            for row in spark.sql("SELECT * FROM view_hole_stats").collect()
        }
        assert states == dict(zip(map(cursor_key, names), ("DAMAGED", "OK", "OK"), strict=True))
    finally:
        for table in tables:
            spark.catalog.dropTempView(f"view_{table}")


# ---- filters and columns


@contextmanager
def pushdown(spark: SparkSession, *, is_on: bool = True) -> Iterator[None]:
    """Spark's setting, which is off by default."""
    key = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, str(is_on).lower())
    try:
        yield
    finally:
        spark.conf.set(key, before)


@pytest.mark.parametrize("is_on", [True, False])
def test_filters_reach_the_source(spark: SparkSession, fleet: dict[str, str], is_on: bool) -> None:
    """The damaged footer ends a strict job that reads it: one that is not asked for is not read."""
    with pushdown(spark, is_on=is_on):
        cursors = load(spark, fleet, mode="failfast", pushFilters="true")
        wanted = [name_of(3), name_of(4)]
        for chosen in (
            cursors.where(F.col("cursor_key").isin([cursor_key(name) for name in wanted])),
            cursors.where(
                F.col("topic").isin([name.topic for name in wanted])
                & F.col("subscription").startswith("s")
            ),
        ):
            if is_on:
                assert {row["cursor"] for row in chosen.collect()} == {
                    name.display for name in wanted
                }
            else:
                # and reads no fleet that nobody asked for
                with pytest.raises(PySparkException, match=r"filterPushdown\.enabled"):
                    chosen.collect()
        of_keys = load(
            spark, fleet, mode="failfast", keys=",".join(str(cursor_key(name)) for name in wanted)
        )
        assert {row["cursor"] for row in of_keys.collect()} == {name.display for name in wanted}, (
            "as an option they always do"
        )
        counted = [sum(at % 3 == tenant for at in range(MANY + 1)) for tenant in (1, 2)] + [
            MANY + 1
        ]
        every = load(spark, fleet)
        asked = [every.where("tenant = 't1'"), every.where("tenant = 't2'"), every]
        order = (0, 1, 2, 0, 2, 1, 0) if is_on else (0, 1, 2)  # each behind each other one
        # Spark gives every query of one load() what the last filter has planned
        assert [asked[at].count() for at in order] == [counted[at] for at in order]
        assert (
            asked[0].union(asked[1]).count() == counted[0] + counted[1]
            and asked[0].union(every).count() == counted[0] + counted[2]
        )


def test_a_schema_of_ones_own(spark: SparkSession, fleet: dict[str, str]) -> None:
    def read(schema: str, **given: str) -> DataFrame:
        return spark.read.format("cursorkeeper").options(**fleet, **given).schema(schema).load()

    pruned = read("epoch bigint, cursor string").where("epoch = 3")
    assert pruned.columns == ["epoch", "cursor"] and pruned.count() == MANY
    for schema, said in (
        ("cursr string", "cursors has no column cursr. What to do: did you mean cursor?"),
        (
            "epoch string",
            "epoch is string there and bigint in cursors. What to do: write epoch bigint",
        ),
    ):
        with pytest.raises(PySparkException) as told:
            read(schema).collect()
        assert said in str(told.value)


def test_rows_of_states_have_names_for_those_who_ask(
    spark: SparkSession, stack: Standalone, root: str
) -> None:
    """So that a filter on a tenant keeps the rest of the fleet from being read."""
    names = [CursorName(f"persistent://{tenant}/n/topic", "s") for tenant in ("a", "b")]

    async def make() -> None:
        async with real_fleet(stack, root) as made:
            for name in names:
                await made.closed(name)
            await made.flip(names[1], 1)

    asyncio.run(make())
    source = {
        "zookeeper": stack.zookeeper,
        "gateway": stack.gateway,
        "root": root,
        "mode": "failfast",
    }
    for table in ("holes", "hole_stats"):
        reader = spark.read.format("cursorkeeper").options(
            **source, table=table, pushFilters="true"
        )
        with pushdown(spark):
            found = (
                reader.schema("cursor_key bigint, tenant string")
                .load()
                .where("tenant = 'a'")
                .distinct()
                .collect()
            )
        assert [tuple(row) for row in found] == [(cursor_key(names[0]), "a")]


# ---- chosen cursors


def test_what_a_query_has_left_of_the_cursors_is_all_that_is_read(
    spark: SparkSession, stack: Standalone, root: str
) -> None:
    """The cursor of the other tenant is damaged, and ends a strict job that reads it."""
    names = [
        CursorName(f"persistent://{tenant}/n/topic-{at}", "s")
        for tenant, at in (("a", 0), ("a", 1), ("b", 0))
    ]

    async def make() -> None:
        async with real_fleet(stack, root) as made:
            for name in names:
                await made.closed(name, limits=LEDGERS if name is names[2] else EAGER)
            await made.flip(names[2], 1)

    asyncio.run(make())
    fleet = Fleet(
        spark, zookeeper=stack.zookeeper, gateway=stack.gateway, root=root, mode="failfast"
    )
    cursors = fleet.table("cursors")
    of_a = cursors.where("tenant = 'a'")
    with pytest.raises(PySparkException, match="persistent://b/n/topic-0"):
        # Spark gives no Python source the filter of a join
        fleet.table("holes").join(of_a, "cursor_key").collect()
    for table in ("holes", "hole_stats", "batch_partials", "checks"):
        expected = [
            tuple(row)
            for row in fleet.table(table, tenant="a", tasks=1)
            .drop("read_at", "stored_bytes")
            .collect()
        ]
        for given in ({"tasks": 1}, {"split_bytes": 1, "tasks": 3}):
            chosen = fleet.table(table, of=of_a, **given)
            found = [tuple(row) for row in chosen.drop("read_at", "stored_bytes").collect()]
            assert sorted(map(str, found)) == sorted(map(str, expected)), (table, given)
            assert [(f.name, f.dataType) for f in chosen.schema] == [
                (f.name, f.dataType) for f in from_arrow_schema(schemas.TABLES[table])
            ]
    assert fleet.table("hole_stats", of=cursors.where("tenant = 'nobody'")).collect() == []
    both = of_a.where(F.col("topic").endswith("1")).unionByName(
        of_a.where(F.col("topic").endswith("0"))
    )
    assert fleet.table("hole_stats", of=both).count() == 2, (
        "filters of one DataFrame are not mixed up"
    )
    assert fleet.views("a_", tenant="a") == [f"a_{table}" for table in TABLES]
    try:
        joined = spark.sql(
            "SELECT DISTINCT cursor FROM a_holes JOIN a_cursors USING (cursor_key) ORDER BY cursor"
        ).collect()
        assert [row[0] for row in joined] == [name.display for name in names[:2]]
    finally:
        for table in TABLES:
            spark.catalog.dropTempView(f"a_{table}")
    for wrong, said in (
        ({"name": "deltas", "of": of_a}, "table deltas is not read of chosen cursors"),
        (
            {"name": "holes", "of": of_a.select("topic", "subscription")},
            "no snapshot_bytes.*whole rows of the table cursors",
        ),
        ({"name": "holes", "of": of_a, "tenant": "a"}, "of and tenant are given"),
    ):
        with pytest.raises(OptionError, match=said):
            fleet.table(**wrong)


# ---- what is no way to read it


def test_a_stream_is_refused_with_a_sentence(
    spark: SparkSession, fleet: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(PySparkException) as told:
        stream = spark.readStream.format("cursorkeeper").options(**fleet).load()
        stream.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path)
        ).start().processAllAvailable()
    assert "readStream: this source is read with spark.read" in str(told.value)
    with pytest.raises(PySparkException, match="write: this source is read with spark"):
        spark.range(1).write.format("cursorkeeper").options(**fleet).mode("append").save()


def test_a_table_of_the_catalog_names_the_way_that_works(
    spark: SparkSession, fleet: dict[str, str]
) -> None:
    given = ", ".join(f"{key} '{value}'" for key, value in fleet.items())
    with pytest.raises(PySparkException) as told:
        spark.sql(f"CREATE TABLE fleet_table USING cursorkeeper OPTIONS ({given})")
        spark.sql("SELECT count(*) FROM fleet_table").collect()
    print("CREATE TABLE SAYS", told.value)
    assert "CREATE TEMPORARY VIEW" in str(told.value)
