"""The round trip through real systems: a cursor of Pulsar's own classes, live and then stopped,
becomes ours, is acked on, and goes back; after each step both say the same of every entry. And an
import that is killed with -9 and run again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import Digest, LedgerSpec
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import ROOT, CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey, Stamp
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import cursor_info, ledger_info, position_info
from cursorkeeper.format.pulsar.names import managed_ledger_name
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import (
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.pulsar_writer import custom_metadata
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.output import Bar
from daemon.tests.interop.harness import VERSIONS, PulsarHarness, Report
from daemon.tests.support.world import SilentTelemetry, Source, acks, partial

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "clients"), str(REPOSITORY / "daemon")]),
    "COLUMNS": "200",
}
PROGRAM = [sys.executable, "-m", "cursorkeeper.cli.main"]
ONE_BOOKIE = (
    "managedLedgerDefaultEnsembleSize=1\nmanagedLedgerDefaultWriteQuorum=1\n"
    "managedLedgerDefaultAckQuorum=1\n"
)
WIDE = ONE_BOOKIE + "managedLedgerMaxUnackedRangesToPersist=1000000\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(
        tmp_path_factory.mktemp("migration-stack"), bookies=1, arguments=["--migrator"]
    ) as running:
        yield running


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def pulsar(
    request: pytest.FixtureRequest, stack: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarHarness]:
    with PulsarHarness(
        request.param, stack.zookeeper, tmp_path_factory.mktemp(f"pulsar-{request.param}")
    ) as running:
        yield running


class Tools:
    """The commands, against one stack."""

    def __init__(self, stack: Standalone, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.config, self.conf = folder / "ours.toml", folder / "broker.conf"
        self.config.write_text("ensemble = 1\nwrite_quorum = 1\nack_quorum = 1\n")
        self.conf.write_text(WIDE)

    def command(self, name: str, *arguments: str) -> list[str]:
        where = [
            "--zookeeper",
            self.stack.zookeeper,
            "--gateway",
            self.stack.gateway,
            "--config",
            str(self.config),
        ]
        return [
            *PROGRAM,
            name,
            *where,
            "--pulsar-broker-conf",
            str(self.conf),
            "--json",
            *arguments,
        ]

    def run(self, name: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """JSON lines of a command."""
        done = subprocess.run(
            self.command(name, *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=ENVIRONMENT,
            cwd=self.folder,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def settings(self) -> Settings:
        return Settings.of(
            zookeeper=self.stack.zookeeper,
            gateway=self.stack.gateway,
            ensemble=1,
            write_quorum=1,
            ack_quorum=1,
        )

    def ours(self, name: CursorName) -> AckState:
        """What a reader of ours finds."""

        async def read() -> AckState:
            async with connections.ports(self.settings) as ports:
                _, answer, _ = await read_state(ports, name, Bar("reading"))
                return answer.state

        return asyncio.run(read())

    @asynccontextmanager
    async def keeper(self) -> Any:
        """A daemon of ours."""
        async with connections.ports(self.settings, "writer") as ports:
            keeper = Keeper(
                ports.ledgers,
                ports.zookeeper,
                SilentTelemetry(),
                limits=Limits(),
                keeper_limits=KeeperLimits(),
                policy=self.settings.ledgers.policy,
                encode=self.settings.encode,
                identity="daemon/1",
                rng=random.Random(),
                root=ROOT,
                state_writer=None,
            )
            await keeper.start()
            yield keeper
            assert await keeper.close() == []


@pytest.fixture
def tools(stack: Standalone, tmp_path: Path) -> Tools:
    return Tools(stack, tmp_path)


def from_report(report: Report) -> AckState:
    """What Pulsar's own cursor says, entry by entry, as a state of ours."""
    items = [
        LayoutItem(ledger, LayoutState.CLOSED, count)
        for ledger, count in report.layout.ledgers[:-1]
    ]
    layout = (*items, LayoutItem(report.layout.ledgers[-1][0], LayoutState.OPEN, 0))
    info = PositionInfo(
        report.mark_delete, dict(report.acked), dict(report.batches), dict(report.properties)
    )
    return to_ack_state(info, layout, stamp=Stamp(0, 0), cursor_properties=report.cursor_properties)


