"""`import-pulsar` on fakes: what is made equals what was read; done twice it is the same; nothing
is harmed that is not to be.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.cli import migration
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey, Stamp
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.inspection.progress import Silence
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration.cluster import PulsarCursorRef, Selection
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.cursor_maker import Part, is_left_over, make_cursor
from cursorkeeper.migration.importer import (
    ENTRIES_PER_BATCH,
    KIND,
    PARTIALS_PER_BATCH,
    Import,
    import_all,
    source_of,
)
from cursorkeeper.migration.journal import Journal, journal_of
from cursorkeeper.migration.outcome import Outcome, Reporter
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.pulsar_systems import pulsar_settings
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings, load
from cursorkeeper.terminal.failure import AWAY, NO, exit_code
from cursorkeeper.terminal.output import Bar, show
from cursorkeeper.terminal.pulsar import selection_of
from daemon.tests.fakes.zookeeper.faults import Delay, Meanwhile, UnknownNotDone
from daemon.tests.migration.pulsar_world import REF, SUB, TOPIC, PulsarWorld, state
from daemon.tests.support.world import acks

NATIVE = Settings.of(inline_state_max_bytes=0)
PULSAR = Settings.of(format="pulsar", inline_state_max_bytes=0)


async def differs(world: PulsarWorld, ref: PulsarCursorRef = REF) -> str:
    """What ours and Pulsar's do not have in common."""
    theirs = await read_cursor(await world.pulsar(), ref)
    _, ours, _ = await read_state(await world.ports(), ref.name, world.bar)
    wanted = to_ack_state(
        theirs.state, theirs.layout, stamp=Stamp(0, 0), cursor_properties=theirs.cursor_properties
    )
    return str(difference(wanted, ours.state) or "")


async def imported(world: PulsarWorld, ref: PulsarCursorRef = REF, **options: object) -> Outcome:
    return await (await world.importing(**options)).one(ref)


@pytest.mark.parametrize("ours", [NATIVE, PULSAR], ids=["native", "pulsar"])
async def test_a_cursor_in_its_znode(world: PulsarWorld, ours: Settings) -> None:
    await world.in_znode(state(), properties={"a": "b"})
    outcome = await imported(world, settings=ours)
    assert (outcome.ok, outcome.status) == (True, "imported"), outcome
    assert await differs(world) == ""
    footer = await world.footer(REF.name)
    assert (
        footer.state is FooterState.CLOSED
        and footer.writer.split("/")[-2] == "import-pulsar"
        and footer.format == ours.state.format
    )
    numbers = outcome.numbers
    assert (numbers["markDelete"], numbers["acked"], numbers["partialBatches"]) == ([7, 3], 36, 2)
    assert (
        numbers["properties"],
        numbers["cursorProperties"],
        numbers["layoutLedgers"],
        numbers["epoch"],
    ) == (1, 1, 3, 1)
    assert numbers["ranges"] == sum(len(b - b.shift(1)) for b in state().acked.values())
    assert (
        "the znode holds the state" in outcome.text
        and f"{numbers['bytesRead']:,} bytes read" in outcome.text
    )


@pytest.mark.parametrize("ours", [NATIVE, PULSAR], ids=["native", "pulsar"])
async def test_a_live_cursor_ledger_is_not_disturbed(world: PulsarWorld, ours: Settings) -> None:
    ledger = await world.in_ledger(state((7, 0), seed=1), state((7, 3), seed=2), closed=False)
    outcome = await imported(world, settings=ours)
    assert outcome.ok, outcome
    fresh = outcome.numbers["freshness"]
    assert (fresh["ledger"], fresh["entry"], fresh["beyondConfirmed"], fresh["ledgerState"]) == (
        ledger,
        1,
        1,
        "OPEN",
    )
    assert "live cursor ledger" in outcome.text and await differs(world) == ""
    await (await world.broker()).append(ledger, 2, b"goes on")


