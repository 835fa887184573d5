"""One cursor with a backlog on the real stack, in either format: what a flush of 1,000 acks writes,
how long until it is durable, and, after `kill -9` of the daemon, how long until the next one has
given the whole state to a source.

The backlog and the acks are those of `flush_bytes`, whose figures are checked by these. A daemon
process and the stack are on the same cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import flush_bytes
from bench.flush_bytes import HOLES, LEDGER_ENTRIES
from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import TO_LAST_CONFIRMED
from cursorkeeper.core.bitmaps import U32
from cursorkeeper.core.footer import SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.totals import Totals
from cursorkeeper.inspection.reader import live_footer
from cursorkeeper.settings import Settings
from cursorkeeper_client import Acks, Client, CursorState, LayoutItem, LayoutState, LedgerAcks

NATIVE: Sequence[str] = ()
WHOLE: Sequence[str] = (
    *("--format", "pulsar", "--persistent-unacked-ranges-with-multiple-entries-enabled"),
    *("--managed-ledger-default-mark-delete-rate-limit", "0"),
)
"""The whole state at each flush, in slices where one entry is too small, and as soon as the flush
before has left: Pulsar waits a second."""
LEDGERS_A_MESSAGE = 100
READ_BYTES_MAX = 4 << 20
SUBSCRIPTION = "sub"
WAIT_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class Measured:
    """`waits_ms`: of each flush, until it was durable. `raw_read_ms`: of the entries that hold the
    state; 0 where the format is Pulsar's. Of several recoveries the median.
    """

    flush_bytes: float
    waits_ms: Sequence[float]
    recovery_ms: float
    raw_read_ms: float


async def measure(
    stack: Standalone,
    entries: int,
    flushes: int,
    *,
    is_whole: bool = False,
    recoveries: int = 3,
) -> Measured:
    """Raises RuntimeError if a state comes back that is not the one that was acked."""
    name = CursorName(f"persistent://bench/ns/backlog-{entries}-{is_whole}", SUBSCRIPTION)
    with tempfile.TemporaryDirectory() as folder:
        extra = WHOLE if is_whole else NATIVE
        daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper, extra)
        await daemon.start()
        try:
            async with Client(daemon.address) as client:
                await _load(client, name, entries)
            await daemon.kill()  # what is measured begins with a state that was read
            await daemon.start()
            async with Client(daemon.address) as client:
                written, waits_ms = await _flushes(client, daemon, name, entries, flushes)
            recoveries_ms, reads_ms = [], []
            for _ in range(recoveries):
                await daemon.kill()
                if not is_whole:
                    reads_ms.append(await _raw_read_ms(stack, name))
                await daemon.start()
                async with Client(daemon.address) as client:
                    await client.connected()
                    began = time.perf_counter()
                    state = await client.cursor(name.topic, SUBSCRIPTION, create=False).opened()
                    recoveries_ms.append((time.perf_counter() - began) * 1e3)
                    _compare(state, entries, flushes)
        finally:
            await daemon.stop()
    read_ms = 0.0 if is_whole else median(reads_ms)
    return Measured(written, waits_ms, median(recoveries_ms), read_ms)


async def _load(client: Client, name: CursorName, entries: int) -> None:
    every = flush_bytes.ledgers(entries)
    layout = [LayoutItem(ledger, LayoutState.CLOSED, LEDGER_ENTRIES) for ledger in every]
    cursor = client.cursor(name.topic, SUBSCRIPTION, layout=layout)
    await cursor.opened(WAIT_MAX_S)
    for start in range(0, len(every), LEDGERS_A_MESSAGE):
        some = every[start : start + LEDGERS_A_MESSAGE]
        await cursor.send(
            Acks([LedgerAcks(at, roaring=flush_bytes.acked(at, HOLES)) for at in some])
        )
    await cursor.durable(timeout_s=WAIT_MAX_S)


async def _flushes(
    client: Client, daemon: DaemonProcess, name: CursorName, entries: int, flushes: int
) -> tuple[float, list[float]]:
    """(bytes, milliseconds), one message of acks after the other."""
    cursor = client.cursor(name.topic, SUBSCRIPTION, create=False)
    await cursor.opened(WAIT_MAX_S)
    batches = [_acks(columns) for columns in flush_bytes.uniform(entries, flushes, 7)]
    before, after, waits_ms = await _written(daemon), 0, []
    for acks in batches:
        began = time.perf_counter()
        await cursor.send(acks)
        await cursor.durable(timeout_s=WAIT_MAX_S)
        waits_ms.append((time.perf_counter() - began) * 1e3)
    after = await _written(daemon)
    return (after - before) / flushes, waits_ms


def _acks(columns: Mapping[int, U32]) -> Acks:
    return Acks([LedgerAcks(ledger, entries) for ledger, entries in columns.items()])


async def _written(daemon: DaemonProcess) -> int:
    """Bytes of flushes, without snapshots."""
    totals = Totals()
    totals.scraped(await daemon.scrape())
    return sum(totals.bytes_written(kind) for kind in ("delta", "state"))


def _compare(state: CursorState, entries: int, flushes: int) -> None:
    """A fast wrong answer is no figure. Raises RuntimeError."""
    acked = sum(len(flush_bytes.holes(at, HOLES)) for at in flush_bytes.ledgers(entries))
    wanted = acked - flushes * flush_bytes.ACKS
    if state.holes != wanted:
        raise RuntimeError(
            f"{state.holes:,} holes came back of {entries:,} entries, not {wanted:,}"
        )


async def _raw_read_ms(stack: Standalone, name: CursorName) -> float:
    """The entries that the last owner has left, read through the gateway by nobody in particular:
    from the snapshot on, to what is confirmed.
    """
    settings = Settings.of(gateway=stack.gateway, zookeeper=stack.zookeeper)
    async with connections.ports(settings, "reader") as ports:
        footer, _ = await live_footer(ports.footers, name)
        base, began, found = footer.base, time.perf_counter(), 0
        for item in footer.chain:
            is_base = isinstance(base, SnapshotBase) and base.ledger == item.ledger
            first = base.first_entry if isinstance(base, SnapshotBase) and is_base else 0
            last = TO_LAST_CONFIRMED if item.last_entry is None else item.last_entry
            async for chunk in ports.ledgers.read(
                item.ledger, first, last, max_bytes=READ_BYTES_MAX
            ):
                found += sum(map(len, chunk.payloads))
        if not found:
            raise RuntimeError(f"{name}: its footer leads to no entries: {footer}")
        return (time.perf_counter() - began) * 1e3