def populate(
    pulsar: PulsarHarness, ledger: str, cursor: str, rng: random.Random, entries: int = 350
) -> list[tuple[int, int]]:
    """A topic of several real ledgers and a cursor with holes, partial batches and properties. Its
    data ledgers.
    """
    pulsar.open_ledger(ledger, entriesPerLedger=100, maxRanges=1_000_000)
    layout = pulsar.append(ledger, entries).ledgers
    pulsar.open_cursor(
        ledger, cursor, properties={"dedup": 5}, cursor_properties={"made by": "pulsar"}
    )
    pulsar.mark_delete(ledger, cursor, (layout[0][0], 3), {"dedup": 7, "other": -1})
    ack(pulsar, ledger, cursor, rng, layout)
    batches = {
        PartialKey(layout[1][0], 7): BitMap([0, 63]),
        PartialKey(layout[2][0], 50): BitMap([64]),
    }
    pulsar.delete(ledger, cursor, batches=batches)
    return list(layout)


def ack(
    pulsar: PulsarHarness,
    ledger: str,
    cursor: str,
    rng: random.Random,
    layout: Sequence[tuple[int, int]],
    count: int = 40,
) -> None:
    kept = {layout[0][0]: {4}, layout[1][0]: {7}, layout[2][0]: {50}}
    some = {
        of: BitMap(set(rng.sample(range(min(n, 100)), min(n, count))) - kept.get(of, set()))
        for of, n in layout
        if n
    }
    pulsar.delete(ledger, cursor, {of: found for of, found in some.items() if found})


def test_there_and_back_again(pulsar: PulsarHarness, tools: Tools) -> None:
    rng = random.Random(7)
    topic, sub = f"persistent://t/ns/{pulsar.version}", "a sub/é"
    ledger, cursor = managed_ledger_name(topic), "a+sub%2F%C3%A9"
    name = CursorName(topic, sub)
    layout = populate(pulsar, ledger, cursor, rng)

    # live: read without a fence, and the broker goes on writing into the same ledger
    before = pulsar.internals(ledger, cursor)
    (line, summary) = tools.run("import-pulsar", topic, sub)
    assert line["status"] == "imported" and summary["statuses"] == {"imported": 1}
    fresh = line["freshness"]
    assert (fresh["ledger"], fresh["entry"], fresh["beyondConfirmed"]) == (
        before.cursor_ledger,
        before.cursor_ledger_last_entry,
        1,
    )
    assert fresh["ledgerState"] == "OPEN" and "live cursor ledger" in fresh["sentence"]
    assert not difference(from_report(pulsar.report(ledger, cursor)), tools.ours(name))
    ack(pulsar, ledger, cursor, rng, layout)
    after = pulsar.internals(ledger, cursor)
    assert (after.state, after.cursor_ledger, after.ledger_write_errors) == (
        before.state,
        before.cursor_ledger,
        0,
    )
    assert after.cursor_ledger_last_entry > before.cursor_ledger_last_entry

    # stopped
    report = pulsar.report(ledger, cursor)
    (refused, _) = tools.run("import-pulsar", topic, sub, code=1)
    assert refused["status"] == "refused" and "acked entries are missing" in refused["problem"]
    pulsar.close_ledger(ledger)
    (line, _) = tools.run(
        "import-pulsar", "--namespace", "t/ns", "--replace", "--resume", str(tools.folder / "j")
    )[-2:]
    assert line["status"] == "replaced"
    assert not difference(from_report(report), tools.ours(name))
    assert tools.run("import-pulsar", topic, sub)[0]["status"] == "already there"

    # acked on here
    asyncio.run(acked_on(tools, name, layout))
    mine = tools.ours(name)
    assert difference(from_report(report), mine).extra > 0

    # and back
    (refused, _) = tools.run(
        "export-pulsar", topic, sub, "--target-version", pulsar.version, code=1
    )
    assert refused["status"] == "refused" and "--replace" in refused["remedy"]
    (line, _) = tools.run(
        "export-pulsar", topic, sub, "--target-version", pulsar.version, "--replace"
    )
    assert (line["status"], line["form"]) == (
        "replaced",
        "longArray" if line["ledger"] >= 0 else "znode",
    ), line
    pulsar.open_ledger(ledger, entriesPerLedger=100, maxRanges=1_000_000)
    pulsar.open_cursor(ledger, cursor)
    back = pulsar.report(ledger, cursor)
    wrong = difference(mine, from_report(back))
    assert not wrong, wrong
    assert back.properties == {"dedup": 7, "other": -1} and back.cursor_properties == {
        "made by": "pulsar"
    }
    pulsar.delete(ledger, cursor, positions=[(layout[1][0], 7)])
    assert PartialKey(layout[1][0], 7) not in pulsar.report(ledger, cursor).batches, (
        "and Pulsar goes on with it"
    )
    refused = tools.run("export-pulsar", topic, sub, "--replace", code=1)[0]
    assert refused["status"] == "refused" and "a broker may have the topic" in refused["problem"]
    pulsar.close_ledger(ledger)


