"""What the jobs `import` and `export` share: the run's record around a plan, its tasks, and the
report.

Order, and why: the record is begun before the first task (tasks ask it), the outcomes are written
before the record is decided (a driver that dies between the two leaves an OPEN run that a second
one finishes by comparing), and a DONE run returns before anything is listed.

The results of a run that writes, JOB.json and the table `cursors`, are only replaced by another one
that writes: what else is asked, in the same folder, has names of its own.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.core.names import CursorName
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_cursors,
    iter_ours,
)
from cursorkeeper.migration.importer import Plan
from cursorkeeper.migration.outcome import JOBS_MAX
from cursorkeeper.migration.pulsar_systems import pulsar_conf, pulsar_ports, pulsar_settings
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter, arg
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.sinks.comparison import CompareWork
from cursorkeeper_pipeline.sinks.cursor_import import WAIT_S
from cursorkeeper_pipeline.sinks.record import (
    Record,
    RunRecord,
    State,
    as_json,
    checked_id,
    folder_of,
    id_of,
)
from cursorkeeper_pipeline.sinks.tasks import JOBS, LEFT, Places, Task, Work
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.transforms.migration import (
    OUTCOMES,
    PLAN,
    counts,
    spread,
    tasks_for,
    troubles,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
VERIFY: Final = "verify"
DRY_RUN: Final = "dry-run"
TROUBLES_MAX: Final = 100
"""Cursors that the report names; all of them are in the table."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What both directions are asked."""

    id: str = arg("", "Of this run; default: made from what it is about.", metavar="ID")
    dry_run: bool = arg(False, "Read and report everything, write nothing.")
    verify: bool = arg(False, "Compare the cursors of both sides, entry by entry; write nothing.")
    abort: bool = arg(False, "End the run of this id: its tasks begin no cursor any more.")
    jobs: int = arg(JOBS, "Cursors at once in each task.")
    claim_wait_s: float = arg(
        WAIT_S,
        "How long an import waits for another attempt that has a cursor open and does not move.",
    )
    pulsar_zookeeper: str = arg(
        "", "Pulsar's metadata store; default: as --zookeeper.", metavar="HOST:PORT[/CHROOT]"
    )
    pulsar_broker_conf: Path | None = arg(
        None,
        "Pulsar's broker.conf: its ZooKeeper and password; for an export quorums and limits.",
        metavar="FILE",
    )
    settings: Settings | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= JOBS_MAX:
            raise ValueError(f"jobs = {self.jobs} is not between 1 and {JOBS_MAX}")

    def places(self, source: Options) -> Places:
        """Raises ProblemError for settings that contradict one another."""
        ours = self.settings if self.settings is not None else source.settings
        zookeeper = self.pulsar_zookeeper or source.pulsar_zookeeper or None
        conf = pulsar_conf(self.pulsar_broker_conf)
        return Places(ours, pulsar_settings(ours, conf, zookeeper))


