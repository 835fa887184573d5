"""What an opening was told by its fences is not read again; what it was not told is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.bookkeeper.port import FencedEnd, ReadChunk
from cursorkeeper.core import events as ev
from cursorkeeper.core.table import State
from cursorkeeper.runtime.kept_entries import ENTRY_BYTES, KeptEntries
from cursorkeeper.runtime.limits import KeeperLimits
from daemon.tests.fakes.bookkeeper.faults import Fault
from daemon.tests.fakes.bookkeeper.ledger import Damage
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Recorder, Source, World, acks

DATA = 10
Calls = list[tuple[int, int, tuple[bytes, ...]]]


async def killed_after(world: World, *entries: int) -> int:
    """Its ledger, of a cursor that confirmed these acks one by one."""
    made = Source(await world.keeper("first"))
    await made.open()
    for entry in entries:
        made.ack(acks(DATA, entry))
        await made.durable()
    made.keeper.abandon()
    (ledger,) = world.bookkeeper.ledgers
    return ledger


async def reopened(world: World, *entries: int) -> list[int]:
    """The ledgers that were read, from an opening that finds these acks."""
    keeper = await world.keeper("second")
    read, reads = keeper.ledgers.read, list[int]()

    def heard(ledger: int, *arguments: Any, **more: Any) -> AsyncIterator[ReadChunk]:
        reads.append(ledger)
        return read(ledger, *arguments, **more)

    keeper.ledgers.read = heard  # type: ignore[method-assign]
    made = Source(keeper)
    await made.open()
    assert made.machine.state is State.READY
    assert [e for e in range(200) if made.machine.acks.is_acked(DATA, e)] == sorted(entries)
    assert not keeper.failures and keeper._services.kept_entries.kept_bytes == 0
    return reads


@virtual
async def test_a_small_cursor_is_opened_without_a_read() -> None:
    world = World()
    await killed_after(world, 1, 3, 5)
    world.bookkeeper.faults.chance[Operation.READ, Fault.REFUSE] = 1.0
    await reopened(world, 1, 3, 5)


@virtual
async def test_it_is_read_where_the_fence_does_not_give_the_entries() -> None:
    world = World()
    ledger = await killed_after(world, 1, 3, 5)
    world.bookkeeper.faults.fence_without_entries = 1.0
    assert (await reopened(world, 1, 3, 5)) == [ledger]


@virtual
async def test_it_is_read_where_it_has_many_entries() -> None:
    world = World()
    many = tuple(range(0, 200, 2))
    ledger = await killed_after(world, *many)
    assert (await reopened(world, *many)) == [ledger]


@virtual
async def test_after_a_fence_whose_answer_was_lost_the_next_one_gives_them() -> None:
    world = World()
    await killed_after(world, 1, 3)
    world.bookkeeper.faults.lose_after(Operation.FENCE, 2)
    assert not await reopened(world, 1, 3)


@virtual
async def test_of_an_opening_that_ends_nothing_stays() -> None:
    """A bug ends it between its fence and its turn to read."""
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=1))
    await killed_after(world, 1, 3)
    keeper = await world.keeper("second")
    fence, kept = keeper.ledgers.fence, keeper._services.kept_entries

    async def before_another(ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        keeper._lanes.openings.enter((0.0, 0), lambda _place: True)
        return await fence(ledger, entries_bytes_max=entries_bytes_max)

    keeper.ledgers.fence = before_another  # type: ignore[method-assign]
    told = Recorder()
    keeper.open(NAME, ev.Open(takeover=True), keeper.attach_id(), told)
    await until(lambda: kept.kept_bytes > 0)
    keeper.cursors[NAME].dispatch(ev.Open())
    assert told.refused is not None and kept.kept_bytes == 0


@virtual
async def test_damage_that_a_fence_gave_is_judged_as_damage_that_was_read() -> None:
    problems = []
    for chance in (0.0, 1.0):
        world = World()
        ledger = await killed_after(world, 1, 3, 5)
        world.bookkeeper.ledgers[ledger].damage[2] = Damage.FLIP
        world.bookkeeper.faults.fence_without_entries = chance
        made = Source(await world.keeper("second"))
        told = await made.open()
        assert told.refused is not None
        problems.append(told.refused)
    assert problems[0] == problems[1] and problems[0][0] == "DAMAGED"


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.lists(st.binary(max_size=9)).map(tuple)),
        max_size=12,
    ),
    st.sets(st.integers(0, 3)),
)
def test_never_more_is_kept_than_there_is_room_for(calls: Calls, dropped: set[int]) -> None:
    room = 20 + 4 * ENTRY_BYTES
    kept = KeptEntries(room)
    wanted: dict[int, dict[int, tuple[bytes, ...]]] = {}

    def size(entries: tuple[bytes, ...]) -> int:
        return sum(len(entry) + ENTRY_BYTES for entry in entries)

    for number, (cursor, ledger, entries) in enumerate(calls):
        if number in dropped:
            kept.drop(cursor)
            wanted.pop(cursor, None)
        had = sum(size(e) for ledgers in wanted.values() for e in ledgers.values())
        assert kept.kept_bytes == had <= room
        kept.keep(cursor, ledger, len(entries) - 1, entries)
        if entries and had + size(entries) <= room and ledger not in wanted.get(cursor, {}):
            wanted.setdefault(cursor, {})[ledger] = entries
        assert {c: kept.of(c) for c in range(4)} == {c: wanted.get(c, {}) for c in range(4)}


def test_entries_that_are_not_all_of_a_ledger_are_not_kept() -> None:
    kept = KeptEntries()
    kept.keep(1, 7, 2, (b"a", b"b"))
    kept.keep(1, 8, -1, ())
    kept.keep(1, 9, 1, (b"a", b"b"))
    assert kept.of(1) == {9: (b"a", b"b")}