async def test_many_entries_go_in_bounded_batches(world: PulsarWorld) -> None:
    await world.topic(TOPIC, ((7, 50_000), (9, 50_000), (12, 0)))
    acked = {
        7: BitMap(range(5, 50_000, 3)),
        9: BitMap(range(50_000)),
        12: BitMap([0, ENTRIES_PER_BATCH + 1]),
    }
    parts = {PartialKey(7, entry): BitMap([1]) for entry in range(6, 15_000, 3)}
    assert len(parts) > 2 * PARTIALS_PER_BATCH
    await world.in_ledger(state(acked=acked, batches=parts))
    assert (await imported(world)).ok and await differs(world) == ""


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    entries=st.dictionaries(
        st.sampled_from([7, 9, 12]),
        st.sets(st.integers(0, 99), min_size=1, max_size=40),
        max_size=3,
    ),
    batches=st.dictionaries(
        st.tuples(st.sampled_from([7, 9, 12]), st.integers(0, 99)),
        st.sets(st.integers(0, 200), min_size=1, max_size=9),
        max_size=6,
    ),
    mark_delete=st.tuples(st.sampled_from([3, 7, 8, 9, 12, 13]), st.integers(-1, 99)),
    native=st.booleans(),
    closed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_state(
    entries: dict[int, set[int]],
    batches: dict[tuple[int, int], set[int]],
    mark_delete: tuple[int, int],
    native: bool,
    closed: bool,
    seed: int,
) -> None:
    info = PositionInfo(
        Position(*mark_delete),
        {n: BitMap(found) for n, found in sorted(entries.items())},
        form=None,
    )
    batches = {
        at: missing for at, missing in batches.items() if at[1] not in info.acked.get(at[0], ())
    }
    info = replace(
        info, batches={PartialKey(*at): BitMap(missing) for at, missing in sorted(batches.items())}
    )

    async def story() -> None:
        world = PulsarWorld(seed=seed)
        await world.topic(TOPIC, ((7, 100), (9, 100), (12, 0)))
        await world.in_ledger(info, closed=closed)
        outcome = await imported(world, settings=NATIVE if native else PULSAR)
        assert outcome.ok, outcome
        assert await differs(world) == ""
        assert (await imported(world)).status == "already there"

    asyncio.run(story())


# ---- what is there already


async def test_done_twice_it_is_there_already(world: PulsarWorld) -> None:
    await world.in_znode(state())
    await imported(world)
    before = await world.footer(REF.name)
    for replaces in (False, True):
        outcome = await imported(world, replace=replaces)
        assert (outcome.ok, outcome.status) == (True, "already there") and await world.footer(
            REF.name
        ) == before


async def test_a_state_above_a_limit_of_pulsars_format_is_refused_at_once(
    world: PulsarWorld,
) -> None:
    await world.in_znode(
        state(acked={7: BitMap(range(5, 99, 2)), 9: BitMap([1]), 12: BitMap(range(0, 20_000, 2))})
    )
    limited = load(
        environment={},
        flags={"format": "pulsar", "managed_ledger_max_ack_state_in_bytes_to_persist": "1K"},
    )
    outcome = await imported(world, settings=limited)
    assert not outcome.ok and outcome.problem is not None and exit_code(outcome.problem) == NO
    assert "does not fit" in outcome.problem.message and "native" in outcome.problem.remedy, (
        outcome.problem
    )
    outcome = await imported(world, settings=NATIVE)
    assert (outcome.ok, outcome.status) == (True, "redone") and await differs(world) == ""


async def test_settings_that_keep_no_batch_indexes_lose_none(world: PulsarWorld) -> None:
    await world.in_znode(state())
    refused = await imported(world, settings=Settings.of(batch_index_acknowledge_enable=False))
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "2 partly acked batches" in refused.problem.message
    )
    await world.in_znode(state(batches={}))
    assert (await imported(world, settings=Settings.of(batch_index_acknowledge_enable=False))).ok


async def test_when_pulsar_has_moved_on_it_is_refused_without_replace(world: PulsarWorld) -> None:
    await world.in_znode(state())
    await imported(world)
    before = await world.footer(REF.name)
    await world.in_znode(state((7, 20)))
    refused = await imported(world)
    assert (refused.ok, refused.status) == (False, "refused") and refused.problem is not None
    assert (
        "mark-delete is 7:20 and 7:3" in refused.problem.message
        and "--replace" in refused.problem.remedy
    )
    assert await world.footer(REF.name) == before
    outcome = await imported(world, replace=True)
    assert (outcome.status, outcome.numbers["epoch"]) == ("replaced", 3) and await differs(
        world
    ) == ""


