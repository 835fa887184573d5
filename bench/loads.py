"""The four loads of PIP-299 on the real stack: a source process, a daemon process, `kill -9`, and a
comparison at the end.

Bytes per flush are set against what Pulsar would write with each of its flushes: one PositionInfo
with the whole state, in the smaller of its two forms. Pulsar flushes at most once a second, this
daemon a hundred times: `written per ack` has everything, snapshots included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from pyroaring import BitMap

from bench.load_shapes import Shape, shapes
from bench.rows import Row
from cursorkeeper.core.positions import Position
from cursorkeeper.demo.plays import acked_in, snapshot_bytes
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.totals import Totals
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper_client import Acks, Client, CursorState, LayoutItem, LayoutState, LedgerAcks
from cursorkeeper_client import Position as StreamPosition

IN_FLIGHT = 24
SUBSCRIPTION = "sub"


async def run(stack: Standalone, scale: float = 1.0) -> list[Row]:
    """All four, one after the other, each on a cursor of its own."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, shape in enumerate(shapes(scale)):
            daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
            await daemon.start()
            try:
                rows += await _one(daemon, shape, number, scale)
            finally:
                await daemon.stop()
    return rows


def _topic(number: int) -> str:
    return f"persistent://bench/ns/load-{number}"


async def _one(daemon: DaemonProcess, shape: Shape, number: int, scale: float) -> list[Row]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.loads",
        daemon.address,
        str(number),
        str(scale),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 300)
    seconds = json.loads(out)["seconds"]
    totals = Totals()
    totals.scraped(await daemon.scrape())
    await daemon.kill()
    await daemon.start()
    async with Client(daemon.address) as client:
        await client.connected()
        began = time.perf_counter()
        state = await client.cursor(_topic(number), SUBSCRIPTION, create=False).opened()
        recovery = time.perf_counter() - began
    truth = shape.acked()
    _compare(state, shape, truth)
    acked = sum(map(len, truth.values()))
    form, pulsar = _pulsar_bytes(shape, truth)
    flush = (totals.bytes_written("delta")) / max(1, totals.records("delta"))
    case = f"{shape.name}, {shape.entries / 1e6:g} M entries"
    snapshot = snapshot_bytes(truth) if not shape.producers else 0
    rows = [
        Row("loads", case, "acked to durable", acked / seconds / 1e6, "M/s"),
        Row("loads", case, "one flush, mean", flush, "B", flush / pulsar, f"Pulsar's {form}"),
        Row("loads", case, "one flush of Pulsar", pulsar, "B"),
        Row("loads", case, "written per acked entry", totals.bytes_written() / acked, "B"),
        Row("loads", case, "recovery after kill -9", recovery * 1e3, "ms"),
    ]
    return (
        [
            *rows,
            Row(
                "loads",
                case,
                "snapshot of the end",
                snapshot,
                "B",
                snapshot / pulsar,
                f"Pulsar's {form}",
            ),
        ]
        if snapshot
        else rows
    )


def _compare(state: CursorState, shape: Shape, truth: dict[int, BitMap]) -> None:
    """A fast wrong answer is no figure. Raises RuntimeError."""
    for ledger, count in shape.layout():
        found, wanted = acked_in(state, ledger, count), truth.get(ledger, BitMap())
        if found != wanted:
            raise RuntimeError(
                f"{shape.name}: ledger {ledger}: {len(wanted - found)} acks lost, "
                f"{len(found - wanted)} entries skipped"
            )
    if dict(state.mark_delete_properties) != shape.properties():
        raise RuntimeError(f"{shape.name}: the properties are not those that were sent last")


def _pulsar_bytes(shape: Shape, truth: dict[int, BitMap]) -> tuple[str, int]:
    """The smaller of Pulsar's forms of the end state, and its name."""
    first = shape.layout()[0][0]
    if shape.producers:
        last = max(ledger for ledger, entries in truth.items() if entries)
        info = PositionInfo(Position(last, truth[last].max()), properties=shape.properties())
        return "properties", position_info.encoded_bytes(info, Form.RANGES)
    info = PositionInfo(
        Position(first, -1), acked={ledger: truth[ledger] for ledger in sorted(truth)}
    )
    sizes = {"long array": Form.LONG_ARRAY, "ranges": Form.RANGES}
    return min(
        ((name, position_info.encoded_bytes(info, form)) for name, form in sizes.items()),
        key=lambda found: found[1],
    )


async def _source(address: str, number: int, scale: float) -> None:
    shape = shapes(scale)[number]
    layout = [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in shape.layout()]
    batches = [
        Acks(
            [LedgerAcks(ledger, entries) for ledger, entries in batch.columns.items()],
            StreamPosition(*batch.mark_delete) if batch.mark_delete else None,
            batch.properties,
        )
        for batch in shape.batches()
    ]
    changed = asyncio.Event()
    async with Client(address) as source:
        cursor = source.cursor(
            _topic(number), SUBSCRIPTION, layout=layout, on_durable=lambda _: changed.set()
        )
        await cursor.opened()
        began = time.perf_counter()
        for acks in batches:
            while cursor.last_seq - cursor.durable_seq >= IN_FLIGHT:
                changed.clear()
                await changed.wait()
            await cursor.send(acks)
        await cursor.durable()
        print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("number", type=int)
    parser.add_argument("scale", type=float)
    given = parser.parse_args()
    asyncio.run(_source(given.address, given.number, given.scale))
