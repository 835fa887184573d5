"""The report on a real ZooKeeper with real cursors. No gateway is named."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cursorkeeper.core.footer import FooterState, Stats, Truncation
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.problems import ProblemError
from cursorkeeper_pipeline.failures import problem_of_job
from cursorkeeper_pipeline.jobs import archive, export, report
from cursorkeeper_pipeline.jobs.frame import CLEAN, FINDINGS, Reporter, read
from cursorkeeper_pipeline.source.options import Options

from .fleet_maker import add_footers, footer_of, name_of, write_footers
from .real_cursors import fleet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm
REAL = CursorName("persistent://real/ns/topic", "sub")
BIG = CursorName("persistent://big/ns/topic", "sub")


async def make(stack: Standalone, root: str) -> None:
    """One cursor by a real keeper (three times 20 single acks of 40), one as large as issue
    #25985's, and a tombstone.
    """
    async with fleet(stack, root) as running:
        await running.closed(REAL)
        big = replace(footer_of(BIG, 1), stats=Stats(100, 5_000_000, 1, 1, 0, 0))
        gone = replace(footer_of(name_of(2), 2), state=FooterState.DELETED)
        await write_footers(running.ports.zookeeper, root, [big, gone])


def test_a_fleet_its_growth_and_its_findings(
    spark: SparkSession, stack: Standalone, root: str, tmp_path: Path
) -> None:
    asyncio.run(make(stack, root))
    source = Options.parse({"zookeeper": stack.zookeeper, "root": root})
    assert source.gateway == ""  # nobody could read BookKeeper
    first = Reporter("report", str(tmp_path / "first"))
    assert report.run(spark, source, report.Arguments(), first) == CLEAN
    facts = json.loads((tmp_path / "first/report.json").read_text())
    assert facts["cursors"]["byState"] == {"open": 1, "closed": 1}
    real = next(
        r
        for r in spark.read.parquet(str(tmp_path / "first/limits")).collect()
        if r.tenant == "real"
    )
    assert (
        real.acked_entries,
        real.ranges_at_least <= 60 <= real.ranges_at_most,
        real.nearest,
    ) == (60, True, "entryCap")
    assert facts["forecast"]["worst"][0]["cursor"] == BIG.canonical
    assert facts["forecast"]["worst"][0]["redeliveredAtMost"] == 4_999_999 - 10_001
    assert "4,989,998" in (tmp_path / "first/report.html").read_text()

    new, cut = name_of(5), CursorName("persistent://cut/ns/topic", "sub")
    truncated = replace(footer_of(cut, 4), truncated=Truncation(7, 0, 0, "1 range"))
    asyncio.run(add_footers(stack, root, truncated, (new, b'{"version": 1, "no": "footer"}')))
    second = Reporter("report", str(tmp_path / "second"))
    assert (
        report.run(spark, source, report.Arguments(since=str(tmp_path / "first")), second)
        == FINDINGS
    )
    facts = json.loads((tmp_path / "second/report.json").read_text())
    assert facts["growth"]["changes"] == {"same": 2, "new": 1, "unreadable": 1}
    assert facts["cursors"]["truncatedNamed"] == [cut.canonical]
    assert [bad["status"] for bad in facts["cursors"]["unreadableNamed"]] == ["DAMAGED"]


def test_zookeeper_that_is_away_is_a_line_with_a_remedy(spark: SparkSession) -> None:
    source = Options.parse({"zookeeper": "127.0.0.1:1", "waitS": "1"})
    with pytest.raises(Exception, match="Traceback") as of_spark:
        read(spark, source, "cursors").collect()
    with pytest.raises(ProblemError) as of_job:
        report.run(spark, source, report.Arguments(), Reporter("report"))
    for raised in (of_spark, of_job):
        found = problem_of_job(raised.value)
        assert "127.0.0.1:1" in found.message and found.remedy and "Traceback" not in found.message
        assert len(found.message) < 300 and "--debug" not in found.remedy


@pytest.mark.parametrize("job", [report, archive, export])
def test_no_job_finds_a_fleet_that_is_not_there_well(
    job: Any, stack: Standalone, root: str, tmp_path: Path
) -> None:
    """It is refused before Spark is asked for anything."""
    source = Options.parse(
        {"zookeeper": f"{stack.zookeeper}/nobody", "root": root, "gateway": stack.gateway}
    )
    with pytest.raises(
        ProblemError, match=f"{root} in ZooKeeper at {stack.zookeeper}/nobody does not exist"
    ):
        job.run(None, source, job.Arguments(), Reporter(job.__name__, str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
