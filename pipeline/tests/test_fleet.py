"""Which cursors in which task: every bucket once, loads about equal; selections as Pulsar's tools
mean them, the same in all tables.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.datasource import EqualNullSafe, EqualTo, GreaterThan, In, IsNotNull

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names as pulsar_names
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.keys import bucket_of, cursor_key
from cursorkeeper_pipeline.schemas import LEDGERS
from cursorkeeper_pipeline.source import ledgers, shards
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS, plan_buckets, spread
from cursorkeeper_pipeline.source.pulsar import _refs, plan_spans
from cursorkeeper_pipeline.source.reader import wanted
from cursorkeeper_pipeline.source.shards import chooses
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import UnknownNotDone
from pipeline.tests.fleet_maker import footer_of, name_of, write_footers

ROOT = "/cursorkeeper/cursors"
NAME = CursorName("persistent://t/ns/topic-partition-3", "sub")


def test_every_bucket_is_in_one_part_and_the_loads_are_even() -> None:
    rng = random.Random(1)
    counts = {f"{at:03x}": rng.randint(1, 40) for at in range(4096)}
    parts = spread(counts, 37)
    assert sorted(b for part in parts for b in part.buckets) == sorted(counts)
    loads = [sum(counts[b] for b in part.buckets) for part in parts]
    assert len(loads) == 37 and max(loads) <= 1.02 * sum(loads) / len(loads)
    for sizes in ({}, {"000": 9}):
        assert sorted(b for part in spread(sizes, 5) for b in part.buckets) == sorted(BUCKETS), (
            "a cursor may come to an empty one"
        )


def test_the_key_is_the_hash_that_records_carry() -> None:
    for at in range(100):
        name = CursorName(f"persistent://t/ns/{at}", "s")
        assert -(1 << 63) <= cursor_key(name) < 1 << 63
        assert (
            cursor_key(name) % (1 << 64) == name.record_hash
            and bucket_of(cursor_key(name)) == name.bucket
        )


def test_selections() -> None:
    odd = CursorName("not a topic of Pulsar", "sub")
    assert chooses(Selection.everything(), NAME) and chooses(Selection.everything(), odd)
    for chosen in (
        Selection.of_tenant("t"),
        Selection.of_namespace("t/ns"),
        Selection.of_topic("persistent://t/ns/topic"),
        Selection.of_topic(NAME.topic),
        Selection.of_topic(NAME.topic, "sub"),
    ):
        assert chooses(chosen, NAME) and not chooses(chosen, odd)
    for other in (
        Selection.of_tenant("tt"),
        Selection.of_namespace("t/n"),
        Selection.of_topic("persistent://t/ns/top"),
        Selection.of_topic(NAME.topic, "other"),
    ):
        assert not chooses(other, NAME)


# ---- plans


class World:
    """ZooKeeper and BookKeeper, as `Systems` gives them to a task."""

    def __init__(self) -> None:
        self.server, self.bookies = (
            FakeZooKeeperServer(random.Random(1)),
            FakeBookKeeper(random.Random(1)),
        )
        self.zk = self.server.session()

    async def zookeeper(self) -> FakeZooKeeper:
        return self.zk

    async def ledgers(self) -> Any:
        return self.bookies.gateway(role="reader")

    async def footers(self) -> FooterStore:
        return FooterStore(self.zk, Settings.of().encode, root=ROOT)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.zk.start()
    await (await made.footers()).deployment()  # as the first daemon makes it
    yield made
    await made.zk.close()


def options(**given: str) -> Options:
    return Options.parse(
        {"table": "deltas", "zookeeper": "z:1", "gateway": "g:1", "waitS": "0.2", **given}
    )


async def by_cursor(world: World, chosen: Options) -> list[str]:
    """As `deltas` and `checks` find them."""
    found = []
    for part in await plan_buckets(world.zk, chosen, 256):
        found += [
            one.name.topic
            async for batch in shards.Reader(world.zk, chosen).in_buckets(part.buckets)
            for one in batch
        ]
    return found


async def by_footer(world: World, chosen: Options) -> list[str]:
    """As the others do."""
    return [
        one.name.topic
        async for batch in shards.Reader(world.zk, chosen).in_buckets(BUCKETS)
        for one in batch
    ]


async def by_ledger(world: World, chosen: Options) -> list[str]:
    found = [row async for rows in ledgers._rows(world, chosen) for row in rows]  # type: ignore[arg-type]
    return [row[LEDGERS.names.index("cursor")].rpartition("|")[0] for row in found]


async def by_pulsar(world: World, chosen: Options) -> list[str]:
    return [
        ref.topic
        for part in await plan_spans(world.zk, chosen)
        async for ref in _refs(world.zk, chosen, part)
    ]


TABLES: list[Callable[[World, Options], Any]] = [by_cursor, by_footer, by_ledger, by_pulsar]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@pytest.mark.parametrize("alone", ["there", "not there", "deleted"])
async def test_all_tables_mean_the_same_by_a_named_cursor(
    world: World, table: Callable[[World, Options], Any], alone: str
) -> None:
    topic = "persistent://t/n/topic"
    partitions = [f"{topic}-partition-{at}" for at in range(3)]
    for at, one in enumerate([topic, *partitions, f"{topic}-partition", f"{topic}x"]):
        if one == topic and alone == "not there":
            continue
        is_there = one != topic or alone == "there"
        name = CursorName(one, "s")
        await write_footers(
            world.zk,
            ROOT,
            [footer_of(name, state=FooterState.OPEN if is_there else FooterState.DELETED)],
        )
        if is_there:  # Pulsar keeps no tombstones
            await world.zk.ensure_path(pulsar_names.cursor_path(one, "s"))
            custom = {
                "application": APPLICATION,
                "cursor": name.znode.encode(),
                "epoch": b"1",
                "deployment": b"d",
            }
            world.bookies.restore(at + 1, LedgerSpec(), custom, [], closed=True)
    found = await table(world, options(topic=topic, subscription="s"))
    assert sorted(found) == ([topic] if alone == "there" else partitions)
    assert len(await table(world, options(topic=topic))) == 3 + (alone == "there"), (
        "without a subscription both are asked for"
    )


async def test_the_plan_holds_every_bucket_and_no_name(world: World) -> None:
    written = [name_of(at) for at in range(100)]
    await write_footers(world.zk, ROOT, [footer_of(name) for name in written])
    for chosen, tasks in (
        (options(tasks="7"), 7),
        (options(), 8),
        (options(tenant="t1"), 8),
        (options(namespace="nobody/here"), 1),
        (options(topic=written[0].topic, subscription=written[0].subscription), 1),
    ):
        parts = await plan_buckets(world.zk, chosen, 256)
        assert len(parts) == tasks and sorted(b for part in parts for b in part.buckets) == sorted(
            BUCKETS
        ), chosen
    assert len(await plan_buckets(world.zk, options(), 10)) == 10
    with pytest.raises(
        ProblemError, match=f"/no/root in ZooKeeper at z:1 does not exist.*z:1 --root {ROOT}"
    ):
        await plan_buckets(world.zk, options(root="/no/root"), 256)


async def test_what_comes_after_the_plan_is_read_by_it(world: World) -> None:
    """Spark plans a DataFrame once, however long it lives: also one of an empty fleet, of one
    cursor, of partitions, of a new bucket.
    """
    topic = "persistent://t/n/topic"
    plans = {
        given: await plan_buckets(world.zk, options(**dict(given)), 256)
        for given in (
            (),
            (("tenant", "t"),),
            (("topic", topic), ("subscription", "s")),
            (("tasks", "9"),),
        )
    }

    async def found(given: tuple[tuple[str, str], ...]) -> list[str]:
        chosen = options(**dict(given))
        batches = [
            b
            for part in plans[given]
            async for b in shards.Reader(world.zk, chosen).in_buckets(part.buckets)
        ]
        return sorted(one.name.topic for batch in batches for one in batch)

    assert [await found(given) for given in plans] == [[]] * 4
    partitions = [f"{topic}-partition-{at}" for at in range(3)]
    await write_footers(world.zk, ROOT, [footer_of(CursorName(one, "s")) for one in partitions])
    assert [await found(given) for given in plans] == [partitions] * 4
    await write_footers(world.zk, ROOT, [footer_of(CursorName(topic, "s"))])
    assert [await found(given) for given in plans] == [
        [topic, *partitions],
        [topic, *partitions],
        [topic],
        [topic, *partitions],
    ]


async def test_filters_of_a_query_choose_before_anything_is_read(world: World) -> None:
    written = [name_of(at) for at in range(200)]
    await write_footers(world.zk, ROOT, [footer_of(name) for name in written])
    keys = [cursor_key(written[at]) for at in (3, 5)]
    of_t1 = {name for name in written if name.topic.startswith("persistent://t1/")}
    listed: list[str] = []
    children = world.zk.children

    async def listing(path: str, *given: Any) -> Any:
        listed.append(path)
        return await children(path, *given)

    world.zk.children = listing  # type: ignore[method-assign]
    for filters, expected in (
        ([In(("cursor_key",), (*keys, 7, None, 1 << 70))], {written[3], written[5]}),
        ([EqualTo(("cursor_key",), keys[0]), EqualTo(("tenant",), "t1")], set()),
        (
            [EqualTo(("tenant",), "t1"), In(("subscription",), ("sub",))],
            {n for n in of_t1 if n.subscription == "sub"},
        ),
        (
            [EqualTo(("namespace",), "t0/n0")],
            {n for n in written if n.topic.startswith("persistent://t0/n0/")},
        ),
        (
            [EqualTo(("topic",), written[9].topic), EqualNullSafe(("cursor",), written[9].display)],
            {written[9]},
        ),
        (
            [
                EqualTo(("epoch",), 3),
                GreaterThan(("cursor_key",), 0),
                EqualTo(("cursor", "x"), "y"),
                IsNotNull(("topic",)),
            ],
            set(written),
        ),
    ):
        listed.clear()
        chosen = replace(options(), wanted=wanted(filters))
        batches = [b async for b in shards.Reader(world.zk, chosen).in_buckets(BUCKETS)]
        assert {one.name for batch in batches for one in batch} == expected, filters
        if filters[0].attribute == ("cursor_key",):
            assert len(listed) <= 1 + len(keys) + 1, "the root, and the buckets of the keys"
    assert (
        len(
            await plan_buckets(
                world.zk, replace(options(tasks="0"), wanted=wanted([In(("cursor_key",), keys)])), 1
            )
        )
        <= 4
    )


async def test_a_plan_is_patient_for_a_while(world: World) -> None:
    written = [name_of(at) for at in range(50)]
    await write_footers(world.zk, ROOT, [footer_of(name) for name in written])
    world.zk.faults.chance("children", 0.3, UnknownNotDone())
    assert len(await plan_buckets(world.zk, options(waitS="5"), 256)) == 8
    world.zk.faults.chance("children", 1.0, UnknownNotDone())
    with pytest.raises(ProblemError, match=r"ZooKeeper at z:1 did not answer for 0\.2 s") as told:
        await plan_buckets(world.zk, options(), 256)
    assert told.value.kind is Kind.AWAY


async def test_a_plan_sees_what_was_committed_before_it_began(world: World) -> None:
    behind = world.server.session()
    await behind.start()
    behind.lag()
    await write_footers(world.zk, ROOT, [footer_of(name_of(at)) for at in range(9)])
    assert len(await plan_buckets(behind, options(), 3)) == 8
