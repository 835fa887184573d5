"""What a source may rely on, checked against every keeper (see `keepers`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from pyroaring import BitMap

from clients.tests.ack_stream.conftest import SETTINGS
from clients.tests.ack_stream.keepers import Keeper
from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    Client,
    ConnectionLost,
    Contradiction,
    CursorClosed,
    CursorDeposed,
    CursorRefused,
    CursorState,
    Fenced,
    HeldElsewhere,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    NoSuchCursor,
    PartialBatch,
    Position,
)
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.session import SourceSession

LAYOUT = (LayoutItem(10, LayoutState.CLOSED, 100), LayoutItem(12, LayoutState.OPEN))
START = Position(10, -1)


def entries(ledger: int, *numbers: int) -> Acks:
    return Acks([LedgerAcks(ledger, np.array(numbers, dtype=np.uint32))])


async def reopened(session: SourceSession, topic: str) -> CursorState:
    return await session.open(topic, "s", create=False, takeover=True, layout=LAYOUT).opened()


async def test_a_new_cursor_starts_where_it_was_told(session: SourceSession, topic: str) -> None:
    handle = session.open(
        topic, "s", layout=LAYOUT, start=Position(10, 4), cursor_properties={"a": "b"}
    )
    state = await handle.opened()
    assert (state.mark_delete, state.acked, state.partials) == (Position(10, 4), {}, {})
    assert state.cursor_properties == {"a": "b"}
    assert state.layout[-1].ledger == 12 and state.epoch >= 1
    assert state.is_acked(10, 4) and not state.is_acked(10, 5)


async def test_a_source_is_told_that_its_open_created_the_cursor(
    session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    assert (await handle.opened()).created
    assert not (await reopened(session, topic)).created
    last = session.open(topic, "s", create=True, takeover=True)
    assert not (await last.opened()).created
    await last.delete()
    assert (await session.open(topic, "s", layout=LAYOUT).opened()).created


async def test_without_a_start_it_begins_before_the_first_ledger(
    session: SourceSession, topic: str
) -> None:
    assert (await session.open(topic, "s", layout=LAYOUT).opened()).mark_delete == START


async def test_acks_of_every_form_are_durable_and_come_back(
    session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    acks = LedgerAcks(
        10,
        np.array([3, 1], dtype=np.uint32),
        ranges=[20, 29, 40, 40],
        partials=[PartialBatch(50, 10, BitMap([0, 9])), AckedIndexes(51, 8, ((1, 3), (7, 7)))],
        roaring=BitMap([60, 61]),
    )
    seq = await handle.send(
        Acks([acks, LedgerAcks(12, [0, 70_000])], mark_delete=Position(10, 1), properties={"p": -5})
    )
    await handle.durable(seq)
    assert handle.durable_seq == handle.last_seq == seq
    state = await reopened(session, topic)
    assert state.mark_delete == Position(10, 1)
    assert {ledger: list(acked) for ledger, acked in state.acked.items()} == {
        10: [3, *range(20, 30), 40, 60, 61],
        12: [0, 70_000],
    }
    assert {key: (p.batch_size, list(p.missing)) for key, p in state.partials.items()} == {
        (10, 50): (10, [0, 9]),
        (10, 51): (8, [0, 4, 5, 6]),
    }
    assert state.mark_delete_properties == {"p": -5}


async def test_acked_wins_over_partly_acked(session: SourceSession, topic: str) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    await handle.send(Acks([LedgerAcks(10, partials=[PartialBatch(5, 4, BitMap([1, 2]))])]))
    await handle.send(Acks([LedgerAcks(10, partials=[PartialBatch(5, 4, BitMap([2, 3]))])]))
    await handle.send(Acks([LedgerAcks(10, partials=[PartialBatch(6, 4, BitMap([0]))])]))
    await handle.durable(await handle.send(entries(10, 6)))
    state = await reopened(session, topic)
    assert list(state.partials) == [(10, 5)] and list(state.partials[10, 5].missing) == [2]
    assert list(state.acked[10]) == [6]


async def test_many_batches_within_the_credit(session: SourceSession, topic: str) -> None:
    handle = session.open(topic, "s", layout=(LayoutItem(12, LayoutState.OPEN),))
    await handle.opened()
    confirmed: list[int] = []
    handle.on_durable = confirmed.append
    for first in range(0, 400_000, 20_000):  # 1.6 MB of columns
        seq = await handle.send(
            Acks([LedgerAcks(12, np.arange(first, first + 20_000, dtype=np.uint32))])
        )
        assert handle.sent_bytes <= handle.granted_bytes
    await handle.durable(seq)
    assert confirmed == sorted(confirmed) and confirmed[-1] == seq
    assert (await session.open(topic, "s", takeover=True).opened()).is_acked(12, 399_999)


async def test_reset_forgets_all_acks_and_starts_a_generation(
    session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    before = (await handle.opened()).generation
    await handle.send(entries(10, 1, 2, 3))
    assert await handle.reset(Position(10, 49)) == handle.generation > before
    await handle.durable(await handle.send(entries(10, 60)))
    state = await reopened(session, topic)
    assert (state.mark_delete, state.generation) == (Position(10, 49), handle.generation)
    assert {ledger: list(acked) for ledger, acked in state.acked.items()} == {10: [60]}


async def test_layout_and_properties_are_confirmed_and_kept(
    session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    handle.layout((LayoutItem(12, LayoutState.CLOSED, 7), LayoutItem(15, LayoutState.OPEN)))
    await handle.durable(handle.set_cursor_properties({"x": "y"}))
    state = await session.open(topic, "s", takeover=True).opened()
    assert {i.ledger: (i.state, i.entries) for i in state.layout}[12] == (LayoutState.CLOSED, 7)
    assert state.cursor_properties == {"x": "y"}


async def test_a_cursor_that_must_exist_is_not_created(session: SourceSession, topic: str) -> None:
    with pytest.raises(NoSuchCursor) as caught:
        await session.open(topic, "s", create=False).opened()
    assert caught.value.code == "NOT_FOUND" and caught.value.remedy and not caught.value.retry


async def test_only_one_holds_a_cursor_and_takeover_deposes(
    keeper: Keeper, session: SourceSession, topic: str
) -> None:
    first = session.open(topic, "s", layout=LAYOUT)
    await first.opened()
    await first.send(entries(10, 1))
    async with SourceConnection(keeper.address, SETTINGS) as other:
        with pytest.raises(HeldElsewhere):
            await other.open(topic, "s", layout=LAYOUT).opened()
        second = other.open(topic, "s", layout=LAYOUT, takeover=True)
        assert 1 in (await second.opened()).acked[10]  # what was accepted is durable by then
        with pytest.raises(CursorDeposed):
            await first.durable(await first.send(entries(10, 2)))
        with pytest.raises(CursorDeposed):
            await first.send(entries(10, 2))
        await second.durable(await second.send(entries(10, 3)))


async def test_a_refused_batch_costs_the_handle_and_not_the_stream(
    session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    other = session.open(topic, "other", layout=LAYOUT)
    await asyncio.gather(handle.opened(), other.opened())
    good = await handle.send(entries(10, 1))
    bad = await handle.send(entries(10, 100))  # the ledger has 0..99
    with pytest.raises(Contradiction) as caught:
        await handle.durable(bad)
    assert caught.value.code == "POSITION_OUT_OF_RANGE"
    with pytest.raises(CursorRefused):
        await handle.send(entries(10, 2))
    await other.durable(await other.send(entries(10, 1)))
    state = await reopened(session, topic)
    assert (list(state.acked[10]), good) == ([1], 1)  # what came before is kept


async def test_a_source_that_is_told_the_known_layout_first_can_say_what_was_trimmed_meanwhile(
    session: SourceSession, topic: str
) -> None:
    """The keeper knows 10 and 12, the topic has 15 and 17 by now; 13 was made and trimmed while
    nobody listened.
    """
    first = session.open(topic, "s", layout=LAYOUT)
    await first.opened()
    await first.durable(await first.send(Acks([LedgerAcks(10, [3]), LedgerAcks(12, [4])])))
    await first.close()
    own = (LayoutItem(15, LayoutState.CLOSED, 20), LayoutItem(17, LayoutState.OPEN))
    with pytest.raises(Contradiction):
        await session.open(topic, "s", layout=own).opened()
    handle = session.open(topic, "s")
    state = await handle.opened()
    assert state.layout == LAYOUT
    run = state.run_of(own)
    assert [(item.ledger, item.state.name) for item in run] == [
        (10, "TRIMMED"),
        (12, "TRIMMED"),
        (15, "CLOSED"),
        (17, "OPEN"),
    ]
    handle.layout(run)
    await handle.durable(await handle.send(entries(15, 1)))
    assert handle.ended is None
    state = await session.open(topic, "s", takeover=True).opened()
    assert state.is_acked(15, 1) and not state.is_acked(15, 0) and not state.is_acked(17, 0)
    assert state.run_of(own) == run, "and again at the next load"


async def test_closing_gives_the_cursor_back_with_everything_durable(
    keeper: Keeper, session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    seq = await handle.send(entries(10, 1, 2))
    await handle.close()
    assert handle.durable_seq == seq
    with pytest.raises(CursorClosed):
        await handle.send(entries(10, 3))
    async with SourceConnection(keeper.address, SETTINGS) as other:  # no takeover needed
        assert list((await other.open(topic, "s", layout=LAYOUT).opened()).acked[10]) == [1, 2]


@pytest.mark.parametrize("opened", [True, False])
async def test_a_deleted_cursor_is_gone(session: SourceSession, topic: str, opened: bool) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    if opened:
        await handle.delete()
    else:
        await handle.close()
        await session.delete(topic, "s")
    with pytest.raises(NoSuchCursor):
        await session.open(topic, "s", create=False).opened()


async def test_a_lower_fencing_token_gets_nothing_and_takes_nothing(
    keeper: Keeper, session: SourceSession, topic: str
) -> None:
    """An equal or higher one needs no takeover; the one that was seen outlives the cursor."""
    first = session.open(topic, "s", layout=LAYOUT, fencing_token=1)
    await first.opened()
    await first.send(entries(10, 1))
    async with SourceConnection(keeper.address, SETTINGS) as other:
        again = other.open(topic, "s", layout=LAYOUT, fencing_token=1)
        await again.opened()
        second = other.open(topic, "s", layout=LAYOUT, fencing_token=2)
        assert 1 in (await second.opened()).acked[10]
        for handle in (first, again):
            with pytest.raises(CursorDeposed):
                await handle.durable(await handle.send(entries(10, 2)))
        for token in (0, 1):
            with pytest.raises(Fenced) as caught:
                await session.open(
                    topic, "s", layout=LAYOUT, takeover=True, fencing_token=token
                ).opened()
            assert caught.value.remedy and not caught.value.retry
            with pytest.raises(Fenced):
                await session.delete(topic, "s", fencing_token=token)
        await second.durable(await second.send(entries(10, 3)))
        await session.delete(topic, "s", fencing_token=3)
        with pytest.raises(CursorDeposed):
            await second.durable(await second.send(entries(10, 4)))
        with pytest.raises(Fenced):
            await other.open(topic, "s", layout=LAYOUT, fencing_token=2).opened()
    state = await session.open(topic, "s", layout=LAYOUT, fencing_token=3).opened()
    assert state.created and not state.acked


async def test_a_broken_stream_is_resumed_without_a_state(keeper: Keeper, topic: str) -> None:
    async with SourceConnection(keeper.address, SETTINGS) as session:
        first = session.open(topic, "s", layout=LAYOUT)
        state = await first.opened()
        await first.durable(await first.send(entries(10, 1)))
        generation = await first.reset(Position(10, 4))
        await first.durable(await first.send(entries(10, 7)))
    async with SourceConnection(keeper.address, SETTINGS) as session:
        old = session.open(topic, "s", layout=LAYOUT, takeover=True, resume=state)
        assert not old.resumed and not (await old.opened()).is_acked(10, 6), (
            "its generation is over: it gets the state"
        )
    async with SourceConnection(keeper.address, SETTINGS) as session:
        second = session.open(
            topic, "s", layout=LAYOUT, takeover=True, resume=replace(state, generation=generation)
        )
        known = await second.opened()
        assert second.resumed and (second.epoch, second.generation) == (state.epoch, generation)
        assert known.acked == {}, "what the source knew itself"
        await second.durable(await second.send(entries(10, 8)))
        assert second.durable_seq == 1 and second.sent_bytes <= second.granted_bytes
    async with SourceConnection(keeper.address, SETTINGS) as session:
        assert list((await reopened(session, topic)).acked[10]) == [7, 8]


async def test_nobody_resumes_what_another_source_was_given(keeper: Keeper, topic: str) -> None:
    async with SourceConnection(keeper.address, SETTINGS) as session:
        state = await session.open(topic, "s", layout=LAYOUT).opened()
    async with SourceConnection(
        keeper.address, replace(SETTINGS, incarnation="another")
    ) as session:
        other = session.open(topic, "s", layout=LAYOUT, takeover=True)
        await other.opened()
        await other.durable(await other.send(entries(10, 3)))
    async with SourceConnection(keeper.address, SETTINGS) as session:
        again = session.open(topic, "s", layout=LAYOUT, takeover=True, resume=state)
        assert list((await again.opened()).acked[10]) == [3] and not again.resumed


async def test_a_killed_keeper_ends_every_wait(
    keeper: Keeper, session: SourceSession, topic: str
) -> None:
    handle = session.open(topic, "s", layout=LAYOUT)
    await handle.opened()
    await keeper.kill()
    assert isinstance(await session.wait_ended(), ConnectionLost)
    with pytest.raises(ConnectionLost):
        await handle.send(entries(10, 1))
    with pytest.raises(ConnectionLost):
        session.open(topic, "s")


async def test_a_resuming_source_loses_nothing_over_kills(keeper: Keeper, topic: str) -> None:
    """Acks go on while the keeper is killed and started again, three times; each batch is sent
    until it is confirmed.
    """
    async with Client(keeper.address, SETTINGS) as source:
        durable: list[int] = []
        cursor = source.cursor(
            topic, "s", layout=(LayoutItem(12, LayoutState.OPEN),), on_durable=durable.append
        )
        await cursor.opened()
        for round_ in range(3):
            for batch in range(20):
                first = (round_ * 20 + batch) * 100
                await cursor.send(
                    Acks([LedgerAcks(12, np.arange(first, first + 100, dtype=np.uint32))])
                )
            await cursor.durable(round_ * 20 + 3)
            await keeper.kill()
            confirmed = cursor.durable_seq
            await cursor.send(entries(12, 50_000 + round_))  # nobody is there: kept
            await keeper.start()
        await cursor.durable()
        assert cursor.opens == 4 and confirmed <= cursor.durable_seq == cursor.last_seq == 63
        assert durable == sorted(durable) and cursor.unconfirmed_bytes == 0
        await cursor.close()
    async with SourceConnection(keeper.address, SETTINGS) as check:
        state = await check.open(topic, "s", create=False, takeover=True).opened()
        acked = BitMap(range(state.mark_delete.entry + 1)) | state.acked.get(12, BitMap())
        assert acked == BitMap(range(6000)) | BitMap([50_000, 50_001, 50_002])


async def test_a_resuming_reset_holds_over_a_kill(keeper: Keeper, topic: str) -> None:
    async with Client(keeper.address, SETTINGS) as source:
        cursor = source.cursor(topic, "s", layout=LAYOUT)
        await cursor.opened()
        await cursor.send(entries(10, 1, 2, 3))
        await cursor.durable()
        await keeper.kill()
        old = await cursor.send(entries(10, 4))  # from before the seek: void
        seek = asyncio.ensure_future(cursor.reset(Position(10, 49)))
        await keeper.start()
        await seek
        assert cursor.durable_seq >= old
        await cursor.durable(await cursor.send(entries(10, 60)))
        await cursor.close()
    async with SourceConnection(keeper.address, SETTINGS) as check:
        state = await reopened(check, topic)
        assert (state.mark_delete, {k: list(v) for k, v in state.acked.items()}) == (
            Position(10, 49),
            {10: [60]},
        )


async def test_what_is_too_much_for_one_message_leaves_as_several(
    session: SourceSession, topic: str
) -> None:
    """Hello says how many data ledgers and partly acked batches a message may have; the source need
    not care.
    """
    told = session.keeper
    assert (
        told is not None
        and told.ack_ledgers_max
        and told.ack_partials_max
        and told.unconfirmed_parts_max
    )
    ledgers, batches = told.ack_ledgers_max + 5, told.ack_partials_max + 5
    handle = session.open(topic, "s")
    await handle.opened()
    parts = [LedgerAcks(ledger, [3, 5]) for ledger in range(1, ledgers + 1)]
    parts.append(
        LedgerAcks(
            ledgers + 1,
            [9],
            (),
            [PartialBatch(10 + at, 4, BitMap([at % 4])) for at in range(batches)],
        )
    )
    seq = await handle.send(Acks(parts, mark_delete=Position(0, 2), properties={"p": 7}))
    assert seq == 3, "two messages of ledgers, and what the second has no room for"
    await handle.durable(seq)
    state = await session.open(topic, "s", takeover=True).opened()
    assert all(list(state.acked[ledger]) == [3, 5] for ledger in range(1, ledgers + 1)) and list(
        state.acked[ledgers + 1]
    ) == [9]
    assert {key: list(p.missing) for key, p in state.partials.items()} == {
        (ledgers + 1, 10 + at): [at % 4] for at in range(batches)
    }
    assert (state.mark_delete, state.mark_delete_properties) == (Position(0, 2), {"p": 7})


async def test_a_layout_that_is_too_long_for_one_message_leaves_as_several(
    session: SourceSession, topic: str
) -> None:
    told = session.keeper
    assert told is not None and told.layout_ledgers_max
    ledgers = 2 * told.layout_ledgers_max + 5
    layout = [LayoutItem(ledger, LayoutState.CLOSED, 1) for ledger in range(1, ledgers)] + [
        LayoutItem(ledgers, LayoutState.OPEN)
    ]
    handle = session.open(topic, "s", layout=layout[:-3], start=Position(3, -1))
    await handle.opened()
    assert handle.layout(layout) == handle.last_seq > 3
    await handle.durable(handle.last_seq)
    state = await session.open(topic, "s", takeover=True).opened()
    known = [item.ledger for item in state.layout if item.ledger >= 3]
    assert known == list(range(3, ledgers + 1)) and state.layout[-1].state is LayoutState.OPEN


async def test_start_takes_nothing_from_the_layout_of_a_cursor_that_exists(
    session: SourceSession, topic: str
) -> None:
    """It has not come to that ledger yet, and needs those before it."""
    first = session.open(topic, "s", layout=[LayoutItem(10, LayoutState.OPEN)])
    await first.opened()
    await first.durable(await first.send(entries(10, 0)))
    layout = [
        LayoutItem(10, LayoutState.CLOSED, 2),
        LayoutItem(11, LayoutState.CLOSED, 1),
        LayoutItem(12, LayoutState.OPEN),
    ]
    handle = session.open(topic, "s", layout=layout, start=Position(12, -1), takeover=True)
    state = await handle.opened()
    assert [item.ledger for item in state.layout] == [10, 11, 12]


async def test_a_long_layout_is_told_down_from_start_too(
    session: SourceSession, topic: str
) -> None:
    told = session.keeper
    assert told is not None and told.layout_ledgers_max
    ledgers = 2 * told.layout_ledgers_max + 5
    handle = session.open(topic, "s")
    await handle.opened()
    await handle.durable(await handle.send(entries(1, 0)))
    layout = [LayoutItem(ledger, LayoutState.CLOSED, 1) for ledger in range(1, ledgers)] + [
        LayoutItem(ledgers, LayoutState.OPEN)
    ]
    handle = session.open(topic, "s", layout=layout, start=Position(ledgers - 1, -1), takeover=True)
    await handle.opened()
    await handle.durable(handle.last_seq)
    state = await session.open(topic, "s", takeover=True).opened()
    assert {item.ledger for item in state.layout} >= set(range(2, ledgers + 1))