@dataclass
class Run(ABC):
    """One run of a job. `kind` says which job; `skipped`: paths that were no cursors."""

    kind: str
    source: Options
    arguments: Arguments
    places: Places
    skipped: list[SkippedPath] = field(default_factory=list)

    @abstractmethod
    def cursors(self, ports: Ports, pulsar: PulsarPorts) -> AsyncIterator[PulsarCursorRef]:
        """Those of the selection, by name alone: no state is read."""

    @abstractmethod
    def work(self) -> Work:
        """What each task does with the cursors that it is dealt."""

    def flags(self) -> dict[str, object]:
        """What makes it this run and no other, beside the systems and the selection."""
        return {}

    def swept(self) -> list[str]:
        """What the driver does before the run is decided; notes for the report."""
        return []

    def decided(self) -> None:  # noqa: B027 - most have nothing to do
        """What it does once the run is DONE or ABORTED."""

    @property
    def variant(self) -> str:
        """What it is instead of a run that writes and has a record."""
        return DRY_RUN if self.arguments.dry_run else ""

    @property
    def selection(self) -> Selection:
        return self.source.selection

    @property
    def name(self) -> str:
        """The run's id. Raises ProblemError."""
        given = self.arguments.id
        return checked_id(given) if given else id_of(self.kind, self._about)

    @property
    def recorded(self) -> bool:
        """Whether the run writes, and so leaves a record."""
        return not self.variant

    @property
    def table(self) -> str:
        """The table of its outcomes, in the folder of its results."""
        return f"cursors-{self.variant}" if self.variant else "cursors"

    def report(self, about: str = "") -> str:
        """The file of its report, or of what is said `about` an earlier one."""
        return "-".join(word for word in (self.kind, self.variant, about) if word) + ".json"

    def before(self, out: Reporter) -> int | None:
        """What needs no Spark: a run that is to be aborted, or is DONE and has nothing to do.
        Raises ProblemError.
        """
        if self.arguments.abort:
            return self.abort(out)
        if not self.recorded:
            return None
        record = asyncio.run(self._with_record(lambda found: found.find()))
        return (
            self._done_before(record, out)
            if record is not None and record.state is State.DONE
            else None
        )

    def abort(self, out: Reporter) -> int:
        """OPEN -> ABORTED: no task begins a cursor any more. Raises ProblemError."""
        record = asyncio.run(self._with_record(lambda found: found.decide(State.ABORTED)))
        self._after_decision(record)
        self._tell(out, record, "abort")
        out.say(f"run {record.id} is {record.state}: what it has done stays as it is")
        return CLEAN if record.state is State.ABORTED else FINDINGS

    def execute(self, spark: SparkSession, out: Reporter) -> int:
        """CLEAN: all are done; FINDINGS: some failed or were refused. Raises ProblemError."""
        began_s, record = time.monotonic(), None
        if self.recorded:
            record = asyncio.run(
                self._with_record(lambda found: found.begin(self.kind, self._about))
            )
            if record.state is State.DONE:
                return self._done_before(record, out)
        refs = asyncio.run(self._list())
        if not refs:
            self._tell(out, record, cursors=0)
            out.say(
                f"{self.selection}: no cursor matches. What to do: check the names, and the "
                f"chroot of --pulsar-zookeeper"
            )
            return FINDINGS
        outcomes = settled(self._outcomes(spark, refs), out, self.table)
        found = {(row["status"], row["ok"]): row["cursors"] for row in counts(outcomes).collect()}
        well = all(ok for _, ok in found)
        notes = self.swept() if self.recorded else []
        if self.recorded:
            by_status = {status: n for (status, _), n in found.items()}
            state = State.DONE if well else State.OPEN
            record = asyncio.run(
                self._with_record(lambda now: now.decide(state, by_status, len(self.skipped)))
            )
            self._after_decision(record)
            if left := by_status.get(LEFT, 0):
                said = (
                    f"another driver has finished this run: {left:,} cursor(s) were left to "
                    f"it; what came since needs a new --id"
                )
                notes = [*notes, said]
        if past := sum(n for (status, _), n in found.items() if status == Plan.PAST):
            said = (
                f"Pulsar has moved on in {past:,} cursor(s) since this run imported them: for "
                f"what came since, --refresh and a new --id"
            )
            notes = [*notes, said]
        self._report(out, outcomes, found, record, notes, time.monotonic() - began_s)
        outcomes.unpersist()
        return CLEAN if well else FINDINGS

    def _after_decision(self, record: Record) -> None:
        if record.state is not State.OPEN:
            self.decided()

    @property
    def _about(self) -> dict[str, str]:
        about = {
            "pulsarZookeeper": self.places.pulsar.systems.zookeeper,
            "zookeeper": self.places.settings.systems.zookeeper,
            "root": self.places.settings.systems.root,
            "selection": str(self.selection),
        }
        said = {name: "true" if value is True else value for name, value in self.flags().items()}
        return about | {name: str(value) for name, value in said.items() if value}

    def _outcomes(self, spark: SparkSession, refs: Sequence[PulsarCursorRef]) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        plan = spread(plan_of(spark, refs), tasks_for(len(refs), self.source.tasks))
        return plan.mapInArrow(
            Task(self.work(), self.name, self.arguments.jobs), from_arrow_schema(OUTCOMES)
        )

    async def _with_record(self, work: Callable[[RunRecord], Coroutine[Any, Any, R]]) -> R:
        systems = self.places.settings.systems
        async with connections.zookeeper(systems) as zookeeper:
            return await work(RunRecord(zookeeper, folder_of(systems.root, self.kind), self.name))

    async def _list(self) -> list[PulsarCursorRef]:
        places = self.places
        async with (
            connections.ports(places.settings) as ports,
            pulsar_ports(places.settings, places.pulsar, ports, "reader") as theirs,
        ):
            return [ref async for ref in self.cursors(ports, theirs)]

    def _done_before(self, record: Record, out: Reporter) -> int:
        self._tell(out, record, "again", statuses=record.counts, before=True)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.decided_ms / 1000))
        out.say(
            f"run {record.id} is {record.state} since {when} UTC: nothing is left to do. For "
            f"another run of the same: --id NEW"
        )
        return CLEAN

    def _tell(self, out: Reporter, record: Record | None, about: str = "", **more: object) -> None:
        """The result for programs, of the run or `about` an earlier one."""
        run = as_json(record) if record else None
        said = {"run": run, "selection": str(self.selection), **more}
        out.json(said, name=self.report(about))

    def _report(
        self,
        out: Reporter,
        outcomes: DataFrame,
        found: Mapping[tuple[str, bool], int],
        record: Record | None,
        notes: list[str],
        took_s: float,
    ) -> None:
        named = (
            troubles(outcomes).limit(TROUBLES_MAX).collect()
            if not all(ok for _, ok in found)
            else []
        )
        total = sum(found.values())
        self._tell(
            out,
            record,
            cursors=total,
            statuses={status: n for (status, _), n in found.items()},
            troubles=sum(n for (_, ok), n in found.items() if not ok),
            skippedPaths=[path._asdict() for path in self.skipped[:TROUBLES_MAX]],
            skipped=len(self.skipped),
            notes=notes,
            problems=[
                {key: row[key] for key in ("cursor", "status", "problem", "remedy")}
                for row in named
            ],
            seconds=round(took_s, 3),
        )
        for row in named:
            out.say(
                f"{row['status']:>12}  {row['cursor']}: {row['problem']}. What to do: "
                f"{row['remedy']}"
            )
        for note in notes:
            out.say(note)
        counted = ", ".join(
            f"{n:,} {status}" for (status, _), n in sorted(found.items(), key=lambda item: -item[1])
        )
        run = f"run {record.id}, {record.state}: " if record else ""
        out.say(f"{run}{self.selection}: {total:,} cursor(s): {counted}; {took_s:.1f} s")


