"""The two plays: the bad case, and recorded acks of real Pulsar consumers. In each the daemon and
the stack are killed while acks flow, and a new owner of the cursors is compared with what was sent;
then there is a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.report import Report, TraceReport
from cursorkeeper.demo.source import (
    SUBSCRIPTION,
    TOPIC,
    Source,
    Workload,
    bad_case,
    recorded,
    trace_topic,
)
from cursorkeeper.demo.stage import Stage
from cursorkeeper.demo.totals import Totals
from cursorkeeper.demo.trace import Trace
from cursorkeeper.demo.workload import BadCase
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.sizes.native import snapshot_records
from cursorkeeper_client import Client, CursorState

THE_BAD_CASE = (
    "[bold]The bad case[/bold]: a large backlog, all acked but its oldest entry and some holes"
)
THE_TRACE = "[bold]Recorded acks of real Pulsar consumers[/bold], with the same kills"
UP = "a real ZooKeeper, {bookies} real bookies, gateway and daemon are up after {seconds:.1f} s"
STACK = "the whole stack"
KILLS_AT = (0.3, 0.6)
"""Shares of the acks that are confirmed when the daemon is killed, and the stack."""
GATE_MARGIN = 0.05
"""The source waits for a kill when it has sent such a share more."""
LOOK_S, SCRAPE_EVERY_S = 0.2, 0.5
TO_LOOK_AT = ("--inline-state-max-bytes", "0")
"""Of a daemon whose data are kept: a state that would fit its footer stays in ledgers, so that
there are some to look into.
"""


@dataclass(slots=True)
class Kills:
    """What is killed while a source sends, and what the daemons say of their work meanwhile."""

    stage: Stage
    daemon: DaemonProcess
    totals: Totals = field(default_factory=Totals)
    done: list[str] = field(default_factory=list)

    async def play(self, workloads: Sequence[Workload], total: int, label: str) -> Source:
        """Sends it all, and kills the daemon and the stack meanwhile. Raises StackError, or
        CursorKeeperError.
        """
        source = Source([(share + GATE_MARGIN) * total for share in KILLS_AT])
        with self.stage.bar(label, total, "{millions:.2f} M acks/s") as update:
            tasks = [
                asyncio.create_task(doing)
                for doing in (
                    source.play(self.daemon.address, workloads),
                    self._kill(source, total),
                    self._scrape(),
                    _show(source, update),
                )
            ]
            try:
                await asyncio.gather(*tasks[:2])
            finally:
                for task in tasks:
                    task.cancel()
        self.totals.scraped(await self.daemon.scrape())
        return source

    async def new_owner(self, of: str) -> None:
        """The last owner is killed without a close; a new one claims, fences, reads."""
        self.stage.say(f"kill -9: the daemon, once more; a new owner opens {of}")
        await self.daemon.kill()
        self.done.append("daemon again")
        await self.daemon.restart_elsewhere()

    async def _kill(self, source: Source, total: int) -> None:
        for share, kill in zip(KILLS_AT, (self._kill_daemon, self._kill_stack), strict=True):
            await source.wait_confirmed(share * total)
            await kill(source.go)

    async def _scrape(self) -> None:
        while True:
            await asyncio.sleep(SCRAPE_EVERY_S)
            if self.daemon.running:
                self.totals.scraped(await self.daemon.scrape())

    async def _kill_daemon(self, dead: Callable[[], None]) -> None:
        """SIGKILL the daemon and start it again. `dead`: to be called once it is."""
        self.stage.say("kill -9: the daemon")
        self.totals.scraped(await self.daemon.scrape())
        await self.daemon.kill()
        dead()
        self.totals.process_ended()
        self.done.append("daemon")
        await self.daemon.start()
        self.stage.say("the daemon is back")

    async def _kill_stack(self, dead: Callable[[], None]) -> None:
        """SIGKILL the JVM with ZooKeeper, the bookies and the gateway in it, and start it again on
        the same folder.
        """
        self.stage.say("kill -9: ZooKeeper, bookies and gateway")
        await asyncio.to_thread(self.stage.stack.kill)
        dead()
        self.done.append(STACK)
        began = time.monotonic()
        await asyncio.to_thread(self.stage.stack.start)
        self.stage.say(
            f"the stack is back after {time.monotonic() - began:.1f} s, on the same folder"
        )


async def _show(source: Source, update: Callable[..., None]) -> None:
    while True:
        paused = source.paused_for
        update(source.confirmed, f"paused: {paused}" if paused else "")
        await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def started(stage: Stage, heading: str) -> AsyncIterator[Kills]:
    """Stack and daemon are up; the daemon is stopped at the end."""
    stage.progress.console.print(f"\n{heading}")
    began = time.monotonic()
    await asyncio.to_thread(stage.stack.start)
    stack, extra = stage.stack, TO_LOOK_AT if stage.is_kept else ()
    daemon = DaemonProcess(stage.folder, stack.gateway, stack.zookeeper, extra)
    try:
        await daemon.start()
        stage.say(UP.format(bookies=stack.bookies, seconds=time.monotonic() - began))
        yield Kills(stage, daemon)
    finally:
        await daemon.stop()


async def recover(address: str, topic: str) -> tuple[CursorState, float]:
    """Open a cursor as its new owner: the recovered state, and the seconds from asking to the end
    of the state.
    """
    async with Client(address) as client:
        await client.connected()
        began = time.monotonic()
        state = await client.cursor(topic, SUBSCRIPTION, create=False).opened()
        return state, time.monotonic() - began


async def play_bad_case(case: BadCase, stage: Stage) -> Report:
    """Issue #25985's case, with kills. Raises StackError when a process does not do its part."""
    async with started(stage, THE_BAD_CASE) as kills:
        source = await kills.play([bad_case(case)], case.entries, f"{case.entries:,} entries")
        report = Report(case.entries, len(case.layout()), **source.figures())
        totals = kills.totals
        report.flushes, report.snapshots = totals.records("delta"), totals.records("snapshot_end")
        report.flush_bytes_p50 = totals.flush_bytes(0.5)
        report.flush_bytes_p99 = totals.flush_bytes(0.99)
        report.bytes_per_ack = totals.bytes_written() / max(1, report.confirmed)
        await kills.new_owner("the cursor")
        state, report.recovery_seconds = await recover(kills.daemon.address, TOPIC)
        report.kills = kills.done
        _compare(report, state, case)
    return report


