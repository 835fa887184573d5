"""The public Python client against the daemon's own code, over real gRPC and on the fakes: what the
fake keeper cannot say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pyroaring import BitMap

from clients.tests.ack_stream.conftest import SETTINGS
from cursorkeeper_client import (
    Client,
    ClientSettings,
    ConnectionRefused,
    CursorDeposed,
    CursorStore,
    HeldElsewhere,
    LayoutItem,
    LayoutState,
    NoSuchCursor,
    PartialBatch,
    Position,
)
from daemon.tests.stream.served import ServedKeeper

TOPIC, SUB = "persistent://t/n/topic", "s"
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[ServedKeeper]:
    made = ServedKeeper()
    made.credentials = b"token"
    await made.start()
    yield made
    await made.kill()


@pytest_asyncio.fixture
async def client(served: ServedKeeper) -> AsyncIterator[Client]:
    async with Client(served.address, ClientSettings(credentials=b"token")) as made:
        yield made


async def test_the_live_state_is_the_daemons(client: Client) -> None:
    async with client.cursor(TOPIC, SUB, layout=LAYOUT, cursor_properties={"a": "b"}) as cursor:
        assert cursor.recovered is not None
        assert (cursor.recovered.acked_entries, cursor.recovered.created) == (0, True)
        await cursor.ack_many(7, [0, 1, 2, 5])
        await cursor.ack_batch_indexes(7, 9, [1], batch_size=3)
        await cursor.durable()
        state = await cursor.state()
        assert (state.mark_delete, state.acked_entries) == (Position(7, 2), 1)
        assert {k: list(v) for k, v in state.acked.items()} == {7: [5]}
        assert list(state.partials[7, 9].missing) == [0, 2]
        assert state.cursor_properties == {"a": "b"} and not state.is_acked(7, 6)
        info = await client.store.get(TOPIC, SUB)
        assert (info.topic, info.subscription, info.held) == (TOPIC, SUB, True)
        assert (info.mark_delete, info.acked_entries, info.partial_batches) == (
            Position(7, 2),
            1,
            1,
        )
        assert await client.store.ack_state(TOPIC, SUB, 7, [2, 5, 6, 9]) == {
            2: True,
            5: True,
            6: False,
            9: PartialBatch(9, 3, BitMap([0, 2])),
        }


async def test_the_store_lists_and_deletes(client: Client) -> None:
    async with client.cursor(TOPIC, SUB, layout=LAYOUT):
        async with client.cursor(TOPIC, "other", layout=LAYOUT):
            assert {i.subscription async for i in client.store.list()} == {SUB, "other"}
            assert [i async for i in client.store.list("persistent://t/n/none")] == []
        with pytest.raises(NoSuchCursor, match=r"not held by this daemon.*What to do"):
            await client.store.export(TOPIC, "other")
        stored = {i.subscription: i.held async for i in client.store.list(TOPIC, stored=True)}
        assert stored == {SUB: True, "other": False}
        outcomes = {name: problem async for name, problem in client.store.delete_topic(TOPIC)}
        assert outcomes["other"] is None and isinstance(outcomes[SUB], HeldElsewhere)
    await client.delete(TOPIC, SUB)
    assert [i async for i in client.store.list(stored=True)] == []


async def test_who_has_no_token_gets_nothing(served: ServedKeeper) -> None:
    async with Client(served.address, SETTINGS) as client:
        with pytest.raises(ConnectionRefused, match="the token is missing"):
            await client.cursor(TOPIC, SUB).opened()
        with pytest.raises(ConnectionError, match="the token is missing"):
            await client.connected()
    async with CursorStore(served.address) as store:
        with pytest.raises(ConnectionRefused, match="the token is missing"):
            await store.get(TOPIC, SUB)


async def test_acks_survive_a_killed_daemon_and_a_takeover_is_told(
    served: ServedKeeper, client: Client
) -> None:
    first = client.cursor(TOPIC, SUB, layout=LAYOUT)
    for entry in range(0, 2_000, 2):
        await first.ack(7, entry)
        if entry == 1_000:
            await first.durable()
            await served.kill()
            await served.start()
    await first.durable()
    async with (
        Client(served.address, ClientSettings(credentials=b"token")) as other,
        other.cursor(TOPIC, SUB, create=False) as second,
    ):
        assert second.recovered is not None
        assert second.recovered.mark_delete == Position(7, 0)
        assert second.recovered.acked[7] == BitMap(range(2, 2_000, 2))
        with pytest.raises(CursorDeposed):
            while True:
                await first.ack(7, 1)
                await first.durable()
