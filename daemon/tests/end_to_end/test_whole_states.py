"""`format = "pulsar"` on the embedded stack: a state of several entries in real ledgers, real
kills, and the way back to native.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.connections import gateway_settings
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.settings import Settings
from cursorkeeper_client import Acks, LedgerAcks
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import LAYOUT, OPEN_LEDGER, check, driving, recovered

pytestmark = pytest.mark.jvm

WHOLE = (
    "--format",
    "pulsar",
    "--persistentUnackedRangesWithMultipleEntriesEnabled",
    "--persistentUnackedRangesMaxEntrySize",
    "64K",
    "--flush-interval-ms",
    "20",
)
WIDE = range(30_001, 1_500_000, 3)
"""A long array of some 250 KB: beyond what the other acks touch."""


def inspected(stack: Standalone, topic: str) -> list[dict[str, Any]]:
    where = ["--zookeeper", stack.zookeeper, "--gateway", stack.gateway]
    command = [
        sys.executable,
        "-m",
        "cursorkeeper.cli.main",
        "inspect",
        f"{topic}|sub",
        "--json",
        *where,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_r01_a_chunked_state_survives_kills_of_the_daemon_and_of_the_whole_stack(
    stack: Standalone, daemons: Daemons
) -> None:
    topic = "persistent://e2e/ns/whole"
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *WHOLE)
    source, driver = await driving(daemon.address, topic, 21)
    wide = {(OPEN_LEDGER, entry) for entry in WIDE}
    driver.truth.sent |= wide
    seq = await driver.cursor.send(Acks([LedgerAcks(OPEN_LEDGER, list(WIDE))]))
    driver.truth.waiting[seq] = (wide, {}, None)
    for _ in range(2):
        await driver.send_some(60)
        await driver.cursor.durable(driver.cursor.last_seq - 20)
        await daemon.kill()
        await daemon.start()
    await driver.send_some(60)
    stack.restart()
    await driver.send_some(60)
    await driver.cursor.durable()
    found = inspected(stack, topic)
    footers = [x for x in found if x.get("kind") == "footer"]
    assert (
        footers
        and footers[-1]["entries"] >= 4
        and footers[-1]["acks"] >= len(wide)
        and all(x.get("ok", True) for x in found)
    )
    await source.close()
    await daemon.kill()
    other = await daemons.start(stack.gateway, stack.zookeeper, *WHOLE)
    check(await recovered(other.address, topic), driver.truth)
    assert driver.truth.confirmed == driver.truth.sent
    await other.kill()
    # the same cursor, in the other format
    native = await daemons.start(stack.gateway, stack.zookeeper)
    check(await recovered(native.address, topic), driver.truth)


async def test_r09_at_a_limit_the_source_is_paused_and_goes_on(
    stack: Standalone, daemons: Daemons
) -> None:
    topic = "persistent://e2e/ns/limit"
    daemon = await daemons.start(
        stack.gateway, stack.zookeeper, *WHOLE, "--managedLedgerMaxUnackedRangesToPersist", "2"
    )
    async with SourceConnection(daemon.address) as session:
        handle = session.open(topic, "sub", layout=LAYOUT)
        await handle.opened()
        await handle.durable(await handle.send(Acks([LedgerAcks(11, [2, 4])])))
        stuck = await handle.send(Acks([LedgerAcks(11, [6, 8])]))
        async with asyncio.timeout(120):
            while not handle.paused_for:
                await asyncio.sleep(0.01)
        assert (
            "managedLedgerMaxUnackedRangesToPersist = 2" in handle.paused_for
            and handle.durable_seq < stuck
        )
        await handle.durable(await handle.send(Acks([LedgerAcks(11, [3, 5, 7])])))
        async with asyncio.timeout(120):
            while handle.paused_for:
                await asyncio.sleep(0.01)
    await daemon.kill()
    other = await daemons.start(stack.gateway, stack.zookeeper, *WHOLE)
    state = await recovered(other.address, topic)
    assert set(state.acked[11]) == set(range(2, 9))


async def test_an_empty_last_slice_is_an_entry_like_any_other(stack: Standalone) -> None:
    """PIP-381 writes one when the length is an exact multiple of the slice; BookKeeper and the
    gateway must keep it.
    """
    client = GatewayClient(gateway_settings(Settings.of(gateway=stack.gateway), "writer"))
    await client.start()
    try:
        ledger = await client.create(
            LedgerSpec(1, 1, 1), {"application": b"cursorkeeper", "purpose": b"test"}
        )
        entries = [b"x" * 64, b"", b'{"numParts":2,"length":64}']
        for at, entry in enumerate(entries):
            await client.append(ledger, at, entry)
        assert (await client.fence(ledger)).last_entry == 2
        found = [payload async for chunk in client.read(ledger, 0, 2) for payload in chunk.payloads]
        assert found == entries
        await client.delete(ledger)
    finally:
        await client.close()


async def test_one_entry_of_megabytes_goes_through_everything(
    stack: Standalone, daemons: Daemons
) -> None:
    """Without several entries: 150,000 ranges in one entry, as Pulsar would write it."""
    topic = "persistent://e2e/ns/large"
    flags = (
        "--format",
        "pulsar",
        "--no-managedLedgerPersistIndividualAckAsLongArray",
        "--flush-interval-ms",
        "20",
    )
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *flags)
    entries = range(1, 300_001, 2)
    async with SourceConnection(daemon.address) as session:
        handle = session.open(topic, "sub", layout=LAYOUT)
        await handle.opened()
        await handle.durable(await handle.send(Acks([LedgerAcks(OPEN_LEDGER, list(entries))])))
    [state] = [x for x in inspected(stack, topic) if x.get("kind") == "state"]
    assert state["ranges"] == len(entries) and state["storedBytes"] > 2 << 20
    await daemon.kill()
    other = await daemons.start(stack.gateway, stack.zookeeper, *flags)
    found = await recovered(other.address, topic)
    assert set(found.acked[OPEN_LEDGER]) == set(entries)
