"""Flush latency over a raw gateway add of the same size, in turns on the same stack; and what
recovery costs over a raw read of the same bytes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np

from bench.rows import Row, quantile
from cursorkeeper.app import Daemon
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.core import bitmaps
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.runtime.chain import ChainReader
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.runner import CursorRunner
from cursorkeeper.settings import Settings

ROUNDS = 400
ACKS = 1_000


class Ear(Listener):
    """A listener that only waits."""

    def __init__(self) -> None:
        self.machine: CursorMachine | None = None
        self.durable = 0
        self.changed = asyncio.Event()

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        self.machine = machine
        self.changed.set()

    def on_confirm(self, confirm: fx.Confirm) -> None:
        self.durable = confirm.seq
        self.changed.set()

    async def until(self, seq: int) -> None:
        while self.machine is None or self.durable < seq:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)


async def run(stack: Standalone) -> list[Row]:
    daemon = Daemon(
        Settings.of(
            listen="127.0.0.1:0",
            metrics_listen="",
            gateway=stack.gateway,
            zookeeper=stack.zookeeper,
        )
    )
    await daemon.start()
    try:
        return [*await _flush(daemon, stack), *await _recovery(daemon)]
    finally:
        await daemon.stop()


async def _opened(daemon: Daemon, topic: str) -> tuple[CursorRunner, Ear, int]:
    assert daemon.keeper is not None
    keeper, ear = daemon.keeper, Ear()
    attach = keeper.attach_id()
    name = CursorName(f"persistent://bench/ns/{topic}", "sub")
    keeper.open(name, ev.Open(takeover=True), attach, ear)  # type: ignore[arg-type]
    await ear.until(0)
    return keeper.cursors[name], ear, attach


async def _flush(daemon: Daemon, stack: Standalone) -> list[Row]:
    runner, ear, attach = await _opened(daemon, "flush")
    # the daemon's own appends to ledgers of its deployment only
    gateway = GatewayClient(GatewayClientSettings(stack.gateway))
    await gateway.start()
    raw_ledger = await gateway.create(
        daemon.settings.ledgers.policy.full, {"application": APPLICATION}
    )
    rng = np.random.default_rng(3)
    flushes: list[float] = []
    raws: list[float] = []
    size = 0
    for number in range(1, ROUNDS + 1):
        entries = (number * 2_000 + rng.choice(2_000, ACKS, replace=False)).astype(np.uint32)
        before = runner.machine.counters.flushed_bytes
        began = time.perf_counter()
        columns = LedgerColumns(7, bitmaps.from_unsorted(entries))
        runner.dispatch(
            ev.Acks(attach, AckBatch(number, 1, ledgers=(columns,), size_bytes=4 * ACKS, acks=ACKS))
        )
        await ear.until(number)
        flushes.append(time.perf_counter() - began)
        size = runner.machine.counters.flushed_bytes - before
        began = time.perf_counter()
        await gateway.append(raw_ledger, number - 1, bytes(size))
        raws.append(time.perf_counter() - began)
    await gateway.delete(raw_ledger)
    await gateway.close()
    rows = []
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        mine, raw = quantile(flushes[20:], share), quantile(raws[20:], share)
        aim = "2x" if name == "p99" else ""
        rows.append(
            Row(
                "latency",
                f"flush of {ACKS} random acks ({size} B)",
                f"ack to durable {name}",
                mine * 1e3,
                "ms",
                mine / raw,
                "a raw gateway add",
                aim,
            )
        )
    return rows


async def _recovery(daemon: Daemon) -> list[Row]:
    rows = []
    for ledgers, size, share in ((20, 5_000_000, 0.1), (2_000, 50_000, 0.001)):
        runner, ear, attach = await _opened(daemon, f"recovery-{ledgers}")
        machine = runner.machine
        # the state is made, not acked one by one
        machine.flow.check._limits = replace(machine.limits, open_ledger_span_max=1 << 31)
        for ledger in range(1, ledgers + 1):
            values = np.flatnonzero(np.random.default_rng(ledger).random(size) >= share).astype(
                np.uint32
            )
            columns = LedgerColumns(ledger, bitmap=bitmaps.from_sorted(values))
            runner.dispatch(
                ev.Acks(
                    attach, AckBatch(ledger, 1, ledgers=(columns,), size_bytes=1, acks=values.size)
                )
            )
            if ledger % 20 == 0:
                await ear.until(ledger)
        snapshots = machine.counters.snapshots
        machine.snapshots.start("bench")
        runner.dispatch(ev.FooterChanged())
        while machine.counters.snapshots == snapshots:
            await asyncio.sleep(0.01)
        runner.dispatch(ev.Close())
        while not runner.is_ended:
            await asyncio.sleep(0.01)
        rows += await _read_both(
            daemon,
            machine,
            f"{ledgers * size // 1_000_000} M entries, {ledgers} ledgers, {share:.1%} holes",
        )
    return rows


async def _read_both(daemon: Daemon, machine: CursorMachine, case: str) -> list[Row]:
    footer = machine.ownership.commit.committed
    assert footer is not None
    mine: list[float] = []
    raws: list[float] = []
    total = 0
    for _ in range(5):
        began = time.perf_counter()
        answer = await ChainReader(machine.name, daemon.gateway).read(1, footer)
        mine.append(time.perf_counter() - began)
        assert isinstance(answer, ev.ChainRead)
        total, began = 0, time.perf_counter()
        for item in footer.chain:
            assert item.last_entry is not None
            async for chunk in daemon.gateway.read(
                item.ledger, 0, item.last_entry, max_bytes=4 << 20
            ):
                total += sum(map(len, chunk.payloads))
        raws.append(time.perf_counter() - began)
    recovered, raw = quantile(mine, 0.5), quantile(raws, 0.5)
    return [
        Row(
            "recovery",
            case,
            f"recovery of {total / 1e6:.1f} MB",
            recovered * 1e3,
            "ms",
            recovered / raw,
            "a raw read of the same bytes",
        )
    ]
