"""`cursorkeeper demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper.demo.plays import play_bad_case, play_trace
from cursorkeeper.demo.report import Report, TraceReport
from cursorkeeper.demo.stage import DataDir, Keep, Stage, perform
from cursorkeeper.demo.workload import BadCase

ENTRIES_PER_LEDGER = 50_000
BOOKIES = 3


def demo(
    entries: Annotated[
        int, typer.Option(help="Entries of the backlog.", min=1_000)
    ] = BadCase.entries,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Replay recorded acks of real Pulsar consumers from this folder instead."
        ),
    ] = None,
    keep: Keep = False,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(help="Of the holes and of the order.")] = BadCase.seed,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line instead of the report.")
    ] = False,
) -> None:
    """Play the bad case on a real ZooKeeper and real bookies, with real kill -9, and compare entry
    by entry.

    Exit code 0: nothing confirmed was lost and nothing un-acked skipped. 1: something was. 3: a
    process did not start.
    """

    async def play(stage: Stage) -> Report | TraceReport:
        if trace is not None:
            return await play_trace(trace, stage)
        ledgers = max(1, min(BadCase.ledgers, entries // ENTRIES_PER_LEDGER))
        return await play_bad_case(BadCase(entries, ledgers, seed=seed), stage)

    perform(play, bookies=BOOKIES, keep=keep, data_dir=data_dir, as_json=as_json)
