"""The main job in containers: acks flow, an owner dies, the next one has every confirmed ack and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict


async def test_everything_confirmed_is_there_for_the_next_owner(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    source = await stack.source("main", cursors=4, flows=40, interval_ms=10, moves=True)
    await source.finish()
    accept(await stack.verdict(source))


async def test_the_daemon_is_killed_while_acks_flow(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    source = await stack.source("kill", flows=30)
    async with faults.killed(stack.daemon):
        pass
    await source.flows(30)
    await source.finish()
    accept(await stack.verdict(source))
