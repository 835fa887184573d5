"""A gateway that is replaced while a snapshot is being written, and a daemon that runs out of
memory.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest
from pyroaring import BitMap

from cursorkeeper.demo.source import TOPIC
from cursorkeeper.demo.workload import BadCase
from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import (
    GATEWAY_PORT,
    PYTHON,
    STREAM_PORT,
    BadCaseNode,
    DaemonNode,
)
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener
from testcontainers_tests.images import flood

Accept = Callable[[Verdict], None]
SLOW_GATEWAY_MS = 40
CASE = BadCase(entries=15_000_000, ledgers=1_500)
FLOOD_CURSORS, FLOOD_BATCHES = 24, 4
MEMORY_SMALL, MEMORY_ENOUGH = "128m", "1500m"
SIGKILLED = 128 + signal.SIGKILL


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    """Two gateways, so that one can be replaced while the other's daemon looks on."""
    return opener(gateways=2)


def records(daemon: DaemonNode, kind: str) -> float:
    """Records of a kind that were acknowledged."""
    return daemon.metrics().get(f'cursorkeeper_append_bytes_count{{kind="{kind}"}}', 0.0)


async def in_a_snapshot(daemon: DaemonNode, segments: int = 8) -> float:
    """So many segments of a snapshot are written and its end is not; returns the snapshots that
    ended before.
    """
    seen = (-1.0, 0.0)

    def look() -> bool:
        nonlocal seen
        now = (records(daemon, "snapshot_end"), records(daemon, "segment"))
        if now[0] != seen[0]:
            seen = now
        return now[1] - seen[1] >= segments

    await until(look, "a snapshot is being written")
    return seen[0]


async def test_the_gateway_goes_in_the_middle_of_a_snapshot(
    stack: ContainerStack, accept: Accept
) -> None:
    """Behind a slow wire a snapshot of many segments takes seconds; when some of them are written
    the gateway is killed, and in a later snapshot it is replaced by another one.
    """
    proxy = stack.make_proxy(
        "slow", f"{stack.gateway.name}:{GATEWAY_PORT}", GATEWAY_PORT, delay_ms=SLOW_GATEWAY_MS
    )
    await stack.add(proxy)
    small = {
        "max_entry_bytes": 64 << 10,
        "mark_delete_properties_bytes_max": 16 << 10,
        "cursor_properties_bytes_max": 16 << 10,
    }
    slow = {"snapshot_bytes_min": 3_000, "snapshot_segments_in_flight_max": 1}
    daemon = stack.make_daemon(3, gateway=f"{proxy.name}:{GATEWAY_PORT}", **small, **slow)
    await stack.add(daemon)
    source = BadCaseNode(stack.images, stack.network, f"{daemon.name}:{STREAM_PORT}", CASE)
    stack.others.append(source)
    await asyncio.to_thread(source.start)
    ends = await in_a_snapshot(daemon)
    async with faults.killed(stack.gateway):
        assert records(daemon, "snapshot_end") == ends, "the snapshot had ended already"
    ends = await in_a_snapshot(daemon)
    await stack.replace_gateway(1)
    assert records(daemon, "snapshot_end") == ends, "the snapshot had ended already"
    await source.finished()
    daemon.kill()
    verdict = Verdict()
    verdict.add_case(CASE, await stack.read(TOPIC, subscription="workers"))
    accept(verdict)


async def test_the_daemon_runs_out_of_memory(stack: ContainerStack, accept: Accept) -> None:
    """While BookKeeper is away acks wait in memory, as much as credit was given for: more than this
    container has.
    """
    daemon = stack.make_daemon(4, docker_arguments={"memory": MEMORY_SMALL})
    await stack.add(daemon)
    source = await stack.source("memory", daemon=f"{daemon.name}:{STREAM_PORT}")
    program = {flood.__file__: {"bind": "/flood.py", "mode": "ro"}}
    command = ["/flood.py", f"{daemon.name}:{STREAM_PORT}", str(FLOOD_CURSORS), str(FLOOD_BATCHES)]
    other = Node(
        "flood",
        stack.images.daemon,
        command,
        stack.network,
        entrypoint=[PYTHON],
        volumes=program,
        memory="2g",
    )
    await stack.add(other)
    with faults.paused(*stack.bookies):
        await until(lambda: daemon.status == "exited", "the daemon was killed for want of memory")
    # Docker's own word for it, OOMKilled, is another event: it may come after the end, or never
    assert daemon.exit_code == SIGKILLED, "nobody but the kernel sends that signal here"
    # what an operator does
    daemon.docker.update(mem_limit=MEMORY_ENOUGH, memswap_limit=MEMORY_ENOUGH)
    await asyncio.to_thread(daemon.start_again)
    await daemon.ready()
    await source.flows(10, limit_s=90)
    await until(lambda: bool(other.json_lines("done")), "the flood is durable", 180)
    await source.finish()
    verdict = await stack.verdict(source)
    for cursor in range(FLOOD_CURSORS):
        state = await stack.read(flood.topic(cursor))
        sent, found = (
            flood.acked(cursor, FLOOD_BATCHES),
            BitMap(state.acked.get(flood.LEDGER, BitMap())),
        )
        if state.mark_delete.ledger == flood.LEDGER:
            found |= BitMap(range(state.mark_delete.entry + 1))
        verdict.cursors += 1
        verdict.confirmed_present += len(sent & found)
        verdict.confirmed_lost += len(sent - found)
        verdict.phantom += len(found - sent)
    accept(verdict)
