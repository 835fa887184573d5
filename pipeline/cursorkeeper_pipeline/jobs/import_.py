"""Pulsar's own cursors of a selection become ours, in tasks: each exactly once, whatever dies, is
retried, or runs twice.

Pulsar's are only read. A cursor that is here already is left alone if it is the same and refused if
not; with --refresh one that nobody has opened since an import made it is made anew. A live or newer
cursor is never overwritten. A run has an id (--id, or made from what it is about): run it again and
it continues; when all are done it costs nothing. Exit codes: 0 all done, 1 some refused or failed,
2 failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cursorkeeper.connections import Ports
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_cursors,
)
from cursorkeeper_pipeline.jobs import migration
from cursorkeeper_pipeline.jobs.frame import Reporter, arg
from cursorkeeper_pipeline.jobs.migration import Run, about, comparison
from cursorkeeper_pipeline.sinks.cursor_import import ImportWork
from cursorkeeper_pipeline.sinks.tasks import Between
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


def before(source: Options, arguments: Arguments, out: Reporter) -> int | None:
    """See the frame: a run that is done, or is to be aborted, needs no Spark. Raises
    ProblemError.
    """
    run = run_of(source, arguments)
    return run.abort(out) if arguments.abort else run.before(out)


def run(
    spark: SparkSession,
    source: Options,
    arguments: Arguments,
    out: Reporter,
    between: Between | None = None,
) -> int:
    """CLEAN or FINDINGS. Raises ProblemError. `between`: see `Places`."""
    return run_of(source, arguments, between).execute(spark, out)


def run_of(source: Options, arguments: Arguments, between: Between | None = None) -> Run:
    """The run that the arguments ask for. Raises ProblemError for settings that contradict one
    another.
    """
    places = arguments.places(source, between)
    if arguments.verify:
        return comparison(source, places, arguments.jobs, "import")
    return Run(
        "import",
        source.selection,
        places,
        about(
            places,
            refresh=arguments.refresh,
            rollBackUnreadable=arguments.roll_back_unreadable,
        ),
        of_pulsar,
        lambda id: ImportWork(
            places,
            id,
            arguments.jobs,
            arguments.dry_run,
            arguments.refresh,
            arguments.roll_back_unreadable,
            arguments.claim_wait_s,
        ),
        arguments.id,
        variant=arguments.variant,
        tasks=source.tasks,
    )


def of_pulsar(
    _ports: Ports, pulsar: PulsarPorts, selection: Selection, skipped: Callable[[SkippedPath], None]
) -> AsyncIterator[PulsarCursorRef]:
    """Pulsar's cursors by name alone: no state is read."""
    return iter_cursors(pulsar.zookeeper, selection, skipped=skipped)
