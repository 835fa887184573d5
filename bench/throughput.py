"""Acks per second from the stream to durable: a source process, a daemon process and the stack, on
this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.rows import Row
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import (
    Acks,
    Client,
    ClientSettings,
    LayoutItem,
    LayoutState,
    LedgerAcks,
)
from cursorkeeper_client.tls import TlsFiles

AIM = {"random": 1e6, "runs": 5e6}
IN_FLIGHT = 24
BATCH_ACKS = 16_384
SECONDS_MAX = 300.0


async def run(stack: Standalone) -> list[Row]:
    """Random acks in a window of four ledgers, and runs of 100."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, entries in (("random", 30_000_000), ("runs", 200_000_000)):
            daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
            await daemon.start()
            try:
                found = await measure(daemon, kind, entries)
            finally:
                await daemon.stop()
            rate, ms = found["acks"] / found["seconds"], found["batch_ms_p50"]
            rows.append(
                Row(
                    "throughput",
                    f"{kind}, {entries / 1e6:.0f} M entries",
                    "stream to durable",
                    rate / 1e6,
                    "M acks/s",
                    rate / AIM[kind],
                    "the aim",
                )
            )
            rows.append(
                Row(
                    "throughput",
                    f"{kind}, {entries / 1e6:.0f} M entries",
                    "batch to durable p50",
                    ms,
                    "ms",
                )
            )
    return rows


async def measure(
    daemon: DaemonProcess,
    kind: str,
    entries: int,
    batch_acks: int = BATCH_ACKS,
    seconds_max: float = SECONDS_MAX,
    topic: str = "",
    tls: Sequence[str] = (),
) -> dict[str, float]:
    """Of a source process: `acks`, `seconds`, `batch_ms_p50`. It sends until all entries are acked,
    or for so many seconds. `topic`: one that nobody has acked on; else that of the kind. `tls`: the
    source's certificate and key, whom it believes, and the daemon's name.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.throughput"),
        *(daemon.address, topic or kind, kind, str(entries), str(batch_acks), str(seconds_max)),
        *tls,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found: dict[str, float] = json.loads(out)
    return found


async def _source(
    address: str,
    topic: str,
    kind: str,
    entries: int,
    batch_acks: int,
    seconds_max: float,
    tls: Sequence[str],
) -> None:
    case = BadCase(entries=entries, ledgers=max(4, entries // 50_000), batch_acks=batch_acks)
    layout = [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in case.layout()]
    acks, waits = 0, []
    sent: dict[int, float] = {}
    changed = asyncio.Event()

    def durable(upto: int) -> None:
        for seq in [t for t in sent if t <= upto]:
            waits.append(time.perf_counter() - sent.pop(seq))
        changed.set()

    settings = ClientSettings(tls=TlsFiles(*tls[:3]), tls_server_name=tls[3]) if tls else None
    async with Client(address, settings) as source:
        cursor = source.cursor(
            f"persistent://bench/ns/{topic}", "sub", layout=layout, on_durable=durable
        )
        await cursor.opened()
        began = time.perf_counter()
        for batch, count in _random(case) if kind == "random" else _runs(case):
            if time.perf_counter() - began > seconds_max:
                break
            while len(sent) >= IN_FLIGHT:
                changed.clear()
                await changed.wait()
            at = time.perf_counter()
            sent[await cursor.send(batch)] = at
            acks += count
        await cursor.durable()
        seconds = time.perf_counter() - began
    waits.sort()
    print(
        json.dumps({"acks": acks, "seconds": seconds, "batch_ms_p50": waits[len(waits) // 2] * 1e3})
    )


def _random(case: BadCase):  # type: ignore[no-untyped-def]
    for columns in case.batches():
        yield (
            Acks([LedgerAcks(ledger, values) for ledger, values in columns.items()]),
            sum(v.size for v in columns.values()),
        )


def _runs(case: BadCase):  # type: ignore[no-untyped-def]
    """Runs of 100 of a window of four ledgers, shuffled, 160 runs a batch; the first entry stays a
    hole.
    """
    layout = case.layout()
    for start in range(0, len(layout), case.window_ledgers):
        runs = [
            (ledger, first)
            for ledger, count in layout[start : start + case.window_ledgers]
            for first in range(0, count, 100)
        ]
        order = np.random.default_rng(start).permutation(len(runs))
        for part in np.array_split(order, max(1, len(order) // 160)):
            ledgers: dict[int, list[int]] = {}
            for at in part.tolist():
                ledger, first = runs[at]
                ledgers.setdefault(ledger, []).extend((max(first, 1), first + 99))
            yield Acks([LedgerAcks(x, ranges=r) for x, r in ledgers.items()]), 100 * len(part)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("kind")
    parser.add_argument("entries", type=int)
    parser.add_argument("batch_acks", type=int)
    parser.add_argument("seconds_max", type=float)
    parser.add_argument("tls", nargs="*")
    asyncio.run(_source(**vars(parser.parse_args())))
