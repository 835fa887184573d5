"""Assessed, then lived through: real ManagedCursorImpl, real ZooKeeper and bookie, `cursorkeeper
assess`, a halt, and a count.

For each case the command is run against the live cursor with its broker's own words; then the
broker's process halts, a new one opens the topic, and every entry is asked: acked before and not
acked now is what Pulsar would deliver again. The command's number must be exactly that. The table
is printed (`pytest -s`); it is the one in docs/migrate/assess.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap
from typer.testing import CliRunner

from cursorkeeper.cli.main import app
from cursorkeeper.core import bitmaps
from cursorkeeper.demo.stack import Standalone
from daemon.tests.assess.pulsar_cluster import ranges_text
from daemon.tests.interop.harness import PulsarHarness, Report

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

M = 1_000_000
ENTRIES = 50_000
CALL_MAX_S = 120.0


@dataclass(frozen=True)
class Case:
    """`parts`: the acks come in so many deletes, oldest first. Pulsar persists each, or (`lazy`)
    its rate limiter lets it persist the first alone; `flush` then starts one more write, whatever
    becomes of it.
    """

    name: str
    version: str
    entries: int
    holes: float
    reason: str
    ranges_max: int = 10_000
    long_array: bool = True
    parts: tuple[float, ...] = (1.0,)
    lazy: bool = False
    flush: bool = False

    def __str__(self) -> str:
        return f"{self.version} {self.entries // M}M {self.name}"

    @property
    def conf(self) -> dict[str, str]:
        """As a broker.conf would say it."""
        return {
            "managedLedgerMaxUnackedRangesToPersist": str(self.ranges_max),
            "managedLedgerPersistIndividualAckAsLongArray": str(self.long_array).lower(),
        }

    @property
    def config(self) -> dict[str, object]:
        """As the classes are told."""
        rate = {"markDeletesPerSecond": 0.000_01} if self.lazy else {}
        return {"maxRanges": self.ranges_max, "longArray": self.long_array, **rate}


RAISED = 100_000_000
CASES = [
    Case("defaults, all but the oldest", "4.2.4", 1 * M, 0, "entryCap"),
    Case("defaults, all but the oldest", "4.2.4", 10 * M, 0, "entryCap"),
    Case("tuned, 10 % holes", "4.2.4", 10 * M, 0.1, "", RAISED),
    Case("range list, raised, 0.1 % holes", "4.2.4", 10 * M, 0.001, "", RAISED, long_array=False),
    Case(
        "range list, raised, 10 % holes",
        "4.2.4",
        10 * M,
        0.1,
        "frame",
        RAISED,
        long_array=False,
        parts=(0.01, 0.99),
        lazy=True,
        flush=True,
    ),
    Case("defaults, range list, 10 % holes", "4.2.4", 1 * M, 0.1, "rangeCap", long_array=False),
    Case(
        "tuned, a second before the flush",
        "4.2.4",
        1 * M,
        0.1,
        "window",
        RAISED,
        parts=(0.5, 0.5),
        lazy=True,
    ),
    Case("defaults, all but the oldest", "5.0.0-M1", 1 * M, 0, "entryCap", 200_000),
    Case("defaults, all but the oldest", "5.0.0-M1", 10 * M, 0, "entryCap", 200_000),
]
MEASURED = {
    ("4.2.4", 1 * M): 950_000,
    ("4.2.4", 10 * M): 9_950_000,
    ("5.0.0-M1", 1 * M): 750_000,
    ("5.0.0-M1", 10 * M): 9_750_000,
}
"""What was measured before for all but the oldest at defaults."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("assess-stack"), bookies=1) as running:
        yield running


@pytest.fixture(scope="module")
def pulsar(
    request: pytest.FixtureRequest, stack: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarHarness]:
    folder = tmp_path_factory.mktemp(f"pulsar-{request.param}")
    with PulsarHarness(
        request.param, stack.zookeeper, folder, heap_mib=768, call_max_s=CALL_MAX_S
    ) as running:
        yield running


def to_ack(case: Case, ledgers: tuple[tuple[int, int], ...]) -> dict[int, BitMap]:
    """Everything but entry 0 and the holes."""
    rng = np.random.default_rng(25985)
    acked = {}
    for at, (ledger, count) in enumerate(ledgers):
        un_acked = np.flatnonzero(rng.random(count) < case.holes).astype(np.uint32)
        acked[ledger] = bitmaps.span(0 if at else 1, count - 1) - bitmaps.from_sorted(un_acked)
    return acked


def settled(report: Report, layout: dict[int, int]) -> dict[int, BitMap]:
    """Which entries will not be delivered again."""
    md = report.mark_delete
    found = {}
    for ledger, count in layout.items():
        acked = report.acked.get(ledger, BitMap()).copy()
        if ledger <= md.ledger:
            acked |= bitmaps.span(0, count - 1 if ledger < md.ledger else md.entry)
        found[ledger] = acked
    return found


