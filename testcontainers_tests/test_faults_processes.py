"""Processes are killed or frozen while acks flow, one by one, several at once, all bookies at once: nothing confirmed is lost,
nothing is found that was not sent, and writes succeed again by themselves.

The daemons here put hardly anything into footers, so that a source is asked to pause while BookKeeper is away; `daemon-3` puts
whole states there, so that its acks are confirmed even then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.nodes import STREAM_PORT
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
HARDLY_ANYTHING = {"inline_state_max_bytes": 1_000}
WHOLE_STATES = {"inline_state_max_bytes": 200_000}


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    return opener(settings=HARDLY_ANYTHING)


async def test_each_is_killed_by_itself(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "killed")
    async with story.step("a bookie is killed: acks flow on"), faults.killed(stack.bookies[0]):
        await story.flows()
    async with story.step("the gateway is killed"), faults.killed(stack.gateway):
        pass
    async with story.step("the daemon is killed"), faults.killed(stack.daemon):
        pass
    async with story.step("ZooKeeper is killed"), faults.killed(stack.zookeeper):
        pass
    await story.end(accept)


async def test_several_are_killed_at_once(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "several-killed", moves=True)
    async with story.step("gateway and daemon are killed"), faults.killed(stack.gateway, stack.daemon):
        pass
    async with story.step("two bookies are killed"), faults.killed(*stack.bookies[:2]):
        pass
    async with story.step("daemon, source and gateway are killed"), faults.killed(stack.daemon, story.source, stack.gateway):
        pass
    async with story.step("ZooKeeper and gateway are killed"), faults.killed(stack.zookeeper, stack.gateway):
        pass
    await story.end(accept)


async def test_all_bookies_are_killed(stack: ContainerStack, accept: Accept) -> None:
    daemon = stack.make_daemon(3, **WHOLE_STATES)
    await stack.add(daemon)
    large = await Story.begin(stack, "all-bookies-killed")
    small = await Story.begin(stack, "all-bookies-killed-footers", daemon=f"{daemon.name}:{STREAM_PORT}")
    async with small.step("its acks are confirmed by footers"), large.step("the source is asked to pause, and goes on by itself"):
        before = len(large.source.pauses())
        async with faults.killed(*stack.bookies):
            await large.source.paused_by(since=before)
            await small.flows()
        await large.source.resumed()
    await large.end(accept)
    await small.end(accept)


async def test_the_source_is_killed_with_acks_on_their_way(stack: ContainerStack, accept: Accept) -> None:
    source = await stack.source("source-killed")
    with faults.paused(stack.gateway):
        await source.waits_with(20)
        await asyncio.to_thread(source.kill)
    verdict = await stack.verdict(source)
    accept(verdict)
    assert verdict.unconfirmed, "a source that is killed while nothing is confirmed leaves acks of which nobody knows"


async def test_each_is_frozen_by_itself(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "frozen")
    async with story.step("a bookie is frozen past its session: acks flow on"):
        with faults.paused(stack.bookies[1]):
            await stack.lists_bookies(2)
            await story.flows()
    async with story.step("the gateway is frozen past its session"):
        before = len(story.source.pauses())
        with faults.paused(stack.gateway):
            await story.source.paused_by(since=before)
            await stack.zookeeper.forgets(stack.gateway.ip)
    async with story.step("the daemon is frozen past its session"):
        with faults.paused(stack.daemon):
            await stack.zookeeper.forgets(stack.daemon.ip)
    async with story.step("ZooKeeper is frozen until a ledger would have to be rolled"):
        before = len(story.source.pauses())
        with faults.paused(stack.zookeeper):
            await story.source.paused_by(since=before)
    await story.end(accept)


async def test_several_are_frozen_at_once(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "several-frozen", moves=True)
    async with story.step("gateway and daemon are frozen past their sessions"):
        with faults.paused(stack.gateway, stack.daemon):
            await stack.zookeeper.forgets(stack.gateway.ip, stack.daemon.ip)
    for what, nodes in {
        "ZooKeeper and a bookie are frozen": [stack.zookeeper, stack.bookies[2]],
        "two bookies are frozen": stack.bookies[:2],
        "all bookies are frozen": stack.bookies,
    }.items():
        async with story.step(what):
            before = len(story.source.pauses())
            with ExitStack() as frozen:
                frozen.enter_context(faults.paused(*nodes))
                await story.source.paused_by(since=before)
            await story.source.resumed()
    await story.end(accept)
