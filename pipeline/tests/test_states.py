"""The tables of states on systems in memory: cursors made by a real keeper, and everything that can
be wrong with one.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from cursorkeeper.bookkeeper.errors import GatewayRetry, Outcome
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.window import StateWindow
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.problems import Kind, ProblemError, problem_of
from cursorkeeper_pipeline.decode.columns import Batches
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.failures import telling
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source import states
from cursorkeeper_pipeline.source.away import AWAY_IN_A_ROW_MAX
from cursorkeeper_pipeline.source.cuts import Splitter, Unit
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pace import paced
from cursorkeeper_pipeline.source.plan import BUCKETS, BucketsPart
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.side_by_side import Room
from cursorkeeper_pipeline.source.state_reader import StateReader
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.units import Sized, UnitsPart, cut_units
from daemon.tests.cli.conftest import EAGER, NO_INLINE, CliWorld
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, acks, partial, ranges, small

TABLES = {
    "holes": states.Holes,
    "hole_stats": states.HoleStats,
    "batch_partials": states.BatchPartials,
}
GIVEN = {"zookeeper": "127.0.0.1:2181", "gateway": "127.0.0.1:7651", "waitS": "0.3"}


class MemorySystems:
    """What `Systems` gives a task, of a world in memory."""

    def __init__(self, world: CliWorld, options: Options | None = None) -> None:
        self._world = world
        self._rate_mib_s = options.read_rate_mib_s if options is not None else 0.0

    async def zookeeper(self) -> Any:
        return (await self._world.ports()).zookeeper

    async def ledgers(self) -> Any:
        return paced((await self._world.ports()).ledgers, self._rate_mib_s)


async def footers(world: CliWorld, options: Options) -> list[Found]:
    return [
        one
        async for batch in Reader((await world.ports()).zookeeper, options).in_buckets(BUCKETS)
        for one in batch
    ]


async def rows(world: CliWorld, table: str, **given: str) -> list[dict[str, Any]]:
    """Every row, as Spark would get them."""
    return await part_rows(world, table, BucketsPart(BUCKETS), **given)


async def part_rows(world: CliWorld, table: str, part: Part, **given: str) -> list[dict[str, Any]]:
    """Those of a part."""
    options = Options.parse({**GIVEN, "table": table, **given})
    kind, got = TABLES[table], []
    batches = Batches(kind.schema)
    systems: Any = MemorySystems(world, options)
    async for found in states._read(systems, options, part, kind().rows):
        got += list(batches.add(found.columns))
    got += list(batches.rest())
    assert all(batch.schema == kind.schema for batch in got)
    return pa.Table.from_batches(got, kind.schema).to_pylist()


async def un_acked(world: CliWorld, **given: str) -> set[tuple[int, int, int]]:
    found = await rows(world, "holes", **given)
    return {
        (row["cursor_key"], row["ledger_id"], e)
        for row in found
        for e in range(row["first_entry"], row["last_entry"] + 1)
    }


async def stats(world: CliWorld, name: CursorName = NAME, **given: str) -> dict[str, Any]:
    (row,) = [
        row
        for row in await rows(world, "hole_stats", **given)
        if row["cursor_key"] == cursor_key(name)
    ]
    return row


KEY = cursor_key(NAME)


@pytest.fixture
def world() -> CliWorld:
    return CliWorld(seed=1, limits=NO_INLINE)


SAME = {"l7": ((1, 3), (5, 9)), "l8": ((2, 2),)}


@pytest.mark.parametrize("form", ["chain", "inline", "pulsar", "pulsar inline"])
@virtual
async def test_every_form_of_a_state_gives_the_same_rows(form: str) -> None:
    world = CliWorld(seed=1, limits=Limits() if "inline" in form else NO_INLINE)
    world.state_writer = PulsarStateWriter(WholeStateSettings()) if "pulsar" in form else None
    footer = await world.closed(**SAME)
    assert bool(footer.chain) == ("inline" not in form) and footer.format == (
        "pulsar" if "pulsar" in form else "native"
    )
    assert await un_acked(world) == {(KEY, 7, 0), (KEY, 7, 4), (KEY, 8, 0), (KEY, 8, 1)}
    row = await stats(world)
    assert (
        row["status"],
        row["error"],
        row["hole_entries"],
        row["hole_runs"],
        row["longest_run"],
    ) == ("OK", None, 4, 3, 2)
    assert (
        row["span_entries"],
        row["acked_entries"],
        row["data_ledgers"],
        row["parts"],
        row["part_no"],
    ) == (13, 9, 2, 1, 0)
    assert (row["first_hole_ledger"], row["first_hole_entry"], row["stored_bytes"] > 0) == (
        7,
        0,
        True,
    )
    assert row["footer_version"] == (await (await world.ports()).zookeeper.get(NAME.path())).version


@virtual
async def test_a_snapshot_and_the_deltas_behind_it(world: CliWorld) -> None:
    await world.with_two_snapshots()
    acked = {e for at in range(0, 400, 20) for e in range(at + 1, at + 19, 2)}
    assert await un_acked(world) == {(KEY, 7, e) for e in range(max(acked)) if e not in acked}
    assert (await stats(world))["acked_entries"] == len(acked)


@virtual
async def test_mark_delete_is_where_rows_begin(world: CliWorld) -> None:
    source = await world.source()
    source.ack(ranges(7, (0, 3), (10, 12)), ranges(8, (5, 5)), mark_delete=Position(7, 6))
    await source.durable()
    await world.close(source)
    assert await un_acked(world) == {(KEY, 7, e) for e in (7, 8, 9)} | {
        (KEY, 8, e) for e in range(5)
    }
    row = await stats(world)
    assert (row["mark_delete_ledger"], row["mark_delete_entry"], row["span_entries"]) == (7, 6, 12)


@virtual
async def test_partly_acked_batches(world: CliWorld) -> None:
    source = await world.source()
    source.ack(partial(7, 3, 10, {1, 9}), partial(8, 0, 4, {0}), acks(7, 5))
    await source.durable()
    await world.close(source)
    wanted = [(KEY, 7, 3, 10, b"\x02\x02", 2), (KEY, 8, 0, 4, b"\x01", 1)]
    assert sorted(tuple(row.values()) for row in await rows(world, "batch_partials")) == wanted
    assert (KEY, 7, 3) in await un_acked(world) and (await stats(world))["partial_batches"] == 2


@virtual
async def test_an_open_cursor_is_at_least(world: CliWorld) -> None:
    source = await world.source()
    for entry in (1, 3, 5):
        source.ack(acks(7, entry))
        await source.durable()
    row = await stats(world)
    assert row["status"] == "AT_LEAST" and row["error"] is None
    found = await un_acked(world)
    assert {(KEY, 7, 0), (KEY, 7, 2)} <= found
    await world.close(source)
    assert (await stats(world))["status"] == "OK" and await un_acked(world) == {
        (KEY, 7, 0),
        (KEY, 7, 2),
        (KEY, 7, 4),
    }


# ---- what is wrong with one cursor is that cursor's row


OTHER = CursorName("persistent://t/ns/other", "sub")


async def broken(
    world: CliWorld, status: str, said: str, error: type[Exception] = DamageError
) -> None:
    """Permissive: a row of `hole_stats` and no other, and nobody else is touched. Failfast: an
    error with the cursor and a remedy.
    """
    row = await stats(world)
    assert (
        row["status"] == status
        and said in row["error"]
        and {row["hole_entries"], row["span_entries"], row["mark_delete_ledger"]} == {None}
    )
    assert {key for key, _, _ in await un_acked(world)} == {cursor_key(OTHER)} and not await rows(
        world, "batch_partials"
    )
    assert (await stats(world, OTHER))["status"] == "OK"
    for table in TABLES:
        with pytest.raises(error, match=r"persistent://t/ns/topic\|sub") as told:
            await rows(world, table, mode="failfast")
        assert said in str(told.value) and problem_of(told.value).remedy


@virtual
async def test_a_damaged_delta(world: CliWorld) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.damage(footer.chain[0].ledger, 1, Damage.FLIP)
    await broken(world, "DAMAGED", f"ledger {footer.chain[0].ledger} entry 1")


@virtual
async def test_a_damaged_footer(world: CliWorld) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    await world.closed(l7=((1, 3),))
    await world.overwrite(NAME, b"{}")
    await broken(world, "DAMAGED", "")


@virtual
async def test_a_footer_of_a_newer_release(world: CliWorld) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    await world.closed(l7=((1, 3),))
    node = await (await world.ports()).zookeeper.get(NAME.path())
    await world.overwrite(NAME, node.data.replace(b'"version":1', b'"version":99'))
    await broken(world, "TOO_NEW", "", TooNewError)


@virtual
async def test_a_lost_ledger(world: CliWorld) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.lose_ledger(footer.chain[0].ledger)
    await broken(world, "MISSING", f"ledger {footer.chain[0].ledger} does not exist", ProblemError)


@virtual
async def test_a_damaged_snapshot_is_read_from_the_one_before_it(world: CliWorld) -> None:
    footer = await world.with_two_snapshots()
    before = await un_acked(world)
    assert isinstance(footer.base, SnapshotBase)
    world.bookkeeper.damage(footer.base.ledger, footer.base.first_entry, Damage.FLIP)
    row = await stats(world)
    assert (
        row["status"] == "OK"
        and "newest snapshot is damaged" in row["error"]
        and await un_acked(world) == before
    )


@virtual
async def test_a_footer_that_moved_on_is_read_again(world: CliWorld) -> None:
    """The task has a footer whose ledger a new owner has left meanwhile and has deleted."""
    await world.closed(l7=((1, 3),))
    options = Options.parse({**GIVEN, "table": "holes"})
    (before,) = await footers(world, options)
    world.limits = Limits()
    assert not (await world.closed(l7=((5, 9),))).named_ledgers()
    assert isinstance(before.footer, Footer)
    assert not before.footer.named_ledgers() & world.bookkeeper.ledgers.keys(), (
        "its owner deleted them"
    )
    systems = MemorySystems(world)
    outcome = await StateReader(
        Reader(await systems.zookeeper(), options), await systems.ledgers(), options
    ).read(before, Unit(NAME))
    assert outcome is not None and outcome.state is not None and outcome.status == "OK"
    assert outcome.footer_version > before.stat.version and list(
        outcome.state.ledgers[7].holes
    ) == [0, 4]


@virtual
async def test_a_cursor_that_is_deleted_when_its_turn_comes_is_no_row(world: CliWorld) -> None:
    await world.closed(l7=((1, 3),))
    (found,) = await footers(world, Options.parse({**GIVEN, "table": "holes"}))
    session = (await world.ports()).zookeeper
    await session.delete(NAME.path(), (await session.get(NAME.path())).version)
    world.bookkeeper.lose_ledger(found.footer.chain[0].ledger)  # type: ignore[union-attr]
    assert [
        one async for one in states.pieces(await reader_of(world), Room(1), found, [Unit(NAME)], 1)
    ] == []


async def reader_of(world: CliWorld, **given: str) -> StateReader:
    systems, options = MemorySystems(world), Options.parse({**GIVEN, "table": "holes", **given})
    return StateReader(Reader(await systems.zookeeper(), options), await systems.ledgers(), options)


class LostEnsembles:
    """A store of which the bookies of some ledgers are gone, for good."""

    def __init__(self, ledgers: Any, lost: set[int]) -> None:
        self._ledgers, self._lost = ledgers, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledgers, name)

    async def read(self, ledger: int, *given: Any, **named: Any) -> AsyncIterator[Any]:
        if ledger in self._lost:
            raise GatewayRetry(
                "BOOKIE_UNREACHABLE", Outcome.UNKNOWN, ledger=ledger, bookkeeper_code=-8
            )
        async for chunk in self._ledgers.read(ledger, *given, **named):
            yield chunk


async def lose(world: CliWorld, monkeypatch: pytest.MonkeyPatch, lost: set[int]) -> None:
    """For every reader from now on."""
    ledgers = LostEnsembles(await MemorySystems(world).ledgers(), lost)

    async def of(_self: MemorySystems) -> Any:
        return ledgers

    monkeypatch.setattr(MemorySystems, "ledgers", of)


@virtual
async def test_a_cursor_whose_bookies_are_gone_is_a_row(
    world: CliWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    footer = await world.closed(l7=((1, 3),))
    await lose(world, monkeypatch, {footer.chain[0].ledger})
    await broken(world, "AWAY", "BOOKIE_UNREACHABLE", ProblemError)


@virtual
async def test_a_large_cursor_whose_bookies_are_gone_is_not_split_and_a_row(
    world: CliWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large(world)
    await world.closed(OTHER, l7=((1, 3),))
    base = (await world.footer()).base
    assert isinstance(base, SnapshotBase)
    await lose(world, monkeypatch, {base.ledger})
    row = await stats(world, **CUT)
    assert (row["status"], row["hole_entries"]) == ("AWAY", None) and (
        await stats(world, OTHER, **CUT)
    )["status"] == "OK"
    with pytest.raises(ProblemError, match=r"persistent://t/ns/topic\|sub: .*BOOKIE_UNREACHABLE"):
        await rows(world, "holes", mode="failfast", **CUT)


@virtual
async def test_a_system_that_is_away_ends_the_task(world: CliWorld) -> None:
    """One cursor too many for lost ledgers, one after another; cursors that are in no ledger prove
    nothing.
    """
    for at in range(AWAY_IN_A_ROW_MAX):
        await world.closed(CursorName(f"persistent://t/ns/stored-{at}", "s"), l7=((1, 3),))
    world.limits = Limits()
    for at in range(AWAY_IN_A_ROW_MAX):
        await world.closed(CursorName(f"persistent://t/ns/inline-{at}", "s"), l7=((1, 3),))
    world.bookkeeper.bookies_up = 0
    found = await rows(world, "hole_stats")
    assert Counter(row["status"] for row in found) == {
        "AWAY": AWAY_IN_A_ROW_MAX,
        "OK": AWAY_IN_A_ROW_MAX,
    }
    world.bookkeeper.bookies_up = 3
    world.limits = NO_INLINE
    await world.closed(l7=((1, 3),))
    world.bookkeeper.bookies_up = 0
    with pytest.raises(ProblemError, match="BookKeeper") as told, telling():
        await rows(world, "hole_stats")
    assert told.value.kind is Kind.AWAY and told.value.problem.remedy


@virtual
async def test_a_budget_for_reading_is_kept(world: CliWorld) -> None:
    """Also by the looks at where a large cursor may be cut, and of footers; from the first byte on,
    so that short tasks keep it too.
    """
    await large(world)
    counted, ledgers, loop = 0, await MemorySystems(world).ledgers(), asyncio.get_running_loop()
    read = type(ledgers).read

    async def counting(*given: Any, **named: Any) -> AsyncIterator[Any]:
        nonlocal counted
        async for chunk in read(*given, **named):
            counted += sum(map(len, chunk.payloads))
            yield chunk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(ledgers), "read", counting)
        await rows(world, "hole_stats", **CUT)
    assert counted > (await stats(world))["stored_bytes"], "deltas are read once for each piece"
    began_s = loop.time()
    await rows(world, "hole_stats", readRateMibS=str(counted / (1 << 20) / 0.5), **CUT)
    assert loop.time() - began_s >= 0.49
    began_s = loop.time()
    await rows(world, "hole_stats", footerRateS="2")
    assert loop.time() - began_s >= 0.49


# ---- a cursor in pieces


SMALL_SEGMENTS = small(
    EAGER,
    max_entry_bytes=17_000,
    mark_delete_properties_bytes_max=2_000,
    cursor_properties_bytes_max=1_000,
)
CUT = {"splitBytes": "600"}


async def large(world: CliWorld, *, close: bool = True, name: CursorName = NAME) -> Source:
    """A snapshot of some twenty segments in three ledgers, with deltas between and behind them, and
    partly acked batches.
    """
    world.limits = SMALL_SEGMENTS
    source = await world.source(name)
    rng = random.Random(4)
    for at in range(12):
        for ledger in (7, 8, 11):
            first = rng.randrange(400_000)
            source.ack(
                ranges(
                    ledger,
                    *((first + 500 * n, first + 500 * n + rng.randrange(400)) for n in range(40)),
                )
            )
            source.ack(partial(ledger, rng.randrange(400_000), 10, {3}))
        await source.durable()
        if at < 11:
            await no_snapshot(source)
    if close:
        await world.close(source)
    return source


async def no_snapshot(source: Source) -> None:
    async with asyncio.timeout(60):
        while source.machine.snapshots.run is not None:  # noqa: ASYNC110 - a machine tells its listener nothing of snapshots
            await asyncio.sleep(0.01)


async def units_of(world: CliWorld, **cut: str) -> tuple[Found, list[Unit]]:
    """Where the cursor is cut now."""
    options = Options.parse({**GIVEN, "table": "holes", **CUT, **cut})
    (found,) = await footers(world, options)
    splitter = Splitter(await MemorySystems(world).ledgers(), options)
    return found, await splitter.units(found)


async def windows_of(world: CliWorld, **cut: str) -> list[StateWindow]:
    _, units = await units_of(world, **cut)
    return [unit.window for unit in units]


async def run_rows(world: CliWorld, **cut: str) -> list[tuple[Any, ...]]:
    """Of `holes`, in order."""
    return sorted(tuple(row.values()) for row in await rows(world, "holes", **cut))


@pytest.mark.parametrize("split", ["600", "30000"], ids=["inside segments", "between segments"])
@pytest.mark.parametrize("close", [True, False])
@virtual
async def test_a_cursor_in_pieces_is_the_same_as_the_whole(
    world: CliWorld, close: bool, split: str
) -> None:
    """One row, every number of it, every run."""
    await large(world, close=close)
    cut = {"splitBytes": split}
    windows = await windows_of(world, **cut)
    readers = Counter(entry for window in windows for entry in window.segments)
    assert len(windows) >= 4
    assert any(2 < readers[entry] < len(windows) for entry in readers) == (split == "600"), (
        "beside the leading ones"
    )
    whole, pieces = await stats(world), await stats(world, **cut)
    differ = {key for key in whole if whole[key] != pieces[key]}
    assert differ <= {"read_at", "stored_bytes"}, {key: (whole[key], pieces[key]) for key in differ}
    assert (
        whole["hole_entries"] > 100_000
        and whole["partial_batches"] > 10
        and whole["longest_run"] > 1_000
    )
    assert await run_rows(world, **cut) == await run_rows(world)
    assert sorted(map(str, await rows(world, "batch_partials", **cut))) == sorted(
        map(str, await rows(world, "batch_partials"))
    )


@pytest.mark.parametrize("split", ["600", "30000"], ids=["inside segments", "between segments"])
@pytest.mark.parametrize("close", [True, False])
@virtual
async def test_pieces_that_nobody_joins_part_no_run(
    world: CliWorld, close: bool, split: str
) -> None:
    """As tasks of their own read them: each row is one of the whole, and sums of the pieces are the
    whole's numbers.
    """
    await large(world, close=close)
    options = Options.parse({**GIVEN, "table": "holes", "splitBytes": split})
    made = [
        one.unit async for one in cut_units(MemorySystems(world), options, [Sized(NAME, 1 << 30)])
    ]  # type: ignore[arg-type]
    assert len(made) >= 4 and [(one.number, one.parts) for one in made] == [
        (at, len(made)) for at in range(len(made))
    ]
    pieces = [UnitsPart((pickle.loads(pickle.dumps(one)),)) for one in made]
    assert [
        one for part in pieces for one in await part_rows(world, "holes", part)
    ] == await part_rows(world, "holes", BucketsPart(BUCKETS))
    whole, some = (
        await stats(world),
        [one for part in pieces for one in await part_rows(world, "hole_stats", part)],
    )
    for name in (
        "data_ledgers",
        "span_entries",
        "acked_entries",
        "hole_entries",
        "hole_runs",
        "partial_batches",
    ):
        assert sum(one[name] for one in some) == whole[name], name
    assert max(one["longest_run"] for one in some) == whole["longest_run"]
    assert (
        some[0]["first_hole_entry"] == whole["first_hole_entry"]
        and some[0]["mark_delete_entry"] == whole["mark_delete_entry"]
    )
    assert [(one["part_no"], one["parts"]) for one in some] == [
        (at, len(made)) for at in range(len(made))
    ]


@virtual
async def test_a_piece_of_what_was_reset_since_is_missing(world: CliWorld) -> None:
    await large(world)
    options = Options.parse({**GIVEN, "table": "holes", **CUT})
    unit = [
        one.unit async for one in cut_units(MemorySystems(world), options, [Sized(NAME, 1 << 30)])
    ][1]  # type: ignore[arg-type]
    source = await world.source()
    source.send(ev.Reset(source.attach, 1, source.machine.generation, Position(7, -1)))
    await source.told.until(lambda: bool(source.told.resets))
    await world.close(source)
    (row,) = await part_rows(world, "hole_stats", UnitsPart((unit,)))
    assert (row["status"], row["error"], row["hole_entries"]) == (
        "MISSING",
        "was reset while it was read",
        None,
    )


@virtual
async def test_pieces_of_a_footer_that_moved_on_are_those_of_the_new_state(world: CliWorld) -> None:
    """The task has looked; then an owner acks on, writes another snapshot and leaves the ledgers
    that the task would read.
    """
    await large(world)
    found, units = await units_of(world)
    windows = [unit.window for unit in units]
    source = await world.source()
    source.ack(ranges(7, (0, 300_000)))
    await source.durable()
    await no_snapshot(source)
    await world.close(source)
    now = await windows_of(world)
    assert now[0].snapshot != windows[0].snapshot, "another snapshot"
    assert isinstance(found.footer, Footer)
    footer = await world.footer()
    assert isinstance(footer.base, SnapshotBase)
    for ledger in found.footer.named_ledgers() - {
        footer.base.ledger,
        *(one.ledger for one in footer.chain),
    }:
        world.bookkeeper.ledgers.pop(ledger, None)
    read = states.pieces(await reader_of(world), Room(1), found, units, 1)
    columns = [one async for one in states.Holes().rows(Unit(NAME), read)]
    assert sorted(
        row for some in columns for row in zip(*(one.tolist() for one in some), strict=True)
    ) == await run_rows(world)


async def ended(world: CliWorld, footer: Footer, end: str) -> None:
    if end == "reset":
        source = await world.source()
        source.send(ev.Reset(source.attach, 1, source.machine.generation, Position(7, -1)))
        await source.told.until(lambda: bool(source.told.resets))
        await world.close(source)
        return
    session = (await world.ports()).zookeeper
    await session.delete(NAME.path(), (await session.get(NAME.path())).version)
    for ledger in footer.named_ledgers():
        world.bookkeeper.lose_ledger(ledger)


@pytest.mark.parametrize("end", ["reset", "deleted"])
@virtual
async def test_a_cursor_that_ends_between_two_pieces_is_missing(world: CliWorld, end: str) -> None:
    await large(world)
    found, units = await units_of(world)
    assert isinstance(found.footer, Footer)
    read: list[states.Outcome] = []

    async def ends_behind_the_first() -> AsyncIterator[states.Outcome]:
        reader = await reader_of(world)
        async for one in states.pieces(reader, Room(1), found, units, 1):
            read.append(one)
            yield one
            if len(read) == 1:
                await ended(world, found.footer, end)

    ((*columns,),) = [
        one async for one in states.HoleStats().rows(Unit(NAME), ends_behind_the_first())
    ]
    (_, outcome) = read
    assert (outcome.status, outcome.error) == ("MISSING", f"was {end} while it was read")
    row = {
        field.name: value for field, (value,) in zip(states.HoleStats.schema, columns, strict=True)
    }
    assert row["status"] == "MISSING" and row["hole_entries"] is None, "a part is no number"


@virtual
async def test_a_damaged_segment_sends_its_own_pieces_to_the_older_snapshot(
    world: CliWorld,
) -> None:
    await large(world)
    before = await run_rows(world)
    base = (await world.footer()).base
    assert isinstance(base, SnapshotBase)
    found, units = await units_of(world)
    windows = [unit.window for unit in units]
    damaged = max(windows[-1].segments)
    world.bookkeeper.damage(base.ledger, damaged, Damage.FLIP)
    assert (
        await run_rows(world, **CUT) == before
        and "is damaged" in (await stats(world, **CUT))["error"]
    )
    assert isinstance(found.footer, Footer)
    reader = await reader_of(world)
    errors = [one.error async for one in states.pieces(reader, Room(1), found, units, 1)]
    readers = [damaged in window.segments for window in windows]
    assert [bool(error) for error in errors] == readers and 0 < sum(readers) < len(windows) / 2


@virtual
async def test_a_snapshot_whose_end_is_damaged_is_cut_at_the_one_before_it(world: CliWorld) -> None:
    await large(world)
    before = await run_rows(world)
    footer = await world.footer()
    assert isinstance(footer.base, SnapshotBase) and isinstance(footer.previous.base, SnapshotBase)  # type: ignore[union-attr]
    world.bookkeeper.damage(footer.base.ledger, footer.base.last_entry, Damage.FLIP)
    assert await run_rows(world, **CUT) == before
    windows = await windows_of(world)
    assert {window.snapshot[0] for window in windows if window.snapshot} == {
        footer.previous.base.ledger
    }  # type: ignore[union-attr]


# ---- what is asked for


@virtual
async def test_a_selection_is_read_and_tombstones_are_not(world: CliWorld) -> None:
    await world.closed(OTHER, l7=((1, 3),))
    await world.closed(l7=((1, 3),))
    assert [row["cursor_key"] for row in await rows(world, "hole_stats", topic=OTHER.topic)] == [
        cursor_key(OTHER)
    ]
    assert await rows(world, "holes", tenant="nobody") == []
