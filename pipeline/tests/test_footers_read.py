"""Footers in bulk, from a ZooKeeper in memory: all of them, the chosen ones, and what happens when
it does not stand still.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import footer as codec
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import ANY_VERSION
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source import shards
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import UnknownNotDone
from pipeline.tests.fleet_maker import footer_of, name_of, write_footers

ROOT = "/cursorkeeper/cursors"
MANY = 300


@pytest.fixture
async def server() -> FakeZooKeeperServer:
    return FakeZooKeeperServer(random.Random(1))


@pytest.fixture
async def zk(server: FakeZooKeeperServer) -> AsyncIterator[FakeZooKeeper]:
    session = server.session()
    await session.start()
    yield session
    await session.close()


def options(**given: str) -> Options:
    return Options.parse({"zookeeper": "127.0.0.1:2181", **given})


async def found(
    zk: FakeZooKeeper, chosen: Options, buckets: Sequence[str] = BUCKETS
) -> dict[CursorName, Found]:
    every = [one async for batch in shards.Reader(zk, chosen).in_buckets(buckets) for one in batch]
    assert len({one.name for one in every}) == len(every), "a cursor came twice"
    return {one.name: one for one in every}


async def test_every_footer_once_with_its_stat(zk: FakeZooKeeper) -> None:
    written = {name_of(at): footer_of(name_of(at), at) for at in range(MANY)}
    await write_footers(zk, ROOT, list(written.values()))
    read = await found(zk, options())
    assert {name: one.footer for name, one in read.items()} == written
    assert {name: one.stat for name, one in read.items()} == {
        name: (await zk.get(name.path(ROOT))).stat for name in written
    }


async def test_buckets_are_read_apart(zk: FakeZooKeeper) -> None:
    written = [footer_of(name_of(at), at) for at in range(MANY)]
    await write_footers(zk, ROOT, written)
    buckets = await zk.children(ROOT)
    first, rest = await found(zk, options(), buckets[:40]), await found(zk, options(), buckets[40:])
    assert {name.bucket for name in first} == set(buckets[:40])
    assert (
        first.keys() | rest.keys() == {name_of(at) for at in range(MANY)}
        and not first.keys() & rest.keys()
    )


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"tenant": "t1"}, lambda at: at % 3 == 1),
        ({"namespace": "t1/n0"}, lambda at: at % 3 == 1 and at % 2 == 0),
        ({"topic": name_of(7).topic}, lambda at: at == 7),
        ({"topic": name_of(7).topic, "subscription": "sub"}, lambda at: at == 7),
        ({"topic": name_of(7).topic, "subscription": "none"}, lambda at: False),
        ({"tenant": "nobody"}, lambda at: False),
    ],
)
async def test_names_are_chosen_before_footers_are_read(
    zk: FakeZooKeeper, given: dict[str, str], chosen: object
) -> None:
    assert callable(chosen)
    wanted = {name_of(at) for at in range(MANY) if chosen(at)}
    others = [
        (name_of(at), b"whoever reads this has read too much")
        for at in range(MANY)
        if not chosen(at)
    ]
    await write_footers(zk, ROOT, [*(footer_of(name) for name in wanted), *others])
    read = await found(zk, options(**given))
    assert read.keys() == wanted and all(isinstance(one.footer, Footer) for one in read.values())


async def test_a_named_cursor_is_one_read_and_its_partitions_are_found(zk: FakeZooKeeper) -> None:
    topic = "persistent://t/n/topic"
    partitions = [CursorName(f"{topic}-partition-{at}", "s") for at in range(3)]
    await write_footers(zk, ROOT, [footer_of(name) for name in partitions])
    wanted = options(topic=topic, subscription="s")
    assert (await found(zk, wanted)).keys() == set(partitions)
    whole = CursorName(topic, "s")
    await write_footers(zk, ROOT, [footer_of(whole)])
    zk.faults.chance("children", 1.0, UnknownNotDone())
    assert (await found(zk, wanted)).keys() == {whole}


async def test_tombstones_only_when_asked_for(zk: FakeZooKeeper) -> None:
    alive, gone = name_of(1), name_of(2)
    await write_footers(zk, ROOT, [footer_of(alive), footer_of(gone, state=FooterState.DELETED)])
    assert (await found(zk, options())).keys() == {alive}
    assert (await found(zk, options(deleted="true"))).keys() == {alive, gone}
    named = {"topic": gone.topic, "subscription": gone.subscription}
    assert not await found(zk, options(**named))
    assert (await found(zk, options(**named, deleted="true"))).keys() == {gone}


async def test_what_cannot_be_decoded_is_a_value(zk: FakeZooKeeper) -> None:
    good = codec.encode(footer_of(name_of(1)))
    flipped = good.replace(b'"epoch":3', b'"epoch":4')
    newer = good.replace(b'"version":1', b'"version":99')
    await write_footers(
        zk,
        ROOT,
        [(name_of(1), flipped), (name_of(2), newer), (name_of(3), b""), (name_of(4), good)],
    )
    read = await found(zk, options())
    assert [type(read[name_of(at)].footer) for at in (1, 2, 3, 4)] == [
        DamageError,
        TooNewError,
        DamageError,
        DamageError,
    ]
    assert read[name_of(1)].stat.data_bytes == len(flipped)


async def test_a_node_that_is_no_cursor_s_own_is_nobody_s(zk: FakeZooKeeper) -> None:
    name = name_of(1)
    await write_footers(zk, ROOT, [footer_of(name)])
    await zk.ensure_path(f"{ROOT}/zzz/{name.znode}")
    await zk.ensure_path(f"{ROOT}/{name.bucket}/no-bar")
    await zk.ensure_path(f"{ROOT}/{name.bucket}/{name.znode.lower()}")
    assert (await found(zk, options())).keys() == {name}


async def test_no_root_is_no_empty_fleet(zk: FakeZooKeeper) -> None:
    with pytest.raises(
        ProblemError,
        match=f"{ROOT} in ZooKeeper at 127.0.0.1:2181 does not exist, so nothing can be said",
    ):
        await found(zk, options(), ["000", "fff"])
    await FooterStore(
        zk, Settings.of().encode, root=ROOT
    ).deployment()  # as the first daemon makes it
    assert not await found(zk, options())
    assert not await found(zk, options(), ["000", "fff"])


async def test_a_footer_that_vanishes_after_the_listing_is_not_there(zk: FakeZooKeeper) -> None:
    names = [name_of(at) for at in range(20)]
    await write_footers(zk, ROOT, [footer_of(name) for name in names])
    reader = shards.Reader(zk, options())
    listed = [name async for some in reader.names_in(await reader.buckets()) for name in some]
    await zk.delete(names[3].path(ROOT), ANY_VERSION)
    assert set(listed) == set(names)
    read = [one.name async for batch in reader.named(listed) for one in batch]
    assert set(read) == set(names) - {names[3]}


async def test_it_reads_what_was_committed_before_it_began(
    server: FakeZooKeeperServer, zk: FakeZooKeeper
) -> None:
    behind = server.session()
    await behind.start()
    behind.lag()
    await write_footers(zk, ROOT, [footer_of(name_of(1))])
    assert await behind.exists(ROOT) is None, "the server of this session lags"
    assert (await found(behind, options())).keys() == {name_of(1)}


async def test_lost_answers_are_asked_for_again_and_patience_ends(
    server: FakeZooKeeperServer, zk: FakeZooKeeper
) -> None:
    await write_footers(zk, ROOT, [footer_of(name_of(at), at) for at in range(50)])
    zk.faults.chance("multi_read", 0.5, UnknownNotDone())
    zk.faults.chance("children", 0.2, UnknownNotDone())
    assert len(await found(zk, options())) == 50
    impatient = server.session(settings=ZooKeeperSettings(request_timeout_s=0.05))
    await impatient.start()
    server.stop()
    with pytest.raises(ProblemError, match=r"127\.0\.0\.1:2181 did not answer for 0\.1 s") as told:
        await found(impatient, options(waitS="0.1"))
    assert told.value.kind is Kind.AWAY and "waitS" in told.value.problem.remedy


async def test_nothing_is_under_way_while_a_batch_is_looked_at(zk: FakeZooKeeper) -> None:
    """The loop may stand still for longer than any request may take."""
    await write_footers(zk, ROOT, [footer_of(name_of(at), at) for at in range(MANY)])
    before = asyncio.all_tasks()
    async for _ in shards.Reader(zk, options()).in_buckets(BUCKETS):
        assert asyncio.all_tasks() == before


async def test_batches_are_small_where_footers_are_large(zk: FakeZooKeeper) -> None:
    first = shards.READ_BATCH_FIRST * shards.READS_AT_ONCE
    names = [name_of(at) for at in range(first + 800)]
    for root, node_bytes, most in (
        ("/small", 500, shards.READ_BATCH),
        ("/large", 30_000, shards.READ_BYTES // 30_000),
    ):
        await write_footers(zk, root, [(name, bytes(node_bytes)) for name in names])
        sizes = [
            len(batch) async for batch in shards.Reader(zk, options(root=root)).in_buckets(BUCKETS)
        ]
        assert sum(sizes) == len(names) and set(sizes[: shards.READS_AT_ONCE]) == {
            shards.READ_BATCH_FIRST
        }
        assert max(sizes) == most


async def test_an_error_ends_the_round(zk: FakeZooKeeper) -> None:
    async def things() -> AsyncIterator[int]:
        for at in range(10):
            yield at

    ended: list[int] = []

    async def work(at: int) -> int:
        if at == 3:
            raise ValueError("three")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(at)
        return at

    with pytest.raises(ValueError, match="three"):
        [at async for at in shards.in_rounds(things(), work, 5)]
    assert sorted(ended) == [0, 1, 2, 4]
