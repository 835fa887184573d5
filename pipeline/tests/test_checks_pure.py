"""What the audit says of one cursor, without a system: kinds and places of findings, when it looks
again, what it holds in memory.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from cursorkeeper.bookkeeper.port import LedgerSpec, LedgerStore
from cursorkeeper.connections import footer_store
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import (
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    Previous,
    SnapshotBase,
    Stats,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.inspection.checks import FINDINGS_MAX, Report
from cursorkeeper.problems import ProblemError
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import batches
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.checks import (
    Checked,
    Checker,
    Finding,
    _has_moved,
    findings_of,
    needed_bytes,
)
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.roots import check_root
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.side_by_side import Room
from daemon.tests.cli.conftest import NO_INLINE, CliWorld
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeperServer

NAME = CursorName("persistent://t/ns/topic", "sub")
OPTIONS = Options.parse({"zookeeper": "127.0.0.1:2181", "waitS": "0.2"})
ROOT = OPTIONS.root
FOOTER = Footer(
    NAME.topic,
    NAME.subscription,
    FooterState.OPEN,
    1,
    "w",
    1,
    1,
    FIRST,
    EmptyBase(FIRST),
    (ChainLedger(5),),
)


def test_kinds_and_places() -> None:
    report = Report(NAME.display, remedy="r")
    report.found("a", 5, 7)
    report.found("b", 5)
    report.found("c")
    report.found("d")
    said = [(f.kind, f.place) for f in findings_of(report, "/path")]
    assert said == [
        ("record_damaged", "ledger 5 entry 7"),
        ("ledger_damaged", "ledger 5"),
        ("state_unreadable", "/path"),
    ]
    report.previous = "differs"
    assert findings_of(report, "/path")[-1] == Finding("snapshot_differs", "/path", "c; d", "r")
    for at in range(FINDINGS_MAX):
        report.found("more", 5, at)
    assert (
        len(findings_of(report, "/p")) == FINDINGS_MAX
        and "4 more" in findings_of(report, "/p")[-1].message
    )


def test_rows_count_a_cursor_once() -> None:
    finding = Finding("record_damaged", "ledger 5 entry 7", "m", "r")
    rows = list(Checked(NAME, "open", 3, 1, 10, 1000, True, (finding, finding)).rows())
    busy = Checked(NAME, "open", 3, unchecked="busy").rows()
    [made] = batches([*rows, *busy], schemas.CHECKS, 100)
    batch = made.to_pylist()
    assert [row["kind"] for row in batch] == [
        "checked",
        "record_damaged",
        "record_damaged",
        "unchecked",
    ]
    assert [row["records"] for row in batch] == [10, 0, 0, 0] and batch[3]["message"] == "busy"
    assert next(batches(rows, schemas.CHECKS, 100)).schema == schemas.CHECKS


def test_a_finding_counts_if_the_footer_still_leads_to_it() -> None:
    moved = replace(FOOTER, write=2, chain=(ChainLedger(6),))
    grown = replace(FOOTER, write=2, chain=(ChainLedger(5), ChainLedger(6)))

    def found(place: str) -> Checked:
        return Checked(NAME, "open", 1, findings=(Finding("k", place, "m", "r"),))

    in_ledger, in_state = found("ledger 5 entry 7"), found("/path")
    assert not _has_moved(in_ledger, FOOTER, grown) and _has_moved(in_ledger, FOOTER, moved)
    assert not _has_moved(found("ledger 5"), FOOTER, FOOTER)
    assert not _has_moved(in_state, FOOTER, FOOTER) and _has_moved(in_state, FOOTER, grown)
    damage = DamageError("x")
    assert (
        not _has_moved(in_state, damage, damage)
        and _has_moved(in_state, damage, FOOTER)
        and _has_moved(in_state, FOOTER, damage)
    )
    assert _has_moved(Checked(NAME, "open", 1, unchecked="busy"), FOOTER, FOOTER)


def test_a_cursor_needs_room_for_what_its_state_takes_unpacked() -> None:
    small = SnapshotBase(5, 0, 122, 121, 86_900, 1)
    every_second = replace(
        FOOTER, base=small, stats=Stats(200, 1_000_000_000, 500_000_000, 0, 0, 0)
    )
    assert needed_bytes(every_second) >= 2 * 125_000_000
    assert (
        needed_bytes(replace(FOOTER, previous=Previous(replace(small, length=1 << 30), ())))
        >= 1 << 31
    ), "read from it too"
    assert needed_bytes(DamageError("x")) == needed_bytes(FOOTER) == 1 << 20


async def test_large_cursors_wait_for_room_and_go_alone() -> None:
    room, used, most = Room(100), 0, 0

    async def one(size: int) -> None:
        nonlocal used, most
        async with room.taken(size):
            used += min(size, 100)
            most = max(most, used)
            for _ in range(3):
                await asyncio.sleep(0)
            used -= min(size, 100)

    async with asyncio.timeout(60):
        await asyncio.gather(*[one(size) for size in (30, 60, 1000, 30, 100, 5, 1000)])
    assert most == 100 and used == 0
    with pytest.raises(ValueError, match="inside"):
        async with room.taken(1000):
            raise ValueError("inside")
    async with asyncio.timeout(60), room.taken(100):
        pass


async def test_a_system_that_goes_away_behind_a_missing_ledger_leaves_the_cursor_unchecked() -> (
    None
):
    world = CliWorld(seed=1, limits=NO_INLINE)
    footer = await world.closed(NAME, l7=((1, 3),))
    ports = await world.ports()
    world.bookkeeper.lose_ledger(footer.chain[-1].ledger)
    reader = Reader(ports.zookeeper, OPTIONS)
    found = await reader.one(NAME)
    assert isinstance(found, Found)
    checker = Checker(ports.footers, ports.ledgers, reader, OPTIONS)
    assert [finding.kind for finding in (await checker._once(found)).findings] == ["ledger_missing"]
    # the ledger is missing; then the gateway goes away
    world.bookkeeper.faults.spare(Operation.METADATA)
    world.bookkeeper.faults.refuse(Operation.METADATA, times=1_000)
    checked = await checker._once(found)
    assert checked.findings == () and "BookKeeper" in checked.unchecked


async def test_a_root_that_is_not_there_is_not_a_clean_one() -> None:
    """Mistyped, or lost: whoever finds no cursor below it has seen nothing."""
    bookkeeper, asked = FakeBookKeeper(random.Random(2)), 0
    session, gateway = FakeZooKeeperServer(random.Random(1)).session(), bookkeeper.gateway()
    await session.start()
    await gateway.start()

    async def ledgers() -> LedgerStore:
        nonlocal asked
        asked += 1
        return gateway

    with pytest.raises(
        ProblemError, match=f"{ROOT} in ZooKeeper at 127.0.0.1:2181 does not exist"
    ) as told:
        await check_root(session, ledgers, OPTIONS)
    assert "chroot" in told.value.problem.remedy and "backup" in told.value.problem.remedy

    await session.ensure_path(ROOT)
    await check_root(session, ledgers, OPTIONS)  # before the first daemon: nothing is anybody's
    await gateway.create(LedgerSpec(3, 3, 2), {"application": APPLICATION})
    with pytest.raises(ProblemError, match="no deployment id") as told:
        await check_root(session, ledgers, OPTIONS)
    assert "backup" in told.value.problem.remedy and asked == 2

    await footer_store(session, OPTIONS.settings).deployment()
    await check_root(session, ledgers, OPTIONS)
    assert asked == 2, "an id says enough"
