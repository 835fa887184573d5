"""The table `pulsar_cursors`: how topics are spread over tasks, and what is told of cursors as
Pulsar stores them.

The cluster is real ZooKeeper and real bookies with what Pulsar would have written; each test has a
chroot of its own, because Pulsar's tree has a fixed place.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from pyroaring import BitMap

from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import LedgerSpec, LedgerStore
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import cursor_info, ledger_info, names, position_info
from cursorkeeper.format.pulsar.values import (
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import ProblemError
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import ANY_VERSION
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import batches
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source import pulsar
from cursorkeeper_pipeline.source.away import AWAY_IN_A_ROW_MAX
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pulsar import (
    HASHES,
    PulsarCursors,
    Span,
    SpansPart,
    backlog,
    packed,
)
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.migration.pulsar_world import PulsarWorld, state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
TOPICS = 64
LAYOUT = (LedgerInfo(7, 100), LedgerInfo(9, 50), LedgerInfo(12))


def a(topic: str) -> str:
    return f"persistent://t/ns/{topic}"


# ---- the plan


def test_every_topic_is_in_one_span_also_one_that_comes_later() -> None:
    counts = {
        "/managed-ledgers/t/a/persistent": 1000,
        "/managed-ledgers/t/b/persistent": 1,
        "/managed-ledgers/t/c/n/persistent": 65,
    }
    topics = [f"{domain}/topic-{at}" for domain, count in counts.items() for at in range(count)]
    for tasks, expected in ((0, 5), (1, 1), (7, 7), (10_000, 1066)):
        parts = packed(counts, tasks)
        assert len(parts) == expected and all(part.spans for part in parts)
        every = [span for part in parts for span in part.spans]
        for domain in counts:
            own = sorted((span.first, span.end) for span in every if span.domain == domain)
            assert [0, *(end for _, end in own)] == [*(first for first, _ in own), HASHES]
            for name in ("topic-0", "topic-999", "!", "~~~", "topic-5", "zz"):
                assert sum(span.holds(f"{domain}/{name}") for span in every) == 1
    shares = [
        sum(span.holds(topic) for topic in topics for span in part.spans)
        for part in packed(counts, 4)
    ]
    assert sum(shares) == len(topics) and max(shares) - min(shares) <= 64
    assert [len(part.spans) for part in packed(counts, 1)] == [3], (
        "a namespace is walked once by a task"
    )


def test_one_part_has_the_namespaces_that_nobody_knows_yet() -> None:
    assert packed({}, 3) == [SpansPart((), frozenset())]
    counts = {f"/managed-ledgers/t/{n}/persistent": 100 for n in "abc"}
    parts = packed(counts, 3)
    assert [part.besides for part in parts] == [frozenset(counts), None, None]


def test_backlog_counts_closed_ledgers_above_mark_delete() -> None:
    layout = [
        LayoutItem(7, LayoutState.CLOSED, 100),
        LayoutItem(9, LayoutState.CLOSED, 50),
        LayoutItem(12, LayoutState.OPEN, 0),
    ]
    assert [backlog(layout, Position(*at)) for at in ((7, -1), (7, 9), (9, 49), (12, 5))] == [
        150,
        140,
        0,
        0,
    ]


# ---- the rows


class MemorySystems:
    """What `Systems` gives a task, of a cluster in memory."""

    def __init__(self, world: PulsarWorld) -> None:
        self._world = world

    async def zookeeper(self) -> Any:
        return await self._world.zk()

    async def ledgers(self) -> Any:
        return await self._world.broker()


async def told_of(
    world: PulsarWorld, topics: int, **given: str
) -> dict[str, tuple[str, str | None]]:
    """Status and error of every cursor of one namespace."""
    options = Options.parse(
        {"table": "pulsar_cursors", "zookeeper": "z:1", "gateway": "g:1", "waitS": "0.05", **given}
    )
    spans = [Span(names.topic_path(a("topic")).rpartition("/")[0])]
    found = [
        row async for row in pulsar._rows(MemorySystems(world), options, SpansPart(tuple(spans)))
    ]  # type: ignore[arg-type]
    assert len(found) == topics
    [batch] = batches(found, schemas.PULSAR_CURSORS, topics)
    return {row["topic"]: (row["status"], row["error"]) for row in batch.to_pylist()}


async def lost_cursors(topics: int, lost: int) -> PulsarWorld:
    """Cursors in ledgers; no bookie has the entries of the first ones any more."""
    world = PulsarWorld()
    for at in range(topics):
        ref = PulsarCursorRef(a(f"topic-{at}"), "s")
        await world.topic(ref.topic)
        ledger = await world.in_ledger(state(), ref=ref)
        if at < lost:
            world.bookkeeper.damage(ledger, 0, Damage.GONE)
    return world


async def test_a_cursor_whose_bookies_are_gone_is_a_row() -> None:
    world = await lost_cursors(3, 1)
    found = await told_of(world, 3)
    assert {topic: status for topic, (status, _) in found.items()} == {
        a("topic-0"): "AWAY",
        a("topic-1"): "OK",
        a("topic-2"): "OK",
    }
    assert "READ_FAILED" in (found[a("topic-0")][1] or "")
    with pytest.raises(MigrationError, match=r"topic-0\|s: waited"):
        await told_of(world, 3, mode="failfast")


async def test_all_of_them_are_a_system_that_is_away() -> None:
    world = await lost_cursors(AWAY_IN_A_ROW_MAX + 1, AWAY_IN_A_ROW_MAX + 1)
    with pytest.raises(ProblemError, match="cursors one after another could not be read"):
        await told_of(world, 0)


async def test_a_cursor_that_is_busier_than_its_reader_is_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await lost_cursors(2, 0)
    zk, ref, ledgers = (
        await world.zk(),
        PulsarCursorRef(a("topic-1"), "s"),
        itertools.count(1_000_000),
    )
    get = zk.get

    async def moved_on(path: str) -> Any:
        if path == ref.path:
            await zk.set(
                path,
                cursor_info.encode(ManagedCursorInfo(next(ledgers), Position(7, -1))),
                ANY_VERSION,
            )
        return await get(path)

    monkeypatch.setattr(zk, "get", moved_on)
    found = await told_of(world, 2)
    assert (
        found[a("topic-0")] == ("OK", None)
        and found[ref.topic][0] == "AWAY"
        and "changes faster" in (found[ref.topic][1] or "")
    )


class Cluster:
    """Writes what brokers would."""

    def __init__(self, zookeeper: ZooKeeper, ledgers: LedgerStore) -> None:
        self._zookeeper, self._ledgers = zookeeper, ledgers

    async def topic(self, topic: str) -> None:
        await self.put(names.topic_path(topic), ledger_info.encode(ManagedLedgerInfo(LAYOUT)))

    async def put(self, path: str, data: bytes) -> None:
        await self._zookeeper.ensure_path(path.rpartition("/")[0])
        await self._zookeeper.create(path, data)

    async def inline(self, topic: str, subscription: str, state: PositionInfo) -> None:
        info = ManagedCursorInfo(
            -1, state.mark_delete, state.acked, state.batches, state.properties, last_active_ms=1
        )
        await self.put(names.cursor_path(topic, subscription), cursor_info.encode(info))

    async def in_ledger(self, topic: str, subscription: str, entry: bytes, *, closed: bool) -> int:
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/cursor": names.encode_name(subscription).encode(),
            "pulsar/managed-ledger": names.managed_ledger_name(topic).encode(),
        }
        ledger = await self._ledgers.create(LedgerSpec(3, 3, 2), custom)
        await self._ledgers.append(ledger, 0, entry)
        if closed:
            await self._ledgers.close_ledger(ledger)
        info = ManagedCursorInfo(ledger, Position(7, -1))
        await self.put(names.cursor_path(topic, subscription), cursor_info.encode(info))
        return ledger

    async def remove(self, ledger: int) -> None:
        await self._ledgers.delete(ledger)


def rows(options: Options) -> dict[str, dict]:
    read = [
        batch
        for part in PulsarCursors().plan(options)
        for batch in PulsarCursors().read(options, part)
    ]
    found = pa.Table.from_batches(read, schema=schemas.PULSAR_CURSORS)
    found.validate(full=True)
    listed = found.to_pylist()
    assert len({row["cursor"] for row in listed}) == len(listed), "a cursor comes once"
    return {row["cursor"]: row for row in listed}


def options_of(stack: Standalone, chroot: str, **more: str) -> Options:
    given = {
        "zookeeper": stack.zookeeper,
        "pulsarZookeeper": stack.zookeeper + chroot,
        "gateway": stack.gateway,
    }
    return Options.parse({**given, "table": "pulsar_cursors", "waitS": "20", **more})


STATE = PositionInfo(
    Position(7, 9), {7: BitMap([11, 12, 20]), 9: BitMap([0])}, {PartialKey(9, 4): BitMap([1])}
)


@pytest.mark.jvm
def test_what_is_told(spark: SparkSession, stack: Standalone, root: str) -> None:
    chroot = f"{root}/pulsar"

    async def make(cluster: Cluster) -> tuple[int, dict[str, dict]]:
        for at in range(2 * TOPICS + 5):
            await cluster.topic(a(f"many-{at}"))
            await cluster.inline(a(f"many-{at}"), "s", PositionInfo(Position(7, at % 90)))
        for topic in ("forms-partition-0", "forms-partition-1", "bad"):
            await cluster.topic(a(topic))
        await cluster.inline(a("forms-partition-0"), "znode", STATE)
        await cluster.in_ledger(
            a("forms-partition-0"), "ranges", position_info.encode(STATE, Form.RANGES), closed=True
        )
        await cluster.in_ledger(
            a("forms-partition-1"),
            "a/b c",
            position_info.encode(STATE, Form.LONG_ARRAY),
            closed=False,
        )
        await cluster.put(names.cursor_path(a("bad"), "garbage"), b"\xff\xff not a cursor")
        await cluster.in_ledger(a("bad"), "torn", b"\xff\xff not a state", closed=True)
        gone = await cluster.in_ledger(a("bad"), "gone", b"", closed=True)
        await cluster.remove(gone)
        # while the writer is connected: without it the gateway closes what it left open
        return gone, await asyncio.to_thread(rows, options_of(stack, chroot, tasks="3"))

    gone, found = asyncio.run(written(stack, chroot, make))
    assert len(PulsarCursors().plan(options_of(stack, chroot, tasks="3"))) == 3
    assert len(found) == 2 * TOPICS + 5 + 3 + 3

    def told(topic: str, subscription: str, *columns: str) -> tuple:
        return tuple(found[f"{a(topic)}|{subscription}"][column] for column in columns)

    numbers = (
        "mark_delete_ledger",
        "mark_delete_entry",
        "ranges",
        "acked_entries",
        "partial_batches",
        "layout_ledgers",
        "backlog_entries",
    )
    for topic, subscription, form, status in (
        ("forms-partition-0", "znode", "znode", "OK"),
        ("forms-partition-0", "ranges", "ranges", "OK"),
        ("forms-partition-1", "a/b c", "long_array", "AT_LEAST"),
    ):
        assert told(topic, subscription, *numbers) == (7, 9, 3, 4, 1, 3, 140)
        assert told(topic, subscription, "form", "status", "error") == (form, status, None)
    who = ("tenant", "namespace", "topic", "subscription", "cursor_key")
    key = cursor_key(CursorName(a("forms-partition-1"), "a/b c"))
    assert told("forms-partition-1", "a/b c", *who) == (
        "t",
        "t/ns",
        a("forms-partition-1"),
        "a/b c",
        key,
    )
    assert told("forms-partition-0", "znode", "cursors_ledger", "znode_version") == (-1, 0)
    stored, modified = told("forms-partition-0", "znode", "stored_bytes", "znode_modified")
    assert stored > 20 and modified.year > 2000
    assert {
        told("bad", s, "status", "mark_delete_entry", "form")[0] for s in ("garbage", "torn")
    } == {"DAMAGED"}
    assert (
        told("bad", "gone", "status", "ranges") == ("MISSING", None)
        and f"ledger {gone}" in told("bad", "gone", "error")[0]
    )

    assert set(rows(options_of(stack, chroot, topic=a("forms")))) == {
        c for c in found if "/forms-" in c
    }
    assert len(rows(options_of(stack, chroot, topic=a("forms"), subscription="znode"))) == 1
    assert rows(options_of(stack, chroot, namespace="t/other")) == {}
    frame = spark.read.format("cursorkeeper").options(**options_of(stack, chroot).as_text()).load()
    assert {row["status"]: row["count"] for row in frame.groupBy("status").count().collect()} == {
        "OK": len(found) - 3,
        "DAMAGED": 2,
        "MISSING": 1,
    }
    with pytest.raises(ProblemError, match=r"bad\|.*What to do: "):
        rows(options_of(stack, chroot, mode="failfast"))
    with pytest.raises(
        ProblemError, match=r"/managed-ledgers: there is no such node.*What to do: "
    ):
        rows(options_of(stack, f"{chroot}/nowhere"))


async def written(stack: Standalone, chroot: str, make: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `make` returns; the chroot and Pulsar's root are there."""
    settings = options_of(stack, "").settings
    async with connections.ports(settings, "writer") as ports:
        await ports.zookeeper.ensure_path(f"{chroot}{names.ROOT}")
    chrooted = Options.parse(
        {"zookeeper": stack.zookeeper + chroot, "gateway": stack.gateway}
    ).settings
    async with connections.ports(chrooted, "migrator") as ports:
        return await make(Cluster(ports.zookeeper, ports.ledgers))
