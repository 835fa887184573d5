"""Reads and writes of many footers in few requests: what shares one, and what becomes of those that
share it with one that fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

import pytest

from cursorkeeper.runtime.checks import ABSENT
from cursorkeeper.runtime.footer_requests import FooterReads, FooterWrites
from cursorkeeper.runtime.shared_requests import BYTES_MAX, REQUESTS_MAX, TOGETHER_MAX
from cursorkeeper.zookeeper.errors import (
    BadVersion,
    NodeExists,
    NoNode,
    OutcomeUnknown,
    ValueTooLarge,
    ZooKeeperError,
)
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import Create, Node, Op, OpResult
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import Late, Meanwhile, UnknownDone, UnknownNotDone
from daemon.tests.runtime.virtual import virtual

Answer = int | Node | BaseException | None


class Counted(FakeZooKeeper):
    """Remembers the paths of each transaction, and how many requests there were."""

    def __init__(self, server: FakeZooKeeperServer, settings: ZooKeeperSettings) -> None:
        super().__init__(server, settings, server.faults)
        self.together: list[list[str]] = []
        self.requests = 0

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        self.together.append([op.path for op in ops])
        return await super().multi(ops)

    async def _request(self, operation, path, at_server):  # type: ignore[no-untyped-def]
        self.requests += 1
        return await super()._request(operation, path, at_server)


async def nodes(
    count: int, settings: ZooKeeperSettings | None = None
) -> tuple[FakeZooKeeperServer, Counted]:
    server = FakeZooKeeperServer(random.Random(1))
    zk = Counted(server, settings or ZooKeeperSettings())
    await zk.start()
    await zk.create("/b", b"")
    for start in range(0, count, TOGETHER_MAX):
        names = range(start, min(count, start + TOGETHER_MAX))
        await zk.multi([Create(f"/b/{n}", b"0") for n in names])
    zk.together, zk.requests = [], 0
    return server, zk


async def all_of(asked: Sequence[Awaitable[Answer]]) -> list[Answer]:
    return await asyncio.gather(*asked, return_exceptions=True)


@virtual
async def test_writes_that_come_together_are_one_transaction() -> None:
    _, zk = await nodes(1_000)
    writes = FooterWrites(zk)
    assert await all_of([writes.write(f"/b/{n}", b"1", 0) for n in range(1_000)]) == [1] * 1_000
    assert [len(paths) for paths in zk.together] == [TOGETHER_MAX] * 5
    assert await writes.write("/b/7", b"2", 1) == 2
    assert len(zk.together) == 5, "one by itself is none"


@virtual
async def test_one_that_fails_spoils_no_other() -> None:
    _, zk = await nodes(100)
    moved, gone, there = {3, 50, 51, 99}, {17, 18}, {60}
    for number in moved:
        await zk.set(f"/b/{number}", b"x", 0)
    for number in gone:
        await zk.delete(f"/b/{number}", 0)
    writes = FooterWrites(zk)
    answers = await all_of(
        [writes.write(f"/b/{n}", b"1", ABSENT if n in there else 0) for n in range(100)]
    )
    for number, answer in enumerate(answers):
        if number in moved:
            assert isinstance(answer, BadVersion)
        elif number in gone:
            assert isinstance(answer, NoNode)
        elif number in there:
            assert isinstance(answer, NodeExists)
        else:
            assert answer == 1
        if number not in gone:
            data = b"x" if number in moved else b"0" if number in there else b"1"
            assert (await zk.get(f"/b/{number}")).data == data
    assert len(zk.together) < 60


@virtual
async def test_all_that_fail_cost_no_more_than_one_request_each() -> None:
    _, zk = await nodes(60)
    writes = FooterWrites(zk)
    answers = await all_of([writes.write(f"/b/{n}", b"1", 5) for n in range(60)])
    assert all(isinstance(answer, BadVersion) for answer in answers)
    assert zk.requests <= 60


@virtual
async def test_two_writes_of_one_node_share_no_request() -> None:
    """The second one would be judged by what the first one did in a transaction that is not
    applied: its BadVersion would not be final.
    """
    _, zk = await nodes(4)
    await zk.set("/b/2", b"x", 0)
    writes = FooterWrites(zk)
    paths = ["/b/0", "/b/1", "/b/2", "/b/0", "/b/3"]
    one, second, moved, other, last = await all_of([writes.write(p, b"1", 0) for p in paths])
    assert (second, last) == (1, 1) and isinstance(moved, BadVersion)
    assert isinstance(one, BadVersion) != isinstance(other, BadVersion), "one of them was applied"
    assert (await zk.get("/b/0")).version == 1
    assert all(len(set(together)) == len(together) for together in zk.together)


@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone(), Late(1.0)])
@virtual
async def test_an_answer_that_was_lost_is_unknown_to_all_and_the_same_again_decides(
    fault: UnknownDone | UnknownNotDone | Late,
) -> None:
    server, zk = await nodes(3)
    writes = FooterWrites(zk)
    server.faults.next("multi", fault)
    answers = await all_of([writes.write(f"/b/{n}", b"1", 0) for n in range(3)])
    assert all(isinstance(answer, OutcomeUnknown) for answer in answers)
    again = await all_of([writes.write(f"/b/{n}", b"1", 0) for n in range(3)])
    await asyncio.sleep(2)
    done = isinstance(fault, UnknownDone)
    assert all(isinstance(answer, BadVersion) if done else answer == 1 for answer in again)
    assert [(await zk.get(f"/b/{n}")).version for n in range(3)] == [1, 1, 1], "applied once"


@virtual
async def test_buckets_that_are_missing_are_made_together() -> None:
    _, zk = await nodes(0)
    writes = FooterWrites(zk)
    paths = [f"/b/{n % 50}-bucket/{n}" for n in range(150)]
    assert await all_of([writes.write(p, b"1", ABSENT) for p in paths]) == [0] * 150
    assert zk.requests == 3, "which are there, those that are not, and the footers"
    more = [f"/b/{n % 50}-bucket/{n}" for n in range(150, 200)]
    assert await all_of([writes.write(p, b"1", ABSENT) for p in more]) == [0] * 50
    assert zk.requests == 4, "they are known now"


@virtual
async def test_a_bucket_that_somebody_else_makes_or_whose_parent_is_missing() -> None:
    server, zk = await nodes(0)
    other = server.session()
    await other.start()
    writes = FooterWrites(zk)
    server.faults.next("multi", Meanwhile(lambda: other.ensure_path("/b/1")))
    paths = [f"/b/{n}/x" for n in range(3)]
    assert await all_of([writes.write(p, b"1", ABSENT) for p in paths]) == [0] * 3
    paths = [f"/deep/root/{n}/x" for n in range(3)]
    assert await all_of([writes.write(p, b"1", ABSENT) for p in paths]) == [0] * 3


@virtual
async def test_a_bucket_that_was_removed_is_made_again_when_it_is_asked_for_again() -> None:
    _, zk = await nodes(0)
    writes = FooterWrites(zk)
    assert await all_of([writes.write(f"/b/1/{n}", b"", ABSENT) for n in range(2)]) == [0, 0]
    for path in ("/b/1/0", "/b/1/1", "/b/1"):
        await zk.delete(path, 0)
    answers: list[Answer] = [NoNode()]
    for _ in range(3):
        answers = await all_of([writes.write(f"/b/1/{n}", b"", ABSENT) for n in range(2)])
    assert all(a == 0 or isinstance(a, NodeExists) for a in answers)


@virtual
async def test_what_is_too_large_together_goes_out_in_parts() -> None:
    _, zk = await nodes(4, ZooKeeperSettings(jute_maxbuffer_bytes=129 << 10))
    writes = FooterWrites(zk)
    sizes = [100 << 10, 100 << 10, 40 << 10, 200 << 10]
    assert sum(sizes[:2]) < BYTES_MAX
    *fine, large = await all_of(
        [writes.write(f"/b/{n}", bytes(size), 0) for n, size in enumerate(sizes)]
    )
    assert fine == [1, 1, 1] and isinstance(large, ValueTooLarge)


@virtual
async def test_a_bug_in_a_request_is_told_to_all_in_it() -> None:
    server, zk = await nodes(3)

    async def broken() -> None:
        raise RuntimeError("a defect")

    server.faults.next("multi", Meanwhile(broken))
    writes = FooterWrites(zk)
    answers = await all_of([writes.write(f"/b/{n}", b"1", 0) for n in range(3)])
    assert all(isinstance(answer, RuntimeError) for answer in answers)
    assert await writes.write("/b/0", b"1", 0) == 1


@virtual
async def test_reads_that_come_together_share_requests_and_each_has_its_watch() -> None:
    _, zk = await nodes(900)
    reads = FooterReads(zk)
    fired: list[str] = []
    found = await all_of([reads.read(f"/b/{n}", fired.append) for n in range(900)])
    assert all(isinstance(node, Node) and node.data == b"0" for node in found)
    assert zk.requests == 5 > REQUESTS_MAX
    await zk.set("/b/5", b"1", 0)
    await zk.set("/b/899", b"1", 0)
    await asyncio.sleep(1)
    assert fired == ["/b/5", "/b/899"]
    there, absent = await all_of([reads.read("/b/0", None), reads.read("/none", None)])
    assert isinstance(there, Node) and absent is None
    assert await reads.read("/none", None) is None


@virtual
async def test_a_read_that_failed_has_failed_for_all_in_it() -> None:
    server, zk = await nodes(3)
    reads = FooterReads(zk)
    server.faults.next("multi_read", UnknownNotDone())
    answers = await all_of([reads.read(f"/b/{n}", None) for n in range(3)])
    assert all(isinstance(answer, ZooKeeperError) for answer in answers)