async def acked_on(tools: Tools, name: CursorName, layout: Sequence[tuple[int, int]]) -> None:
    """More acks, a batch that is completed, one more."""
    async with tools.keeper() as keeper:
        source = Source(keeper, name)
        await source.open()
        first, second, third = (of for of, _ in layout[:3])
        source.ack(
            acks(first, *range(60, 90)),
            partial(second, 7, 0, {63}),
            partial(third, 50, 0, {1}),
            partial(third, 51, 10, {3, 9}),
        )
        await source.durable()


def test_a_crashed_broker_and_a_state_that_only_the_newest_entry_holds(
    pulsar: PulsarHarness, tools: Tools
) -> None:
    topic = f"persistent://t/crash/{pulsar.version}"
    ledger = managed_ledger_name(topic)
    layout = populate(pulsar, ledger, "sub", random.Random(9))
    report = pulsar.report(ledger, "sub")
    pulsar.halt()
    try:
        assert tools.run("import-pulsar", topic)[0]["freshness"]["beyondConfirmed"] == 1
        assert not difference(from_report(report), tools.ours(CursorName(topic, "sub")))
        refused = tools.run(
            "export-pulsar", topic, "sub", "--live", "--target-version", pulsar.version, code=0
        )[0]
        assert refused["status"] == "already there"
        asyncio.run(acked_on(tools, CursorName(topic, "sub"), layout))
        refused = tools.run(
            "export-pulsar", topic, "sub", "--replace", "--target-version", pulsar.version, code=1
        )[0]
        assert "is not closed" in refused["problem"] and "--broker-is-stopped" in refused["remedy"]
        done = tools.run(
            "export-pulsar",
            topic,
            "sub",
            "--replace",
            "--broker-is-stopped",
            "--target-version",
            pulsar.version,
        )[0]
        assert done["status"] == "replaced" and any("is left" in note for note in done["notes"])
    finally:
        pulsar.restart()
    pulsar.open_ledger(ledger, entriesPerLedger=100)
    pulsar.open_cursor(ledger, "sub")
    assert not difference(
        tools.ours(CursorName(topic, "sub")), from_report(pulsar.report(ledger, "sub"))
    )
    pulsar.close_ledger(ledger)


async def written(tools: Tools, topic: str, entry: bytes, spec: LedgerSpec) -> None:
    """A topic and a cursor whose ledger has a password."""
    ref = PulsarCursorRef(topic, "sub")
    async with connections.ports(tools.settings, "migrator") as ports:
        ledger = await ports.ledgers.create(spec, custom_metadata(ref))
        await ports.ledgers.append(ledger, 0, entry)
        info = ManagedCursorInfo(ledger, Position(7, -1))
        for path, data in (
            (ref.topic_path, ledger_info.encode(ManagedLedgerInfo((LedgerInfo(7),)))),
            (ref.path, cursor_info.encode(info)),
            ("/managed-ledgers/pw/ns/persistent/bad/sub", b"?"),
        ):
            await ports.zookeeper.ensure_path(path)
            await ports.zookeeper.set(path, data, 0)


