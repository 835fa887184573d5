"""Checks everything that is stored: every footer, every record, every snapshot against its replay,
and ledgers that nobody owns.

Every footer parses; every ledger that a footer names exists; every record's checksum holds; a
snapshot equals what the previous one and the deltas give; no ledger older than `--grace` is
garbage; no epoch is without owner. Changes nothing and disturbs no owner; of an open cursor the
newest records may be missing. Cursors are read by tasks of about equal sizes, the largest first.
Ledgers are listed before cursors are read and looked at again after, so that a fleet that changes
meanwhile gives no false alarm. A root that is not there, or has no deployment id while there are
ledgers, is a failure: nothing below it can be believed. Orphans are told, not deleted:
`cursorkeeper gc` does that.

Exit code: 0 clean, 1 findings, 2 failed, also when more than `--unchecked-max` cursors changed too
fast to be read.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cursorkeeper_pipeline.jobs.frame import (
    CLEAN,
    FAILED,
    FINDINGS,
    Reporter,
    arg,
    read,
    read_by_size,
)
from cursorkeeper_pipeline.source.options import Mode, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("checks", "ledgers", "cursors")
CURSORS_PER_TASK = 128
SHOWN_MAX = 1_000
"""Findings in the JSON report; all of them are in the Parquet."""
LINES_MAX = 50
"""How many findings are printed for people."""
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked when they are made. Raises ValueError."""

    grace: str = arg(
        "1h", "Garbage that is younger is no finding: 90s, 30m, 1h, 2d.", metavar="TIME"
    )
    settle: str = arg(
        "10s",
        "Least time between the two looks at garbage and doubts: as long as a deletion or a "
        "claim may take.",
        metavar="TIME",
    )
    unchecked_max: int = arg(
        0, "More cursors than this that changed too fast to be read are a failure.", metavar="N"
    )

    def __post_init__(self) -> None:
        seconds("grace", self.grace)
        seconds("settle", self.settle)
        if self.unchecked_max < 0:
            raise ValueError(f"unchecked-max = {self.unchecked_max}: it must not be negative")


def seconds(name: str, text: str) -> float:
    """Seconds of 90s, 30m, 1.5h, 2d; a bare number is seconds. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if found is None:
        raise ValueError(
            f"{name} = {text!r} is no time: write a number and s, m, h or d, as 90s or 1h"
        )
    return float(found[1]) * UNITS_S[found[2]]


def run(spark: SparkSession, source: Options, arguments: Arguments, out: Reporter) -> int:
    """See the module. Raises Spark's errors when a system is away."""
    from cursorkeeper_pipeline.transforms import audit

    began = datetime.now(UTC)
    before = began - timedelta(seconds=seconds("grace", arguments.grace))
    # a tombstone's ledgers have an owner too; and damage is what is looked for, not the end of the
    # job
    everything = replace(source, deleted=True, mode=Mode.PERMISSIVE)
    ledgers = read(spark, everything, "ledgers").persist()
    cursors = read(spark, everything, "cursors").persist()
    checks: DataFrame | None = None
    try:
        listed, looked_s = (
            {bool(row["ours"]): row["count"] for row in ledgers.groupBy("ours").count().collect()},
            time.monotonic(),
        )
        checks = read_by_size(everything, "checks", cursors, CURSORS_PER_TASK).persist()
        counts = audit.counts(checks).first()
        assert counts is not None
        again = looked_s + seconds("settle", arguments.settle)
        twice = _seen_twice(
            spark,
            everything,
            audit.garbage(ledgers, before),
            audit.doubtful(ledgers, before),
            again,
        )
        found = audit.damage(checks).unionByName(audit.without_footer(ledgers, checks, before))
        found = found.unionByName(audit.root_lost(ledgers, checks, source.settings.systems.root))
        if twice is not None:
            found = found.unionByName(twice)
        found = found.persist()
        try:
            out.parquet("findings", found)
            numbers = {
                **counts.asDict(),
                "ours": listed.get(True, 0),
                "others": listed.get(False, 0),
            }
            return _tell(found, audit.unchecked(checks), numbers, arguments, began, out)
        finally:
            found.unpersist()
    finally:
        for kept in (ledgers, cursors, checks):
            if kept is not None:
                kept.unpersist()


def _seen_twice(
    spark: SparkSession,
    source: Options,
    garbage: DataFrame,
    doubtful: DataFrame,
    not_before_s: float,
) -> DataFrame | None:
    """Orphans and doubts; None: there was neither at the first look."""
    from cursorkeeper_pipeline.transforms import audit

    if garbage.isEmpty() and doubtful.isEmpty():
        return None
    time.sleep(max(0.0, not_before_s - time.monotonic()))
    second = read(spark, source, "ledgers")
    return audit.orphans(garbage, second).unionByName(audit.doubts(doubtful, second))


def _tell(
    found: DataFrame,
    unchecked: DataFrame,
    counts: dict[str, Any],
    arguments: Arguments,
    began: datetime,
    out: Reporter,
) -> int:
    kinds = {
        row["kind"]: row["count"] for row in found.groupBy("kind").count().orderBy("kind").collect()
    }
    shown = [
        row.asDict() for row in found.orderBy("cursor", "kind", "place").limit(SHOWN_MAX).collect()
    ]
    busy = [row.asDict() for row in unchecked.orderBy("cursor").limit(SHOWN_MAX).collect()]
    total = sum(kinds.values())
    code = FAILED if counts["unchecked"] > arguments.unchecked_max else FINDINGS if total else CLEAN
    out.json(
        {
            "result": {CLEAN: "clean", FINDINGS: "findings", FAILED: "failed"}[code],
            "began": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - began).total_seconds(), 3),
            "grace": arguments.grace,
            "cursors": counts["cursors"],
            "liveCursors": counts["live"],
            "unchecked": counts["unchecked"],
            "ledgersOurs": counts["ours"],
            "ledgersOthers": counts["others"],
            "ledgersRead": counts["ledgers"],
            "recordsRead": counts["records"],
            "bytesRead": counts["stored_bytes"],
            "findingsTotal": total,
            "findingsByKind": kinds,
            "findings": shown,
            "uncheckedCursors": busy,
        }
    )
    for row in shown[:LINES_MAX]:
        out.say(
            f"{row['kind']}  {row['cursor'] or ''}  {row['place']}: {row['message']}. What to "
            f"do: {row['remedy']}"
        )
    if total > LINES_MAX:
        out.say(f"... and {total - LINES_MAX:,} more: --out DIR keeps all of them")
    for row in busy[:LINES_MAX]:
        out.say(f"not checked  {row['cursor']}: {row['message']}")
    if counts["others"]:
        out.say(
            f"{counts['others']:,} ledgers of this application name another deployment than this "
            f"root's, or none, and were not judged"
        )
    out.say(
        f"{counts['cursors']:,} cursors ({counts['live']:,} open: read as far as a reader may "
        f"see), {counts['records']:,} records in "
        f"{counts['ledgers']:,} ledgers, {counts['stored_bytes']:,} bytes; {total:,} findings, "
        f"{counts['unchecked']:,} cursors not checked"
    )
    return code
