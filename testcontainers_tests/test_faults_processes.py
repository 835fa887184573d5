"""Processes are killed or frozen while acks flow, one by one, several at once, all bookies at once:
nothing confirmed is lost, nothing is found that was not sent, and writes succeed again by
themselves.

Two kinds of daemons. daemon-1 rolls its ledgers often and puts hardly anything into footers, so
that its source is asked to pause when BookKeeper or ZooKeeper is away. daemon-3 rolls late and puts
whole states into footers: appends need no ZooKeeper and footers no BookKeeper, so the acks of its
source are confirmed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.nodes import SESSION_MS, STREAM_PORT
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
PAST_THE_SESSION_S = 1.2 * SESSION_MS / 1000
PAUSES = {"inline_state_max_bytes": 1_000, "snapshot_bytes_min": 5_000}
GOES_ON = {"inline_state_max_bytes": 200_000, "snapshot_bytes_min": 1 << 20}
ROBUST = f"daemon-3:{STREAM_PORT}"


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    stack = opener(settings=PAUSES)
    asyncio.run(stack.add(stack.make_daemon(3, **GOES_ON)))  # type: ignore[arg-type]  # of settings only
    return stack


async def test_killed_alone_and_together(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "killed")
    async with story.step("a bookie is killed: acks flow on"), faults.killed(stack.bookies[0]):
        await story.flows()
    async with story.step("the gateway is killed"), faults.killed(stack.gateway):
        pass
    async with story.step("the daemon is killed"), faults.killed(stack.daemon):
        pass
    async with story.step("ZooKeeper is killed"), faults.killed(stack.zookeeper):
        pass
    async with (
        story.step("gateway and daemon are killed"),
        faults.killed(stack.gateway, stack.daemon),
    ):
        pass
    async with story.step("two bookies are killed"), faults.killed(*stack.bookies[:2]):
        pass
    async with (
        story.step("daemon, source and gateway are killed"),
        faults.killed(stack.daemon, story.source, stack.gateway),
    ):
        pass
    await stack.settled()
    async with (
        story.step("ZooKeeper and gateway are killed"),
        faults.killed(stack.zookeeper, stack.gateway),
    ):
        pass
    await story.end(accept)


async def test_all_bookies_are_killed(stack: ContainerStack, accept: Accept) -> None:
    pauses = await Story.begin(stack, "all-bookies-killed")
    goes_on = await Story.begin(stack, "all-bookies-killed-footers", daemon=ROBUST)
    async with (
        goes_on.step("acks are confirmed by footers"),
        pauses.step("the source is asked to pause, and goes on by itself"),
    ):
        before = len(pauses.source.pauses())
        async with faults.killed(*stack.bookies):
            await asyncio.gather(pauses.source.paused_by(since=before), goes_on.flows())
        await pauses.source.resumed()
    await asyncio.gather(pauses.end(accept), goes_on.end(accept))


async def test_the_source_is_killed_with_acks_on_their_way(
    stack: ContainerStack, accept: Accept
) -> None:
    source = await stack.source("source-killed", flows=5)
    with faults.paused(stack.gateway):
        await source.waits_with(20)
        await asyncio.to_thread(source.kill)
    verdict = await stack.verdict(source)
    accept(verdict)
    assert verdict.unconfirmed, (
        "a source that is killed while nothing can be confirmed leaves acks of which nobody knows"
    )


async def test_frozen_alone_and_together(stack: ContainerStack, accept: Accept) -> None:
    await stack.lists_bookies()  # or a ledger with too few of them would be rolled
    await stack.settled()
    story = await Story.begin(stack, "frozen", moves=True)
    goes_on = await Story.begin(stack, "frozen-goes-on", daemon=ROBUST)
    async with story.step(
        "ZooKeeper is frozen past all sessions, until a ledger would have to be rolled"
    ):
        with faults.paused(stack.zookeeper):
            before = len(story.source.pauses())
            await asyncio.gather(
                story.source.paused_by(since=before), goes_on.source.flows_for(PAST_THE_SESSION_S)
            )
    async with story.step("a bookie is frozen past its session: acks flow on"):
        with faults.paused(stack.bookies[1]):
            await stack.lists_bookies(2)
            await story.flows()
    async with story.step("the gateway is frozen"):
        await story.paused_under(faults.paused(stack.gateway))
    async with story.step("the daemon is frozen past its session"):
        with faults.paused(stack.daemon):
            await stack.zookeeper.forgets(stack.daemon.ip)
    async with story.step("gateway and daemon are frozen past their sessions"):
        with faults.paused(stack.gateway, stack.daemon):
            await stack.zookeeper.forgets(stack.gateway.ip, stack.daemon.ip)
    await stack.settled()
    async with story.step("ZooKeeper and a bookie are frozen"):
        await story.paused_under(faults.paused(stack.zookeeper, stack.bookies[2]))
    async with story.step("two bookies are frozen"):
        await story.paused_under(faults.paused(*stack.bookies[:2]))
    async with story.step("all bookies are frozen"):
        await story.paused_under(faults.paused(*stack.bookies))
    async with goes_on.step("nothing of all this stopped a daemon that needs neither"):
        pass
    await asyncio.gather(story.end(accept), goes_on.end(accept))
