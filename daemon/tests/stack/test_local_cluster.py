"""Separate processes: what one of them dying means for the others. Real BookKeeper."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cursorkeeper.bookkeeper import GatewayError, GatewayRetry, LedgerSpec, Outcome
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.stack import LocalCluster

pytestmark = pytest.mark.jvm
OURS = {"application": b"cursorkeeper"}


async def connected(address: str) -> GatewayClient:
    client = GatewayClient(GatewayClientSettings(address=address), random.Random(1))
    await client.start()
    return client


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path, bookies=3, gateways=2)
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.kill)


async def test_a_killed_bookie_and_a_killed_gateway_lose_nothing_acknowledged(
    cluster: LocalCluster,
) -> None:
    first, second = (
        await connected(cluster.gateway_address(0)),
        await connected(cluster.gateway_address(1)),
    )
    assert (await first.describe()).instance != (await second.describe()).instance
    ledger = await first.create(LedgerSpec(3, 3, 2), OURS)
    acked = 0
    for entry in range(60):
        if entry == 30:
            await asyncio.to_thread(cluster.bookies[0].kill)
        await first.append(ledger, entry, b"%d" % entry)
        acked += 1

    async def create_fails() -> GatewayError:
        while True:
            try:
                await first.create(LedgerSpec(3, 3, 2), OURS)
            except GatewayError as error:
                return error

    without = await asyncio.wait_for(create_fails(), 180)  # once the dead bookie's session is over
    assert isinstance(without, GatewayRetry) and (without.reason, without.outcome) == (
        "NOT_ENOUGH_BOOKIES",
        Outcome.NOT_DONE,
    )
    small = await first.create(LedgerSpec(2, 2, 2), OURS)
    await first.append(small, 0, b"x")

    unanswered = [first.append(ledger, entry, b"%d" % entry) for entry in range(60, 160)]
    await asyncio.to_thread(cluster.gateways[0].kill)
    acked += sum(r is None for r in await asyncio.gather(*unanswered, return_exceptions=True))
    end = await second.fence(ledger)
    assert acked - 1 <= end.last_entry < 160
    stored = [p async for chunk in second.read(ledger, 0) for p in chunk.payloads]
    assert stored == [b"%d" % entry for entry in range(end.last_entry + 1)]

    await asyncio.to_thread(cluster.gateways[0].start)
    assert (await first.fence(ledger)) == end  # the same client finds it again at its old address
    await asyncio.gather(first.close(), second.close())


def test_a_cluster_that_cannot_start_leaves_no_process(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, bookies=1)
    (tmp_path / "bookie-1").write_text("a file where a folder must be")
    with pytest.raises(Exception, match="bookie"):
        cluster.start()
    assert not any(
        process.running for process in [cluster.zookeeper, *cluster.bookies, *cluster.gateways]
    )
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert not any(
        os.fsencode(tmp_path) in Path(f"/proc/{child}/cmdline").read_bytes() for child in children
    )
