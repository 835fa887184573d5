"""Stories of cursors that outlive their owners: reset, delete, create again, inline close, batch
indexes, properties, layout.

A story is an asynchronous generator. Wherever it yields, the owner is killed (SIGKILL), and
`owners.address` is another daemon's; so stories run side by side through the same kills (`live`).
They know nothing of how daemons are run: the embedded stack and the containerised suite both tell
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Protocol

import pytest
from pyroaring import BitMap

from cursorkeeper.core.footer import FooterState, InlineBase
from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    CursorState,
    LedgerAcks,
    NoSuchCursor,
    PartialBatch,
    Position,
)
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.handle import CursorHandle
from daemon.tests.end_to_end.stored import Stored, reading, stored
from daemon.tests.source.random_acks import CLOSED_LEDGERS, LAYOUT

SUB = "sub"
LEDGER = 11
"""The first of the layout, of 3,000 entries."""
SOON_S = 120.0


class Owners(Protocol):
    """Daemons, one of which has the cursors."""

    gateway: str
    zookeeper: str

    @property
    def address(self) -> str:
        """host:port of the ack stream of the present one."""
        ...

    async def next(self) -> None:
        """SIGKILL the present one; another daemon is ready, and is the present one."""
        ...


Story = AsyncIterator[None]


async def live(owners: Owners, stories: Sequence[Callable[[Owners, str], Story]]) -> None:
    """All of them to their ends, each on a topic of its own; an owner is killed when every story is
    ready for it.
    """
    async with AsyncExitStack() as stack:
        running: list[tuple[str, Story]] = []
        for story in stories:
            told = story(owners, f"persistent://life/ns/{story.__name__}")
            await stack.enter_async_context(aclosing(told))  # type: ignore[type-var]
            running.append((story.__name__, told))
        while True:
            goes_on = await asyncio.gather(
                *(_step(name, told) for name, told in running), return_exceptions=True
            )
            if problems := [found for found in goes_on if isinstance(found, Exception)]:
                raise ExceptionGroup(
                    f"{len(problems)} of {len(running)} stories went wrong", problems
                )
            running = [one for one, more in zip(running, goes_on, strict=True) if more]
            if not running:
                return
            await owners.next()


async def _step(name: str, story: Story) -> bool:
    """Whether there is more after it."""
    try:
        await anext(story)
    except StopAsyncIteration:
        return False
    except Exception as e:
        e.add_note(f"in the story {name!r}")
        raise
    return True


# --- small words of the stories ---


class Held:
    """A cursor on the present owner; only the connection is dropped at the end, the cursor stays
    open.
    """

    def __init__(
        self, owners: Owners, topic: str, *, create: bool = False, takeover: bool = True
    ) -> None:
        self._connection = SourceConnection(owners.address)
        self._topic, self._create, self._takeover = topic, create, takeover
        self.handle: CursorHandle
        self.state: CursorState

    async def __aenter__(self) -> Held:
        session = await self._connection.connect()
        self.handle = session.open(
            self._topic, SUB, layout=LAYOUT, create=self._create, takeover=self._takeover
        )
        try:
            self.state = await self.handle.opened()
        except BaseException:
            await self._connection.hang_up()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.hang_up()

    async def acks(
        self,
        *ledgers: LedgerAcks,
        mark_delete: Position | None = None,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Sent and durable."""
        await self.handle.durable(
            await self.handle.send(Acks(ledgers, mark_delete=mark_delete, properties=properties))
        )

    @property
    def acked(self) -> dict[int, set[int]]:
        """As it was recovered."""
        return {ledger: set(entries) for ledger, entries in self.state.acked.items() if entries}

    @property
    def missing(self) -> dict[tuple[int, int], set[int]]:
        """Indexes not acked of batches that are partly acked, as it was recovered."""
        return {key: set(partial.missing) for key, partial in self.state.partials.items()}


async def kept(owners: Owners, topic: str) -> Stored:
    async with reading(owners.gateway, owners.zookeeper) as ports:
        return await stored(ports, topic, SUB)


async def no_ledger_is_left(owners: Owners, topic: str) -> Stored:
    """The deletes that follow a footer's write are done."""
    async with asyncio.timeout(SOON_S):
        while (found := await kept(owners, topic)).ledgers:
            await asyncio.sleep(0.05)
    return found


# --- the stories ---


async def reset_delete_and_create_again(owners: Owners, topic: str) -> Story:
    async with Held(owners, topic, create=True) as one:
        await one.handle.durable(one.handle.set_cursor_properties({"a": "b"}))
        await one.acks(LedgerAcks(LEDGER, range(100)))
        assert await one.handle.reset(Position(LEDGER, 49)) == 2
        await one.acks(LedgerAcks(LEDGER, [60]))
    yield
    async with Held(owners, topic) as two:
        assert (two.state.mark_delete, two.state.generation, two.acked) == (
            Position(LEDGER, 49),
            2,
            {LEDGER: {60}},
        )
        assert two.state.cursor_properties == {"a": "b"}
        epoch = two.handle.epoch
        await two.handle.delete()
    assert (await no_ledger_is_left(owners, topic)).footer.state is FooterState.DELETED
    yield
    with pytest.raises(NoSuchCursor):
        async with Held(owners, topic):
            pass
    async with Held(owners, topic, create=True, takeover=False) as again:
        assert again.handle.epoch > epoch, "epochs never restart"
        assert (again.state.generation, again.acked, again.state.cursor_properties) == (3, {}, {})
        await again.acks(LedgerAcks(LEDGER, [5]))
    yield
    async with Held(owners, topic) as last:
        assert (last.state.mark_delete, last.acked) == (Position(LEDGER, -1), {LEDGER: {5}})


