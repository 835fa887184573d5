"""`cursors` and `segments` as tasks read them from a real ZooKeeper: plan, parts, modes, chroot."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pytest

from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format import footer as codec
from cursorkeeper.problems import ProblemError
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.footers import Cursors, Segments
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS, BucketsPart
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Table
from pipeline.tests.fleet_maker import footer_of, name_of, write_footers

MANY = 1_000


def options(**given: str) -> Options:
    return Options.parse({"zookeeper": "127.0.0.1:2181", **given})


def write(
    stack: Standalone, root: str, footers: Sequence[Footer | tuple[CursorName, bytes]]
) -> None:
    async def work() -> None:
        client = ZooKeeperClient(ZooKeeperSettings(servers=parse_servers(stack.zookeeper)[0]))
        await client.start()
        await write_footers(client, root, footers)
        await client.close()

    asyncio.run(work())


def rows(table: Table, chosen: Options) -> pa.Table:
    parts = pickle.loads(pickle.dumps(table.plan(chosen)))
    return pa.Table.from_batches(
        [batch for part in parts for batch in table.read(chosen, part)], schema=table.schema
    )


@pytest.mark.jvm
def test_a_fleet_over_parts_is_the_fleet(stack: Standalone, root: str) -> None:
    names = [name_of(at) for at in range(MANY)]
    write(stack, root, [footer_of(name, at) for at, name in enumerate(names)])
    for given in ({}, {"tasks": "7"}):
        chosen = options(zookeeper=stack.zookeeper, root=root, **given)
        assert len(Cursors().plan(chosen)) == int(given.get("tasks", "1"))
        read = rows(Cursors(), chosen)
        assert sorted(read["cursor"].to_pylist()) == sorted(name.display for name in names)
        assert (
            set(read["status"].to_pylist()) == {"OK"}
            and read["footer_version"].to_pylist() == [0] * MANY
        )
    segments = rows(Segments(), chosen)
    assert segments.num_rows == 2 * MANY + MANY // 2, (
        "a chain of two each, half of them with a snapshot"
    )
    assert set(segments["cursor_key"].to_pylist()) == set(read["cursor_key"].to_pylist())


@pytest.mark.jvm
def test_a_chroot_is_the_root_of_everything(stack: Standalone, root: str) -> None:
    write(stack, f"/a/chroot{root}", [footer_of(name_of(at), at) for at in range(50)])
    assert (
        rows(Cursors(), options(zookeeper=f"{stack.zookeeper}/a/chroot", root=root)).num_rows == 50
    )
    with pytest.raises(ProblemError, match=rf"{root} .* does not exist"):
        rows(Cursors(), options(zookeeper=stack.zookeeper, root=root))


@pytest.mark.jvm
def test_modes_and_tombstones(stack: Standalone, root: str) -> None:
    good, flipped, newer, gone = name_of(1), name_of(2), name_of(3), name_of(4)
    data = codec.encode(footer_of(flipped))
    write(
        stack,
        root,
        [
            footer_of(good),
            (flipped, data.replace(b'"epoch":3', b'"epoch":4')),
            (newer, codec.encode(footer_of(newer)).replace(b'"version":1', b'"version":9')),
            footer_of(gone, state=FooterState.DELETED),
        ],
    )
    given = {"zookeeper": stack.zookeeper, "root": root}
    read = {row["cursor"]: row for row in rows(Cursors(), options(**given)).to_pylist()}
    assert {name: row["status"] for name, row in read.items()} == {
        good.display: "OK",
        flipped.display: "DAMAGED",
        newer.display: "TOO_NEW",
    }
    assert read[flipped.display]["footer_bytes"] == len(data)
    assert rows(Cursors(), options(**given, deleted="true")).num_rows == 4
    strict = {**given, "mode": "failfast", "topic": flipped.topic}
    with pytest.raises(
        ProblemError,
        match=r"persistent://t2/n0/topic-2\|sub: footer: crc32c .* What to do: "
        r".*inspect.*permissive",
    ):
        rows(Segments(), options(**strict))
    with pytest.raises(ProblemError, match="What to do: upgrade"):
        rows(Segments(), options(**{**strict, "topic": newer.topic}))
    assert rows(Cursors(), options(**{**strict, "topic": good.topic})).num_rows == 1


@pytest.mark.jvm
def test_one_named_cursor_is_one_part(stack: Standalone, root: str) -> None:
    names = [name_of(at) for at in range(30)]
    write(stack, root, [footer_of(name) for name in names])
    given = {"zookeeper": stack.zookeeper, "root": root, "topic": names[7].topic}
    one = options(**given, subscription=names[7].subscription)
    assert Cursors().plan(one) == [BucketsPart(BUCKETS)]
    assert rows(Cursors(), one)["cursor"].to_pylist() == [names[7].display]
    assert rows(Cursors(), options(**given, subscription="nobody")).num_rows == 0


def test_a_zookeeper_that_is_not_there_is_told_with_what_to_do() -> None:
    with pytest.raises(
        ProblemError, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer.*What to do: "
    ):
        Cursors().plan(options(zookeeper="127.0.0.1:1", waitS="0.2"))


@pytest.mark.jvm
def test_systems_give_footers_to_other_tables(stack: Standalone, root: str) -> None:
    from cursorkeeper_pipeline.source.shards import Reader

    write(stack, root, [footer_of(name_of(at), at) for at in range(20)])
    chosen = options(zookeeper=stack.zookeeper, root=root)

    def read(systems: Systems) -> Iterator[Found]:
        async def reading() -> AsyncIterator[list[Found]]:
            async for batch in Reader(await systems.zookeeper(), chosen).in_buckets(BUCKETS):
                yield batch

        return chain.from_iterable(systems.iterate(reading()))

    with Systems(chosen) as systems:
        assert {one.name: one.footer for one in read(systems)} == {
            name_of(at): footer_of(name_of(at), at) for at in range(20)
        }
    with Systems(chosen) as systems:
        first = next(read(systems))
    assert isinstance(first.footer, Footer), "who stops early leaves nothing behind"
