"""`cursorkeeper assess`: how many acked messages a Pulsar cluster would deliver again if a broker
died now, and why.

Owns the command: where it reads, what it prints, which page it writes, the exit code. Judging is
`assess`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cursorkeeper import connections
from cursorkeeper.assess import words
from cursorkeeper.assess.collect import Assessment
from cursorkeeper.assess.html import page
from cursorkeeper.assess.memory import memory_of
from cursorkeeper.assess.totals import Totals
from cursorkeeper.migration.cluster import PulsarPorts, Selection, SkippedPath
from cursorkeeper.migration.outcome import JOBS_MAX
from cursorkeeper.problems import NotFound
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper.terminal import options
from cursorkeeper.terminal import pulsar as pulsar_options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.files import check_new_file, whole_file
from cursorkeeper.terminal.output import Bar, Table, json_line, say, tell

_MEMORY = {"rich_help_panel": "What is acked in the brokers' memory"}
_OUT = {"rich_help_panel": "Output"}
SKIPPED_SHOWN = 50
"""Paths that are no cursors; the first of them are named."""


def show(totals: Totals, settings: PulsarSettings, exact_with: str) -> None:
    compare = any(row.verdict and row.verdict.native for row in totals.worst)
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


@options.command
async def assess(
    *,
    chosen: pulsar_options.Chosen,
    cluster: pulsar_options.Cluster,
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
        check_new_file("--html", html)
    asked = memory_of(admin_url, admin_token_file, internal_stats, chosen.topic)
    totals, skipped = Totals(top), list[SkippedPath]()
    async with (
        connections.zookeeper(settings.systems) as keeper,
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
        text = page(totals, pulsar, when=when, where=settings.systems.zookeeper, **rests_on)
        with whole_file(html) as out:
            out.write(text.encode())
    return code
