"""`python -m tools.brokers`, which `make demo-pulsar` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper.demo.stage import DataDir, Keep, Stage, perform
from tools.brokers.cluster import DEFAULT_VERSION, class_path
from tools.brokers.play import Case, find_plugin, play
from tools.brokers.report import Report


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
    secured: Annotated[
        bool,
        typer.Option(
            "--secured",
            help="On a cluster with TLS, users and ACLs, at brokers that want tokens. "
            "Certificates, keys and passwords are made for it.",
        ),
    ] = False,
    keep: Keep = False,
    data_dir: DataDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON line instead of the report.")
    ] = False,
) -> None:
    """Kill real Pulsar brokers right after the last receipt of an ack, and count what they deliver
    again.

    Exit code 0: with the plugin nothing confirmed came again, and nothing un-acked is missing. 1:
    not so. 3: a process did not start.
    """

    async def played(stage: Stage) -> Report:
        class_path(version)  # before anything is started: it is something that a person has to do
        jar = None if stock_only else plugin or find_plugin(version)
        conf = dict(line.split("=", 1) for line in plugin_conf or ())
        case = Case(version, messages, entries_per_ledger, jar, conf, secured)
        return await play(case, stage)

    perform(played, bookies=2, keep=keep, data_dir=data_dir, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