async def test_a_cursor_in_use_is_refused_without_replace(world: PulsarWorld) -> None:
    await world.in_znode(state())
    source = await world.source(REF.name)
    source.ack(acks(7, 98))
    await source.durable()
    refused = await imported(world)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "it exists and is open (epoch 1, by k/" in refused.problem.message
    )
    source.ack(acks(7, 99))
    await source.durable()
    assert (await imported(world, replace=True)).status == "replaced" and await differs(world) == ""
    await source.told.until(lambda: source.told.ended == "deposed")


async def test_a_tombstone_is_no_obstacle(world: PulsarWorld) -> None:
    await world.in_znode(state())
    await imported(world)
    await imported(world, replace=True)
    await world.in_znode(state((7, 20)))
    await _is_deleted(world)
    assert (await world.footer(REF.name)).state is FooterState.DELETED
    assert (await imported(world)).status == "imported" and await differs(world) == ""


# ---- imports that died


class Died(BaseException):
    """kill -9, as far as one process can play it."""


@dataclass(frozen=True)
class DiesAt(Silence):
    """A bar whose process is killed when it is told that this begins."""

    what: str

    def say(self, what: str, /) -> None:
        if what.startswith(self.what):
            raise Died


def then_dies(parts: Iterable[Part]) -> Iterator[Part]:
    """Killed when all acks are sent, and the layout is not."""
    yield from parts
    raise Died


async def test_a_half_import_is_made_again_without_being_told(world: PulsarWorld) -> None:
    await world.in_znode(state())
    await world.half_imported()
    outcome = await imported(world)
    assert (outcome.ok, outcome.status) == (True, "redone"), outcome
    assert await differs(world) == "", (
        "entries 11 and 12, which only the half import had acked, are not in it"
    )


@pytest.mark.parametrize("dies_in", ["creating", "importing", "closing"])
async def test_killed_anywhere_and_run_again(world: PulsarWorld, dies_in: str) -> None:
    await world.in_znode(state())
    with pytest.raises(Died):
        await imported(world, bar=DiesAt(dies_in))
    await _is_made_again(world)


async def test_killed_before_the_layout_and_run_again(world: PulsarWorld) -> None:
    await world.in_znode(state())
    source = source_of(await read_cursor(await world.pulsar(), REF))
    half = replace(source, parts=then_dies(source.parts))
    with pytest.raises(Died):
        await make_cursor(await world.ports("writer"), NATIVE, half, world.bar, kind=KIND)
    await _is_made_again(world)


async def _is_made_again(world: PulsarWorld) -> None:
    outcome = await imported(world)
    assert outcome.ok and outcome.status in ("imported", "redone") and await differs(world) == ""


async def test_who_has_claimed_it_since_is_not_an_import(world: PulsarWorld) -> None:
    await world.in_znode(state())
    await world.half_imported()
    source = await world.source(REF.name)
    source.ack(acks(7, 99))
    await source.durable()
    refused = await imported(world)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "is open" in refused.problem.message
    )


READ_BACK = 2
"""So many looks come before the one that reads back what was made."""


def quicker_after(world: PulsarWorld, looks: int, others: Callable[[], Awaitable[None]]) -> None:
    """Others are through when an import has looked at our cursor so many times, and looks again."""
    world.zookeeper.faults.next("sync", Delay(0), REF.name.path(), times=looks)
    world.zookeeper.faults.next("sync", Meanwhile(others), REF.name.path())


@pytest.mark.parametrize(
    "found", ["nothing", "a half import", "a tombstone", "an import to refresh"]
)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
async def test_what_is_decided_late_touches_nothing_that_came_since(
    world: PulsarWorld, found: str, closed: bool
) -> None:
    """An import looks and decides, then stands still while the cursor is made by another one,
    opened by a daemon, and acked in.
    """
    await world.in_znode(state())
    if found == "a half import":
        await world.half_imported()
    elif found != "nothing":
        await imported(world)
        await world.in_znode(state((7, 20)))
        if found == "a tombstone":
            await _is_deleted(world)

    async def others() -> None:
        await imported(world, refresh=True)
        source = await world.source(REF.name)
        source.ack(acks(12, 77))
        await source.durable()
        if closed:
            await world.close(source)

    quicker_after(world, 2 if found == "an import to refresh" else 1, others)
    outcome = await imported(world, refresh=True)
    assert (
        outcome.status == "refused"
        and outcome.problem is not None
        and "it was opened meanwhile" in outcome.problem.message
    ), outcome
    footer = await world.footer(REF.name)
    assert "import-pulsar" not in footer.writer and (footer.state is FooterState.CLOSED) == closed
    if closed:
        _, ours, _ = await read_state(await world.ports(), REF.name, world.bar)
        assert 77 in ours.state.acked_of(12)


