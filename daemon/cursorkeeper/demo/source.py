"""The demo's source, as a process of its own: sends a workload, keeps its own ledger of what was
confirmed, says how it goes as JSON lines on standard output, and leaves that ledger in a file.

Run as `python -m cursorkeeper.demo.source`. It survives kills of the daemon: it connects again,
opens with takeover and sends again what was not confirmed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.demo.trace import Trace, TraceBatch
from cursorkeeper.demo.workload import BadCase, Columns
from cursorkeeper_client.ack_stream.resuming import ResumingSource
from cursorkeeper_client.ack_stream.resuming_cursor import ResumingCursor
from cursorkeeper_client.ack_stream.settings import SourceSettings
from cursorkeeper_client.ack_stream.values import (
    AckedIndexes,
    Acks,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    PartialBatch,
    Position,
)

TOPIC = "persistent://demo/ns/bad-case"
SUBSCRIPTION = "workers"
REPORT_EVERY_S = 0.2
IN_FLIGHT_MAX = 24
GATE_MARGIN = 0.05


class Gates:
    """Where the source waits for the story: it goes on sending for a while past a gate, then waits
    for a line on standard input, which comes when the kill that belongs to the gate has happened.
    So kills always meet flowing acks.
    """

    def __init__(self, shares: list[float], total: int) -> None:
        self._limits = [int((share + GATE_MARGIN) * total) for share in sorted(shares)]
        self._sent = 0
        self._opened = asyncio.Event()

    async def listen(self) -> None:
        """Each line on standard input opens the next gate."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            if self._limits:
                self._limits.pop(0)
            self._opened.set()

    async def pass_(self, acks: int) -> None:
        """Waits until so many more may be sent."""
        while self._limits and self._sent >= self._limits[0]:
            self._opened.clear()
            await self._opened.wait()
        self._sent += acks


@dataclass(slots=True)
class Confirmed:
    """The source's own ledger: what was sent, and what the keeper confirmed."""

    entries: dict[int, BitMap] = field(default_factory=dict)
    acks: int = 0
    waits_ms: list[float] = field(default_factory=list)
    """Ack to durable of batches that met no outage."""
    outages_s: list[float] = field(default_factory=list)


class Sender:
    """Sends batches on one cursor and books what is confirmed. `ledger`: and says of every batch
    when it is sent and when it is durable; batches are numbered from 1, and are the same in every
    process, so these lines outlive a kill of this one.
    """

    def __init__(
        self, cursor: ResumingCursor, confirmed: Confirmed, gates: Gates, *, ledger: bool = False
    ) -> None:
        self.cursor, self.confirmed, self._gates, self._ledger = cursor, confirmed, gates, ledger
        self.sent_acks = 0
        self._waiting: dict[int, tuple[Columns, int, float, int]] = {}
        self._last_progress = self._outage_ended = time.monotonic()
        self._changed = asyncio.Event()
        cursor.on_durable = self._durable

    async def send(self, columns: Columns, count: int, acks: Acks) -> None:
        """One batch; waits while too many are unconfirmed."""
        await self._gates.pass_(count)
        while len(self._waiting) >= IN_FLIGHT_MAX:
            self._changed.clear()
            await self._changed.wait()
        if self._ledger:
            say(sent_batch=self.cursor.last_ticket + 1)
        at, opens = time.monotonic(), self.cursor.opens
        ticket = await self.cursor.send(acks)
        self._waiting[ticket] = (columns, count, at, opens)
        self.sent_acks += count

    def _durable(self, upto: int) -> None:
        if self._ledger:
            say(durable_batch=upto)
        now = time.monotonic()
        outage = now - self._last_progress
        if outage > 1.0:
            self.confirmed.outages_s.append(outage)
            self._outage_ended = now
        self._last_progress = now
        for ticket in [t for t in self._waiting if t <= upto]:
            columns, count, at, opens = self._waiting.pop(ticket)
            if opens == self.cursor.opens and at >= self._outage_ended:
                self.confirmed.waits_ms.append((now - at) * 1000)
            for ledger, entries in columns.items():
                known = self.confirmed.entries.setdefault(ledger, BitMap())
                known |= bitmaps.from_unsorted(entries)
            self.confirmed.acks += count
        self._changed.set()


def say(**line: Any) -> None:
    """Writes one line of JSON to standard output."""
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


async def report(senders: list[Sender]) -> None:
    """Says how far the senders are, until it is cancelled."""
    while True:
        paused = next(
            (
                s.cursor.handle.pause_reason
                for s in senders
                if s.cursor.handle is not None and s.cursor.handle.paused
            ),
            None,
        )
        say(
            sent=sum(s.sent_acks for s in senders),
            confirmed=sum(s.confirmed.acks for s in senders),
            paused=paused
            or ("no connection" if any(s.cursor.handle is None for s in senders) else ""),
        )
        await asyncio.sleep(REPORT_EVERY_S)


async def bad_case(
    address: str, case: BadCase, out: Path, shares: list[float], *, ledger: bool = False
) -> None:
    """Sends the whole case, waits until it is durable, writes the ledger."""
    layout = [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in case.layout()]
    async with ResumingSource.dialling(address, SourceSettings(name="demo-source")) as source:
        cursor = source.cursor(TOPIC, SUBSCRIPTION, layout=layout)
        await cursor.wait_opened()
        confirmed, gates = Confirmed(), Gates(shares, case.entries)
        sender = Sender(cursor, confirmed, gates, ledger=ledger)
        listener = asyncio.create_task(gates.listen())
        reporter = asyncio.create_task(report([sender]))
        began = time.monotonic()
        for columns in case.batches():
            acks = Acks([LedgerAcks(ledger, entries) for ledger, entries in columns.items()])
            await sender.send(columns, sum(e.size for e in columns.values()), acks)
        await cursor.wait_durable()
        seconds = time.monotonic() - began
        reporter.cancel()
        listener.cancel()
        _finish(out, [confirmed], seconds, {SUBSCRIPTION: confirmed.entries})