def test_a_password_a_chroot_and_a_neighbour_that_is_damaged(
    stack: Standalone, tools: Tools
) -> None:
    topic = "persistent://pw/ns/topic"
    entry = position_info.encode(PositionInfo(Position(7, 3), {7: BitMap([5])}), Form.LONG_ARRAY)
    asyncio.run(written(tools, topic, entry, LedgerSpec(1, 1, 1, Digest.MAC, b"secret")))
    elsewhere = ["--zookeeper", f"{stack.zookeeper}/ours", "--pulsar-zookeeper", stack.zookeeper]
    (refused, _) = tools.run("import-pulsar", topic, "sub", *elsewhere, code=1)
    assert refused["status"] == "failed" and "BAD_PASSWORD" in refused["problem"]
    tools.conf.write_text(WIDE + "managedLedgerPassword=secret\n")
    *dry, summary = tools.run("import-pulsar", "--tenant", "pw", "--dry-run", *elsewhere, code=1)
    assert {line["status"] for line in dry} == {"would be imported", "failed"} and summary[
        "journal"
    ] is None
    *lines, summary = tools.run("import-pulsar", "--tenant", "pw", *elsewhere, code=1)
    assert summary["statuses"] == {"imported": 1, "failed": 1}
    (bad,) = [line for line in lines if not line["ok"]]
    assert (
        bad["cursor"] == "persistent://pw/ns/bad|sub"
        and bad["remedy"]
        and "/managed-ledgers/pw/ns/persistent/bad/sub" in bad["problem"]
    )
    journal = [
        json.loads(line) for line in (tools.folder / summary["journal"]).read_text().splitlines()
    ]
    assert (
        journal[0]["journal"] == "import-pulsar"
        and [line["ok"] for line in journal[1:]].count(True) == 1
    )
    nobody = tools.run("import-pulsar", "--tenant", "nobody", code=1)[0]
    assert nobody["cursors"] == 0
    away = subprocess.run(
        tools.command("import-pulsar", "--all", "--pulsar-zookeeper", "127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=ENVIRONMENT,
        cwd=tools.folder,
    )
    assert away.returncode == 3 and "ZooKeeper at 127.0.0.1:1 does not answer" in away.stderr


async def forget(tools: Tools, refs: Sequence[PulsarCursorRef]) -> None:
    """Pulsar loses these cursors."""
    async with connections.ports(tools.settings) as ports:
        for ref in refs:
            await ports.zookeeper.delete(ref.path, (await ports.zookeeper.get(ref.path)).version)


async def ledgers_and_names(
    tools: Tools, topic: str, refs: Sequence[PulsarCursorRef]
) -> tuple[set[int], set[int]]:
    """The cursor ledgers that there are for the topic, and those that znodes name."""
    async with connections.ports(tools.settings) as ports:
        custom = {"pulsar/managed-ledger": managed_ledger_name(topic).encode()}
        found = {
            info.ledger
            async for info in ports.ledgers.list(custom)
            if "pulsar/cursor" in info.custom_metadata
        }
        nodes = [await ports.zookeeper.get(ref.path) for ref in refs]
        return found, {cursor_info.decode(node.data).cursors_ledger for node in nodes}


def killed_after(command: list[str], journal: Path, lines: int) -> None:
    """Runs it, and kills it with -9 when the journal has so many lines."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    try:
        until = time.monotonic() + 180
        while True:
            # asked first: a line that it wrote as its last is there
            ended = process.poll() is not None
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                break
            assert not ended and time.monotonic() < until
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)


def test_an_export_killed_with_9_leaves_no_ledger_behind(
    pulsar: PulsarHarness, tools: Tools
) -> None:
    rng = random.Random(5)
    topic = f"persistent://killed-export/ns/{pulsar.version}"
    refs = [PulsarCursorRef(topic, f"sub-{n:02}") for n in range(12)]
    ledger = managed_ledger_name(topic)
    layout = populate(pulsar, ledger, refs[0].subscription, rng)
    for ref in refs:
        pulsar.open_cursor(ledger, ref.subscription)
        ack(pulsar, ledger, ref.subscription, rng, layout, 30)
        pulsar.delete(
            ledger, ref.subscription, batches={PartialKey(layout[1][0], 7): BitMap([0, 63])}
        )
    reports = {ref: from_report(pulsar.report(ledger, ref.subscription)) for ref in refs}
    tools.run("import-pulsar", topic)
    pulsar.close_ledger(ledger)
    asyncio.run(forget(tools, refs))
    before, _ = asyncio.run(ledgers_and_names(tools, topic, []))

    journal = tools.folder / "journal"
    arguments = [topic, "--jobs", "3", "--resume", str(journal), "--target-version", pulsar.version]
    for lines in (3, 6, 9):  # each time somewhere else between making a ledger and naming it
        killed_after(tools.command("export-pulsar", *arguments), journal, lines)
    *_, summary = tools.run("export-pulsar", *arguments)
    assert summary["cursors"] == len(refs) and summary["statuses"].get("done before", 0) >= 1
    there, named = asyncio.run(ledgers_and_names(tools, topic, refs))
    assert there - before == named and len(named) == len(refs), (
        "every ledger that an export made is named by a znode"
    )
    pulsar.open_ledger(ledger, entriesPerLedger=100, maxRanges=1_000_000)
    for ref, wanted in reports.items():
        pulsar.open_cursor(ledger, ref.subscription)
        wrong = difference(wanted, from_report(pulsar.report(ledger, ref.subscription)))
        assert not wrong, (ref, wrong)
    pulsar.close_ledger(ledger)


def test_an_entry_as_large_as_a_bookie_takes(pulsar: PulsarHarness, tools: Tools) -> None:
    """5,237,940 bytes: more than the gateway writes, and it reads it."""
    topic = f"persistent://large/ns/{pulsar.version}"
    entries = 50_000
    ledgers = [
        ledger for ledger, _ in pulsar.fabricate(managed_ledger_name(topic), [entries] * 611)
    ]
    acked = {ledger: BitMap(range(entries)) for ledger in ledgers[:609]}
    acked[ledgers[0]].discard(0)
    info = PositionInfo(Position(ledgers[0], -1), acked, form=Form.LONG_ARRAY)
    raw = position_info.encode(info, Form.LONG_ARRAY)
    assert 5_177_344 < len(raw) < 5_242_600, len(raw)
    cursor_ledger = pulsar.write_cursor_ledger(managed_ledger_name(topic), "sub", [raw])
    asyncio.run(
        named(tools, PulsarCursorRef(topic, "sub"), cursor_ledger, Position(ledgers[0], -1))
    )
    line = tools.run("import-pulsar", topic, "sub")[0]
    assert (line["acked"], line["ranges"]) == (609 * entries - 1, 609), line
    mine = tools.ours(CursorName(topic, "sub"))
    assert mine.mark_delete == (ledgers[0], -1) and mine.hole_count == 1
    asyncio.run(forget(tools, [PulsarCursorRef(topic, "sub")]))
    export_it = [
        "export-pulsar",
        topic,
        "sub",
        "--broker-is-stopped",
        "--target-version",
        pulsar.version,
    ]
    refused = tools.run(*export_it, code=1)[0]
    assert (
        refused["status"] == "refused"
        and "counts acked entries here: 1,000,000" in refused["problem"]
    ), refused
    line = tools.run(*export_it, "--allow-loss")[0]
    assert (line["status"], line["form"]) == ("exported", "znode"), "609 ranges are few"
    pulsar.open_ledger(managed_ledger_name(topic), max_s=120)
    pulsar.open_cursor(managed_ledger_name(topic), "sub")
    assert pulsar.report(managed_ledger_name(topic), "sub", max_s=120).acked == acked
    pulsar.close_ledger(managed_ledger_name(topic))


async def named(tools: Tools, ref: PulsarCursorRef, ledger: int, snapshot: Position) -> None:
    """The znode of a cursor whose state is in a ledger."""
    async with connections.ports(tools.settings) as ports:
        await ports.zookeeper.create(
            ref.path, cursor_info.encode(ManagedCursorInfo(ledger, snapshot))
        )


@pytest.mark.parametrize("resume", [True, False])
def test_killed_with_9_and_run_again(pulsar: PulsarHarness, tools: Tools, resume: bool) -> None:
    rng = random.Random(3)
    cursors = [f"sub-{n:02}" for n in range(16)]
    topic = f"persistent://kill-{resume}/ns/{pulsar.version}"
    ledger = managed_ledger_name(topic)
    layout = populate(pulsar, ledger, cursors[0], rng)
    for cursor in cursors[1:]:
        pulsar.open_cursor(ledger, cursor)
        ack(pulsar, ledger, cursor, rng, layout, 30)
    reports = {cursor: from_report(pulsar.report(ledger, cursor)) for cursor in cursors}

    journal = tools.folder / "journal"
    command = tools.command("import-pulsar", topic, "--jobs", "2", "--resume", str(journal))
    killed_after(command, journal, 3)
    done_before = journal.read_bytes().count(b'"status"')
    assert 1 <= done_before < len(cursors), "it was killed too early or too late to say anything"

    lines = tools.run("import-pulsar", topic, *(["--resume", str(journal)] if resume else []))
    assert len(lines) == len(cursors) + 1 and all(line["ok"] for line in lines[:-1])
    statuses = lines[-1]["statuses"]
    assert statuses.get("done before" if resume else "already there", 0) >= done_before
    for cursor, wanted in reports.items():
        assert not difference(wanted, tools.ours(CursorName(topic, cursor))), cursor
    pulsar.close_ledger(ledger)
