"""Checks of many footers in few requests: what shares one, what becomes of one that fails, and what
is never concluded.
"""

from __future__ import annotations

import asyncio
import random

from cursorkeeper.runtime.checks import ABSENT, FooterChecks
from cursorkeeper.runtime.shared_requests import REQUESTS_MAX, TOGETHER_MAX
from cursorkeeper.zookeeper.errors import OutcomeUnknown
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import Delay, UnknownDone
from daemon.tests.runtime.virtual import virtual


class Counted(FakeZooKeeper):
    """Remembers how many conditions each request had, and how many were under way at once."""

    sizes: list[int]
    under_way = most = 0

    async def multi(self, ops):  # type: ignore[no-untyped-def]
        self.sizes.append(len(ops))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().multi(ops)
        finally:
            self.under_way -= 1


async def nodes(count: int) -> tuple[FakeZooKeeperServer, Counted]:
    server = FakeZooKeeperServer(random.Random(1))
    zk = Counted(server, server.session().settings, server.faults)
    zk.sizes = []
    await zk.start()
    for number in range(count):
        await zk.create(f"/n{number}", b"")
    return server, zk


@virtual
async def test_many_that_ask_at_once_share_requests() -> None:
    _, zk = await nodes(1_000)
    checks = FooterChecks(zk)
    answers = await asyncio.gather(*(checks.check(f"/n{n}", 0) for n in range(1_000)))
    assert set(answers) == {True}
    assert zk.sizes == [TOGETHER_MAX] * 5 and zk.most == REQUESTS_MAX


@virtual
async def test_those_that_moved_are_found_and_the_others_have_their_proof() -> None:
    _, zk = await nodes(150)
    moved = {3, 77, 78, 149}
    for number in moved:
        await zk.set(f"/n{number}", b"x", 0)
    checks = FooterChecks(zk)
    asked = [
        *(checks.check(f"/n{n}", 0) for n in range(150)),
        checks.check("/none", 0),
        checks.check("/none", ABSENT),
        checks.check("/n1", ABSENT),
    ]
    *answers, gone, absent, present = await asyncio.gather(*asked)
    assert {n for n, a in enumerate(answers) if a is False} == moved
    assert (gone, absent, present) == (False, True, False)
    assert len(zk.sizes) < 40


@virtual
async def test_all_moved_costs_no_more_than_one_request_each() -> None:
    _, zk = await nodes(60)
    for number in range(60):
        await zk.set(f"/n{number}", b"x", 0)
    checks = FooterChecks(zk)
    assert set(await asyncio.gather(*(checks.check(f"/n{n}", 0) for n in range(60)))) == {False}
    assert len(zk.sizes) <= 60


@virtual
async def test_an_unknown_outcome_is_nobodys_proof() -> None:
    server, zk = await nodes(2)
    checks = FooterChecks(zk)
    server.faults.next("multi", UnknownDone())
    for failed in await asyncio.gather(
        checks.check("/n0", 0), checks.check("/n1", 0), return_exceptions=True
    ):
        assert isinstance(failed, OutcomeUnknown)
    assert await checks.check("/n0", 0) is True


@virtual
async def test_who_asks_later_does_not_share_a_request_that_was_sent() -> None:
    """The first request is slow; the node moves; who asks then must learn it."""
    server, zk = await nodes(1)
    other = server.session()
    await other.start()
    checks = FooterChecks(zk)
    first = asyncio.ensure_future(checks.check("/n0", 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert await first is True
    server.faults.next("multi", Delay(1.0))
    slow = asyncio.ensure_future(checks.check("/n0", 0))
    await asyncio.sleep(0.1)
    await other.set("/n0", b"x", 0)
    assert await checks.check("/n0", 0) is False
    assert await slow is False, "it had not arrived when the node moved"


@virtual
async def test_who_gave_up_before_it_was_sent_asks_nothing() -> None:
    _server, session = await nodes(1)
    checks = FooterChecks(session)
    gave_up = asyncio.create_task(checks.check("/n0", 0))
    asyncio.get_running_loop().call_soon(gave_up.cancel)
    await asyncio.wait({gave_up})
    await asyncio.sleep(1)
    assert gave_up.cancelled() and checks.requests == 0
    await checks.check("/n0", 0)
    assert checks.requests == 1