def trace_acks(batch: TraceBatch, at: int) -> tuple[Columns, Acks]:
    """A recorded batch as a message. Indexes go as Pulsar's ack sets and as PIP-54's ranges, in
    turns.
    """
    partials: dict[int, list[PartialBatch | AckedIndexes]] = {}
    for number, ((ledger, entry), (size, indexes)) in enumerate(batch.partials.items()):
        if (at + number) % 2:
            missing = BitMap(range(size)) - BitMap(indexes)
            partials.setdefault(ledger, []).append(PartialBatch(entry, size, missing))
        else:
            partials.setdefault(ledger, []).append(AckedIndexes(entry, size, tuple(_runs(indexes))))
    ledgers = sorted(batch.entries.keys() | partials.keys())
    acks = Acks(
        [LedgerAcks(x, sorted(batch.entries.get(x, ())), (), partials.get(x, ())) for x in ledgers],
        mark_delete=Position(*batch.mark_delete) if batch.mark_delete is not None else None,
    )
    return {x: bitmaps.to_column(BitMap(e)) for x, e in batch.entries.items()}, acks


def _runs(values: Iterable[int]) -> Iterator[tuple[int, int]]:
    ordered = sorted(values)
    first = last = ordered[0]
    for value in ordered[1:]:
        if value != last + 1:
            yield first, last
            first = value
        last = value
    yield first, last


async def recorded(address: str, folder: Path, out: Path, shares: list[float]) -> None:
    """Replays every recorded topic, each on its own cursor, side by side."""
    trace = Trace(folder)
    gates = Gates(shares, trace.acks)
    listener = asyncio.create_task(gates.listen())
    async with ResumingSource.dialling(address, SourceSettings(name="trace-source")) as source:
        senders, work = [], []
        for topic in trace.topics:
            layout = [
                LayoutItem(
                    ledger, LayoutState.OPEN if count is None else LayoutState.CLOSED, count or 0
                )
                for ledger, count in trace.pulsar(topic).layout
            ]
            cursor = source.cursor(f"persistent://trace/ns/{topic}", SUBSCRIPTION, layout=layout)
            senders.append(Sender(cursor, Confirmed(), gates))
        began = time.monotonic()
        reporter = asyncio.create_task(report(senders))
        for topic, sender in zip(trace.topics, senders, strict=True):
            await sender.cursor.wait_opened()
            work.append(_replay(trace, topic, sender))
        await asyncio.gather(*work)
        reporter.cancel()
        listener.cancel()
        _finish(out, [s.confirmed for s in senders], time.monotonic() - began, {})


async def _replay(trace: Trace, topic: str, sender: Sender) -> None:
    for at, batch in enumerate(trace.batches(topic)):
        columns, acks = trace_acks(batch, at)
        await sender.send(columns, batch.acks, acks)
        await asyncio.sleep(0)
    await sender.cursor.wait_durable()


def _finish(
    out: Path, parts: list[Confirmed], seconds: float, entries: dict[str, dict[int, BitMap]]
) -> None:
    waits = sorted(w for p in parts for w in p.waits_ms)
    outages = [o for p in parts for o in p.outages_s]
    out.write_bytes(
        pickle.dumps(
            {
                name: {ledger: b.serialize() for ledger, b in by.items()}
                for name, by in entries.items()
            }
        )
    )
    say(
        done=True,
        confirmed=sum(p.acks for p in parts),
        seconds=seconds,
        outages_s=sum(outages),
        longest_outage_s=max(outages, default=0.0),
        wait_ms_p50=waits[len(waits) // 2] if waits else 0.0,
        wait_ms_p99=waits[int(len(waits) * 0.99)] if waits else 0.0,
    )


def read_confirmed(file: Path) -> dict[int, BitMap]:
    """The ledger of the bad case that the source left."""
    found: dict[str, dict[int, bytes]] = pickle.loads(file.read_bytes())
    return {ledger: BitMap.deserialize(data) for ledger, data in found[SUBSCRIPTION].items()}


async def _with_parent(work: Any, parent_pid: int) -> None:
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=1.0)
        if parent_pid:
            try:
                os.kill(parent_pid, 0)
            except ProcessLookupError:
                task.cancel()
    await task


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--entries", type=int, default=BadCase.entries)
    parser.add_argument("--ledgers", type=int, default=BadCase.ledgers)
    parser.add_argument("--seed", type=int, default=BadCase.seed)
    parser.add_argument("--hole-share", type=float, default=BadCase.hole_share)
    parser.add_argument(
        "--ledger",
        action="store_true",
        help="say of every batch when it is sent and when it is durable",
    )
    parser.add_argument("--gate", type=float, action="append", default=[])
    parser.add_argument("--parent-pid", type=int, default=0)
    given = parser.parse_args()
    if given.trace is not None:
        work = recorded(given.daemon, given.trace, given.out, given.gate)
    else:
        case = BadCase(
            entries=given.entries,
            ledgers=given.ledgers,
            seed=given.seed,
            hole_share=given.hole_share,
        )
        work = bad_case(given.daemon, case, given.out, given.gate, ledger=given.ledger)
    asyncio.run(_with_parent(work, given.parent_pid))


if __name__ == "__main__":
    main()
