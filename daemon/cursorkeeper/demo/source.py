"""The demo's source, as a process of its own: sends a workload, says how it goes as JSON lines on
standard output, and ends when all of it is durable.

Run as `python -m cursorkeeper.demo.source`. It survives kills of the daemon: it connects again,
opens with takeover and sends again what was not confirmed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cursorkeeper.demo.flow import Flow, say
from cursorkeeper.demo.trace import Trace
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import Acks, Client, ClientSettings, LayoutItem, LayoutState, LedgerAcks

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
        """Each line on standard input opens the next gate. Raises EOFError when whoever writes them
        has ended.
        """
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            if self._limits:
                self._limits.pop(0)
            self._opened.set()
        raise EOFError("nobody is left to open the gates")

    async def pass_(self, acks: int) -> None:
        """Waits until so many more may be sent."""
        while self._limits and self._sent >= self._limits[0]:
            self._opened.clear()
            await self._opened.wait()
        self._sent += acks


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


async def play(
    address: str, workloads: Sequence[Workload], gates: Gates | None, *, ledger: bool = False
) -> None:
    """Sends each workload on its own cursor, side by side, until all of it is durable."""
    async with (
        Client(address, ClientSettings(name="demo-source")) as client,
        asyncio.TaskGroup() as group,
    ):
        flows = [
            Flow(
                at,
                partial(client.cursor, work.topic, SUBSCRIPTION, layout=work.layout),
                in_flight_max=IN_FLIGHT_MAX,
                ledger=ledger,
            )
            for at, work in enumerate(workloads)
        ]
        helpers = [group.create_task(_report(flows))]
        if gates is not None:
            helpers.append(group.create_task(gates.listen()))
        for flow in flows:
            await flow.cursor.opened()
        began = time.monotonic()
        await asyncio.gather(
            *(_send(flow, work, gates) for flow, work in zip(flows, workloads, strict=True))
        )
        _finish(flows, time.monotonic() - began)
        for helper in helpers:
            helper.cancel()


async def _send(flow: Flow, work: Workload, gates: Gates | None) -> None:
    for acks, count in work.batches:
        if gates is not None:
            await gates.pass_(count)
        await flow.send(acks, count)
        await asyncio.sleep(0)
    await flow.drain()


async def _report(flows: list[Flow]) -> None:
    while True:
        say(
            confirmed=sum(flow.durable_acks for flow in flows),
            paused=next((why for flow in flows if (why := flow.cursor.paused_for)), ""),
        )
        await asyncio.sleep(REPORT_EVERY_S)


def _finish(flows: list[Flow], seconds: float) -> None:
    """The last line: what the report needs, by its names there."""
    confirmed = sum(flow.durable_acks for flow in flows)
    waits = sorted(wait for flow in flows for wait in flow.waits_ms) or [0.0]
    outages = [outage for flow in flows for outage in flow.outages_s]
    say(
        done=True,
        confirmed=confirmed,
        ack_to_durable_ms_p50=waits[len(waits) // 2],
        ack_to_durable_ms_p99=waits[int(len(waits) * 0.99)],
        longest_outage_s=max(outages, default=0.0),
        acks_per_second=confirmed / seconds,
        acks_per_second_without_outages=confirmed / max(0.001, seconds - sum(outages)),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--entries", type=int, default=BadCase.entries)
    parser.add_argument("--ledgers", type=int, default=BadCase.ledgers)
    parser.add_argument("--seed", type=int, default=BadCase.seed)
    parser.add_argument("--hole-share", type=float, default=BadCase.hole_share)
    parser.add_argument("--ledger", action="store_true", help="say what becomes of every batch")
    parser.add_argument(
        "--gate", type=float, action="append", help="wait here for a line on standard input"
    )
    given = parser.parse_args()
    if given.trace is not None:
        trace = Trace(given.trace)
        workloads, total = recorded(trace), trace.acks
    else:
        case = BadCase(given.entries, given.ledgers, given.hole_share, seed=given.seed)
        workloads, total = [bad_case(case)], case.entries
    gates = Gates(given.gate, total) if given.gate else None
    asyncio.run(play(given.daemon, workloads, gates, ledger=given.ledger))


if __name__ == "__main__":
    main()
