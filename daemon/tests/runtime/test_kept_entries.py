"""What an opening was told by its fences is not read again; what it was not told is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core.table import State
from cursorkeeper.runtime.kept_entries import LEDGER_BYTES_MAX, KeptEntries
from daemon.tests.fakes.bookkeeper.faults import Fault
from daemon.tests.fakes.bookkeeper.ledger import Damage
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, World, acks

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


async def reopened(world: World, *entries: int) -> Source:
    made = Source(await world.keeper("second"))
    await made.open()
    assert made.machine.state is State.READY
    assert [e for e in range(200) if made.machine.acks.is_acked(DATA, e)] == sorted(entries)
    assert not made.keeper.failures
    return made


@virtual
async def test_a_small_cursor_is_opened_without_a_read() -> None:
    world = World()
    await killed_after(world, 1, 3, 5)
    world.bookkeeper.faults.chance[Operation.READ, Fault.REFUSE] = 1.0
    await reopened(world, 1, 3, 5)


@virtual
async def test_it_is_read_where_the_fence_does_not_give_the_entries() -> None:
    world = World()
    await killed_after(world, 1, 3, 5)
    world.bookkeeper.faults.fence_without_entries = 1.0
    await reopened(world, 1, 3, 5)


@virtual
async def test_it_is_read_where_it_has_many_entries() -> None:
    world = World()
    many = tuple(range(0, 200, 2))
    await killed_after(world, *many)
    await reopened(world, *many)


@virtual
async def test_a_fence_that_failed_asks_for_the_end_alone() -> None:
    world = World()
    await killed_after(world, 1, 3)
    asked = []
    world.bookkeeper.faults.lose_after(Operation.FENCE, 2)
    second = await world.keeper("second")
    fence = second.ledgers.fence

    async def heard(ledger: int, *, entries_bytes_max: int = 0) -> object:
        asked.append(entries_bytes_max)
        return await fence(ledger, entries_bytes_max=entries_bytes_max)

    second.ledgers.fence = heard  # type: ignore[assignment, method-assign]
    made = Source(second)
    await made.open()
    assert asked == [LEDGER_BYTES_MAX, 0, 0]
    assert made.machine.acks.is_acked(DATA, 1) and made.machine.acks.is_acked(DATA, 3)


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
def test_never_more_is_kept_than_there_is_room_for(calls: Calls, taken: set[int]) -> None:
    room = 20
    kept = KeptEntries(room)
    left = room
    wanted: dict[int, dict[int, tuple[bytes, ...]]] = {}
    for number, (cursor, ledger, entries) in enumerate(calls):
        if number in taken:
            got = kept.take(cursor)
            assert got == wanted.pop(cursor, {})
            left += sum(len(e) for es in got.values() for e in es)
        kept.keep(cursor, ledger, len(entries) - 1, entries)
        size = sum(map(len, entries))
        if entries and size <= left and ledger not in wanted.get(cursor, {}):
            wanted.setdefault(cursor, {})[ledger] = entries
            left -= size
        assert left >= 0
    assert {cursor: kept.take(cursor) for cursor in range(4)} == {
        cursor: wanted.get(cursor, {}) for cursor in range(4)
    }


def test_entries_that_are_not_all_of_a_ledger_are_not_kept() -> None:
    kept = KeptEntries()
    kept.keep(1, 7, 2, (b"a", b"b"))
    kept.keep(1, 8, -1, ())
    kept.keep(1, 9, 1, (b"a", b"b"))
    assert kept.take(1) == {9: (b"a", b"b")} and kept.take(1) == {}
