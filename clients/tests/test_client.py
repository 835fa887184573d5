"""The public client, as a program uses it, against the fake keeper."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from pyroaring import BitMap

import cursorkeeper_client
from clients.tests.ack_stream.conftest import SETTINGS, still_waiting, until
from clients.tests.ack_stream.fake_cursor import FakeState
from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper_client import (
    AnswerTimeout,
    Client,
    ConnectionLost,
    Cursor,
    CursorClosed,
    CursorDeposed,
    CursorKeeperError,
    HeldElsewhere,
    LayoutItem,
    LayoutState,
    NoSuchCursor,
    Position,
)

TOPIC, SUB = "persistent://public/default/orders", "billing"
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)
MANY = 100_000


@pytest_asyncio.fixture
async def keeper() -> AsyncIterator[FakeKeeper]:
    made = FakeKeeper()
    made.faults.durable_delay_s = 0.002
    await made.start()
    yield made
    await made.kill()


@pytest_asyncio.fixture
async def client(keeper: FakeKeeper) -> AsyncIterator[Client]:
    async with Client(keeper.address, SETTINGS) as made:
        yield made


@pytest_asyncio.fixture
async def cursor(client: Client) -> AsyncIterator[Cursor]:
    async with client.cursor(TOPIC, SUB, layout=LAYOUT) as made:
        yield made


def kept(keeper: FakeKeeper, topic: str = TOPIC) -> FakeState:
    """What the keeper would show the next owner of the cursor."""
    return keeper.cursors[f"{topic}|{SUB}"].durable


def test_what_is_exported_is_documented_and_errors_are_one_tree() -> None:
    for name in cursorkeeper_client.__all__:
        public = getattr(cursorkeeper_client, name)
        assert inspect.getdoc(public), name
        if inspect.isclass(public) and issubclass(public, BaseException):
            assert issubclass(public, CursorKeeperError)
    assert issubclass(AnswerTimeout, TimeoutError) and issubclass(ConnectionLost, ConnectionError)
    said = AnswerTimeout("it took too long")
    assert said.message == "it took too long" and said.remedy
    assert str(said) == f"it took too long. What to do: {said.remedy}"


async def test_acks_of_every_kind_are_durable(keeper: FakeKeeper, cursor: Cursor) -> None:
    assert cursor.recovered is not None and cursor.recovered.created
    await cursor.ack_cumulative(7, 2, properties={"p": 1})
    await cursor.ack_cumulative(7, 1)
    await cursor.ack(7, 4)
    await cursor.ack(np.int64(7), np.uint32(6))  # type: ignore[arg-type]
    await cursor.ack_many(7, [30, 10, 20, 10])
    await cursor.ack_many(7, range(40, 43))
    await cursor.ack_many(7, np.array([50], np.int64))
    await cursor.ack_batch_indexes(7, 60, [0, 2], batch_size=4)
    await cursor.ack_batch_indexes(7, 60, [3], batch_size=4)
    await cursor.ack_batch_indexes(7, 61, range(3), batch_size=3)
    await cursor.durable()
    assert keeper.batches == 1, "all of one turn leave together"
    state = kept(keeper)
    assert (state.mark_delete, state.properties) == (Position(7, 2), {"p": 1})
    assert list(state.acked[7]) == [4, 6, 10, 20, 30, 40, 41, 42, 50, 61]
    assert state.partials == {(7, 60): (4, BitMap([1]))}
    await cursor.durable(timeout_s=0)


async def test_a_column_may_be_changed_after_it_was_acked(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    column = np.array([1, 2], np.uint32)
    await cursor.ack_many(7, column)
    column[:] = 9
    await cursor.durable()
    assert list(kept(keeper).acked[7]) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "sentence", "method", "arguments"),
    [
        (TypeError, "a ledger is a whole number, and this is '7', a str", "ack", ("7", 1)),
        (TypeError, "an entry is a whole number, and this is True, a bool", "ack", (7, True)),
        (TypeError, "an entry is a whole number, and this is 1.0, a float", "ack", (7, 1.0)),
        (ValueError, "an entry is 0 to 4294967295, and this is -1", "ack", (7, -1)),
        (ValueError, "this is 4294967296", "ack", (7, 1 << 32)),
        (ValueError, "this is -7", "ack_many", (-7, [1])),
        (TypeError, "this is True, a bool", "ack_many", (7, [1, True])),
        (TypeError, "this is '1', a str", "ack_many", (7, "12")),
        (ValueError, "a flat array of integers", "ack_many", (7, np.array([1.5]))),
        (ValueError, "entries reaches from -1", "ack_many", (7, np.array([-1]))),
        (ValueError, "this is -1", "ack_cumulative", (7, -1)),
        (ValueError, "a batch index is 0 to 2, and this is 3", "ack_batch_indexes", (7, 1, [3], 3)),
        (ValueError, "no batch index is given", "ack_batch_indexes", (7, 1, [], 3)),
        (ValueError, "a batch size is 0 to 65536", "ack_batch_indexes", (7, 1, [0], 65_537)),
        (TypeError, "a ledger is a whole number", "reset", (("7", 1),)),
        (ValueError, "seq 9 was never sent", "durable", (9,)),
    ],
)
async def test_wrong_arguments_are_refused_with_a_sentence(
    keeper: FakeKeeper,
    cursor: Cursor,
    kind: type[Exception],
    sentence: str,
    method: str,
    arguments: tuple[Any, ...],
) -> None:
    with pytest.raises(kind, match=sentence):
        await getattr(cursor, method)(*arguments)
    await cursor.durable(timeout_s=0)
    assert keeper.batches == 0 and cursor.ended is None


async def test_a_batch_that_has_two_sizes_is_refused(cursor: Cursor) -> None:
    await cursor.ack_batch_indexes(7, 1, [0], 3)
    with pytest.raises(ValueError, match="a batch of 4 now, and was one of 3 before"):
        await cursor.ack_batch_indexes(7, 1, [0], 4)


@pytest.mark.parametrize(
    ("topic", "subscription", "kind", "sentence"),
    [
        ("orders", SUB, ValueError, "persistent://public/default/orders"),
        ("persistent://public/orders", SUB, ValueError, "no full name of a topic"),
        ("", SUB, ValueError, "no full name of a topic"),
        (TOPIC, "", ValueError, "the subscription of .* is empty"),
        (b"orders", SUB, TypeError, "a topic is a text"),
        (TOPIC, None, TypeError, "a subscription is a text"),
    ],
)
async def test_names_are_checked(
    client: Client, topic: Any, subscription: Any, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        client.cursor(topic, subscription)
    with pytest.raises(kind, match=sentence):
        await client.store.get(topic, subscription)


async def test_many_single_acks_are_few_messages(
    keeper: FakeKeeper, cursor: Cursor, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.perf_counter()
    for entry in range(MANY):
        await cursor.ack(7, entry)
    await cursor.durable()
    rate = MANY / (time.perf_counter() - began)
    with capsys.disabled():
        print(f"\n{MANY} single acks: {rate:,.0f}/s in {keeper.batches} batches")
    assert kept(keeper).acked[7] == BitMap(range(MANY))
    assert keeper.batches < MANY / 1_000
    assert rate > 10_000, "a message for each would be about 10,000 a second"


async def test_acks_of_many_tasks_at_a_time_leave_together(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    async def one(entry: int) -> None:
        await cursor.ack(7, entry)
        await cursor.durable()
        assert entry in kept(keeper).acked[7]

    await asyncio.gather(*(one(entry) for entry in range(2_000)))
    assert keeper.batches < 10


async def test_acks_that_trickle_in_are_gathered_without_a_durable(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    for entry in range(500):
        await cursor.ack(7, entry)
        await asyncio.sleep(0)
    await until(lambda: len(kept(keeper).acked.get(7, ())) == 500, what="all are durable")
    assert keeper.batches < 100


async def test_a_large_column_leaves_as_several_batches(
    keeper: FakeKeeper, client: Client, cursor: Cursor
) -> None:
    await cursor.ack_many(7, np.arange(2_000_000, dtype=np.uint32))
    await cursor.durable()
    assert len(kept(keeper).acked[7]) == 2_000_000


async def test_full_memory_makes_acks_wait_and_a_cancelled_one_acked_nothing(
    keeper: FakeKeeper,
) -> None:
    keeper.faults.hold_durable = True
    settings = replace(SETTINGS, message_bytes_max=800, unconfirmed_bytes_max=800)
    async with (
        Client(keeper.address, settings) as client,
        client.cursor(TOPIC, SUB, layout=LAYOUT) as cursor,
    ):
        acked = 0
        with pytest.raises(TimeoutError):
            while True:
                async with asyncio.timeout(0.2):
                    await cursor.ack(7, acked)
                acked += 1
        assert 50 < acked < 400 and cursor.unconfirmed_bytes <= 800
        waiting = [asyncio.ensure_future(cursor.ack(7, 1_000 + n)) for n in range(50)]
        await still_waiting(waiting)
        for ack in waiting[::2]:
            ack.cancel()
        keeper.release()
        await asyncio.gather(*waiting, return_exceptions=True)
        await cursor.durable()
    assert list(kept(keeper).acked[7]) == [*range(acked), *range(1_001, 1_050, 2)]


async def test_durable_waits_no_longer_than_it_is_told(keeper: FakeKeeper, cursor: Cursor) -> None:
    keeper.faults.hold_durable = True
    await cursor.ack(7, 1)
    began = time.perf_counter()
    for limit_s in (0, 0.05):
        with pytest.raises(AnswerTimeout, match=rf"waited {limit_s:g} s .*What to do"):
            await cursor.durable(timeout_s=limit_s)
    assert time.perf_counter() - began < 10
    keeper.release()
    await cursor.durable()


async def test_a_daemon_that_is_away_is_told_with_a_remedy_and_in_time(keeper: FakeKeeper) -> None:
    await keeper.kill()
    settings = replace(SETTINGS, connect_timeout_s=0.5)
    async with Client(keeper.address, settings) as client:
        for waiting in (client.cursor(TOPIC, SUB).__aenter__(), client.connected()):
            began = time.perf_counter()
            with pytest.raises(TimeoutError, match=r"0\.5 s.*UNAVAILABLE.*do: look whether"):
                await waiting
            assert time.perf_counter() - began < 10
        with pytest.raises(TimeoutError):
            await client.cursor(TOPIC, SUB).opened(timeout_s=0)
        with pytest.raises(ConnectionError, match="UNAVAILABLE"):
            await client.store.get(TOPIC, SUB)


async def test_a_daemon_that_comes_later_is_found(keeper: FakeKeeper) -> None:
    await keeper.kill()
    async with Client(keeper.address, SETTINGS) as client:
        cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
        await cursor.ack(7, 1)
        assert cursor.paused_for == "no connection"
        await keeper.start()
        await cursor.durable()
        assert cursor.paused_for == ""
        await cursor.close()
    assert list(kept(keeper).acked[7]) == [1]


async def test_acks_survive_a_daemon_that_is_killed_in_the_middle(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    for life in range(3):
        for entry in range(1_000):
            await cursor.ack(7, life * 1_000 + entry)
            if entry % 100 == 0:
                await asyncio.sleep(0.001)
        await keeper.kill()
        await cursor.ack(7, 10_000 + life)
        await keeper.start()
    await cursor.durable()
    assert kept(keeper).acked[7] == BitMap([*range(3_000), *range(10_000, 10_003)])
    assert cursor.opens > 1


async def test_a_cursor_that_is_taken_over_says_so(keeper: FakeKeeper, client: Client) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await cursor.opened()
    async with Client(keeper.address, SETTINGS) as other:
        with pytest.raises(HeldElsewhere, match="ALREADY_OPEN"):
            async with other.cursor(TOPIC, SUB, takeover=False):
                pass
        async with other.cursor(TOPIC, SUB) as taken:
            with pytest.raises(CursorDeposed, match=r"taken over .*What to do"):
                while True:
                    await cursor.ack(7, 1)
                    await cursor.durable()
            with pytest.raises(CursorDeposed):
                await cursor.ack(7, 2)
            await taken.ack(7, 3)
    assert 3 in kept(keeper).acked[7]


async def test_one_that_may_not_take_over_goes_on_after_a_broken_stream(keeper: FakeKeeper) -> None:
    async with (
        Client(keeper.address, SETTINGS) as client,
        client.cursor(TOPIC, SUB, layout=LAYOUT, takeover=False) as cursor,
    ):
        await cursor.ack(7, 1)
        await cursor.durable()
        keeper.break_streams()
        await cursor.ack(7, 2)
        await cursor.durable()
    assert list(kept(keeper).acked[7]) == [1, 2]


async def test_two_cursors_of_one_client(keeper: FakeKeeper, client: Client) -> None:
    second = "persistent://public/default/other"
    async with (
        client.cursor(TOPIC, SUB, layout=LAYOUT) as one,
        client.cursor(second, SUB, layout=LAYOUT) as other,
    ):
        await one.ack(7, 1)
        await other.ack(7, 2)
        assert client.connections == 1
    assert list(kept(keeper).acked[7]) == [1] and list(kept(keeper, second).acked[7]) == [2]


async def test_the_end_of_the_block_is_durable_and_gives_the_cursor_back(
    keeper: FakeKeeper, client: Client
) -> None:
    async with client.cursor(TOPIC, SUB, layout=LAYOUT) as cursor:
        await cursor.ack(7, 1)
    assert list(kept(keeper).acked[7]) == [1] and not keeper.holders
    for call in (cursor.ack(7, 2), cursor.ack_many(7, [2]), cursor.opened(), cursor.delete()):
        with pytest.raises(CursorClosed, match=r"was closed\. What to do: open the cursor again"):
            await call
    await cursor.durable()
    await cursor.close()
    async with client.cursor(TOPIC, SUB, takeover=False) as again:
        assert again.recovered is not None and again.recovered.is_acked(7, 1)


async def test_a_block_that_fails_ends_at_once_with_its_own_error(
    keeper: FakeKeeper, client: Client
) -> None:
    keeper.faults.hold_durable = True
    with pytest.raises(KeyError, match="mine"):
        async with client.cursor(TOPIC, SUB, layout=LAYOUT) as cursor:
            await cursor.ack(7, 1)
            raise KeyError("mine")
    assert not keeper.holders
    with pytest.raises(CursorClosed):
        await cursor.durable()


async def test_close_that_comes_to_its_limit_closes_all_the_same(
    keeper: FakeKeeper, client: Client
) -> None:
    keeper.faults.hold_durable = True
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await cursor.opened()
    await cursor.ack(7, 1)
    with pytest.raises(AnswerTimeout):
        await cursor.close(timeout_s=0.1)
    assert isinstance(cursor.ended, CursorClosed) and not keeper.holders


async def test_a_client_that_is_closed_ends_its_cursors(keeper: FakeKeeper) -> None:
    keeper.faults.hold_durable = True
    async with Client(keeper.address, SETTINGS) as client:
        cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
        await cursor.opened()
        await cursor.ack(7, 1)
        waiting = asyncio.ensure_future(cursor.durable())
        await still_waiting([waiting])
    with pytest.raises(CursorClosed, match="the client was closed"):
        await waiting
    with pytest.raises(CursorClosed):
        await client.cursor(TOPIC, SUB).opened()
    with pytest.raises(CursorClosed):
        await client.delete(TOPIC, SUB)


async def test_reset_forgets_what_was_acked(keeper: FakeKeeper, cursor: Cursor) -> None:
    await cursor.ack_many(7, [1, 5, 9])
    await cursor.durable()
    await cursor.ack(7, 6)  # dropped: it counts as decided
    generation = await cursor.reset(Position(7, 3))
    await cursor.durable(timeout_s=0)
    await cursor.ack(7, 8)
    await cursor.durable()
    state = kept(keeper)
    assert (state.mark_delete, list(state.acked[7])) == (Position(7, 3), [8])
    assert generation == 2


async def test_delete(keeper: FakeKeeper, client: Client) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await cursor.ack(7, 1)
    await cursor.delete()
    assert not keeper.cursors
    with pytest.raises(CursorClosed, match="was deleted"):
        await cursor.ack(7, 2)
    with pytest.raises(NoSuchCursor):
        await client.cursor(TOPIC, SUB, create=False).opened()
    with pytest.raises(NoSuchCursor):
        await client.delete(TOPIC, SUB)
    async with client.cursor(TOPIC, SUB):
        pass
    await client.delete(TOPIC, SUB)
    assert not keeper.cursors


async def test_a_dialled_client_knows_no_address_to_ask() -> None:
    async with cursorkeeper_client.SourceServer() as server, Client(server) as client:
        with pytest.raises(ValueError, match="make a CursorStore of its own"):
            await client.store.get(TOPIC, SUB)


async def test_properties_that_no_message_holds_are_refused_and_cost_no_ack(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    await cursor.ack(7, 1)
    for properties in ({"x": 1.5}, {"x": True}, {"x": "1"}, {1: 1}):
        with pytest.raises(TypeError, match="properties are texts with whole numbers"):
            await cursor.ack_cumulative(7, 0, properties=properties)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 bits"):
        await cursor.ack_cumulative(7, 0, properties={"x": 1 << 63})
    with pytest.raises(ValueError, match="the limit is"):
        await cursor.ack_cumulative(7, 0, properties={f"{n:050}": n for n in range(40_000)})
    await cursor.durable()
    assert list(kept(keeper).acked[7]) == [1]


async def test_a_small_number_type_of_numpy_counts_bytes_as_any_other(
    keeper: FakeKeeper, cursor: Cursor
) -> None:
    for entry in range(8):
        await cursor.ack_batch_indexes(7, entry, [0], np.uint8(128))  # type: ignore[arg-type]
    await cursor.durable()
    assert len(kept(keeper).partials) == 8


async def test_what_was_gathered_before_a_reset_elsewhere_is_void(
    keeper: FakeKeeper, client: Client
) -> None:
    async with client.cursor(TOPIC, SUB, layout=LAYOUT) as cursor:
        await cursor.ack(7, 0)
        await cursor.durable()
        await keeper.kill()
        await until(lambda: cursor.handle is None, what="the cursor is detached")
        await cursor.ack(7, 1)
        keeper.cursors[f"{TOPIC}|{SUB}"].generation += 1
        await keeper.start()
        await cursor.durable()
        await cursor.ack(7, 2)
        await cursor.durable()
        assert list(kept(keeper).acked[7]) == [0, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": (7, "x")},
        {"fencing_token": -1},
        {"fencing_token": True},
        {"cursor_properties": {"a": 1}},
        {"layout": [7]},
    ],
)
async def test_a_wrong_opening_is_refused_at_once(client: Client, wrong: dict[str, Any]) -> None:
    if wrong.get("start"):
        cursor = client.cursor(TOPIC, SUB, **wrong)
        with pytest.raises(CursorKeeperError):
            await cursor.opened(timeout_s=5)
    else:
        with pytest.raises((TypeError, ValueError)):
            client.cursor(TOPIC, SUB, **wrong)
    async with client.cursor(TOPIC, "other", start=(7, -1), layout=LAYOUT) as other:  # type: ignore[arg-type]
        await other.ack(7, 1)


def test_wrong_settings_and_addresses_are_refused() -> None:
    with pytest.raises(TypeError, match="credentials are bytes"):
        replace(SETTINGS, credentials="token")
    with pytest.raises(ValueError, match="must be above 0"):
        replace(SETTINGS, open_timeout_s=float("nan"))
    with pytest.raises(TypeError, match="an address is a text"):
        Client(b"127.0.0.1:1")  # type: ignore[arg-type]
    for relative in ("unix:acks.sock", "unix:", "unix://host/acks.sock"):
        with pytest.raises(ValueError, match="has no absolute path; write it"):
            Client(relative)
    with pytest.raises(ValueError, match="a path of 108 bytes"):
        Client("unix:///" + "x" * 107)
    Client("unix:/" + "x" * 106)


@pytest.mark.parametrize("limit_s", [float("nan"), "5", True])
async def test_a_limit_that_is_no_number_is_refused(cursor: Cursor, limit_s: Any) -> None:
    await cursor.ack(7, 1)
    with pytest.raises(TypeError, match="timeout_s is a number"):
        await cursor.durable(timeout_s=limit_s)


async def test_a_layout_that_is_told_during_an_opening_arrives(
    keeper: FakeKeeper, client: Client
) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await until(lambda: keeper.holders, what="the opening is under way", pause_s=0)
    assert cursor.handle is None
    later = (LayoutItem(7, LayoutState.CLOSED, 5), LayoutItem(8, LayoutState.OPEN))
    cursor.layout(later)
    await cursor.opened()
    await cursor.ack(8, 1)
    await cursor.durable()
    await until(lambda: len(kept(keeper).layout) == 2, what="the layout is told")
    await cursor.close()


async def test_a_callback_that_raises_is_reported_and_breaks_nothing(client: Client) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def broken(_: int) -> None:
        raise KeyError("of the program")

    async with client.cursor(TOPIC, SUB, layout=LAYOUT, on_durable=broken) as cursor:
        for entry in range(3):
            await cursor.ack(7, entry)
            await cursor.durable()
    assert client.connections == 1
    assert {type(one["exception"]) for one in reported} == {KeyError}


async def test_who_leaves_during_the_opening_leaves_no_owner(
    keeper: FakeKeeper, client: Client
) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await until(lambda: keeper.holders, what="the opening is under way", pause_s=0)
    assert cursor.handle is None
    await cursor.leave()
    await until(lambda: not keeper.holders, what="nobody holds it")


async def test_a_delete_that_was_not_sent_says_so(keeper: FakeKeeper, client: Client) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await cursor.opened()
    await until(lambda: cursor.handle, what="it has a handle")
    assert client._home.session is not None
    client._home.session.end(ConnectionLost("it broke"))
    with pytest.raises(ConnectionLost):
        await cursor.delete()
    assert f"{TOPIC}|{SUB}" in keeper.cursors


async def test_a_limit_says_what_is_wrong_with_the_connection(
    keeper: FakeKeeper, client: Client
) -> None:
    cursor = client.cursor(TOPIC, SUB, layout=LAYOUT)
    await cursor.opened()
    await keeper.kill()
    await until(lambda: cursor.problem, what="the problem is known")
    await cursor.ack(7, 1)
    with pytest.raises(AnswerTimeout, match="UNAVAILABLE"):
        await cursor.durable(timeout_s=0.2)
    await keeper.start()
    await cursor.durable()
    assert cursor.problem is None
    await cursor.close()


async def test_the_newest_of_two_with_one_name_has_it(keeper: FakeKeeper, client: Client) -> None:
    await keeper.kill()
    made = [client.cursor(TOPIC, SUB, layout=LAYOUT) for _ in range(5)]
    await keeper.start()
    await until(lambda: all(one.ended for one in made[:-1]), what="the older ones are deposed")
    await made[-1].opened()
    assert all(isinstance(one.ended, CursorDeposed) for one in made[:-1])
    await made[-1].close()


async def test_a_cancelled_close_leaves_no_task(keeper: FakeKeeper) -> None:
    client = Client(keeper.address, SETTINGS)
    await client.start()
    await client.cursor(TOPIC, SUB, layout=LAYOUT).opened()
    closing = asyncio.ensure_future(client.close())
    await until(lambda: client.failed, what="it has begun to close", pause_s=0)
    assert not closing.done()
    closing.cancel()
    await asyncio.wait({closing})
    assert client._home.task is not None
    await until(client._home.task.done, what="the task ends")