def _compare(report: Report, state: CursorState, case: BadCase) -> None:
    """All that was sent is confirmed: the source ends only then."""
    sent = case.acked()
    report.acked = sum(map(len, sent.values()))
    for ledger, count in case.layout():
        recovered = acked_in(state, ledger, count)
        report.confirmed_but_lost += len(sent[ledger] - recovered)
        report.unacked_but_skipped += len(recovered - sent[ledger])
    pulsar = PositionInfo(Position(case.first_ledger, BEFORE_FIRST), sent)
    report.pulsar_long_array_bytes = position_info.encoded_bytes(pulsar, Form.LONG_ARRAY)
    report.snapshot_bytes = snapshot_bytes(sent)


def acked_in(state: CursorState, ledger: int, count: int) -> BitMap:
    """Entries of one data ledger that the recovered state says are acked, by whatever means."""
    if ledger < state.mark_delete.ledger:
        return bitmaps.span(0, count - 1)
    acked = state.acked.get(ledger, BitMap()).copy()
    if ledger == state.mark_delete.ledger and state.mark_delete.entry >= 0:
        acked |= bitmaps.span(0, state.mark_delete.entry)
    return acked


def snapshot_bytes(acked: dict[int, BitMap]) -> int:
    """What a snapshot of this state takes, encoded as the daemon would."""
    state = AckState()
    for ledger, entries in acked.items():
        state.ledgers.own(ledger).ack(entries)
    return snapshot_records(state)[0]


async def play_trace(folder: Path, stage: Stage) -> TraceReport:
    """Recorded acks through the stream, with the same kills, compared with Pulsar's own cursor at
    the end.
    """
    trace = Trace(folder)
    report = TraceReport(acks=trace.acks, topics=len(trace.topics))
    async with started(stage, THE_TRACE) as kills:
        label = f"{trace.acks:,} recorded acks"
        report.confirmed = (await kills.play(recorded(trace), trace.acks, label)).confirmed
        await kills.new_owner("the cursors")
        for topic in trace.topics:
            state, seconds = await recover(kills.daemon.address, trace_topic(topic))
            report.recovery_seconds += seconds
            _compare_topic(report, trace, topic, state)
        report.kills = kills.done
    report.trace_equal = not report.differences and report.confirmed == report.acks
    return report


def _compare_topic(report: TraceReport, trace: Trace, topic: str, state: CursorState) -> None:
    """Entry for entry with Pulsar's cursor, index for index with what follows from the acks."""
    pulsar = trace.pulsar(topic)
    mine = {
        (ledger, entry)
        for ledger, acked in state.acked.items()
        for entry in acked
        if (ledger, entry) > pulsar.mark_delete
    }
    missing = {key: set(p.missing) for key, p in state.partials.items()}
    wanted = trace.missing_above(pulsar.mark_delete, topic)
    differences = []
    if state.mark_delete != pulsar.mark_delete:
        differences.append(f"mark-delete {state.mark_delete}, Pulsar's is {pulsar.mark_delete}")
    if odd := sorted(mine ^ pulsar.acked):
        differences.append(
            f"{len(pulsar.acked - mine)} entries missing, {len(mine - pulsar.acked)} too many, "
            f"e.g. {odd[:3]}"
        )
    if odd := sorted(k for k in missing.keys() | wanted.keys() if missing.get(k) != wanted.get(k)):
        differences.append(f"{len(odd)} partly acked batches differ, e.g. {odd[:3]}")
    report.differences += [f"{topic}: {difference}" for difference in differences]
    if not differences:
        report.entries_equal[topic] = len(mine)
        report.partial_batches_equal[topic] = len(missing)
