"""The report: its numbers from tables with known answers, its page, and a run on the real stack
with no gateway at all.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs import report
from cursorkeeper_pipeline.jobs.frame import Reporter
from cursorkeeper_pipeline.pages.report_page import page, sentences
from cursorkeeper_pipeline.source.options import Options

from .test_transforms import NOW, frame, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Options(zookeeper="127.0.0.1:1", tenant="<b>t</b>")
EVIL = "persistent://t/n/<script>alert(1)</script>|$s_{x}$"


def rows(holes: int = 1, days: float = 0) -> list[dict[str, Any]]:
    return [
        row(
            1,
            cursor=EVIL,
            data_ledgers=100,
            span_entries=5_000_000,
            hole_entries=holes,
            hole_runs=holes,
            footer_version=int(days),
            footer_modified=NOW + timedelta(days=days),
            snapshot_bytes=4_000,
            base="snapshot",
        ),
        row(
            2,
            tenant="$u_{",
            data_ledgers=2,
            span_entries=9_000,
            hole_entries=1,
            hole_runs=1,
            state="closed",
        ),
        row(3, data_ledgers=2, span_entries=30, hole_entries=3, hole_runs=3, truncated=True),
        row(4, status="DAMAGED", error="footer: not <JSON>", tenant=""),
        row(5, state="deleted"),
    ]


class Page(HTMLParser):
    """Every tag is closed, and nothing is loaded from anywhere."""

    VOID = frozenset({"meta", "br", "use", "path", "rect", "line", "circle", "image"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data"):
                assert (value or "").startswith("#"), (tag, value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.jvm
def test_the_facts_and_the_page_of_known_cursors(spark: SparkSession, tmp_path: Path) -> None:
    kept = report.Kept(spark, Reporter("report", str(tmp_path)))
    arguments = report.Arguments(since="earlier", top=3)
    facts: Any = report.facts_of(
        frame(spark, rows(31, days=2)), frame(spark, rows(1)), SOURCE, arguments, kept.keep
    )
    facts = json.loads(json.dumps(facts))

    assert facts["findings"] == 2  # one that cannot be read, one that left acks out
    assert facts["cursors"]["total"] == 5 and facts["cursors"]["byState"] == {
        "open": 2,
        "closed": 1,
        "deleted": 1,
    }
    assert facts["cursors"]["unreadableNamed"] == [
        {"cursor": "c4", "status": "DAMAGED", "error": "footer: not <JSON>"}
    ]
    assert facts["totals"]["spanEntries"] == 5_009_030
    alone = facts["forecast"]["pulsarAlone"]
    assert (alone["redeliveredAtLeast"], alone["redeliveredAtMost"], alone["atRisk"]) == (
        0,
        4_999_969 - 10_001,
        1,
    )
    assert facts["forecast"]["cursorKeeper"] == {"redelivered": 0, "unknownBecauseTruncated": 1}
    assert [one["cursor"] for one in facts["forecast"]["worst"]] == [EVIL]
    assert (facts["limits"]["over"], facts["limits"]["near"]) == (1, 1)
    assert facts["limits"]["histogram"][-1]["cursors"] == {"entryCap": 1}
    assert sum(sum(bucket["cursors"].values()) for bucket in facts["limits"]["histogram"]) == 3
    assert sum(one["cursors"] for one in facts["sizes"]["rows"]) == 3
    assert facts["sizes"]["snapshotEstimateRatio"] == pytest.approx((150 + 2_500 + 62) / 4_000)
    assert facts["growth"]["changes"] == {"moved": 1, "same": 2, "unreadable": 1}
    assert facts["growth"]["fastest"][0]["holesPerDay"] == 15.0
    assert facts["bookkeeperReads"] == 0

    text = page(facts)
    tags = Page(text).tags
    assert "svg" in tags and "script" not in tags and "b" in tags
    assert "&lt;script&gt;" in text and len(re.findall("<svg", text)) == 4
    assert "4,989,968" in text and "<b>t</b>" not in text
    assert page(facts) == text  # the same numbers make the same bytes
    assert any("1 footer could not be read" in line for line in sentences(facts))

    for name, schema in (
        ("cursors", schemas.CURSORS),
        ("forecast", schemas.FORECAST),
        ("forecast_tenants", schemas.FORECAST_TENANTS),
        ("limits", schemas.LIMITS),
        ("sizes", schemas.SIZES),
        ("growth", schemas.GROWTH),
        ("growth_tenants", schemas.GROWTH_TENANTS),
    ):
        assert spark.read.parquet(str(tmp_path / name)).columns == schema.names


@pytest.mark.jvm
def test_what_grew_is_of_all_tenants_and_not_of_those_that_are_named(spark: SparkSession) -> None:
    tenants = {1: ("a", 31), 2: ("b", 11), 3: ("c", 1)}
    old = [row(key, tenant=tenant, hole_entries=11) for key, (tenant, _) in tenants.items()]
    new = [
        row(
            key,
            tenant=tenant,
            hole_entries=holes,
            footer_version=1,
            footer_modified=NOW + timedelta(days=2),
        )
        for key, (tenant, holes) in tenants.items()
    ]
    kept = report.Kept(spark, Reporter("report"))
    arguments = report.Arguments(since="earlier", top=1)
    facts: Any = report.facts_of(frame(spark, new), frame(spark, old), SOURCE, arguments, kept.keep)
    kept.release()
    assert [one["tenant"] for one in facts["growth"]["tenants"]] == ["a"]
    assert (facts["growth"]["totals"]["holesGrown"], facts["growth"]["totals"]["holesPerDay"]) == (
        10,
        5.0,
    )
    assert "Since earlier: +10 holes, +5 per day." in sentences(facts)
    assert "Since earlier: +10 holes" in page(facts)


@pytest.mark.jvm
def test_growth_is_of_the_cursors_that_are_chosen(spark: SparkSession, tmp_path: Path) -> None:
    topics = (
        "persistent://t/n/topic",
        "persistent://t/n/topic-partition-7",
        "persistent://t/n/topic-partition-x",
        "persistent://t/m/topic",
    )
    old = [
        row(key, namespace="/".join(topic.split("/")[2:4]), topic=topic, subscription="s")
        for key, topic in enumerate(topics)
    ]
    old += [row(9, tenant="u", namespace="u/n", topic="persistent://u/n/topic", subscription="s")]
    frame(spark, old).write.parquet(str(tmp_path / "cursors"))

    def keys(**given: str) -> list[int]:
        source = Options.parse({"zookeeper": "127.0.0.1:1", **given})
        return sorted(
            one["cursor_key"] for one in report.earlier(spark, str(tmp_path), source).collect()
        )

    assert (
        keys() == [0, 1, 2, 3, 9]
        and keys(tenant="t") == [0, 1, 2, 3]
        and keys(namespace="t/n") == [0, 1, 2]
    )
    assert keys(topic=topics[0]) == [0, 1] == keys(topic=topics[0], subscription="s") and keys(
        topic=topics[1]
    ) == [1]
    assert keys(topic=topics[0], subscription="other") == []


@pytest.mark.jvm
def test_no_cursor_at_all_is_a_page_too(spark: SparkSession) -> None:
    kept = report.Kept(spark, Reporter("report"))
    facts: Any = report.facts_of(frame(spark, []), None, SOURCE, report.Arguments(), kept.keep)
    kept.release()
    assert facts["findings"] == 0 and facts["forecast"]["pulsarAlone"]["redeliveredAtMost"] == 0
    Page(page(facts))
    assert "0 cursors of 0 tenants" in page(facts)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"since": "out"}, "would be overwritten"),
        ({"since": "nowhere"}, "no report is there"),
        ({"near": 0.0}, "near must be"),
        ({"top": 0}, "top"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_read(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        report.check(report.Arguments(**given), Reporter("report", "out"))
