"""The two plays: the bad case, and recorded acks of real Pulsar consumers. Each ends with a
comparison and a report.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyroaring import BitMap
from rich.console import Console

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.state import AckState, LedgerAcks
from cursorkeeper.core.values import Record
from cursorkeeper.demo.processes import PythonProcess
from cursorkeeper.demo.report import Report, TraceReport
from cursorkeeper.demo.source import SUBSCRIPTION, TOPIC, read_confirmed
from cursorkeeper.demo.stage import Kill, Stage, open_stage
from cursorkeeper.demo.trace import Trace
from cursorkeeper.demo.workload import BadCase
from cursorkeeper.format import record
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper_client.ack_stream.source import SourceConnection
from cursorkeeper_client.ack_stream.values import CursorState

DAEMON_KILL_AT, STACK_KILL_AT = 0.3, 0.6
GATES = ["--gate", str(DAEMON_KILL_AT), "--gate", str(STACK_KILL_AT)]


async def recover(address: str, topic: str) -> tuple[CursorState, float]:
    """Open a cursor as its new owner: the recovered state, and the seconds from asking to the end
    of the state.
    """
    async with SourceConnection(address) as session:
        began = time.monotonic()
        handle = session.open(topic, SUBSCRIPTION, create=False, takeover=True)
        state = await handle.wait_opened()
        return state, time.monotonic() - began


async def play_bad_case(
    case: BadCase, *, data_dir: Path | None, keep: bool, console: Console
) -> Report:
    """Issue #25985's case, with kills. Raises ProcessFailed or StackError when a process does not
    do its part.
    """
    began = time.monotonic()
    report = Report(entries=case.entries, data_ledgers=len(case.layout()))
    async with open_stage(data_dir=data_dir, keep=keep, console=console) as stage:
        out = stage.folder / "confirmed"
        source = PythonProcess(
            "source",
            [
                "cursorkeeper.demo.source",
                "--daemon",
                stage.daemon.address,
                "--out",
                str(out),
                "--entries",
                str(case.entries),
                "--ledgers",
                str(case.ledgers),
                "--seed",
                str(case.seed),
                *GATES,
            ],
            stage.folder / "source.log",
        )
        await source.start()
        try:
            kills = [
                Kill(DAEMON_KILL_AT, "daemon", stage.kill_daemon),
                Kill(STACK_KILL_AT, "stack", stage.kill_stack),
            ]
            last = await stage.watch(source, case.entries, kills, f"{case.entries:,} entries")
        finally:
            await source.stop(5)
        _fill(report, last, stage)
        state = await _new_owner(stage, report)
        await _compare(report, state, case, out)
    report.seconds = time.monotonic() - began
    return report


def _fill(report: Report, last: dict[str, float], stage: Stage) -> None:
    totals = stage.totals
    report.flushes = totals.records("delta")
    report.flush_bytes_p50, report.flush_bytes_p99 = (
        totals.flush_bytes(0.5),
        totals.flush_bytes(0.99),
    )
    report.bytes_per_ack = totals.bytes_written() / max(1.0, last["confirmed"])
    report.snapshots = totals.records("snapshot_end")
    report.ack_to_durable_ms_p50, report.ack_to_durable_ms_p99 = (
        last["wait_ms_p50"],
        last["wait_ms_p99"],
    )
    report.longest_outage_s = last["longest_outage_s"]
    report.acks_per_second = last["confirmed"] / last["seconds"]
    report.acks_per_second_without_outages = last["confirmed"] / max(
        0.001, last["seconds"] - last["outages_s"]
    )


async def _new_owner(stage: Stage, report: Report) -> CursorState:
    """The last owner is killed without a close; a new one claims, fences, reads."""
    stage.say("kill -9: the daemon, once more; a new owner opens the cursor")
    await stage.daemon.kill()
    stage.kills.append("daemon again")
    await stage.daemon.restart_elsewhere()
    state, report.recovery_seconds = await recover(stage.daemon.address, TOPIC)
    report.kills = list(stage.kills)
    return state


async def _compare(report: Report, state: CursorState, case: BadCase, out: Path) -> None:
    confirmed, sent = read_confirmed(out), case.acked()
    report.acked = sum(map(len, sent.values()))
    report.confirmed = sum(map(len, confirmed.values()))
    recovered = {ledger: acked_in(state, ledger, count) for ledger, count in case.layout()}
    nothing = BitMap()
    report.confirmed_but_lost = sum(
        len(entries - recovered.get(ledger, nothing)) for ledger, entries in confirmed.items()
    )
    report.unacked_but_skipped = sum(
        len(entries - sent.get(ledger, nothing)) for ledger, entries in recovered.items()
    )
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
        state.ledgers[ledger] = _ledger_acks(entries)
    plan, total = SnapshotPlan(state, record.DEFAULTS.max_entry_bytes - RECORD_HEADER_BYTES), 0
    while not plan.is_done:
        total += len(record.encode(Record(0, 1, 1, 1, plan.take(state))))
    return total


def _ledger_acks(entries: BitMap) -> LedgerAcks:
    acks = LedgerAcks()
    acks.ack(entries)
    return acks


async def play_trace(
    folder: Path, *, data_dir: Path | None, keep: bool, console: Console
) -> TraceReport:
    """Recorded acks through the stream, with the same kills, compared with Pulsar's own cursor at
    the end.
    """
    began = time.monotonic()
    trace = Trace(folder)
    report = TraceReport(acks=trace.acks, topics=len(trace.topics))
    async with open_stage(data_dir=data_dir, keep=keep, console=console) as stage:
        source = PythonProcess(
            "source",
            [
                "cursorkeeper.demo.source",
                "--daemon",
                stage.daemon.address,
                "--out",
                str(stage.folder / "confirmed"),
                "--trace",
                str(folder),
                *GATES,
            ],
            stage.folder / "source.log",
        )
        await source.start()
        try:
            kills = [
                Kill(DAEMON_KILL_AT, "daemon", stage.kill_daemon),
                Kill(STACK_KILL_AT, "stack", stage.kill_stack),
            ]
            last = await stage.watch(source, trace.acks, kills, f"{trace.acks:,} recorded acks")
        finally:
            await source.stop(5)
        report.confirmed = int(last["confirmed"])
        stage.say("kill -9: the daemon, once more; a new owner opens the cursors")
        await stage.daemon.kill()
        stage.kills.append("daemon again")
        await stage.daemon.restart_elsewhere()
        for topic in trace.topics:
            state, seconds = await recover(stage.daemon.address, f"persistent://trace/ns/{topic}")
            report.recovery_seconds += seconds
            compare_topic(report, trace, topic, state)
        report.kills = list(stage.kills)
    report.seconds = time.monotonic() - began
    report.trace_equal = not report.differences and report.confirmed == report.acks
    return report


def compare_topic(report: TraceReport, trace: Trace, topic: str, state: CursorState) -> None:
    """Entry for entry with Pulsar's cursor, index for index with what follows from the acks."""
    pulsar, expected = trace.pulsar(topic), trace.expected(topic)
    mine = {
        (ledger, e)
        for ledger, acked in state.acked.items()
        for e in acked
        if (ledger, e) > tuple(pulsar.mark_delete)
    }
    before = len(report.differences)
    if tuple(state.mark_delete) != pulsar.mark_delete:
        report.differences.append(
            f"{topic}: mark-delete {state.mark_delete}, Pulsar's is {pulsar.mark_delete}"
        )
    lost, extra = pulsar.acked - mine, mine - pulsar.acked
    if lost or extra:
        report.differences.append(
            f"{topic}: {len(lost)} entries missing, {len(extra)} too many, e.g. "
            f"{sorted(lost | extra)[:3]}"
        )
    missing = {key: set(p.missing) for key, p in state.partials.items()}
    wanted = expected.missing_above(pulsar.mark_delete)
    if missing != wanted:
        odd = sorted(k for k in missing.keys() | wanted.keys() if missing.get(k) != wanted.get(k))
        report.differences.append(
            f"{topic}: {len(odd)} partly acked batches differ, e.g. {odd[:3]}"
        )
    if len(report.differences) == before:
        report.entries_equal[topic] = len(mine)
        report.partial_batches_equal[topic] = len(missing)
