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
from cursorkeeper.core.state import AckState, LedgerAcks
from cursorkeeper.demo.report import Report, TraceReport
from cursorkeeper.demo.source import SUBSCRIPTION, TOPIC, trace_topic
from cursorkeeper.demo.stage import Stage, open_stage
from cursorkeeper.demo.trace import Trace
from cursorkeeper.demo.workload import BadCase
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.sizes.native import snapshot_records
from cursorkeeper_client.ack_stream.source import SourceConnection
from cursorkeeper_client.ack_stream.values import CursorState


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
    arguments = ["--entries", case.entries, "--ledgers", case.ledgers, "--seed", case.seed]
    async with open_stage(data_dir=data_dir, keep=keep, console=console) as stage:
        last = await stage.play(arguments, case.entries, f"{case.entries:,} entries")
        _fill(report, last, stage)
        await stage.new_owner("the cursor")
        state, report.recovery_seconds = await recover(stage.daemon.address, TOPIC)
        report.kills = stage.kills
        _compare(report, state, case)
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
    report.confirmed = int(last["confirmed"])
    report.acks_per_second = last["confirmed"] / last["seconds"]
    report.acks_per_second_without_outages = last["confirmed"] / max(
        0.001, last["seconds"] - last["outages_s"]
    )


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
        state.ledgers[ledger] = acks = LedgerAcks()
        acks.ack(entries)
    return snapshot_records(state)[0]


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
        last = await stage.play(["--trace", folder], trace.acks, f"{trace.acks:,} recorded acks")
        report.confirmed = int(last["confirmed"])
        await stage.new_owner("the cursors")
        for topic in trace.topics:
            state, seconds = await recover(stage.daemon.address, trace_topic(topic))
            report.recovery_seconds += seconds
            _compare_topic(report, trace, topic, state)
        report.kills = stage.kills
    report.seconds = time.monotonic() - began
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
