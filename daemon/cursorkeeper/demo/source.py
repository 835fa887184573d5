"""The demo's source: sends a workload until all of it is durable, and measures how that goes.

Kills of the daemon are the client's: it connects again, opens with takeover and sends again what
was not confirmed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cursorkeeper.demo.trace import Trace
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import (
    Acks,
    Client,
    ClientSettings,
    Cursor,
    LayoutItem,
    LayoutState,
    LedgerAcks,
)

TOPIC = "persistent://demo/ns/bad-case"
SUBSCRIPTION = "workers"
IN_FLIGHT_MAX = 24
OUTAGE_MIN_S = 1.0
"""Nothing becomes durable for longer than that: an outage."""


@dataclass(frozen=True)
class Workload:
    """What is sent on one cursor: batches, each with its number of acks."""

    topic: str
    layout: Sequence[LayoutItem]
    batches: Iterable[tuple[Acks, int]]


def bad_case(case: BadCase) -> Workload:
    layout = [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in case.layout()]
    batches = (
        (Acks([LedgerAcks(ledger, entries) for ledger, entries in columns.items()]), count)
        for columns in case.batches()
        if (count := sum(entries.size for entries in columns.values()))
    )
    return Workload(TOPIC, layout, batches)


def recorded(trace: Trace) -> list[Workload]:
    return [
        Workload(trace_topic(topic), trace.pulsar(topic).layout, trace.batches(topic))
        for topic in trace.topics
    ]


def trace_topic(topic: str) -> str:
    """The name under which a recorded topic is replayed."""
    return f"persistent://trace/ns/{topic}"


class Source:
    """`gates`: numbers of acks; when so many are sent it waits until `go` was called for that gate,
    so that a kill of the daemon always meets flowing acks.
    """

    def __init__(self, gates: Sequence[float] = ()) -> None:
        self._gates = deque(gates)
        self._opened, self._progress = asyncio.Event(), asyncio.Event()
        self._cursors: list[Cursor] = []
        self._sent = self.confirmed = 0
        self._progress_at = self._outage_ended = self._began = 0.0
        self._waits_ms: list[float] = []
        self._outages_s: list[float] = []

    @property
    def paused_for(self) -> str:
        """Why the daemon wants no more acks on some cursor; empty if it does."""
        return next((why for cursor in self._cursors if (why := cursor.paused_for)), "")

    def go(self) -> None:
        self._gates.popleft()
        self._opened.set()

    async def wait_confirmed(self, acks: float) -> None:
        """Returns when so many are durable."""
        while self.confirmed < acks:
            self._progress.clear()
            await self._progress.wait()

    async def play(self, address: str, workloads: Sequence[Workload]) -> None:
        """Sends each workload on its own cursor, side by side, until all of it is durable. Raises
        CursorKeeperError if a cursor is lost for good.
        """
        async with Client(address, ClientSettings(name="demo-source")) as client:
            self._cursors = [
                client.cursor(work.topic, SUBSCRIPTION, layout=work.layout) for work in workloads
            ]
            for cursor in self._cursors:
                await cursor.opened()
            self._began = self._progress_at = time.monotonic()
            await asyncio.gather(
                *(
                    self._send(cursor, work.batches)
                    for cursor, work in zip(self._cursors, workloads, strict=True)
                )
            )

    async def _send(self, cursor: Cursor, batches: Iterable[tuple[Acks, int]]) -> None:
        sent: deque[tuple[int, int, float, int]] = deque()

        def durable(upto: int) -> None:
            now = time.monotonic()
            if now - self._progress_at > OUTAGE_MIN_S:
                self._outages_s.append(now - self._progress_at)
                self._outage_ended = now
            self._progress_at = now
            while sent and sent[0][0] <= upto:
                _, count, at, opens = sent.popleft()
                if opens == cursor.opens and at >= self._outage_ended:
                    self._waits_ms.append((now - at) * 1000)
                self.confirmed += count
            self._progress.set()

        cursor.on_durable = durable
        for acks, count in batches:
            while self._gates and self._sent >= self._gates[0]:
                self._opened.clear()
                await self._opened.wait()
            self._sent += count
            at = time.monotonic()
            seq = await cursor.send(acks)
            sent.append((seq, count, at, cursor.opens))
            await cursor.durable(max(0, seq - IN_FLIGHT_MAX + 1), timeout_s=math.inf)
            await asyncio.sleep(0)
        await cursor.durable(timeout_s=math.inf)

    def figures(self) -> dict[str, Any]:
        """What a report tells of it, by its names there; the times are of batches that met no
        outage.
        """
        seconds, waits = self._progress_at - self._began, sorted(self._waits_ms) or [0.0]
        return {
            "confirmed": self.confirmed,
            "ack_to_durable_ms_p50": waits[len(waits) // 2],
            "ack_to_durable_ms_p99": waits[int(len(waits) * 0.99)],
            "longest_outage_s": max(self._outages_s, default=0.0),
            "acks_per_second": self.confirmed / max(0.001, seconds),
            "acks_per_second_without_outages": self.confirmed
            / max(0.001, seconds - sum(self._outages_s)),
        }
