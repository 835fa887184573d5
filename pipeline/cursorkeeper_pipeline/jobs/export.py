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
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from cursorkeeper.connections import Ports
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts, iter_ours
from cursorkeeper.migration.exporter import Rules, ledger_spec
from cursorkeeper.migration.leftovers import Leftover, sweep
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_systems import pulsar_conf
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, of_version, with_broker_conf
from cursorkeeper_pipeline.jobs import migration
from cursorkeeper_pipeline.jobs.frame import Reporter, arg
from cursorkeeper_pipeline.sinks.cursor_export import PINS, ExportWork
from cursorkeeper_pipeline.sinks.record import Record
from cursorkeeper_pipeline.sinks.tasks import Work
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


class ExportRun(migration.Run):
    """Of every cursor that has a footer and that Pulsar can have."""

    arguments: Arguments

    @property
    def _rules(self) -> Rules:
        return Rules(**{rule.name: getattr(self.arguments, rule.name) for rule in fields(Rules)})

    def flags(self) -> dict[str, object]:
        return {"targetVersion": self.arguments.target_version, **asdict(self._rules)}

    def cursors(self, ports: Ports, pulsar: PulsarPorts) -> AsyncIterator[PulsarCursorRef]:
        return iter_ours(ports.footers, self.selection, skipped=self.skipped.append)

    def work(self) -> Work:
        given, conf = self.arguments, pulsar_conf(self.arguments.pulsar_broker_conf)
        limits = with_broker_conf(of_version(given.target_version), conf)
        return ExportWork(
            self.places, self.name, limits, ledger_spec(conf), self._rules, given.dry_run
        )

    def before(self, out: Reporter) -> int | None:
        self.work()  # wrong settings are told before anything else
        done = super().before(out)
        if done is not None and not self.arguments.abort:
            self.decided()  # the driver that decided it may have died before it did
        return done

    def abort(self, out: Reporter) -> int:
        asyncio.run(self._checked())  # before anything is decided
        code = super().abort(out)
        for note in self.swept():
            out.say(note)
        return code

    async def _checked(self) -> Record:
        """The run's record, if it is about the Pulsar that this command was told: at another one
        every znode would say that its ledgers are leftovers. Raises ProblemError, ZooKeeperError.
        """
        record = await self._with_record(lambda found: found.find())
        if record is None:
            raise ProblemError(
                f"there is no run {self.name}", "look at the id; a run tells it when it begins"
            )
        told, now = record.about.get("pulsarZookeeper", ""), self.places.pulsar.systems.zookeeper
        if told != now:
            remedy = f"give --pulsar-zookeeper {told}, in these very words"
            raise ProblemError(
                f"run {self.name} exports to the Pulsar of {told}, and this command was told {now}",
                remedy,
                Kind.USAGE,
            )
        return record

    def swept(self) -> list[str]:
        """What attempts that died have left goes; notes. Raises ProblemError, what the clients
        raise.
        """

        async def notes() -> list[str]:
            record = await self._checked()
            async with self.places.opened("reader", "migrator") as (_, theirs):
                found = [pair async for pair in sweep(theirs, record.token, Patience())]
                return notes_of(found)

        return asyncio.run(notes())

    def decided(self) -> None:
        """Nobody asks any more what this run has pinned. Raises ProblemError, ZooKeeperError."""
        asyncio.run(self._with_record(lambda found: found.forget(PINS)))


def before(source: Options, arguments: Arguments, out: Reporter) -> int | None:
    """See the frame: a run that is done, or is to be aborted, needs no Spark. Raises ProblemError,
    what the clients raise.
    """
    return run_of(source, arguments).before(out)


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """CLEAN or FINDINGS. Raises ProblemError."""
    check_footers(source)
    return run_of(source, arguments).execute(spark, out)


def run_of(source: Options, arguments: Arguments) -> migration.Run:
    """The run that the arguments ask for. Raises ProblemError for settings that contradict one
    another.
    """
    # a comparison has no record: what is to be aborted is the run
    is_comparison = arguments.verify and not arguments.abort
    kind = migration.Comparison if is_comparison else ExportRun
    return kind("export", source, arguments, arguments.places(source))


def notes_of(found: Sequence[tuple[Leftover, bool]]) -> list[str]:
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
