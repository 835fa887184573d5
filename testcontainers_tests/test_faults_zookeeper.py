"""Members of an ensemble of three go away while acks flow, up to all of them. Appends need no
ZooKeeper: as long as no ledger has to be rolled, acks are confirmed without it, however long it is
away. Afterwards sessions and registrations come back by themselves.

The daemons here take snapshots as late as the product does, because a snapshot begins with a roll.
A ZooKeeper that stands alone goes away in `test_faults_processes` and `test_faults_network`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import SESSION_MS, ZooKeeperNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
PAST_THE_SESSION_S = 1.2 * SESSION_MS / 1000
ROLLS_LATE = {"snapshot_bytes_min": 1 << 20}


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    return opener(settings=ROLLS_LATE, zookeepers=3)


async def test_members_of_the_ensemble_go_away(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "ensemble", moves=True)
    async with (
        story.step("the leader is killed: new cursors open all the same"),
        faults.killed(with_mode(stack, "leader")),
    ):
        late = await Story.begin(stack, "ensemble-late", cursors=1)
        await story.flows()
    async with story.step("a follower is killed"), faults.killed(with_mode(stack, "follower")):
        await story.flows()
    async with story.step(
        "the member that the daemon is connected to is frozen past its session: it moves on"
    ):
        member, *others = sorted(stack.zookeepers, key=lambda z: not z.talks_with(stack.daemon.ip))
        with faults.paused(member):
            await story.source.flows_for(PAST_THE_SESSION_S)
            await until(lambda: any(z.talks_with(stack.daemon.ip) for z in others), "it moves on")
    await asyncio.gather(story.end(accept), late.end(accept))


async def test_no_quorum(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "no-quorum")
    await stack.settled()
    async with story.step("two of three are stopped past all sessions: acks flow on"):
        await stopped_past_the_session(story, *stack.zookeepers[:2])
        await stack.settled()
    async with story.step("all are frozen past all sessions: acks flow on"):
        with faults.paused(*stack.zookeepers):
            await story.source.flows_for(PAST_THE_SESSION_S)
        await stack.settled()
    async with story.step("all are killed and started"), faults.killed(*stack.zookeepers):
        await story.flows()
    async with story.step("new cursors open again"):
        late = await Story.begin(stack, "no-quorum-late", cursors=1)
    await asyncio.gather(story.end(accept), late.end(accept))


async def stopped_past_the_session(story: Story, *nodes: ZooKeeperNode) -> None:
    """An orderly stop; they are back, and ready, at the end."""
    try:
        codes = await asyncio.gather(*(asyncio.to_thread(node.stop) for node in nodes))
        await story.source.flows_for(PAST_THE_SESSION_S)
    finally:
        await asyncio.gather(*(asyncio.to_thread(node.start_again) for node in nodes))
        await asyncio.gather(*(node.ready() for node in nodes))
    assert 137 not in codes, (
        f"{[n.name for n in nodes]} ended with {codes}: 137 is a stop that took too long"
    )


def with_mode(stack: ContainerStack, mode: str) -> ZooKeeperNode:
    """A member that calls itself leader, or follower."""
    return next(z for z in stack.zookeepers if z.server_words().get("Mode") == mode)