@pytest.mark.parametrize("refresh", [False, True])
async def test_a_state_that_was_read_before_another_import_changes_nothing(
    world: PulsarWorld, refresh: bool
) -> None:
    """It has read Pulsar's and stands still; Pulsar moves on and another import is through before
    it looks at ours.
    """
    await world.in_znode(state())
    await imported(world)
    await world.in_znode(state((7, 20)))

    async def others() -> None:
        await world.in_znode(state((7, 60)))
        assert (await imported(world, refresh=True)).status == "refreshed"

    quicker_after(world, 1, others)
    outcome = await imported(world, refresh=refresh)
    assert outcome.status == "refused" and outcome.problem is not None, outcome
    assert "another import makes it at the same time" in outcome.problem.message
    assert await differs(world) == ""


async def test_zookeeper_that_is_away_for_a_moment_is_waited_for(world: PulsarWorld) -> None:
    await world.in_znode(state())
    importing = await world.importing(patience=Patience(wait_s=5.0))
    importing.ports.zookeeper.faults.next("sync", UnknownNotDone())  # type: ignore[attr-defined]
    assert (await importing.one(REF)).status == "imported"


async def _is_deleted(world: PulsarWorld) -> None:
    with pytest.raises(Died):
        await imported(world, replace=True, bar=DiesAt("creating"))


@pytest.mark.parametrize("opened", [False, True])
async def test_only_what_nobody_has_opened_since_is_refreshed(
    world: PulsarWorld, opened: bool
) -> None:
    await world.in_znode(state())
    await imported(world)
    if opened:
        source = await world.source(REF.name)
        await world.close(source)
    await world.in_znode(state((7, 20)))
    outcome = await imported(world, refresh=True)
    assert outcome.status == ("refused" if opened else "refreshed"), outcome
    assert (await differs(world) == "") == (not opened)


def test_what_is_a_left_over() -> None:
    def footer(writer: str, kind: FooterState = FooterState.OPEN) -> Footer:
        return Footer("t", "s", kind, 1, writer, 1, 1, Position(0, -1), EmptyBase(Position(0, -1)))

    mine = NATIVE.daemon.identity
    host, pid = mine.rsplit("/", 1)
    for writer, left in [
        (f"{mine}/import-pulsar/ab", True),
        ("elsewhere/7/import-pulsar/ab", True),
        (f"{host}/{2**22 + 1}/import-pulsar/ab", True),  # no such process
        (f"{host}/1/import-pulsar/ab", False),  # somebody runs there
        (f"{mine}/import/ab", False),
        (f"{mine}/ab", False),
        (f"x/import-pulsar/{pid}/ab", False),  # a daemon with a strange name
        ("import-pulsar/ab", False),
    ]:
        assert is_left_over(footer(writer), "import-pulsar", NATIVE) is left, writer
    assert not is_left_over(
        footer(f"{mine}/import-pulsar/ab", FooterState.CLOSED), "import-pulsar", NATIVE
    )


async def test_what_was_made_is_read_back_before_it_counts(world: PulsarWorld) -> None:
    await world.in_znode(state())
    quicker_after(world, READ_BACK, world.loses_acks)
    outcome = await imported(world)
    assert not outcome.ok and outcome.problem is not None
    assert "36 acked entries are missing, 2 partial batches differ" in outcome.problem.message


# ---- runs over many cursors


async def run(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str], selection: Selection, **options: object
) -> tuple[int, str]:
    """Exit code and output of a run."""
    importing: Import = await world.importing(**options)
    reporter = Reporter(Bar("test", 0), importing.journal, partial(show, as_json=False))
    await import_all(importing, selection, reporter, jobs=3)
    code = migration.ended(reporter, selection, 0.0)
    return code, capsys.readouterr().out


async def cluster(world: PulsarWorld, count: int = 6) -> list[PulsarCursorRef]:
    refs = [PulsarCursorRef(f"persistent://t/ns/topic-{n}", SUB) for n in range(count)]
    for n, ref in enumerate(refs):
        if n % 2:
            await world.in_znode(state(seed=n), ref)
        else:
            await world.in_ledger(state(seed=n), ref=ref, closed=n % 4 == 0)
    return refs


