"""The network fails while acks flow: nodes are cut off and come back, packets are dropped between
two of them, lost at random, and late. Nothing confirmed is lost, nothing is found that was not
sent, and writes succeed again by themselves.

What is cut off or dropped answers nothing: whoever talks to it learns of it from silence only.
daemon-3 is far away: from its source to it, and from it to the gateway, everything takes 50 to 100
ms through proxies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import GATEWAY_PORT, STREAM_PORT, DaemonNode, SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import INTERVAL_MS, PROOF_BATCHES, Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
PAUSES = {"inline_state_max_bytes": 1_000, "snapshot_bytes_min": 5_000}
DELAY_MS, JITTER_MS = 50, 50
FAR_STREAM = "far-daemon"


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    return opener(settings=PAUSES)


async def test_each_is_cut_off_and_comes_back(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "cut-off")
    async with story.step("a bookie is cut off past its session: acks flow on"):
        with faults.disconnected(stack.bookies[0]):
            await stack.lists_bookies(2)
            await story.flows()
    async with story.step("the source is cut off"):
        with faults.disconnected(story.source):
            await story.source.waits_with(20)
    async with story.step("the gateway is cut off"):
        await story.paused_under(faults.disconnected(stack.gateway))
    async with story.step("the daemon is cut off past its session"):
        ip = stack.daemon.ip
        with faults.disconnected(stack.daemon):
            await stack.zookeeper.forgets(ip)
    await stack.settled()
    async with story.step("ZooKeeper is cut off until a ledger would have to be rolled"):
        await story.paused_under(faults.disconnected(stack.zookeeper))
    await story.end(accept)


async def test_a_daemon_that_was_cut_off_is_deposed(stack: ContainerStack, accept: Accept) -> None:
    """From everything, and from what it stands on only: then it still takes acks, and holds them
    when it comes back.
    """
    from_all = await stack.source("deposed", interval_ms=INTERVAL_MS, flows=PROOF_BATCHES)
    await takes_over(stack, from_all, faults.disconnected(stack.daemon), accept)
    holding = await stack.source("deposed-holding", interval_ms=INTERVAL_MS, flows=PROOF_BATCHES)
    await takes_over(
        stack,
        holding,
        faults.dropped(stack.images, stack.daemon, stack.gateway, stack.zookeeper),
        accept,
    )


async def takes_over(
    stack: ContainerStack, former: SourceNode, cut_off: AbstractContextManager[None], accept: Accept
) -> None:
    """A source moves on to daemon-2 while daemon-1 is cut off. Back again, daemon-1 is deposed, and
    nothing it confirmed is lost.
    """
    with cut_off:
        await former.waits_with(10)
        await asyncio.to_thread(former.kill)
        source = await stack.source_again(former, stack.daemons[1], PROOF_BATCHES)
    await until(
        lambda: deposed_of(stack.daemon) >= set(former.topics),
        f"{stack.daemon.name} learns that {former.topics} are not its own",
    )
    await source.flows(PROOF_BATCHES)
    await source.finish()
    accept(await stack.verdict(former, source, daemon=stack.daemon))


def deposed_of(daemon: DaemonNode) -> set[str]:
    """Topics whose cursors it gave up to a new owner, as its log says."""
    lines = daemon.docker.logs(stderr=True, stdout=False).decode(errors="replace").splitlines()
    return {
        line.partition('"cursor":"')[2].partition("|")[0]
        for line in lines
        if '"cursor ended"' in line and '"DEPOSED"' in line
    }


async def test_packets_are_dropped_or_late(stack: ContainerStack, accept: Accept) -> None:
    far_daemon = await far_away(stack)
    near, far = await asyncio.gather(
        Story.begin(stack, "dropped", moves=True),
        Story.begin(stack, "late", daemon=f"{FAR_STREAM}:{STREAM_PORT}"),
    )

    def dropped(node: Node, peers: Sequence[Node]) -> AbstractContextManager[None]:
        return faults.dropped(stack.images, node, *peers)

    async with near.step("dropped between gateway and a bookie: acks flow on"):
        with dropped(stack.gateway, stack.bookies[:1]):
            await near.flows()
    async with (
        near.step("dropped between daemon and gateway: acks flow on at the other daemon"),
        far.step("late"),
    ):
        await asyncio.gather(near.paused_under(dropped(stack.daemon, [stack.gateway])), far.flows())
    async with far.step("late, and its daemon is killed"), faults.killed(far_daemon):
        pass
    async with (
        far.step("late, and the bookies cannot be reached"),
        near.step("dropped between gateway and all bookies"),
    ):
        await near.paused_under(dropped(stack.gateway, stack.bookies))
    await asyncio.gather(near.end(accept), far.end(accept))


async def far_away(stack: ContainerStack) -> DaemonNode:
    """daemon-3, between a proxy that sources dial and a proxy that it dials for the gateway."""
    late = {"delay_ms": DELAY_MS, "jitter_ms": JITTER_MS}
    gateway = stack.make_proxy(
        "far-gateway", f"{stack.gateway.name}:{GATEWAY_PORT}", GATEWAY_PORT, **late
    )
    daemon = stack.make_daemon(3, gateway=f"{gateway.name}:{GATEWAY_PORT}")
    for node in (
        gateway,
        daemon,
        stack.make_proxy(FAR_STREAM, f"{daemon.name}:{STREAM_PORT}", STREAM_PORT, **late),
    ):
        await stack.add(node)
    return daemon


async def test_packets_are_lost_at_random_and_a_bookie_dies(
    stack: ContainerStack, accept: Accept
) -> None:
    story = await Story.begin(stack, "lossy")
    for what, node in {"the gateway": stack.gateway, "the daemon": stack.daemon}.items():
        async with story.step(f"every fifth packet to {what} is lost, and a bookie is killed"):
            with faults.lossy(stack.images, node, 0.2):
                await story.flows()
                async with faults.killed(stack.bookies[2]):
                    await story.flows()
    await story.end(accept)
