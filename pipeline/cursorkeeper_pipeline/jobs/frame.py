"""What every job is made of: its arguments, what it reads, where its results go, and how it ends.

A job is a module `jobs/NAME.py` (the words after the last dot below are what the frame looks for)
with

- `Arguments`, a frozen dataclass; each field is made with `arg` and becomes an option of the
  command line, of the same name. A field
  `settings: Settings | None = None` is filled with the daemon's settings (for jobs that write) and
  is no option;
- `TABLES`, the tables of the source that it reads, so that a gateway is asked for only by jobs that
  need one;
- `OUT` (may be missing), the folder of its results where `--out` is not given; without it, none are
  written;
- `CONF` (may be missing), settings of Spark that it wants where nobody gave others;
- `before(source, arguments, out) -> int | None` (may be missing): what needs no Spark; an exit code
  ends the job before a session is begun;
- `run(spark, source, arguments, out) -> int`: `CLEAN`, `FINDINGS` or `FAILED`.

and a line in `JOBS`. Invariant: nothing here imports Spark, so that `--help` and `--print-submit`
start no JVM.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cursorkeeper.terminal.output import say
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLEAN, FINDINGS, FAILED = 0, 1, 2
"""Exit codes: nothing to say, something was found, the job could not do its work."""
LOCAL: Final = "local[*]"
"""Where a job runs if nobody says."""
SETTINGS_FIELD: Final = "settings"
JOBS: Final[dict[str, tuple[str, str]]] = {
    "report": (
        "cursorkeeper_pipeline.jobs.report",
        "Limits, redeliveries, growth and sizes of all cursors, from footers alone.",
    ),
    "audit": (
        "cursorkeeper_pipeline.jobs.audit",
        "Every footer, record and snapshot checked, and ledgers that nobody owns.",
    ),
    "archive": (
        "cursorkeeper_pipeline.jobs.archive",
        "Footers and hole counts kept by day and tenant, and how consumers lag.",
    ),
    "import": (
        "cursorkeeper_pipeline.jobs.import_",
        "Pulsar's own cursors become ours, each exactly once; --dry-run, --verify.",
    ),
    "export": (
        "cursorkeeper_pipeline.jobs.export",
        "Our cursors become Pulsar's own again, each exactly once; --dry-run, --verify.",
    ),
}
"""Job -> (its module, its line in the list)."""


class Job(Protocol):
    """What the module of a job has."""

    Arguments: type[Any]
    TABLES: tuple[str, ...]

    def run(self, spark: SparkSession, source: Options, arguments: Any, out: Reporter) -> int: ...


def arg(default: Any, help: str, *, metavar: str = "") -> Any:
    """A field of a job's `Arguments`. Kinds: str, int, float, bool, Path, each also `| None`."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar})


def read(spark: SparkSession, source: Options, table: str = "") -> DataFrame:
    """A table of the source; nothing is read before an action."""
    chosen = source.with_table(table) if table else source
    return spark.read.format("cursorkeeper").options(**chosen.as_text()).load()


def read_by_size(source: Options, table: str, cursors: DataFrame, per_task: int) -> DataFrame:
    """The same of these cursors alone, rows of `cursors` that are kept somewhere (they are counted
    here, and read again by the action): tasks of about equal sizes, one for each `per_task`
    cursors. Nothing of BookKeeper is read before an action.
    """
    from cursorkeeper_pipeline.by_size import read_of
    from cursorkeeper_pipeline.source.plan import tasks_for

    chosen = source.with_table(table)
    return read_of(cursors, chosen, tasks_for(cursors.count(), per_task, chosen))


@dataclass(frozen=True, slots=True)
class Reporter:
    """Where a job's results go. `folder`: a path, or a URI that Spark and pyarrow both know (hdfs,
    s3, gs); empty: nowhere.

    Invariant: with `as_json`, standard output holds JSON lines and nothing else.
    """

    job: str
    folder: str = ""
    as_json: bool = False

    def parquet(self, name: str, frame: DataFrame) -> str:
        """Writes a table, in place of one that is there; where it is, or "" without a folder."""
        if not self.folder:
            return ""
        place = f"{self._base}/{name}"
        frame.write.mode("overwrite").parquet(place)
        return place

    def text(self, name: str, content: str) -> str:
        """Writes a file; where it is, or "" without a folder. Raises OptionError where it
        cannot.
        """
        if not self.folder:
            return ""
        if "://" not in self.folder:
            file = Path(self.folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            return str(file)
        return self._far(name, content)

    def json(self, value: Mapping[str, Any], *, name: str = "") -> None:
        """The job's result, for programs: printed with --json, and written to the folder as `name`
        (default: JOB.json).
        """
        line = msgspec.json.encode(value, enc_hook=str)
        if self.as_json:
            sys.stdout.write(line.decode() + "\n")
        self.text(name or f"{self.job}.json", msgspec.json.format(line, indent=2).decode() + "\n")

    def say(self, line: str) -> None:
        """For people; not said with --json. Names come from outside, and may hold anything: what a
        terminal would obey is spelled out.
        """
        if not self.as_json:
            say(line)

    @property
    def _base(self) -> str:
        """Absolute: a session may have another working directory than this process."""
        return self.folder.rstrip("/") if "://" in self.folder else str(Path(self.folder).resolve())

    def _far(self, name: str, content: str) -> str:
        import pyarrow as pa
        from pyarrow import fs

        place = f"{self._base}/{name}"
        try:
            system, path = fs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
            with system.open_output_stream(path) as stream:
                stream.write(content.encode())
        except (OSError, pa.ArrowException) as error:
            raise OptionError(
                f"out = {self.folder}: {error}", "name a folder that this machine can write to"
            ) from None
        return place
