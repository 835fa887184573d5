"""Our cursors of a selection become Pulsar's own again, in tasks: each exactly once, whatever dies,
is retried, or runs twice.

The rules of `export-pulsar` hold: topics that a broker may have are refused, and so is, with the
numbers, what Pulsar could not hold or would drop by itself. A run has an id (--id, or made from
what it is about): run it again and it continues; when all are done it costs nothing. Ledgers that
attempts which died have left are removed at the end, and by --abort. Exit codes: 0 all done, 1 some
refused or failed, 2 failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_ours,
)
from cursorkeeper.migration.exporter import ledger_spec
from cursorkeeper.migration.leftovers import Leftover, sweep
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_systems import pulsar_conf
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, of_version, with_broker_conf
from cursorkeeper_pipeline.jobs import migration
from cursorkeeper_pipeline.jobs.frame import Reporter, arg
from cursorkeeper_pipeline.jobs.migration import Run, about, comparison
from cursorkeeper_pipeline.sinks.cursor_export import PINS, ExportWork, Rules
from cursorkeeper_pipeline.sinks.record import Record, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import Between, Places
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.roots import check_footers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: tuple[str, ...] = ()
OUT = "cursorkeeper-export"
NOTES_MAX: Final = 20
"""Ledgers that the notes name; all of them are counted."""


@dataclass(frozen=True, slots=True)
class Arguments(migration.Arguments):
    replace: bool = arg(False, "Put ours in the place of a Pulsar cursor that differs.")
    replace_newer: bool = arg(
        False, "Also one that Pulsar itself changed since a broker with the plugin held it."
    )
    live: bool = arg(False, "Also open cursors of ours: what is durable when they are read.")
    broker_is_stopped: bool = arg(
        False, "Whatever ledgers and bundles look like: no broker has these topics."
    )
    allow_loss: bool = arg(
        False, "Also what Pulsar's own next flush or unload would drop because of its limits."
    )
    target_version: str = arg(
        DEFAULT_VERSION,
        "The Pulsar that will open them; decides its limits and forms.",
        metavar="VERSION",
    )


def before(source: Options, arguments: Arguments, out: Reporter) -> int | None:
    """See the frame: a run that is done, or is to be aborted, needs no Spark. Raises ProblemError,
    what the clients raise.
    """
    run = run_of(source, arguments)
    if arguments.abort:
        asyncio.run(checked(run.places, run.name))  # before anything is decided
        code = run.abort(out)
        for note in swept(run.places, run.name):
            out.say(note)
        return code
    done = run.before(out)
    if done is not None:
        decided(run.places, run.name)  # the driver that decided it may have died before it did
    return done


def run(
    spark: SparkSession,
    source: Options,
    arguments: Arguments,
    out: Reporter,
    between: Between | None = None,
) -> int:
    """CLEAN or FINDINGS. Raises ProblemError. `between`: see `Places`."""
    check_footers(source)
    return run_of(source, arguments, between).execute(spark, out)


def run_of(source: Options, arguments: Arguments, between: Between | None = None) -> Run:
    """The run that the arguments ask for. Raises ProblemError for settings that contradict one
    another.
    """
    places = arguments.places(source, between)
    if arguments.verify:
        return comparison(source, places, arguments.jobs, "export")
    conf = pulsar_conf(arguments.pulsar_broker_conf)
    limits, spec = with_broker_conf(of_version(arguments.target_version), conf), ledger_spec(conf)
    rules = Rules(**{rule.name: getattr(arguments, rule.name) for rule in fields(Rules)})
    return Run(
        "export",
        source.selection,
        places,
        {"targetVersion": arguments.target_version, **about(places, **asdict(rules))},
        of_ours,
        lambda id: ExportWork(places, id, limits, spec, rules, arguments.jobs),
        arguments.id,
        variant=arguments.variant,
        tasks=source.tasks,
        after=lambda name, _outcomes: swept(places, name),
        decided=lambda name: decided(places, name),
    )


def of_ours(
    ports: Ports, _pulsar: PulsarPorts, selection: Selection, skipped: Callable[[SkippedPath], None]
) -> AsyncIterator[PulsarCursorRef]:
    """Every cursor that has a footer and that Pulsar can have."""
    return iter_ours(ports.footers, selection, skipped=skipped)


async def checked(places: Places, name: str) -> Record:
    """The run's record, if it is about the Pulsar that this command was told: at another one every
    znode would say that its ledgers are leftovers. Raises ProblemError, ZooKeeperError.
    """
    async with connections.zookeeper(places.settings) as zookeeper:
        record = await RunRecord(zookeeper, folder_of(places.settings.root, "export"), name).find()
    if record is None:
        raise ProblemError(
            f"there is no run {name}", "look at the id; a run tells it when it begins"
        )
    told, now = record.about.get("pulsarZookeeper", ""), places.pulsar.zookeeper
    if told != now:
        remedy = f"give --pulsar-zookeeper {told}, in these very words"
        raise ProblemError(
            f"run {name} exports to the Pulsar of {told}, and this command was told {now}",
            remedy,
            Kind.USAGE,
        )
    return record


def swept(places: Places, name: str) -> list[str]:
    """What attempts that died have left goes; notes. Raises ProblemError, what the clients
    raise.
    """
    plain = Places(places.settings, places.pulsar)

    async def notes() -> list[str]:
        record = await checked(plain, name)
        async with plain.opened("reader", "migrator") as (_, theirs):
            found = [pair async for pair in sweep(theirs, record.token, Patience())]
            return notes_of(found)

    return asyncio.run(notes())


def notes_of(found: Sequence[tuple[Leftover, bool]]) -> list[str]:
    """Of what a sweep has found."""
    gone, left = ([one for one, went in found if went is wanted] for wanted in (True, False))
    notes = _told(gone, "deleted ledger {} of an attempt that died: {}")
    if left:
        what = (
            "one that is late could name them yet. Run this again, or with --abort once "
            "the run is decided"
        )
        notes += [
            f"{len(left):,} ledger(s) of attempts stay: {what}",
            *_told(left, "left ledger {} of an attempt: {}"),
        ]
    return notes


def _told(some: Sequence[Leftover], text: str) -> list[str]:
    told = [text.format(one.ledger, one.ref) for one in some[:NOTES_MAX]]
    return [*told, f"and {len(some) - NOTES_MAX:,} more"] if len(some) > NOTES_MAX else told


def decided(places: Places, name: str) -> None:
    """Nobody asks any more what this run has pinned. Raises ProblemError, ZooKeeperError."""

    async def purge() -> None:
        async with connections.zookeeper(places.settings) as zookeeper:
            folder = folder_of(places.settings.root, "export")
            await RunRecord(zookeeper, folder, name).forget(PINS)

    asyncio.run(purge())
