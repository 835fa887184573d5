"""`python -m cursorkeeper.demo.pulsar`, which `make demo-pulsar` runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cursorkeeper.demo import ending
from cursorkeeper.demo.pulsar.play import Case, find_plugin, play
from cursorkeeper.demo.pulsar.report import Report
from cursorkeeper.demo.stack import check_java, find_jar
from cursorkeeper.demo.stack.pulsar import DEFAULT_VERSION, class_path


def main(
    messages: Annotated[int, typer.Option(help="Messages a broker.", min=1_000)] = 200_000,
    entries_per_ledger: Annotated[
        int, typer.Option(help="Pulsar's managedLedgerMaxEntriesPerLedger.", min=100)
    ] = 50_000,
    version: Annotated[str, typer.Option(help="Of Pulsar: one of java/brokers.")] = DEFAULT_VERSION,
    plugin: Annotated[
        Path | None,
        typer.Option(help="The plugin's jar, if not this checkout's.", exists=True, dir_okay=False),
    ] = None,
    plugin_conf: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: a line of broker.conf for the broker with the plugin."),
    ] = None,
    stock_only: Annotated[
        bool, typer.Option("--stock-only", help="Play the broker as it is, and nothing else.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with all data and logs.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Work in this folder (kept) instead of a temporary one.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON line instead of the report.")
    ] = False,
) -> None:
    """Kill real Pulsar brokers right after the last receipt of an ack, and count what they deliver
    again.

    Exit code 0: with the plugin nothing confirmed came again, and nothing un-acked is missing. 1:
    not so. 3: a process did not start.
    """

    def played(console: Console) -> Report:
        check_java()  # before anything is started: all three are things that a person has to do
        find_jar()
        class_path(version)
        jar = None if stock_only else plugin or find_plugin(version)
        conf = dict(line.split("=", 1) for line in plugin_conf or ())
        case = Case(version, messages, entries_per_ledger, jar, conf)
        return asyncio.run(play(case, data_dir=data_dir, keep=keep, console=console))

    ending.tell(played, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
