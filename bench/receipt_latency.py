"""What a receipt costs where there is little to do: one cursor, one ack a message, the next one
when the last is durable; over a raw add through the same gateway, in turns. A source, a daemon
process, and the stack on the same cores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rows import Row, quantile
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.runtime.ledgers import APPLICATION, LedgerPolicy
from cursorkeeper_client import Client

TURNS, IN_A_TURN, WARM_UP = 40, 50, 300
RECORD_BYTES = 100
"""About what the record of one ack takes."""


async def run(stack: Standalone) -> list[Row]:
    """p50 and p99 of both, and the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
        await daemon.start()
        try:
            receipts, raws = await in_turns(daemon, stack)
        finally:
            await daemon.stop()
    rows = []
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        mine, raw = quantile(receipts[WARM_UP:], share) * 1e3, quantile(raws[WARM_UP:], share) * 1e3
        rows.append(
            Row("receipt_latency", "one cursor, one ack at a time", f"raw add {name}", raw, "ms")
        )
        against = f"the raw add's {name}"
        rows.append(
            Row(
                "receipt_latency",
                "one cursor, one ack at a time",
                f"ack to receipt {name}",
                mine,
                "ms",
                mine / raw,
                against,
                "2x",
            )
        )
    return rows


async def in_turns(
    daemon: DaemonProcess, stack: Standalone, turns: int = TURNS
) -> tuple[list[float], list[float]]:
    """Seconds of the receipts, and of the raw adds."""
    receipts: list[float] = []
    raws: list[float] = []
    gateway = GatewayClient(GatewayClientSettings(stack.gateway))
    await gateway.start()
    try:
        async with (
            Client(daemon.address) as client,
            client.cursor("persistent://bench/ns/receipt", "sub") as cursor,
        ):
            ledger = await gateway.create(LedgerPolicy().full, {"application": APPLICATION})
            for turn in range(turns):
                for number in range(turn * IN_A_TURN, (turn + 1) * IN_A_TURN):
                    began = time.perf_counter()
                    await cursor.ack(7, 2 * number)
                    await cursor.durable()
                    receipts.append(time.perf_counter() - began)
                for number in range(turn * IN_A_TURN, (turn + 1) * IN_A_TURN):
                    began = time.perf_counter()
                    await gateway.append(ledger, number, bytes(RECORD_BYTES))
                    raws.append(time.perf_counter() - began)
            await gateway.delete(ledger)
    finally:
        await gateway.close()
    return receipts, raws