class Topic:
    """One case's topic in a live broker."""

    def __init__(self, pulsar: PulsarHarness, case: Case, number: int) -> None:
        self.pulsar, self.case, self.name = pulsar, case, f"persistent://assess/ns/case-{number}"
        self.managed = f"assess/ns/persistent/case-{number}"
        sizes = [ENTRIES] * (case.entries // ENTRIES)
        self.ledgers = pulsar.fabricate(self.managed, sizes)
        pulsar.open_ledger(self.managed, **case.config)
        pulsar.open_cursor(self.managed, "sub")

    def ack(self) -> None:
        """In parts. A write that fits nowhere is not waited for: Pulsar repeats it without end."""
        acked = to_ack(self.case, self.ledgers)
        start = 0
        for share in self.case.parts:
            end = start + round(share * len(self.ledgers))
            part = {ledger: acked[ledger] for ledger, _ in self.ledgers[start:end]}
            self.pulsar.delete(self.managed, "sub", part)
            start = end
        if self.case.flush:
            self.pulsar.flush(self.managed, "sub")

    def report(self) -> Report:
        return self.pulsar.report(self.managed, "sub")

    def internal_stats(self, report: Report) -> dict[str, Any]:
        """As the broker's REST would answer: the cursor's own text, or with many ranges the same
        text of its range set.
        """
        said = self.pulsar.internals(self.managed, "sub")
        text = ranges_text(report.ranges)
        assert said.individually_deleted in ("", text)
        layout = self.pulsar.layout(self.managed).ledgers
        return {
            "ledgers": [{"ledgerId": ledger, "entries": entries} for ledger, entries in layout],
            "currentLedgerEntries": layout[-1][1],
            "cursors": {
                "sub": {
                    "markDeletePosition": str(said.mark_delete),
                    "individuallyDeletedMessages": text,
                    "cursorLedger": said.cursor_ledger,
                    "state": said.state,
                }
            },
        }

    def crash(self) -> None:
        self.pulsar.halt()
        self.pulsar.start()
        self.pulsar.open_ledger(self.managed, **self.case.config)


def assess(
    stack: Standalone, topic: Topic, report: Report, folder: Path, *more: str
) -> tuple[int, dict[str, Any]]:
    """The command, as it is called: exit code and the cursor's row."""
    conf, stats = folder / "broker.conf", folder / "stats.json"
    conf.write_text("".join(f"{key}={value}\n" for key, value in topic.case.conf.items()))
    stats.write_text(json.dumps(topic.internal_stats(report)))
    where = [
        "--pulsar-zookeeper",
        stack.zookeeper,
        "--gateway",
        stack.gateway,
        "--broker-conf",
        str(conf),
    ]
    done = CliRunner().invoke(
        app,
        [
            "assess",
            topic.name,
            "sub",
            *where,
            "--pulsar-version",
            topic.case.version,
            "--internal-stats",
            str(stats),
            "--json",
            *more,
        ],
    )
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout.splitlines()[0])


def told_by_zookeeper_alone(stack: Standalone, topic: Topic) -> dict[str, Any]:
    """The same question without the broker's word."""
    where = [
        "--pulsar-zookeeper",
        stack.zookeeper,
        "--gateway",
        stack.gateway,
        "--pulsar-version",
        topic.case.version,
    ]
    done = CliRunner().invoke(app, ["assess", topic.name, *where, "--json"])
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert done.exit_code == 1, done.output
    return row


@pytest.mark.parametrize(
    ("pulsar", "case"),
    [(case.version, case) for case in CASES],
    indirect=["pulsar"],
    ids=[str(c) for c in CASES],
)
def test_the_number_is_what_comes_back(
    stack: Standalone, pulsar: PulsarHarness, case: Case, tmp_path: Path
) -> None:
    begin = time.monotonic()
    topic = Topic(pulsar, case, CASES.index(case))
    topic.ack()
    before = topic.report()
    layout = dict(before.layout.ledgers)
    code, row = assess(
        stack, topic, before, tmp_path, "--compare", "--html", str(tmp_path / "page.html")
    )
    assert "error" not in row, row
    flush = row["nextFlush"]
    if case.parts == (1.0,):
        said = pulsar.internals(topic.managed, "sub")
        assert said.ledger_write_bytes == said.ledger_writes * flush["bytes"] > 0, (
            "what Pulsar wrote, to the byte"
        )
    if case.reason == "entryCap":
        without = told_by_zookeeper_alone(stack, topic)
        assert (without["redelivered"], without["exact"], without["beyondCap"]) == (
            0,
            False,
            row["redelivered"],
        )
    topic.crash()
    after = settled(topic.report(), layout)
    lost = sum(len(entries - after[ledger]) for ledger, entries in settled(before, layout).items())
    cells = [
        case.version,
        f"{case.entries // M} M",
        case.name,
        flush["form"],
        f"{flush['bytes']:,}",
        f"{row['redelivered']:,}",
        f"{lost:,}",
    ]
    print(
        f"\n| {' | '.join(cells)} | {row['cursorKeeper']['bytes']:,} | "
        f"{time.monotonic() - begin:.1f} s"
    )
    assert row["exact"] and row["redelivered"] == lost
    assert code == (1 if lost else 0)
    assert set(row["byReason"]) == ({case.reason} if case.reason else set())
    if "all but the oldest" in case.name:
        assert lost == MEASURED[case.version, case.entries]
    assert f"{lost:,}" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("pulsar", ["4.2.4"], indirect=True)
@pytest.mark.parametrize("holes", [0.0, 0.1])
def test_a_graceful_unload_loses_what_was_said(
    stack: Standalone, pulsar: PulsarHarness, holes: float, tmp_path: Path
) -> None:
    """Four ranges go to the znode whole; 18,000 do not, and the cap of the long array applies."""
    topic = Topic(
        pulsar, Case("unload", "4.2.4", 200_000, holes, "entryCap"), 100 + round(holes * 10)
    )
    topic.ack()
    before = topic.report()
    _, row = assess(stack, topic, before, tmp_path)
    pulsar.close_ledger(topic.managed)
    pulsar.open_ledger(topic.managed, **topic.case.config)
    layout = dict(before.layout.ledgers)
    after = settled(topic.report(), layout)
    lost = sum(len(entries - after[ledger]) for ledger, entries in settled(before, layout).items())
    assert row["gracefulUnloadRedelivers"] == lost
    assert (lost > 100_000) is (holes > 0)
