"""ZooKeeper goes away, alone and as an ensemble of three, while acks flow. Appends need no ZooKeeper: as long as no ledger has to be
rolled, acks are confirmed without it, however long it is away. Afterwards sessions, watches and registrations come back by themselves.

The daemons here take snapshots as late as the product does, because a snapshot begins with a roll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.nodes import SESSION_MS, ZooKeeperNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.cluster.waiting import until
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
PAST_THE_SESSION_S = 1.2 * SESSION_MS / 1000
ROLLS_LATE = {"snapshot_bytes_min": 1 << 20}


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    return opener(settings=ROLLS_LATE)


@pytest.fixture
def ensemble(opener: Opener) -> ContainerStack:
    return opener(settings=ROLLS_LATE, zookeepers=3)


async def test_zookeeper_alone(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "zookeeper")
    async with story.step("killed and started"), faults.killed(stack.zookeeper):
        await story.flows()
    async with story.step("frozen past every session: acks flow on"):
        with faults.paused(stack.zookeeper):
            await story.source.flows_for(PAST_THE_SESSION_S)
    async with story.step("stopped past every session: acks flow on; then bookies register again, and new cursors open"):
        assert await asyncio.to_thread(stack.zookeeper.stop) != 137, "it had to be killed"
        await story.source.flows_for(PAST_THE_SESSION_S)
        await asyncio.to_thread(stack.zookeeper.start_again)
        await stack.zookeeper.ready()
        late = await Story.begin(stack, "zookeeper-late", cursors=1)
    await story.end(accept)
    await late.end(accept)


async def test_an_ensemble_of_three(ensemble: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(ensemble, "ensemble")
    async with story.step("the leader is killed: new cursors open all the same"), faults.killed(with_mode(ensemble, "leader")):
        late = await Story.begin(ensemble, "ensemble-late", cursors=1)
        await story.flows()
    async with story.step("a follower is killed"), faults.killed(with_mode(ensemble, "follower")):
        await story.flows()
    async with story.step("the member that the daemon is connected to is frozen past its session"):
        [member] = [z for z in ensemble.zookeepers if z.talks_with(ensemble.daemon.ip)]
        with faults.paused(member):
            await story.source.flows_for(PAST_THE_SESSION_S)
            await until(lambda: any(z.talks_with(ensemble.daemon.ip) for z in ensemble.zookeepers if z is not member), "it moves on")
    async with story.step("two of three are killed: no quorum, and acks flow on"), faults.killed(*ensemble.zookeepers[:2]):
        await story.source.flows_for(PAST_THE_SESSION_S)
    await story.end(accept)
    await late.end(accept)


def with_mode(stack: ContainerStack, mode: str) -> ZooKeeperNode:
    """A member that calls itself leader, or follower."""
    return next(z for z in stack.zookeepers if z.server_words().get("Mode") == mode)
