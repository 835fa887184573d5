"""`export` and `import` on fakes: the round trip, refusals, replacement, and outside systems that
go away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace as with_other
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cursorkeeper.connections import Ports, footer_store
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.inspection.progress import Progress, Silence
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration import exchange
from cursorkeeper.migration.cursor_maker import Imported
from cursorkeeper.migration.export_file import (
    LINES_PER_BATCH,
    RANGES_PER_BATCH,
    run_import,
    scan,
    source_of,
)
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.failure import NO, exit_code
from cursorkeeper.terminal.files import readable, write_lines
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import Node, WatchCallback
from daemon.tests.cli.conftest import NO_INLINE, CliWorld
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.support.world import NAME, Source, acks, closed, opened, partial, ranges

OTHER = CursorName("persistent://t/ns/copy", "sub")
SETTINGS = Settings.of(inline_state_max_bytes=0)


async def exported(world: CliWorld, name: CursorName, file: Path) -> bytes:
    footer, answer, at_least = await read_state(await world.ports(), name, world.bar)
    write_lines(exchange.lines_of(footer, answer.state, at_least=at_least), file, world.bar)
    return await asyncio.to_thread(file.read_bytes)


async def imported(
    world: CliWorld,
    file: Path,
    name: CursorName | None = OTHER,
    *,
    replace: bool = False,
    stall_s: float = 20.0,
    ports: Ports | None = None,
    report: Progress | None = None,
) -> Imported:
    plan = scan(file, str(file), name, world.bar)
    ports, report = ports or await world.ports("writer"), report or world.bar
    return await run_import(
        ports, SETTINGS, plan, report, replace=replace, stall_s=stall_s, rng=random.Random(3)
    )


def listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def content(data: bytes) -> list[bytes]:
    """All but what must differ: name, epoch, generation."""
    return data.splitlines()[1:]


def header(data: bytes) -> exchange.Header:
    first = next(iter(exchange.parse(data.splitlines(), "x")))
    assert isinstance(first, exchange.Header)
    return first


async def rich_cursor(world: CliWorld) -> Source:
    source = await world.source()
    source.ack(
        ranges(7, (5, 9)),
        acks(9, 4, 70_000),
        mark_delete=Position(7, 3),
        properties={"compaction": -5},
    )
    source.ack(acks(8, 0, 1), partial(8, 5, 10, {1, 3}), partial(9, 70_001, 0, {63}))
    source.seq += 1
    source.send(
        ev.SetLayout(source.attach, source.seq, 1, (closed(7, 50), closed(8, 6), opened(9)))
    )
    source.seq += 1
    source.send(ev.SetProperties(source.attach, source.seq, 1, {"ü": "x"}))
    await source.durable()
    return source


async def test_round_trip(world: CliWorld, tmp_path: Path) -> None:
    await world.close(await rich_cursor(world))
    first = await exported(world, NAME, tmp_path / "1")
    done = await imported(world, tmp_path / "1")
    assert (done.epoch, done.generation, done.replaced, done.cursor) == (1, 1, False, OTHER.display)
    second = await exported(world, OTHER, tmp_path / "2")
    assert content(first) == content(second)
    one, two = header(first), header(second)
    assert (one.mark_delete, one.layout, one.cursor_properties, one.mark_delete_properties) == (
        two.mark_delete,
        two.layout,
        two.cursor_properties,
        two.mark_delete_properties,
    )
    assert one.mark_delete == (7, 3) and not one.at_least
    footer = await world.footer(OTHER)
    assert footer.state is FooterState.CLOSED and footer.writer.split("/")[-2] == "import"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    entries=st.dictionaries(
        st.integers(5, 9), st.sets(st.integers(0, 200_000), min_size=1, max_size=40), max_size=4
    ),
    batches=st.dictionaries(
        st.tuples(st.integers(5, 9), st.integers(0, 500)),
        st.sets(st.integers(0, 29), min_size=1, max_size=9),
        max_size=6,
    ),
    mark_delete=st.tuples(st.integers(4, 7), st.integers(-1, 60)),
    with_layout=st.booleans(),
)
def test_round_trip_of_any_state(
    tmp_path_factory: pytest.TempPathFactory,
    entries: dict[int, set[int]],
    batches: dict[tuple[int, int], set[int]],
    mark_delete: tuple[int, int],
    with_layout: bool,
) -> None:
    folder = tmp_path_factory.mktemp("any")

    async def story() -> None:
        world = CliWorld(seed=1, limits=NO_INLINE)
        source = await world.source()
        columns = [acks(ledger, *sorted(found)) for ledger, found in entries.items()]
        columns += [
            partial(ledger, entry, 30, missing) for (ledger, entry), missing in batches.items()
        ]
        source.ack(*columns, mark_delete=Position(*mark_delete))
        if with_layout:
            source.seq += 1
            run = (*(closed(n, 200_001) for n in range(4, 9)), opened(9))
            source.send(ev.SetLayout(source.attach, source.seq, 1, run))
        await source.durable()
        await world.close(source)
        first = await exported(world, NAME, folder / "1")
        await imported(world, folder / "1")
        second = await exported(world, OTHER, folder / "2")
        assert content(first) == content(second)
        assert header(first).mark_delete == header(second).mark_delete

    asyncio.run(story())


async def test_many_lines_go_in_bounded_batches(world: CliWorld, tmp_path: Path) -> None:
    ledgers, each = LINES_PER_BATCH + 100, 15
    source = await world.source()
    source.ack(*(acks(ledger, *range(1, 2 * each, 2)) for ledger in range(10, 10 + ledgers)))
    await source.durable()
    await world.close(source)
    first = await exported(world, NAME, tmp_path / "1")
    parts = source_of(scan(tmp_path / "1", "1", OTHER, world.bar)).parts
    sizes = [
        sum(len(one.ranges) // 2 for one in part.ledgers if one.ranges is not None)
        for part in parts
        if part.ledgers
    ]
    assert len(sizes) == 3 and sum(sizes) == ledgers * each and max(sizes) < RANGES_PER_BATCH + each
    assert (await imported(world, tmp_path / "1")).acked == ledgers * each
    assert content(first) == content(await exported(world, OTHER, tmp_path / "2"))


async def test_an_existing_cursor_is_refused_untouched(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    before = await world.footer()
    with pytest.raises(ProblemError) as error:
        await imported(world, tmp_path / "1", name=None)
    assert (
        "exists already" in error.value.problem.message
        and "--replace" in error.value.problem.remedy
    )
    assert exit_code(error.value.problem) == NO and await world.footer() == before


async def test_replace(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    first = await exported(world, NAME, tmp_path / "1")
    source = await world.source()
    source.ack(acks(7, 8), acks(99, 1))
    await source.durable()
    done = await imported(world, tmp_path / "1", name=None, replace=True)
    assert done.replaced and done.epoch == 4 and done.generation == 2, (
        "open, takeover to delete, create: each claims"
    )
    assert content(first) == content(await exported(world, NAME, tmp_path / "2"))
    await source.told.until(lambda: source.told.ended == "deposed")


async def test_replace_of_nothing_just_creates(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    assert not (await imported(world, tmp_path / "1", replace=True)).replaced


async def test_a_tombstone_is_no_obstacle(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    source = await world.source()
    source.send(ev.Delete())
    await source.told.until(lambda: source.told.ended == "deleted")
    done = await imported(world, tmp_path / "1", name=None)
    assert (done.epoch, done.generation) == (3, 2)


class SlowAnswer(FakeZooKeeper):
    """Between its first look at a node and the answer something happens."""

    path = ""
    meanwhile: Callable[[], Awaitable[object]]

    async def get(self, path: str, *, watch: WatchCallback | None = None) -> Node:
        try:
            return await super().get(path, watch=watch)
        finally:
            if path == self.path:
                self.path = ""
                await self.meanwhile()


async def test_somebody_else_creates_it_first(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    slow = SlowAnswer(world.zookeeper, ZooKeeperSettings(), world.zookeeper.faults)
    slow.path, slow.meanwhile = OTHER.path(), lambda: world.closed(OTHER, l5=((1, 1),))
    await slow.start()
    ports = with_other(await world.ports("writer"), footers=footer_store(slow, SETTINGS))
    with pytest.raises(ProblemError, match="not the one that was looked at: closed in epoch 1"):
        await imported(world, tmp_path / "1", ports=ports)
    footer = await world.footer(OTHER)
    assert (footer.epoch, footer.state) == (1, FooterState.CLOSED), "not even claimed"


class Stalling(Silence):
    """A report: as soon as the acks are sent, bookies answer no append."""

    def __init__(self, world: CliWorld) -> None:
        self._world, self.sending = world, asyncio.Event()

    def say(self, what: str) -> None:
        if what.startswith("importing"):
            self._world.bookkeeper.stall_acks()
            self.sending.set()

    def advance(self, count: int = 1) -> None:
        pass


async def test_taken_over_while_importing(world: CliWorld, tmp_path: Path) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    report = Stalling(world)
    importing = asyncio.create_task(imported(world, tmp_path / "1", report=report))
    await report.sending.wait()
    await world.source(OTHER)
    with pytest.raises(ProblemError, match="was taken over while it was imported"):
        await importing


async def test_bookkeeper_away_is_told_and_not_waited_for_for_ever(
    world: CliWorld, tmp_path: Path
) -> None:
    await world.closed(l7=((1, 3),))
    await exported(world, NAME, tmp_path / "1")
    world.bookkeeper.bookies_up = 0
    with pytest.raises(ProblemError) as error:
        await imported(world, tmp_path / "1", stall_s=0.5)
    assert error.value.kind is Kind.AWAY and "nothing moved" in error.value.problem.message
    world.bookkeeper.bookies_up = 3
    assert (await imported(world, tmp_path / "1", replace=True)).acked == 3, (
        "and once more with --replace"
    )


async def test_export_of_an_open_cursor_says_at_least(world: CliWorld, tmp_path: Path) -> None:
    source = await rich_cursor(world)
    assert header(await exported(world, NAME, tmp_path / "1")).at_least
    source.ack(acks(7, 20))
    await source.durable()


async def test_export_of_damage_is_refused(world: CliWorld, tmp_path: Path) -> None:
    from daemon.tests.fakes.bookkeeper.fake import Damage

    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.damage(footer.chain[0].ledger, 1, Damage.FLIP)
    with pytest.raises(ProblemError, match=f"ledger {footer.chain[0].ledger} entry 1"):
        await exported(world, NAME, tmp_path / "1")
    assert listed(tmp_path) == []


def test_half_an_export_is_never_left(tmp_path: Path, world: CliWorld) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError(28, "No space left on device", "f")

    with pytest.raises(OSError, match="No space"):
        write_lines(broken(), tmp_path / "f", world.bar)
    assert listed(tmp_path) == []


def test_standard_input_is_read_twice() -> None:
    with CliRunner().isolation(b"a\nb\n"), readable(Path("-")) as path:
        assert path.read_bytes() == path.read_bytes() == b"a\nb\n"
    assert not path.exists()
