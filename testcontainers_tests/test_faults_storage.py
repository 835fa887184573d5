"""Faults of the disks under BookKeeper, and what BookKeeper's own recovery does to a live ledger.

Bookies with small disks: they are filled and emptied again; a bookie is read-only from its start;
auto-recovery fences ledgers that a daemon is writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import BookieNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

WRITABLE = "cursorkeeper_gateway_writable_bookies"
Accept = Callable[[Verdict], None]
DISK_BYTES, NEARLY_FULL_BYTES = 160 << 20, 12 << 20
SMALL = [
    "--disk-usage-threshold-percent",
    "90",
    "--disk-check-interval-ms",
    "500",
    "--entry-log-mib",
    "16",
    "--journal-mib",
    "16",
]


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    """Three bookies with small disks."""
    return opener(bookie_arguments=SMALL, bookie_disk_bytes=DISK_BYTES)


@contextmanager
def full_disks(*bookies: BookieNode, leave_bytes: int = 0) -> Iterator[None]:
    """Only so much is free on their disks; what filled them goes again."""
    disks = [bookie.disk for bookie in bookies if bookie.disk is not None]
    try:
        for disk in disks:
            disk.fill(leave_bytes)
        yield
    finally:
        for disk in disks:
            disk.empty()


async def writable_bookies(stack: ContainerStack, wanted: int) -> None:
    """The gateway sees so many bookies that take writes."""

    def look() -> bool:
        return stack.gateway.metrics().get(WRITABLE) == wanted

    await until(look, f"{wanted} bookies are writable")


async def test_a_disk_is_nearly_full_and_has_room_again(
    stack: ContainerStack, accept: Accept
) -> None:
    """Above its threshold a bookie only reads; that ends by itself."""
    source = await stack.source("disk", interval_ms=60)
    with full_disks(stack.bookies[0], leave_bytes=NEARLY_FULL_BYTES):
        await writable_bookies(stack, 2)
        await source.flows(20)
        # the next owner has to make ledgers with what is left
        async with faults.killed(stack.daemon):
            pass
        await source.flows(20)
    await writable_bookies(stack, 3)
    await source.flows(10)
    await source.finish()
    accept(await stack.verdict(source))


async def test_every_disk_is_full_and_the_source_is_told(
    stack: ContainerStack, accept: Accept
) -> None:
    source = await stack.source("disks", interval_ms=60)
    with full_disks(*stack.bookies, leave_bytes=NEARLY_FULL_BYTES):
        await writable_bookies(stack, 0)
        print("asked to pause:", await source.paused_by())
    await writable_bookies(stack, 3)
    await source.flows(10)
    await source.finish()
    accept(await stack.verdict(source))


async def test_not_a_byte_is_free_on_a_bookie(stack: ContainerStack, accept: Accept) -> None:
    """A bookie that cannot write its journal ends, with a status for whoever starts it again; it
    comes back once there is room.
    """
    source = await stack.source("no-room", interval_ms=60)
    bookie = stack.bookies[1]
    with full_disks(bookie):

        def given_up() -> bool:
            return bookie.status == "exited" or stack.gateway.metrics().get(WRITABLE) == 2

        await until(given_up, "the bookie has given up, or only reads")
        await source.flows(20)
    if bookie.status == "exited":
        print("the bookie ended with", bookie.exit_code)
        assert bookie.exit_code == 1
        await asyncio.to_thread(bookie.start_again)
        await bookie.ready()
    await writable_bookies(stack, 3)
    await source.flows(10)
    await source.finish()
    accept(await stack.verdict(source))


async def test_a_read_only_bookie_takes_no_part(stack: ContainerStack, accept: Accept) -> None:
    """Two that write, one that only reads: ledgers are made with the ack quorum's ensemble, and
    with three again later.
    """
    reader = BookieNode(stack.images, stack.network, 4, stack.uri, [*SMALL, "--read-only", "true"])
    await stack.add(reader)
    source = await stack.source("read-only", interval_ms=60)
    async with faults.killed(stack.bookies[2]):
        await writable_bookies(stack, 2)
        await stack.replace_daemon(1)
        await source.flows(20)
    await writable_bookies(stack, 3)
    await source.flows(20)
    await source.finish()
    accept(await stack.verdict(source))


async def test_autorecovery_fences_ledgers_that_are_being_written(
    stack: ContainerStack, accept: Accept
) -> None:
    """A bookie of open ledgers is gone and there is no spare one: the replicator fences them. That
    is no new owner: the daemon rolls.
    """
    # Ledgers stay open long enough to be fenced: no snapshot leaves them, and no inline backstop,
    # which a network that is slow to say that a name is gone would bring about first.
    await stack.replace_daemon(1, snapshot_bytes_min=1 << 30, bookkeeper_away_ms=600_000)
    source = await stack.source("autorecovery", cursors=6, interval_ms=60)
    await stack.add(stack.make_autorecovery())

    def fenced() -> list[str]:
        lines = (
            line
            for line in stack.daemon.log_tail(5_000).splitlines()
            if '"ledger failed"' in line and "fenced" in line.lower()
        )
        return list(lines)

    async with faults.killed(stack.bookies[0]):
        found = await until(fenced, "a ledger that is being written was fenced")
        await source.flows(20)
    print(f"{len(found)} ledgers were fenced: {found[0]}")
    await source.finish()
    accept(await stack.verdict(source))
