"""Pulsar's own cursors of a selection become ours, in tasks: each exactly once, whatever dies, is
retried, or runs twice.

Pulsar's are only read. A cursor that is here already is left alone if it is the same and refused if
not; with --refresh one that nobody has opened since an import made it is made anew. A live or newer
cursor is never overwritten. A run has an id (--id, or made from what it is about): run it again and
it continues; when all are done it costs nothing. Exit codes: 0 all done, 1 some refused or failed,
2 failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cursorkeeper.connections import Ports
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts, iter_cursors
from cursorkeeper_pipeline.jobs import migration
from cursorkeeper_pipeline.jobs.frame import Reporter, arg
from cursorkeeper_pipeline.sinks.cursor_import import ImportWork
from cursorkeeper_pipeline.sinks.tasks import Work
from cursorkeeper_pipeline.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: tuple[str, ...] = ()
OUT = "cursorkeeper-import"


@dataclass(frozen=True, slots=True)
class Arguments(migration.Arguments):
    refresh: bool = arg(
        False, "Make anew what differs, if nobody has opened it here since an import made it."
    )
    roll_back_unreadable: bool = arg(
        False, "Where a cursor ledger is unreadable: back to the znode's mark-delete, as Pulsar."
    )


class ImportRun(migration.Run):
    arguments: Arguments

    def flags(self) -> dict[str, object]:
        given = self.arguments
        return {"refresh": given.refresh, "rollBackUnreadable": given.roll_back_unreadable}

    def cursors(self, ports: Ports, pulsar: PulsarPorts) -> AsyncIterator[PulsarCursorRef]:
        return iter_cursors(pulsar.zookeeper, self.selection, skipped=self.skipped.append)

    def work(self) -> Work:
        given = self.arguments
        return ImportWork(
            self.places,
            self.name,
            given.dry_run,
            given.refresh,
            given.roll_back_unreadable,
            given.claim_wait_s,
        )


def before(source: Options, arguments: Arguments, out: Reporter) -> int | None:
    """See the frame: a run that is done, or is to be aborted, needs no Spark. Raises
    ProblemError.
    """
    return run_of(source, arguments).before(out)


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """CLEAN or FINDINGS. Raises ProblemError."""
    return run_of(source, arguments).execute(spark, out)


def run_of(source: Options, arguments: Arguments) -> migration.Run:
    """The run that the arguments ask for. Raises ProblemError for settings that contradict one
    another.
    """
    # a comparison has no record: what is to be aborted is the run
    is_comparison = arguments.verify and not arguments.abort
    kind = migration.Comparison if is_comparison else ImportRun
    return kind("import", source, arguments, arguments.places(source))
