"""`cursorkeeper assess`: how many acked messages a Pulsar cluster would deliver again if a broker
died now, and why.

Owns the command: where it reads, what it prints, which page it writes, the exit code. Judging is
`assess`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cursorkeeper import connections
from cursorkeeper.assess import words
from cursorkeeper.assess.collect import Assessment
from cursorkeeper.assess.html import page
from cursorkeeper.assess.memory import memory_of
from cursorkeeper.assess.totals import Totals
from cursorkeeper.cli import migration
from cursorkeeper.migration.cluster import PulsarPorts, Selection, SkippedPath
from cursorkeeper.migration.outcome import JOBS_MAX
from cursorkeeper.migration.pulsar_systems import cluster_settings, pulsar_conf, pulsar_settings
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, PulsarSettings
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.files import whole_file
from cursorkeeper.terminal.output import Bar, Table, json_line, say, tell

_MEMORY = {"rich_help_panel": "What is acked in the brokers' memory"}
_PULSAR = {"rich_help_panel": "How Pulsar is set"}
_OUT = {"rich_help_panel": "Output"}
SKIPPED_SHOWN = 50
"""Paths that are no cursors; the first of them are named."""


def show(totals: Totals, settings: PulsarSettings, exact_with: str) -> None:
    compare = any(row.verdict and row.verdict.native_bytes for row in totals.worst)
    columns = (*words.COLUMNS, *([words.COMPARED] if compare else []))
    table = Table(columns, right=words.NUMBERS)
    for row in totals.worst:
        table.add_row(*words.cells(row))
    table.show()
    told = {"totals": totals, "version": settings.version, "exact_with": exact_with, "words": words}
    tell("assess/templates/summary.txt", told)


def exit_code(totals: Totals, chosen: Selection) -> int:
    """0: nothing at risk. Raises NotFound: no cursor at all is no good news."""
    if not totals.cursors:
        raise NotFound(
            f"{chosen}: there is no such Pulsar cursor",
            "check the names, and the chroot of --pulsar-zookeeper",
        )
    return NO if totals.at_risk or totals.errors_count else 0


def cluster_of(
    *,
    pulsar_zookeeper: migration.PulsarZookeeper = None,
    zookeeper: options.Zookeeper = None,
    gateway: options.Gateway = None,
    config: options.Config = None,
    broker_conf: Annotated[
        Path | None,
        typer.Option(
            "--broker-conf",
            "--pulsar-broker-conf",
            help="Pulsar's broker.conf: its ZooKeeper, password, limits.",
            metavar="FILE",
            rich_help_panel=_PULSAR["rich_help_panel"],
        ),
    ] = None,
    pulsar_version: Annotated[
        str, "Whose defaults apply where broker.conf says nothing.", _PULSAR
    ] = DEFAULT_VERSION,
    frame_bytes: Annotated[
        int | None,
        "nettyMaxFrameSizeBytes of brokers and bookies, if raised.",
        {"min": 1_024, **_PULSAR},
    ] = None,
) -> tuple[Settings, PulsarSettings]:
    """Where the cluster is, and how its brokers are set. Raises SettingsError."""
    conf = pulsar_conf(broker_conf)
    ours = options.settings_of(zookeeper=zookeeper, gateway=gateway, config=config)
    settings = pulsar_settings(ours, conf, pulsar_zookeeper)
    return settings, cluster_settings(
        pulsar_version, conf, frame_bytes, settings.zookeeper_jute_maxbuffer_bytes
    )


def _check_page(file: Path) -> None:
    if file.is_dir():
        raise ProblemError(f"--html {file}: it is a folder", "name a file in it", Kind.USAGE)
    if not file.parent.is_dir():
        raise ProblemError(
            f"--html {file}: there is no folder {file.parent}",
            "name a file in a folder that exists",
            Kind.USAGE,
        )


@options.command
async def assess(
    *,
    chosen: migration.Chosen,
    cluster: Annotated[tuple[Settings, PulsarSettings], cluster_of],
    admin_url: Annotated[
        str | None,
        "A broker's web service: makes the numbers exact.",
        {"metavar": "http://HOST:8080", **_MEMORY},
    ] = None,
    admin_token_file: Annotated[
        Path | None, "A file with the token for it.", {"metavar": "FILE", **_MEMORY}
    ] = None,
    internal_stats: Annotated[
        Path | None,
        "Saved `pulsar-admin topics stats-internal`: one topic's, an object of them by topic, or a "
        "folder TENANT/NAMESPACE/TOPIC.json.",
        {"metavar": "PATH", **_MEMORY},
    ] = None,
    compare: Annotated[bool, "Also what CursorKeeper would store.", _OUT] = False,
    top: Annotated[int, "How many of the worst are shown.", {"min": 1, "max": 10_000, **_OUT}] = 20,
    html: Annotated[
        Path | None, "Write a page for people who decide.", {"metavar": "FILE", **_OUT}
    ] = None,
    jobs: Annotated[int, "Topics looked at at once.", {"min": 1, "max": JOBS_MAX}] = 4,
    as_json: options.Json = False,
) -> int:
    """How many acked messages a Pulsar cluster would deliver again if its brokers died now, per
    cursor, and why.

    Reads ZooKeeper and BookKeeper without recovery: nothing is changed, no broker is disturbed.
    With --admin-url or --internal-stats the numbers are exact; without, only what is stored is
    known, and they are lower bounds. A message is an entry of the topic: a batch counts as one.
    Exit code 0: nothing at risk. 1: something is, or could not be judged.
    """
    settings, pulsar = cluster
    if html is not None:
        _check_page(html)
    asked = memory_of(admin_url, admin_token_file, internal_stats, chosen.topic)
    totals, skipped = Totals(top), list[SkippedPath]()
    async with (
        connections.zookeeper(settings) as keeper,
        connections.gateway(settings, "reader") as ledgers,
    ):
        assessment = Assessment(PulsarPorts(keeper, ledgers), asked, pulsar, compare)
        with Bar("judging cursors") as bar:
            async for row in assessment.rows(
                chosen,
                jobs=jobs,
                skipped=lambda path: skipped.append(path) if len(skipped) < SKIPPED_SHOWN else None,
                found=bar.grow,
            ):
                totals.add(row)
                bar.advance()
                if as_json:
                    json_line(row.as_json())
    code = exit_code(totals, chosen)
    if as_json:
        told = {"skipped": [list(one) for one in skipped], "pulsar": pulsar.version}
        json_line({"totals": totals.as_json(), **told})
    else:
        show(totals, pulsar, asked.exact_with)
        for path, reason in skipped:
            say(f"left out {path}: {reason}", err=True)
    if html is not None:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}"
        rests_on = {"source": asked.describes, "exact_with": asked.exact_with}
        text = page(totals, pulsar, when=when, where=settings.zookeeper, **rests_on)
        with whole_file(html) as out:
            out.write(text.encode())
    return code