async def test_a_malformed_znode_harms_no_neighbour(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = await cluster(world)
    await world.put(refs[2].path, b"\x47\x78\x00\x00\x00\x04\x08\x01\x10\x2c????")
    code, out = await run(world, capsys, Selection.everything())
    assert code == NO and f"failed  {refs[2]}: {refs[2].path}:" in out and "What to do:" in out
    assert "6 cursor(s): 5 imported, 1 failed" in out
    for ref in refs:
        if ref != refs[2]:
            assert await differs(world, ref) == ""


async def test_a_run_with_a_journal_is_resumed(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refs = await cluster(world)
    await world.put(refs[3].path, b"?")
    journal = Journal.open(tmp_path / "j", "import-pulsar", {"root": "r"})
    code, _ = await run(world, capsys, Selection.of_tenant("t"), journal=journal)
    journal.close()
    assert code == NO
    # Pulsar has moved on: without the journal this would be refused
    await world.in_znode(state((7, 40)), refs[1])
    await world.in_znode(state(), refs[3])
    journal = Journal.open(tmp_path / "j", "import-pulsar", {"root": "r"})
    assert journal.done == {str(ref) for ref in refs if ref != refs[3]}
    code, out = await run(world, capsys, Selection.of_tenant("t"), journal=journal)
    assert code == 0 and "5 done before, 1 imported" in out, out
    journal.close()


async def test_a_journal_does_not_outweigh_what_is_there(
    world: PulsarWorld, tmp_path: Path
) -> None:
    await world.in_znode(state())
    journal = Journal.open(tmp_path / "j", "import-pulsar", {})
    journal.finished(str(REF), "imported", ok=True)
    assert (await imported(world, journal=journal)).status == "imported", (
        "the journal is of a cursor that is gone"
    )
    assert (await imported(world, journal=journal)).status == "done before"


async def test_a_dry_run_reads_all_and_writes_nothing(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = await cluster(world)
    code, out = await run(world, capsys, Selection.of_namespace("t/ns"), dry_run=True)
    assert code == 0 and "6 would be imported" in out and "acked entries in" in out
    assert [name async for name in (await world.ports()).footers.names()] == [] and len(refs) == 6


async def test_nothing_matches(world: PulsarWorld, capsys: pytest.CaptureFixture[str]) -> None:
    await cluster(world)
    code, out = await run(world, capsys, Selection.of_topic("persistent://t/ns/none"))
    assert code == NO and "0 cursor(s): none" in out


async def test_bookies_away_is_exit_code_3_and_later_well(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.in_ledger(state())
    world.bookkeeper.bookies_up = 0
    code, out = await run(world, capsys, Selection.everything())
    assert code == AWAY and "not damage" in out
    world.bookkeeper.bookies_up = 3
    code, _ = await run(world, capsys, Selection.everything())
    assert code == 0


async def test_skipped_paths_are_told(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster(world, 1)
    await world.put("/managed-ledgers/t/ns/non-persistent/x", b"")
    _, out = await run(world, capsys, Selection.everything())
    assert "skipped /managed-ledgers/t/ns/non-persistent" in out


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((TOPIC, SUB, None, None, False), Selection.of_topic(TOPIC, SUB)),
        ((f"{TOPIC}|{SUB}", None, None, None, False), Selection.of_topic(TOPIC, SUB)),
        ((TOPIC, None, None, None, False), Selection.of_topic(TOPIC)),
        ((f"{TOPIC}|a", SUB, None, None, False), Selection.of_topic(f"{TOPIC}|a", SUB)),
        ((f"{TOPIC}\\|a|{SUB}", None, None, None, False), Selection.of_topic(f"{TOPIC}|a", SUB)),
        ((f"{TOPIC}\\|a", None, None, None, False), Selection.of_topic(f"{TOPIC}|a")),
        ((f"{TOPIC}|a|{SUB}", None, None, None, False), None),
        ((None, None, "t", None, False), Selection.of_tenant("t")),
        ((None, None, None, "t/ns", False), Selection.of_namespace("t/ns")),
        ((None, None, None, None, True), Selection.everything()),
        ((None, None, None, None, False), None),
        ((TOPIC, None, "t", None, False), None),
        ((None, None, "t", None, True), None),
        (("topic", None, None, None, False), None),
        ((None, None, "a/b", None, False), None),
        ((None, None, None, "t", False), None),
    ],
)
def test_one_choice_of_cursors(
    given: tuple[str | None, str | None, str | None, str | None, bool], wanted: Selection | None
) -> None:
    if wanted is not None:
        assert selection_of(*given) == wanted
        return
    with pytest.raises(ProblemError):
        selection_of(*given)


def test_pulsars_addresses_and_password() -> None:
    ours = Settings.of(zookeeper="z:1/ours", password="mine")
    assert pulsar_settings(ours, {}, None).systems.zookeeper == "z:1/ours"
    assert pulsar_settings(ours, {}, "p:2").systems.zookeeper == "p:2"
    conf = {"metadataStoreUrl": "zk:q:3/chroot", "managedLedgerPassword": "theirs"}
    found = pulsar_settings(ours, conf, None)
    assert (found.systems.zookeeper, found.ledgers.password) == ("q:3/chroot", "theirs")
    assert pulsar_settings(ours, {}, None).ledgers.password == "", "Pulsar's default, not ours"


async def test_a_report_that_nobody_reads_ends_the_run_as_a_broken_pipe(
    world: PulsarWorld,
) -> None:
    """`| head`: click ends such a run with 1 and no message; a group of errors would be reported as
    a bug.
    """
    await world.topic(TOPIC)
    for n in range(9):
        await world.in_znode(state(), ref=PulsarCursorRef(TOPIC, f"s{n}"))
    importing = await world.importing()
    read, write = os.pipe()
    os.close(read)
    nobody = os.fdopen(write, "w", buffering=1)
    with redirect_stdout(nobody), pytest.raises(BrokenPipeError) as raised:
        reporter = Reporter(Bar("test", 0), None, partial(show, as_json=True))
        await import_all(importing, Selection.everything(), reporter, jobs=2)
    assert raised.value.errno == errno.EPIPE
    with suppress(BrokenPipeError):
        nobody.close()


async def test_names_on_the_screen_are_one_line(
    world: PulsarWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.topic(TOPIC)
    await world.in_znode(state(), ref=PulsarCursorRef(TOPIC, "two\nlines\x1b[31m"))
    reporter = Reporter(Bar("test", 0), None, partial(show, as_json=False))
    await import_all(await world.importing(), Selection.everything(), reporter, jobs=2)
    assert f"imported  {TOPIC}|two\\x0alines\\x1b[31m: mark-delete" in capsys.readouterr().out


def test_a_new_journal_is_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with journal_of(None, "import-pulsar", {}, migration.named) as journal:
        said = capsys.readouterr()
        assert f"--resume {journal.path}" in said.err and said.out == "" and journal.path.exists()
    with journal_of(journal.path, "import-pulsar", {}, migration.named):
        assert capsys.readouterr().err == ""


async def test_two_imports_at_the_same_time(world: PulsarWorld) -> None:
    """The other one was quicker, after this one had looked: named as that, and not with the
    remedies of other commands.
    """
    await world.in_znode(state())
    other = f"{NATIVE.daemon.identity}9/{KIND}"

    async def others() -> None:
        source = source_of(await read_cursor(await world.pulsar(), REF))
        pid = int(f"{os.getpid()}9")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.getpid", lambda: pid)
            await make_cursor(await world.ports("writer"), NATIVE, source, world.bar, kind=KIND)

    quicker_after(world, 1, others)
    outcome = await imported(world)
    assert outcome.status == "refused" and outcome.problem is not None
    assert f"another import makes it at the same time ({other}/" in outcome.problem.message
    assert "let one of the two runs finish" in outcome.problem.remedy
    assert (await imported(world)).status == "already there"


async def test_a_source_that_is_there_at_once_is_no_damage(world: PulsarWorld) -> None:
    """It opens the cursor and acks between the import's close and its reading back."""
    await world.in_znode(state())

    async def opens() -> None:
        assert (await world.footer(REF.name)).state is FooterState.CLOSED
        source = await world.source(REF.name)
        source.ack(acks(12, 77))
        await source.durable()
        await world.close(source)

    quicker_after(world, READ_BACK, opens)
    outcome = await imported(world)
    assert outcome.status == "refused" and outcome.problem is not None
    assert "opened before it was read back (epoch 2, by k" in outcome.problem.message
