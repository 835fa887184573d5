"""Migration without Spark and without real systems: records on a ZooKeeper in memory, rows, whose
a footer is.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import replace
from typing import Any

import pytest
from pyroaring import BitMap

from cursorkeeper.core.footer import EmptyBase, Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey, Stamp
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import (
    Compression,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import Freshness, PulsarCursor
from cursorkeeper.problems import Problem, ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.sinks.comparison import UNTOLD, differs
from cursorkeeper_pipeline.sinks.cursor_import import is_dead, named
from cursorkeeper_pipeline.sinks.record import (
    RunDone,
    RunRecord,
    State,
    checked_id,
    folder_of,
    id_of,
)
from cursorkeeper_pipeline.sinks.tasks import each, row_of
from cursorkeeper_pipeline.transforms.migration import OUTCOMES, tasks_for
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import Meanwhile, UnknownDone, UnknownNotDone

REF = PulsarCursorRef("persistent://t/ns/a topic", "sub")
NAME = CursorName(*REF)
ABOUT = {"selection": "all cursors"}


@pytest.fixture
def server() -> FakeZooKeeperServer:
    return FakeZooKeeperServer(random.Random(1))


async def session(server: FakeZooKeeperServer) -> FakeZooKeeper:
    made = server.session()
    await made.start()
    return made


# ---- records


async def test_a_run_is_begun_continued_done_and_then_over(server: FakeZooKeeperServer) -> None:
    one, two = [RunRecord(await session(server), "/ck/imports", "r") for _ in range(2)]
    assert (await one.begin("import", ABOUT)).runs == 1
    assert (await two.begin("import", ABOUT)).runs == 2
    await one.check_open()
    kept = await one.decide(State.OPEN, {"imported": 3, "refused": 1}, 2)
    assert (kept.state, kept.counts, kept.skipped) == (State.OPEN, {"imported": 3, "refused": 1}, 2)
    assert (await two.decide(State.DONE, {"imported": 4})).state is State.DONE
    assert (await one.decide(State.ABORTED)).state is State.DONE, "what is decided stays"
    assert (await one.begin("import", ABOUT)).counts == {"imported": 4}
    with pytest.raises(RunDone, match="r is DONE: nothing more is begun"):
        await one.check_open()


async def test_an_id_is_of_one_run_only(server: FakeZooKeeperServer) -> None:
    record = RunRecord(await session(server), "/ck/imports", "r")
    await record.begin("import", ABOUT)
    with pytest.raises(ProblemError, match="refresh is '' there and 'true' now"):
        await record.begin("import", {**ABOUT, "refresh": "true"})
    with pytest.raises(ProblemError, match="it is an import"):
        await record.begin("export", ABOUT)
    await record.decide(State.ABORTED)
    with pytest.raises(ProblemError, match="was aborted"):
        await record.begin("import", ABOUT)


@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone()])
@pytest.mark.parametrize("operation", ["create", "set"])
async def test_a_lost_answer_is_read_back(
    server: FakeZooKeeperServer, operation: str, fault: UnknownDone | UnknownNotDone
) -> None:
    zookeeper = await session(server)
    record = RunRecord(zookeeper, "/ck/imports", "r")
    if operation == "set":
        await record.begin("import", ABOUT)
    zookeeper.faults.next(operation, fault)
    begun = await record.begin("import", ABOUT)
    assert begun.state is State.OPEN and begun.runs <= 3
    zookeeper.faults.next("set", fault)
    assert (await record.decide(State.DONE)).state is State.DONE


async def test_a_record_that_is_none_or_gone_is_told(server: FakeZooKeeperServer) -> None:
    zookeeper = await session(server)
    record = RunRecord(zookeeper, "/ck/imports", "r")
    for asked in (record.check_open(), record.decide(State.ABORTED)):
        with pytest.raises(ProblemError, match=r"gone|there is no run r"):
            await asked
    await zookeeper.ensure_path("/ck/imports/r")
    with pytest.raises(ProblemError, match="is not the record of a run"):
        await record.begin("import", ABOUT)


def test_ids_and_places() -> None:
    assert (
        id_of("import", {"a": "1", "b": "2"})
        == id_of("import", {"b": "2", "a": "1"})
        != id_of("import", {"a": "2", "b": "1"})
    )
    assert checked_id(id_of("export", ABOUT)).startswith("export-")
    for wrong in ("", "a/b", ".x", "x" * 65):
        with pytest.raises(ProblemError, match="cannot be the name of a run"):
            checked_id(wrong)
    assert (
        folder_of("/cursorkeeper/cursors", "import") == "/cursorkeeper/imports"
        and folder_of("/cursors", "export") == "/exports"
    )


@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone()])
async def test_what_was_noted_first_stays(
    server: FakeZooKeeperServer, fault: UnknownDone | UnknownNotDone
) -> None:
    one, two = [RunRecord(await session(server), "/ck/exports", "r") for _ in range(2)]
    await one.begin("export", ABOUT)
    assert await one.noted("pins/ab/x") is None
    assert await one.note("pins/ab/x", b"1") == await two.note("pins/ab/x", b"2") == b"1"
    assert await two.noted("pins/ab/x") == b"1"
    server.faults.next("multi", fault)
    patience = Patience(wait_s=0.2)
    assert await patience.repeat(REF, lambda: one.note("pins/cd/y", b"3")) == b"3"


async def test_nothing_is_noted_once_a_run_is_decided(server: FakeZooKeeperServer) -> None:
    """Not even by who has found it open: it is asked again with the note, in one transaction."""
    one, two = [RunRecord(await session(server), "/ck/exports", "r") for _ in range(2)]
    await one.begin("export", ABOUT)
    for n in range(40):
        await one.note(f"pins/{n % 3}/{n}", b"")

    async def decided() -> None:
        await two.decide(State.DONE)
        await two.forget("pins")

    server.faults.next("multi", Meanwhile(decided))
    with pytest.raises(RunDone):
        await one.note("pins/0/late")
    assert await one.noted("pins") is None


async def test_a_note_makes_no_record_and_no_folder_below_one_that_is_decided(
    server: FakeZooKeeperServer,
) -> None:
    for end in (State.DONE, None):
        zookeeper = await session(server)
        one = RunRecord(zookeeper, "/ck/exports", f"r-{end}")
        await one.begin("export", ABOUT)

        async def ended(
            one: RunRecord = one, end: State | None = end, zookeeper: FakeZooKeeper = zookeeper
        ) -> None:
            if end is None:
                await zookeeper.delete(one.path, (await zookeeper.get(one.path)).version)
            else:
                await one.decide(end)

        server.faults.next("multi", Meanwhile(ended))
        with pytest.raises(RunDone if end else ProblemError):
            await one.note("pins/ab/x")
        if end is None:
            assert await zookeeper.exists(one.path) is None
        else:
            assert not await zookeeper.children(one.path)


async def test_a_run_that_is_begun_again_meanwhile_is_still_open(
    server: FakeZooKeeperServer,
) -> None:
    one, two = [RunRecord(await session(server), "/ck/exports", "r") for _ in range(2)]
    await one.begin("export", ABOUT)

    async def again() -> None:
        assert (await two.begin("export", ABOUT)).runs == 2

    server.faults.next("multi", Meanwhile(again))
    assert await one.note("doubts/x", b"1") == b"1"


# ---- whose a footer is


def test_whose_maker_is_certainly_gone() -> None:
    ours = Settings.of(name="here")
    nobody = 2**22 + 1

    def footer(writer: str) -> Footer:
        at = Position(0, -1)
        return Footer("t", "s", FooterState.OPEN, 1, writer, 1, 1, at, EmptyBase(at))

    of_a_run = f"{named(ours, 'r-1').daemon.identity}/import-pulsar/ab"
    assert of_a_run == f"here+r-1/{os.getpid()}/import-pulsar/ab"
    for writer, gone in [
        (of_a_run, False),  # of this process, or of one with its number in another container
        (f"here+r-2/{nobody}/import-pulsar/ab", True),
        (f"here/{nobody}/import-pulsar/ab", True),  # the command's own
        ("here/1/import-pulsar/ab", False),
        ("here+r-1/1/import-pulsar/ab", False),
        (f"elsewhere+r-1/{nobody}/import-pulsar/ab", False),
        (f"elsewhere/{nobody}/import-pulsar/ab", False),
    ]:
        assert is_dead(footer(writer), named(ours, "r-1")) is gone, writer


# ---- what is the same

LAYOUT = (LayoutItem(7, LayoutState.CLOSED, 100), LayoutItem(9, LayoutState.OPEN, 0))
THEIRS = PositionInfo(
    Position(7, 3), {7: BitMap([10, 12])}, {PartialKey(9, 4): BitMap([1])}, {"dedup": 1}
)


CURSOR = PulsarCursor(
    REF,
    THEIRS,
    LAYOUT,
    {"a": "b"},
    Freshness(),
    THEIRS,
    ManagedCursorInfo(-1),
    0,
    Compression.NONE,
    ManagedLedgerInfo(()),
    0,
)


def ours_with(info: PositionInfo, properties: dict[str, str] | None) -> AckState:
    return to_ack_state(info, LAYOUT, stamp=Stamp(1, 0), cursor_properties=properties)


@pytest.mark.parametrize(
    ("changes", "properties", "missing", "extra", "says"),
    [
        ({}, {"a": "b"}, 0, 0, ""),
        ({"acked": {7: BitMap([10])}}, {"a": "b"}, 1, 0, "1 acked entries are missing"),
        ({"acked": {7: BitMap([10, 12, 13])}}, {"a": "b"}, 0, 1, "1 acked entries too many"),
        (
            {"batches": {PartialKey(9, 4): BitMap([2])}},
            {"a": "b"},
            0,
            0,
            "1 partial batches differ",
        ),
        ({"mark_delete": Position(7, 4)}, {"a": "b"}, 0, 1, "mark-delete is 7:3 and 7:4"),
        ({"properties": {}}, {"a": "b"}, 0, 0, "mark delete properties differ"),
        ({}, {"a": "c"}, 0, 0, "cursor properties differ"),
        ({"mark_delete": Position(11, 0)}, {"a": "b"}, 0, 0, "mark-delete is"),
    ],
)
def test_every_difference_counts(
    changes: dict[str, Any], properties: dict[str, str], missing: int, extra: int, says: str
) -> None:
    found = differs(CURSOR, ours_with(replace(THEIRS, **changes), properties))
    assert bool(found.wrong) == bool(says) and says in str(found.wrong), found
    if "mark_delete" not in changes:
        assert (found.wrong.missing, found.wrong.extra) == (missing, extra)


def test_what_no_broker_would_see_is_a_note() -> None:
    trimmed = ours_with(replace(THEIRS, acked={**THEIRS.acked, 8: BitMap([5])}), {"a": "b"})
    found = differs(CURSOR, trimmed)
    assert not found.wrong and "ledger 8, which the topic does not have" in str(found.notes)
    untold = differs(CURSOR, ours_with(THEIRS, None))
    assert not untold.wrong and untold.notes == (UNTOLD,)
    by_the_plugin = differs(
        CURSOR,
        ours_with(THEIRS, {"pulsar.created": "nonce", "pulsar.znode": "3@17"}),
    )
    assert not by_the_plugin.wrong


# ---- plans and rows


def test_tasks_have_some_seconds_of_work() -> None:
    assert [tasks_for(n) for n in (0, 1, 200, 201, 1_000_000, 10**9)] == [
        1,
        1,
        1,
        2,
        4_096,
        4_096,
    ] and tasks_for(5, 3) == 3


async def test_each_cursor_once_and_a_bounded_number_at_once() -> None:
    refs = [REF._replace(subscription=str(n % 7)) for n in range(20)]
    done: list[str] = []
    now = most = 0

    async def one(ref: PulsarCursorRef) -> Outcome:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0)
        now -= 1
        done.append(ref.subscription)
        return Outcome(str(ref), "imported", True)

    outcomes = await each(refs, one, 3)
    assert (
        [o.cursor for o in outcomes] == [str(ref) for ref in refs]
        and sorted(done) == sorted(set(done))
        and most == 3
    )


def test_rows_fit_their_schema() -> None:
    import pyarrow as pa

    numbers = {
        "epoch": 3,
        "acked": 9,
        "ranges": 2,
        "partialBatches": 0,
        "missing": 1,
        "extra": 0,
        "seconds": 0.5,
        "freshness": {},
    }
    well = Outcome(str(REF), "imported", True, "text", ("a", "b"), numbers)
    bad = Outcome(str(REF), "failed", False, problem=Problem("what", "do"))
    table = pa.Table.from_pylist([row_of(REF, well, "w"), row_of(REF, bad, "w")], schema=OUTCOMES)
    table.validate(full=True)
    assert table.column("notes").to_pylist() == ["a\nb", None] and table.column(
        "problem"
    ).to_pylist() == [None, "what"]
    assert [c.null_count for c in table.select(["cursor_key", "ok", "attempt"]).columns] == [
        0,
        0,
        0,
    ]
