"""`cursorkeeper demo`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cursorkeeper.demo import ending
from cursorkeeper.demo.plays import play_bad_case, play_trace
from cursorkeeper.demo.report import Report, TraceReport
from cursorkeeper.demo.stack import check_java, find_jar
from cursorkeeper.demo.workload import BadCase

ENTRIES_PER_LEDGER = 50_000
THE_BAD_CASE = (
    "[bold]The bad case[/bold]: a large backlog, all acked but its oldest entry and some holes"
)
THE_TRACE = "[bold]Recorded acks of real Pulsar consumers[/bold], with the same kills"


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
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with all data and logs.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Work in this folder (kept) instead of a temporary one.")
    ] = None,
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

    def played(console: Console) -> Report | TraceReport:
        check_java()  # before anything is started: both are things that a person has to do
        find_jar()
        return asyncio.run(_play(entries, trace, keep, data_dir, seed, console))

    ending.tell(played, as_json=as_json)


async def _play(
    entries: int, trace: Path | None, keep: bool, data_dir: Path | None, seed: int, console: Console
) -> Report | TraceReport:
    if trace is not None:
        console.print(f"\n{THE_TRACE}")
        return await play_trace(trace, data_dir=data_dir, keep=keep, console=console)
    ledgers = (
        max(1, min(BadCase.ledgers, entries // ENTRIES_PER_LEDGER))
        if entries < BadCase.entries
        else BadCase.ledgers
    )
    console.print(f"\n{THE_BAD_CASE}")
    case = BadCase(entries=entries, ledgers=ledgers, seed=seed)
    return await play_bad_case(case, data_dir=data_dir, keep=keep, console=console)
