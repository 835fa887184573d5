"""States as tables: one cursor of a billion entries on the real stack, read through Spark
(local[2]) and without it.

Rates are wall clock of one run and belong to a machine and its other work; CPU seconds are of this
process and of all that Spark runs (JVM and Python workers). Ratios compare two ways in the same
run: Arrow batches against Python tuples of the same rows, counting in the decoder against counting
rows, the largest task against the mean. A query's time includes its plan. Every figure is of rows
that were
counted: a wrong total is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.large_cursor import LargeCursor, make
from bench.rows import Row
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.fleet import Fleet as Tables
from cursorkeeper_pipeline.session import session
from cursorkeeper_pipeline.source import states
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BucketsPart
from cursorkeeper_pipeline.source.state_size import state_bytes
from cursorkeeper_pipeline.source.units import dealt
from pipeline.tests.fleet_maker import costs_of_tasks, cut_costs, pareto_fleet, skew
from pipeline.tests.real_cursors import EAGER, Fleet, fleet, until

ROOT = "/bench-pipeline/cursors"
NAME = CursorName("persistent://bench/ns/large", "sub")
CURSOR = LargeCursor(NAME, ledgers=100, entries_each=10_000_000, hole_share=0.01)
SPLIT_BYTES, TASKS, SLOTS = 4 << 20, 4, 2
TICKS_S = os.sysconf("SC_CLK_TCK")


def run(stack: Standalone) -> list[Row]:
    """All of it. Raises RuntimeError for a wrong total."""
    given = {"zookeeper": stack.zookeeper, "gateway": stack.gateway, "root": ROOT, "waitS": "120"}
    asyncio.run(_make(stack, given, CURSOR))
    rows = _plan()
    rows += _memory(given)
    spark = session(
        "bench",
        master=f"local[{SLOTS}]",
        conf={"spark.driver.memory": "768m", "spark.ui.enabled": "false"},
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Tuples)
    try:
        _load(spark, given, "hole_stats").collect()  # workers are started, modules loaded
        return rows + _large(spark, given) + _against_tuples(spark, given)
    finally:
        spark.stop()


# ---- the cursor


async def _make(stack: Standalone, given: Mapping[str, str], cursor: LargeCursor) -> None:
    """Imported, then opened once more by an owner that takes a snapshot: what a large cursor's
    footer leads to.
    """
    await make(Options.parse({**given, "table": "holes"}).settings, cursor)
    async with fleet(stack, ROOT) as made:
        source = await made.source(cursor.name, EAGER)
        for at in range(3):  # each delta is a reason; the first snapshot may have begun before it
            source.ack(properties={"round": at})
            await source.durable(limit_s=300)
            await until(
                lambda: source.machine.snapshots.run is None, "the snapshot is written", 300
            )
            if isinstance((await made.footer(cursor.name)).base, SnapshotBase):
                break
        if await source.keeper.close() or not isinstance(
            (await _base(made, cursor.name)), SnapshotBase
        ):
            raise RuntimeError(f"{cursor.name} has no snapshot")


async def _base(made: Fleet, name: CursorName) -> object:
    return (await made.footer(name)).base


def _holes(cursor: LargeCursor) -> int:
    return sum(len(cursor.holes(at)) for at in range(cursor.ledgers))


# ---- without Spark


def _plan() -> list[Row]:
    """A Pareto fleet, random and regular cursors in turn, the largest of a thousand million
    entries: how even its tasks are, planned by numbers of cursors alone, and dealt out by a second
    pass.
    """
    found, rows = list(pareto_fleet(20_000)), []
    for tasks in ("", "640"):
        options = Options.parse(
            {
                "table": "hole_stats",
                "zookeeper": "z:1",
                "gateway": "g:1",
                **({"tasks": tasks} if tasks else {}),
            }
        )
        costs = costs_of_tasks(found, options, states.HoleStats.cursors_per_task)
        largest = max(state_bytes(one.footer) for one in found if isinstance(one.footer, Footer))
        case = f"mixed Pareto fleet, 20,000 cursors, {len(costs)} tasks"
        rows.append(
            Row(
                "pipeline",
                case,
                "largest task, unpacked",
                max(costs) / (1 << 20),
                "MiB",
                skew(costs),
                "the mean",
            )
        )
        second = cut_costs(found, options)
        loads = [0] * len(costs)
        for place, task in dealt(second, len(costs)):
            loads[task] += second[place]
        rows.append(
            Row(
                "pipeline",
                case,
                "the same, spread by size",
                max(loads) / (1 << 20),
                "MiB",
                skew(loads),
                "the mean",
            )
        )
        rows.append(
            Row(
                "pipeline",
                case,
                "the largest cursor alone",
                largest / (1 << 20),
                "MiB",
                largest * len(costs) / sum(costs),
                "the mean",
            )
        )
    return rows


def _memory(given: Mapping[str, str]) -> list[Row]:
    """Peak memory of a process that reads the cursor for `holes`: piece by piece, and as a
    whole.
    """
    peaks = {split: _peak_mib(given, split) for split in (SPLIT_BYTES, 1 << 40)}
    nothing = _peak_mib(given, 0)
    piece, whole = (peak - nothing for peak in peaks.values())
    case = f"worker that reads `holes`, split at {SPLIT_BYTES >> 20} MiB"
    return [
        Row(
            "pipeline",
            case,
            "peak above one that only connects",
            piece,
            "MiB",
            piece / whole,
            "reading it whole",
        ),
        Row("pipeline", case, "only connects", nothing, "MiB"),
    ]


def _peak_mib(given: Mapping[str, str], split: int) -> float:
    command = [
        sys.executable,
        "-m",
        "bench.pipeline",
        json.dumps({**given, "topic": NAME.topic}),
        str(split),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return float(done.stdout.splitlines()[-1])


def _read_one(given: dict[str, str], split: int) -> None:
    """In a process of its own: the first task, and how much memory that took at most."""
    pa.array(np.zeros(1))  # loads pandas, as every worker does
    options = Options.parse(
        {**given, "table": "holes", "splitBytes": str(split or SPLIT_BYTES), "tasks": str(TASKS)}
    )
    table = states.Holes()
    part = table.plan(options)[0] if split else BucketsPart(())
    for batch in table.read(options, part):
        del batch
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    print(int(peak.split()[1]) / 1024)


# ---- with Spark


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one query. CPU is that of this process and of everything below it."""

    wall_s: float
    cpu_s: float
    result: Any


