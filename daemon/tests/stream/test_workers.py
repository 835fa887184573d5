"""Several workers of one daemon, over real gRPC and on one set of fakes: whoever asks one of them
gets the whole answer, and a source may open a cursor at any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.stream import stored_cursors
from cursorkeeper_client import (
    Client,
    ClientSettings,
    ConnectionLost,
    ConnectionRefused,
    Cursor,
    CursorRefused,
    CursorStore,
    HeldElsewhere,
    KeeperBusy,
    LayoutItem,
    LayoutState,
    NoSuchCursor,
)
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.names import worker_of
from daemon.tests.stream.served import ServedKeeper

SUB = "s"
TOPICS = [f"persistent://t/n/topic-{number}" for number in range(9)]
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)
TOKEN = ClientSettings(credentials=b"token")


@pytest_asyncio.fixture
async def workers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[ServedKeeper]]:
    monkeypatch.setattr(stored_cursors, "BUCKET_PAUSE_S", 0.0)
    made = [ServedKeeper() for _ in range(3)]
    for number, worker in enumerate(made):
        worker.bookkeeper, worker.zookeeper = made[0].bookkeeper, made[0].zookeeper
        worker.identity, worker.credentials = f"served#{number}", b"token"
        worker.worker, worker.workers = number, made
    for worker in made:
        await worker.start()
    yield made
    for worker in made:
        await worker.kill()


@pytest_asyncio.fixture
async def client(workers: list[ServedKeeper]) -> AsyncIterator[Client]:
    async with Client(workers[0].address, TOKEN) as made:
        yield made


async def opened(client: Client) -> list[Cursor]:
    cursors = [client.cursor(topic, SUB, layout=LAYOUT) for topic in TOPICS]
    for cursor in cursors:
        await cursor.opened()
        await cursor.ack_many(7, [0, 2])
        await cursor.durable()
    return cursors


def share(number: int) -> set[str]:
    return {topic for topic in TOPICS if worker_of(topic, SUB, 3) == number}


async def test_every_worker_answers_for_all(workers: list[ServedKeeper], client: Client) -> None:
    await opened(client)
    for number, worker in enumerate(workers):
        assert worker.keeper is not None
        assert {name.topic for name in worker.keeper.cursors} == share(number) != set()
    for worker in workers:
        async with CursorStore(worker.address, TOKEN) as store:
            listed = [info async for info in store.list()]
            assert sorted(info.topic for info in listed) == TOPICS
            assert all(info.held and info.acked_entries == 1 for info in listed)
            stored = [info async for info in store.list(stored=True)]
            assert sorted(info.topic for info in stored) == TOPICS
            assert all(info.held and info.acked_entries == 1 for info in stored)
            assert [info.topic async for info in store.list(TOPICS[3])] == [TOPICS[3]]
            for topic in TOPICS:
                assert (await store.get(topic, SUB)).topic == topic
                assert await store.ack_state(topic, SUB, 7, [0, 1, 2]) == {
                    0: True,
                    1: False,
                    2: True,
                }
                assert (await store.export(topic, SUB)).acked_entries == 1
            for ask in (store.get, store.export):
                with pytest.raises(NoSuchCursor):
                    await ask("persistent://t/n/none", SUB)


async def test_a_worker_that_is_away_is_no_smaller_answer(
    workers: list[ServedKeeper], client: Client
) -> None:
    await opened(client)
    await workers[2].kill()
    async with CursorStore(workers[0].address, TOKEN) as store:
        with pytest.raises(ConnectionLost, match="worker 2"):
            [info async for info in store.list()]
        with pytest.raises(ConnectionLost, match="worker 2"):
            await store.get(next(iter(share(2))), SUB)
        assert (await store.get(next(iter(share(1))), SUB)).held, "that one is known"
    await workers[2].start()


async def test_a_walk_has_its_place_before_other_workers_are_asked(
    workers: list[ServedKeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_cursors, "WALKS_MAX", 0)
    await workers[2].kill()
    async with CursorStore(workers[0].address, TOKEN) as store:
        with pytest.raises(KeeperBusy, match="ask again later"):
            [info async for info in store.list(stored=True)]
    await workers[2].start()


async def test_a_limit_that_is_a_share_is_told_as_one() -> None:
    for workers, said in ((0, "this daemon holds 1 cursors"), (1, "its share of cursors_max")):
        served = ServedKeeper()
        served.keeper_limits = KeeperLimits(cursors_max=1)
        served.workers = [served] * workers
        await served.start()
        try:
            async with SourceConnection(served.address) as source:
                await source.open(TOPICS[0], SUB).opened()
                with pytest.raises(CursorRefused, match=said) as refused:
                    await source.open(TOPICS[1], SUB).opened()
                assert refused.value.code == "TOO_MANY_CURSORS"
        finally:
            await served.kill()


async def test_without_a_token_no_worker_answers(
    workers: list[ServedKeeper], client: Client
) -> None:
    await opened(client)
    async with CursorStore(workers[0].address) as store:
        with pytest.raises(ConnectionRefused):
            await store.get(next(iter(share(1))), SUB)


async def test_a_topic_is_deleted_at_the_workers_that_hold_its_cursors(
    workers: list[ServedKeeper], client: Client
) -> None:
    topic, subscriptions = "persistent://t/n/gone", [f"sub-{number}" for number in range(9)]
    assert {worker_of(topic, one, 3) for one in subscriptions} == {0, 1, 2}
    for one in subscriptions:
        cursor = client.cursor(topic, one, layout=LAYOUT)
        await cursor.opened()
        if one == "sub-0":
            await cursor.close()
    outcomes = {one: problem async for one, problem in client.store.delete_topic(topic)}
    assert sorted(outcomes) == subscriptions
    assert outcomes.pop("sub-0") is None
    codes = {problem.code for problem in outcomes.values() if problem is not None}
    assert codes == {"ALREADY_OPEN"}, "open at a source of this daemon"
    async for _, problem in client.store.delete_topic(topic, fencing_token=5):
        assert problem is None
    assert [info async for info in client.store.list(stored=True)] == []


async def test_a_source_that_knows_no_workers_opens_all_at_one(
    workers: list[ServedKeeper],
) -> None:
    async with SourceConnection(workers[0].address, TOKEN) as old:
        for topic in TOPICS:
            handle = old.open(topic, SUB, layout=LAYOUT)
            await handle.opened()
        assert workers[0].keeper is not None and len(workers[0].keeper.cursors) == len(TOPICS)
        async with SourceConnection(workers[1].address, TOKEN) as other:
            with pytest.raises(HeldElsewhere) as refused:
                await other.open(TOPICS[0], SUB).opened()
            assert refused.value.code == "OPEN_ELSEWHERE"
            await other.open(TOPICS[0], SUB, takeover=True).opened()
