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
from cursorkeeper.assess.internals import InternalsError
from cursorkeeper.assess.memory import AdminAway, Broker, Memory, Nobody, Saved
from cursorkeeper.assess.totals import Totals
from cursorkeeper.cli import migration
from cursorkeeper.migration.cluster import PulsarPorts, Selection, SkippedPath
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.outcome import JOBS_MAX
from cursorkeeper.migration.pulsar_systems import cluster_settings, pulsar_conf, pulsar_settings
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, PulsarSettings
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.files import whole_file
from cursorkeeper.terminal.output import Bar, Table, json_line, say

_MEMORY = {"rich_help_panel": "What is acked in the brokers' memory"}
_PULSAR = {"rich_help_panel": "How Pulsar is set"}
_OUT = {"rich_help_panel": "Output"}
SKIPPED_SHOWN = 50
"""Paths that are no cursors; the first of them are named."""


def memory(
    admin_url: str | None, token_file: Path | None, saved: Path | None, only_topic: str
) -> Memory:
    """Who is asked for what brokers have in memory. Raises ProblemError, OSError."""
    if admin_url is not None and saved is not None:
        raise ProblemError("--admin-url and --internal-stats", "give one of them", Kind.USAGE)
    if saved is not None:
        try:
            return Saved(saved, only_topic)
        except InternalsError as error:
            raise ProblemError(
                str(error),
                "save `pulsar-admin topics stats-internal TOPIC` as it is; `assess --help` says "
                "how files are named",
                Kind.USAGE,
            ) from None
    if admin_url is None:
        return Nobody()
    if not admin_url.startswith(("http://", "https://")):
        raise ProblemError(
            f"--admin-url {admin_url}: no address of a web service",
            "write http://HOST:8080",
            Kind.USAGE,
        )
    return Broker(admin_url, token_file.read_text().strip() if token_file is not None else "")


async def run(
    work: Assessment,
    chosen: Selection,
    totals: Totals,
    *,
    jobs: int,
    as_json: bool,
    skipped: list[SkippedPath],
) -> None:
    """Reads, judges, adds up; JSON rows are printed as they come. Raises ProblemError."""
    with Bar("judging cursors") as bar:
        try:
            async for row in work.rows(
                chosen,
                jobs=jobs,
                skipped=lambda path: skipped.append(path) if len(skipped) < SKIPPED_SHOWN else None,
                found=bar.grow,
            ):
                totals.add(row)
                bar.advance()
                if as_json:
                    json_line(row.as_json())
        except MigrationError as error:
            if error.kind is Kind.AWAY:
                raise ProblemError(str(error), error.remedy, Kind.AWAY) from error
            raise NotFound(str(error), error.remedy) from error
        except AdminAway as error:
            raise ProblemError(
                f"the broker's admin address does not answer: {error}",
                "correct --admin-url, or leave it out",
                Kind.AWAY,
            ) from error


def show(totals: Totals, settings: PulsarSettings, exact_with: str) -> None:
    columns = ["cursor", "delivered again", "backlog", "next flush", "why"]
    compare = any(
        row.verdict is not None and row.verdict.native_bytes is not None for row in totals.worst
    )
    view = Table(
        [*columns, "CursorKeeper"] if compare else columns,
        right=("delivered again", "backlog", "CursorKeeper"),
    )
    for row in totals.worst:
        v = row.verdict
        if v is None:
            continue
        flush = f"{v.flush_form.value} {v.flush_bytes:,} B" if v.flush_bytes else "nothing fits"
        native = (f"0, in {v.native_bytes:,} B",) if compare and v.native_bytes is not None else ()
        view.add_row(
            f"{row.topic}|{row.subscription}",
            words.number(v),
            f"{v.backlog:,}",
            flush,
            words.why(v),
            *native,
        )
    if len(view):
        view.show()
    for row in totals.errors:
        say(f"NOT JUDGED {row.topic}|{row.subscription}: {row.error}")
        say(f"           What to do: {row.remedy}")
    for line in words.summary(totals, settings, exact_with):
        say(line)


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
    asked = memory(admin_url, admin_token_file, internal_stats, chosen.topic)
    totals, skipped = Totals(top), list[SkippedPath]()
    async with (
        connections.zookeeper(settings) as keeper,
        connections.gateway(settings, "reader") as ledgers,
    ):
        assessment = Assessment(PulsarPorts(keeper, ledgers), asked, pulsar, compare)
        await run(assessment, chosen, totals, jobs=jobs, as_json=as_json, skipped=skipped)
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