def _spent(query: Callable[[], Any]) -> Spent:
    cpu, began = _tree_cpu_s(), time.perf_counter()
    result = query()
    return Spent(time.perf_counter() - began, _tree_cpu_s() - cpu, result)


def _best(query: Callable[[], Any], rounds: int = 3) -> Spent:
    """The round with the least CPU."""
    return min((_spent(query) for _ in range(rounds)), key=lambda s: s.cpu_s)


def _tree_cpu_s() -> float:
    """Of this process and everything below it, also what has ended."""
    found: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICKS_S)
    mine, ours = {os.getpid()}, -1
    while ours != len(mine):
        ours = len(mine)
        mine |= {pid for pid, (parent, _) in found.items() if parent in mine}
    # the stack is no part of the reader
    gateway = {pid for pid in mine if b"cursorkeeper-gateway" in _command(pid)}
    return sum(found[pid][1] for pid in mine - gateway if pid in found)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _load(
    spark: SparkSession, given: Mapping[str, str], table: str, source: str = "cursorkeeper"
) -> Any:
    more = {
        "table": table,
        "topic": NAME.topic,
        "splitBytes": str(SPLIT_BYTES),
        "tasks": str(TASKS),
    }
    return spark.read.format(source).options(**given, **more).load()


def _sums(frame: Any) -> tuple[int, int]:
    """Rows and entries, so that every row is looked at."""
    row = frame.selectExpr("count(*) AS n", "sum(last_entry - first_entry + 1) AS e").collect()[0]
    return row["n"], row["e"]