async def a_small_cursor_closes_into_its_footer(owners: Owners, topic: str) -> Story:
    async with Held(owners, topic, create=True) as one:
        await one.acks(
            LedgerAcks(LEDGER, [3, 5, 7], partials=[PartialBatch(9, 4, BitMap([1]))]),
            properties={"n": 1},
        )
        assert (found := await kept(owners, topic)).is_exact and len(found.ledgers) == 1
        await one.handle.close()
    closed = await no_ledger_is_left(owners, topic)
    assert (closed.footer.state, closed.footer.chain) == (FooterState.CLOSED, ()) and isinstance(
        closed.footer.base, InlineBase
    )
    yield
    async with Held(owners, topic, takeover=False) as two:  # closed: nobody has to be deposed
        assert (two.acked, two.missing) == ({LEDGER: {3, 5, 7}}, {(LEDGER, 9): {1}})
        assert two.state.mark_delete_properties == {"n": 1}
        await two.acks(LedgerAcks(LEDGER, [11]))
        assert (beside := await kept(owners, topic)).is_exact and isinstance(
            beside.footer.base, InlineBase
        ), "a ledger beside it"
    yield
    async with Held(owners, topic) as three:
        assert (three.acked, three.missing) == ({LEDGER: {3, 5, 7, 11}}, {(LEDGER, 9): {1}})
        await three.handle.close()
    assert isinstance((await no_ledger_is_left(owners, topic)).footer.base, InlineBase)


async def batches_are_completed_by_parts(owners: Owners, topic: str) -> Story:
    """Both forms in which a part of a batch is acked, each completed by the other, under another
    owner each time.
    """
    async with Held(owners, topic, create=True) as one:
        as_missing = [PartialBatch(5, 4, BitMap([1, 2])), PartialBatch(8, 3, BitMap([0]))]
        as_acked = [AckedIndexes(6, 8, ((0, 3),)), AckedIndexes(9, 100, ((7, 7),))]
        await one.acks(LedgerAcks(LEDGER, partials=[*as_missing, *as_acked]))
        await one.acks(LedgerAcks(LEDGER, [8]))
    yield
    async with Held(owners, topic) as two:
        assert two.missing == {
            (LEDGER, 5): {1, 2},
            (LEDGER, 6): {4, 5, 6, 7},
            (LEDGER, 9): set(range(100)) - {7},
        }
        assert two.acked == {LEDGER: {8}}
        await two.acks(
            LedgerAcks(
                LEDGER,
                partials=[AckedIndexes(5, 4, ((1, 1),)), PartialBatch(6, 8, BitMap([0, 1, 2, 3]))],
            )
        )
    yield
    async with Held(owners, topic) as three:
        assert three.missing == {(LEDGER, 5): {2}, (LEDGER, 9): set(range(100)) - {7}}
        assert three.acked == {LEDGER: {6, 8}}
        await three.acks(
            LedgerAcks(LEDGER, [0, 1, 2, 3, 4, 7], partials=[AckedIndexes(5, 4, ((2, 2),))])
        )
    yield
    async with Held(owners, topic) as last:
        assert (last.state.mark_delete, last.acked) == (Position(LEDGER, 8), {}), (
            "the completed ones fill the prefix"
        )
        assert last.missing == {(LEDGER, 9): set(range(100)) - {7}}


async def properties_are_replaced_kept_and_cleared(owners: Owners, topic: str) -> Story:
    async with Held(owners, topic, create=True) as one:
        await one.acks(mark_delete=Position(LEDGER, 4), properties={"n": 1, "m": -5})
        await one.acks(mark_delete=Position(LEDGER, 6), properties={"n": 2})
        await one.handle.durable(one.handle.set_cursor_properties({"x": "y"}))
    yield
    async with Held(owners, topic) as two:
        assert (two.state.mark_delete, two.state.mark_delete_properties) == (
            Position(LEDGER, 6),
            {"n": 2},
        )
        assert two.state.cursor_properties == {"x": "y"}
        # says nothing of them: they stay
        await two.acks(LedgerAcks(LEDGER, [20]), mark_delete=Position(LEDGER, 9))
    yield
    async with Held(owners, topic) as three:
        assert (three.state.mark_delete, three.acked) == (Position(LEDGER, 9), {LEDGER: {20}})
        assert three.state.mark_delete_properties == {"n": 2}
        await three.acks(properties={})
        await three.handle.durable(three.handle.set_cursor_properties({}))
    yield
    async with Held(owners, topic) as last:
        assert (
            last.state.mark_delete,
            last.state.mark_delete_properties,
            last.state.cursor_properties,
        ) == (Position(LEDGER, 9), {}, {})


async def mark_delete_crosses_data_ledgers(owners: Owners, topic: str) -> Story:
    """Nobody sends a mark-delete: it follows the acks, over closed ledgers, an empty one among
    them.
    """
    whole = CLOSED_LEDGERS[LEDGER]
    async with Held(owners, topic, create=True) as one:
        await one.acks(
            LedgerAcks(LEDGER, [], [1, whole - 1]), LedgerAcks(14, [0]), LedgerAcks(20, range(10))
        )
    yield
    async with Held(owners, topic) as two:
        assert (
            two.state.mark_delete == Position(LEDGER, -1)
            and two.state.acked_entries == whole - 1 + 1 + 10
        )
        await two.acks(LedgerAcks(LEDGER, [0]))
    yield
    async with Held(owners, topic) as last:
        assert (last.state.mark_delete, last.acked) == (Position(20, 9), {})


LIVES = (
    reset_delete_and_create_again,
    a_small_cursor_closes_into_its_footer,
    batches_are_completed_by_parts,
    properties_are_replaced_kept_and_cleared,
    mark_delete_crosses_data_ledgers,
)