def settled(outcomes: DataFrame, out: Reporter, table: str) -> DataFrame:
    """The same, computed once: what follows must not do the work again (it would find it done, and
    say so).
    """
    place = out.parquet(table, outcomes)
    return outcomes.sparkSession.read.parquet(place) if place else outcomes.persist()


def plan_of(spark: SparkSession, refs: Sequence[PulsarCursorRef]) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = [[cursor_key(CursorName(*ref)) for ref in refs], *map(list, zip(*refs, strict=True))]
    return spark.createDataFrame(
        pa.table(dict(zip(PLAN.names, columns, strict=True)), schema=PLAN), from_arrow_schema(PLAN)
    )


class Comparison(Run):
    """Of every cursor that either side has."""

    @property
    def variant(self) -> str:
        return VERIFY

    def work(self) -> Work:
        return CompareWork(self.places)

    async def cursors(self, ports: Ports, pulsar: PulsarPorts) -> AsyncIterator[PulsarCursorRef]:
        """Each once."""
        found, skip = set(), self.skipped.append
        async for ref in iter_cursors(pulsar.zookeeper, self.selection, skipped=skip):
            found.add(ref)
            yield ref
        async for ref in iter_ours(ports.footers, self.selection, skipped=skip):
            if ref not in found:
                yield ref