def _in_pieces(spark: SparkSession, given: Mapping[str, str], table: str) -> Any:
    """The same cursor, dealt out to the tasks piece by piece: two passes."""
    chosen = Tables(spark, **given)
    return chosen.table(
        table, of=chosen.table("cursors", topic=NAME.topic), split_bytes=SPLIT_BYTES, tasks=TASKS
    )


def _large(spark: SparkSession, given: Mapping[str, str]) -> list[Row]:
    entries, wanted, found = CURSOR.ledgers * CURSOR.entries_each, _holes(CURSOR), []
    for way, load in (
        (f"read by one task of {SLOTS} slots", _load),
        (f"in pieces, by {TASKS} tasks of {SLOTS} slots", _in_pieces),
    ):
        holes = _best(lambda load=load: _sums(load(spark, given, "holes")), 2)
        stats = _best(lambda load=load: load(spark, given, "hole_stats").collect(), 2)
        counted = sum(row["hole_entries"] for row in stats.result)
        if not holes.result[1] == counted == wanted:
            raise RuntimeError(
                f"holes says {holes.result[1]:,} and hole_stats {counted:,} entries, {wanted:,} "
                f"were not acked"
            )
        rows = holes.result[0]
        case = f"one cursor, {entries / 1e9:g} G entries, {rows / 1e6:.1f} M rows, {way}"
        of_count = "counting the rows"
        found += [
            Row(
                "pipeline",
                case,
                "holes",
                rows / holes.wall_s / 1e6,
                "M rows/s",
                rows / holes.wall_s / 5e6,
                "the aim",
                "5",
            ),
            Row(
                "pipeline",
                case,
                "holes",
                entries / holes.wall_s / 1e9,
                "G entries/s",
                entries / holes.wall_s / 5e8,
                "the aim",
                "0.5",
            ),
            Row("pipeline", case, "holes, CPU", holes.cpu_s / rows * 1e6, "us/row"),
            Row(
                "pipeline",
                case,
                "hole_stats",
                entries / stats.wall_s / 1e9,
                "G entries/s",
                entries / stats.wall_s / 1e9,
                "the aim",
                "1",
            ),
            Row(
                "pipeline",
                case,
                "hole_stats, CPU",
                stats.cpu_s,
                "s",
                stats.cpu_s / holes.cpu_s,
                of_count,
            ),
        ]
    return found


class Tuples(DataSource):
    """The same rows as `cursorkeeper` gives, as Python tuples."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> Any:
        from cursorkeeper_pipeline.source.tables import schema_of

        return schema_of(self.options)

    def reader(self, schema: Any) -> DataSourceReader:
        return TupleReader(self.options, schema)


class TupleReader(DataSourceReader):
    def __init__(self, given: Mapping[str, str], schema: Any) -> None:
        from cursorkeeper_pipeline.source.reader import CursorKeeperReader

        self._reader = CursorKeeperReader(given, schema)

    def partitions(self) -> Any:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._reader.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _against_tuples(spark: SparkSession, given: Mapping[str, str]) -> list[Row]:
    arrow = _best(lambda: _sums(_load(spark, given, "holes")))
    tuples = _spent(lambda: _sums(_load(spark, given, "holes", "tuples")))
    if arrow.result != tuples.result:
        raise RuntimeError(f"{arrow.result} with Arrow, {tuples.result} with tuples")
    rows = arrow.result[0]
    case = f"the same {rows / 1e6:.1f} M rows"
    return [
        Row(
            "pipeline",
            case,
            "Arrow, CPU",
            arrow.cpu_s / rows * 1e6,
            "us/row",
            arrow.cpu_s / tuples.cpu_s,
            "tuples",
            "0.2",
        ),
        Row("pipeline", case, "tuples, CPU", tuples.cpu_s / rows * 1e6, "us/row"),
    ]


if __name__ == "__main__":
    _read_one(json.loads(sys.argv[1]), int(sys.argv[2]))
