"""The network fails while acks flow: nodes are cut off and come back, packets are dropped between two of them, lost at random, and
late. Nothing confirmed is lost, nothing is found that was not sent, and writes succeed again by themselves.

What is cut off or dropped answers nothing: whoever talks to it learns of it from silence only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import GATEWAY_PORT, STREAM_PORT
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Truth, Verdict
from testcontainers_tests.cluster.waiting import until
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    return opener(settings={"inline_state_max_bytes": 1_000})


async def paused_under(story: Story, *faults_now: AbstractContextManager[None]) -> None:
    """These faults last until the source is asked to pause."""
    before = len(story.source.pauses())
    with ExitStack() as active:
        for fault in faults_now:
            active.enter_context(fault)
        await story.source.paused_by(since=before)


async def test_each_is_cut_off_and_comes_back(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "cut-off")
    async with story.step("a bookie is cut off past its session: acks flow on"):
        with faults.disconnected(stack.bookies[0]):
            await stack.lists_bookies(2)
            await story.flows()
    async with story.step("the source is cut off"):
        with faults.disconnected(story.source):
            await story.source.waits_with(20)
    for what, node in {"the gateway": stack.gateway, "the daemon": stack.daemon}.items():
        async with story.step(f"{what} is cut off past its session"):
            ip = node.ip
            with faults.disconnected(node):
                await stack.zookeeper.forgets(ip)
    async with story.step("ZooKeeper is cut off until a ledger would have to be rolled"):
        await paused_under(story, faults.disconnected(stack.zookeeper))
    await story.end(accept)


async def test_a_daemon_that_was_cut_off_is_deposed(stack: ContainerStack, accept: Accept) -> None:
    """Its source moved on to the other daemon meanwhile; what the old owner still holds must not come back as truth."""
    old = await stack.source("deposed", interval_ms=50, flows=5)
    with faults.disconnected(stack.daemon):
        await old.waits_with(10)
        await asyncio.to_thread(old.kill)
        new = await stack.source_again(old, stack.daemons[1])
        await new.flows(5)
    owned = [f'"cursor":"{topic}|steady"' for topic in old.topics]

    def is_deposed() -> bool:
        lines = stack.daemon.docker.logs(stderr=True).decode().splitlines()
        return all(any(cursor in line and '"DEPOSED"' in line for line in lines) for cursor in owned)

    await until(is_deposed, f"{stack.daemon.name} learns that it no longer owns {old.topics}")
    await new.flows(5)
    await new.finish()
    verdict = Verdict()
    for at, topic in enumerate(old.topics):
        truth = Truth.of([*old.json_lines(), *new.json_lines()], at, old.seed + at, old.moves)
        verdict.add(topic, truth, await stack.read(topic, stack.daemon))
    accept(verdict)


async def test_packets_are_dropped_between_two(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "dropped", moves=True)

    def dropped(node: Node, peers: Sequence[Node]) -> AbstractContextManager[None]:
        return faults.dropped(stack.images, node, *peers)

    async with story.step("between gateway and a bookie: acks flow on"):
        with dropped(stack.gateway, stack.bookies[:1]):
            await story.flows(20)
    async with story.step("between daemon and gateway"):
        await paused_under(story, dropped(stack.daemon, [stack.gateway]))
    async with story.step("between gateway and all bookies"):
        await paused_under(story, dropped(stack.gateway, stack.bookies))
    await story.end(accept)


async def test_packets_are_lost_at_random_and_a_bookie_dies(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "lossy")
    async with story.step("every fifth packet to gateway and daemon is lost, and a bookie is killed"):
        with faults.lossy(stack.images, stack.gateway, 0.2), faults.lossy(stack.images, stack.daemon, 0.2):
            await story.flows(20)
            async with faults.killed(stack.bookies[2]):
                await story.flows(20)
    await story.end(accept)


async def test_packets_are_late_and_the_gateway_dies(stack: ContainerStack, accept: Accept) -> None:
    """Source, 50 to 100 ms, daemon, 50 to 100 ms, gateway; each way."""
    far = {"delay_ms": 50, "jitter_ms": 50}
    gateway = stack.make_proxy("far-gateway", f"{stack.gateway.name}:{GATEWAY_PORT}", GATEWAY_PORT, **far)
    daemon = stack.make_daemon(3, gateway=f"{gateway.name}:{GATEWAY_PORT}")
    stream = stack.make_proxy("far-daemon", f"{daemon.name}:{STREAM_PORT}", STREAM_PORT, **far)
    await stack.add(gateway)
    await stack.add(daemon)
    await stack.add(stream)
    story = await Story.begin(stack, "late", daemon=f"{stream.name}:{STREAM_PORT}")
    async with story.step("everything is late, and the gateway is killed"), faults.killed(stack.gateway):
        pass
    async with story.step("everything is late, and the daemon is killed"), faults.killed(daemon):
        pass
    await story.end(accept)
