"""A large cursor: tens of millions of entries with holes in hundreds of data ledgers, whose owner
dies in the middle of snapshots.

The next owner reads it from what is there: the last finished snapshot, the deltas after it, and
parts of one that was never finished. Compared entry by entry with what the source was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cursorkeeper.demo.plays import recover
from cursorkeeper.demo.source import SUBSCRIPTION, TOPIC
from cursorkeeper.demo.workload import BadCase
from cursorkeeper.format.record import Kind, peek
from daemon.tests.end_to_end.stored import reading, stored
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import STREAM_PORT, BadCaseNode, DaemonNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

CASE = BadCase(entries=60_000_000, ledgers=500, hole_share=0.03)
LONG_SNAPSHOTS = {
    "max_entry_bytes": 65_536,
    "mark_delete_properties_bytes_max": 16_384,
    "cursor_properties_bytes_max": 16_384,
    "snapshot_segments_in_flight_max": 1,
}
"""Many small segments, one after the other: a kill meets a snapshot."""
KILLS_AT = (0.15, 0.3)
"""Shares of the entries that are confirmed by then. A kill that met no snapshot is tried again, and
the source goes on meanwhile: that is what the rest is for.
"""
TRIES_MAX = 10


async def confirmed(source: BadCaseNode, share: float) -> None:
    async def look() -> bool:
        lines = await asyncio.to_thread(source.json_lines, "confirmed", 50)
        return bool(lines) and lines[-1]["confirmed"] >= share * CASE.entries

    await until(look, f"{share:.0%} of {CASE.entries:,} entries are confirmed")


async def killed_in_a_snapshot(stack: ContainerStack, owner: DaemonNode) -> int:
    """SIGKILL while it writes segments; returns how many of an unfinished snapshot are left. Again,
    if it had just finished.
    """
    for _ in range(TRIES_MAX):
        await until(lambda: writes_segments(owner), f"{owner.name} takes a snapshot")
        owner.kill()
        if segments := await unfinished_segments(stack):
            return segments
        owner.start_again()
        await owner.ready()
    raise AssertionError(f"{TRIES_MAX} kills, and none met a snapshot")


def writes_segments(owner: DaemonNode) -> bool:
    """Some were written between two looks, and no snapshot ended."""
    (first, ended), (now, ended_now) = counts(owner), counts(owner)
    return now > first and ended == ended_now


def counts(owner: DaemonNode) -> tuple[float, float]:
    metrics = owner.metrics()
    segments, ends = (
        metrics.get(f'cursorkeeper_append_bytes_count{{kind="{kind}"}}', 0.0)
        for kind in ("segment", "snapshot_end")
    )
    return segments, ends


async def unfinished_segments(stack: ContainerStack) -> int:
    """Segments in the newest ledger of the cursor that no end record follows."""
    async with reading(stack.gateway.client_address, stack.zookeeper.client_address) as ports:
        newest = (await stored(ports, TOPIC, SUBSCRIPTION)).footer.chain[-1].ledger
        kinds = [
            peek(data).kind
            async for chunk in ports.ledgers.read(newest, 0, unconfirmed=True)
            for data in chunk.payloads
        ]
    return 0 if Kind.SNAPSHOT_END in kinds else kinds.count(Kind.SEGMENT)


async def test_tens_of_millions_of_acks_are_there_for_the_next_owner(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    owner = stack.make_daemon(4, **LONG_SNAPSHOTS)
    await stack.add(owner)
    source = BadCaseNode(stack.images, stack.network, f"{owner.name}:{STREAM_PORT}", CASE)
    stack.others.append(source)
    await asyncio.to_thread(source.start)
    await confirmed(source, KILLS_AT[0])
    print("segments left by the first kill:", await killed_in_a_snapshot(stack, owner))
    owner.start_again()
    await confirmed(source, KILLS_AT[1])
    print("segments left by the last kill:", await killed_in_a_snapshot(stack, owner))
    source.kill()
    sent, durable = source.batches()
    print(f"{sent - durable} of {sent} batches were on their way")
    state, seconds = await recover(stack.daemons[1].client_address, TOPIC)
    print(
        f"{state.acked_entries:,} acked entries, {state.holes:,} holes in {len(state.layout)} "
        f"data ledgers: recovered in {seconds:.2f} s"
    )
    verdict = Verdict()
    verdict.add_part_of_case(CASE, sent, durable, state)
    accept(verdict)
