"""A daemon of several workers, as a program sees it: each cursor is opened at the worker of its
name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from clients.tests.ack_stream.conftest import SETTINGS, until
from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper_client import Client, Cursor, LayoutItem, LayoutState, SourceServer
from cursorkeeper_client.names import worker_of

SUB = "billing"
TOPICS = [f"persistent://public/default/orders-{number}" for number in range(12)]
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)
WORKERS = 3


def tell_workers(keepers: list[FakeKeeper]) -> None:
    """Each says in its next Hello that they are the workers of one daemon."""
    for number, keeper in enumerate(keepers):
        del keeper.faults.limits.worker_addresses[:]
        if len(keepers) > 1:
            # without a host, as a daemon says it
            ports = [":" + each.address.rpartition(":")[2] for each in keepers]
            keeper.faults.limits.worker_addresses.extend(ports)
        keeper.faults.limits.worker = number


@pytest_asyncio.fixture
async def keepers() -> AsyncIterator[list[FakeKeeper]]:
    made = [FakeKeeper() for _ in range(WORKERS)]
    for keeper in made:
        await keeper.start()
    tell_workers(made)
    yield made
    for keeper in made:
        await keeper.kill()


@pytest_asyncio.fixture
async def client(keepers: list[FakeKeeper]) -> AsyncIterator[Client]:
    async with Client(keepers[0].address, SETTINGS) as made:
        yield made


async def opened(client: Client) -> list[Cursor]:
    cursors = [client.cursor(topic, SUB, layout=LAYOUT) for topic in TOPICS]
    for cursor in cursors:
        await cursor.opened()
    return cursors


def held_by(keeper: FakeKeeper) -> set[str]:
    return {name.partition("|")[0] for name in keeper.holders}


def share(number: int, workers: int = WORKERS) -> set[str]:
    return {topic for topic in TOPICS if worker_of(topic, SUB, workers) == number}


def test_the_worker_of_a_name_is_the_same_in_every_language() -> None:
    """The examples of the page of the ack stream; WorkersTest of the Java client has them,
    too.
    """
    assert [
        worker_of("persistent://public/default/orders", "billing", workers)
        for workers in (1, 2, 4, 16)
    ] == [0, 1, 3, 7]
    assert worker_of("persistent://t/n/a b*c~ü", "x|y/z:+", 1_000_003) == 666_881


async def test_each_cursor_is_opened_at_the_worker_of_its_name(
    keepers: list[FakeKeeper], client: Client
) -> None:
    cursors = await opened(client)
    assert [held_by(keeper) for keeper in keepers] == [share(n) for n in range(WORKERS)]
    assert all(share(n) for n in range(WORKERS)), "each has something to do"
    for cursor in cursors:
        await cursor.ack(7, 3)
        await cursor.durable()
    for number, keeper in enumerate(keepers):
        acked = {
            name.partition("|")[0] for name, one in keeper.cursors.items() if one.durable.acked
        }
        assert acked == share(number)
    gone = cursors.pop()
    await gone.close()
    await client.delete(gone.topic, SUB)
    assert not any(gone.topic in name for keeper in keepers for name in keeper.cursors)


async def test_any_worker_may_be_the_one_that_is_dialled(keepers: list[FakeKeeper]) -> None:
    async with Client(keepers[2].address, SETTINGS) as client:
        await opened(client)
        assert [held_by(keeper) for keeper in keepers] == [share(n) for n in range(WORKERS)]


async def test_a_worker_that_dies_takes_only_its_cursors_with_it(
    keepers: list[FakeKeeper], client: Client
) -> None:
    cursors = await opened(client)
    await keepers[1].kill()
    theirs = [one for one in cursors if one.topic in share(1)]
    others = [one for one in cursors if one.topic not in share(1)]
    await until(lambda: all(one.paused_for for one in theirs), what="its cursors are paused")
    for cursor in others:
        await cursor.ack(7, 5)
        await cursor.durable()
    assert not any(one.paused_for for one in others)
    for cursor in theirs:
        await cursor.ack(7, 5)
    await keepers[1].start()
    for cursor in theirs:
        await cursor.durable()
    assert held_by(keepers[1]) == share(1)


async def test_the_first_worker_that_dies_takes_only_its_cursors_with_it(
    keepers: list[FakeKeeper], client: Client
) -> None:
    cursors = await opened(client)
    opens = {one: one.opens for one in cursors}
    await keepers[0].kill()
    theirs = [one for one in cursors if one.topic in share(0)]
    await until(lambda: all(one.paused_for for one in theirs), what="its cursors are paused")
    await keepers[0].start()
    for cursor in cursors:
        await cursor.ack(7, 5)
        await cursor.durable()
    assert {one for one in cursors if one.opens > opens[one]} == set(theirs)


async def test_a_daemon_that_comes_back_with_other_workers_gets_every_cursor(
    keepers: list[FakeKeeper], client: Client
) -> None:
    cursors = await opened(client)
    for keeper in keepers:
        await keeper.kill()
    tell_workers(keepers[:2])
    await keepers[0].start()
    await keepers[1].start()
    for cursor in cursors:
        await cursor.ack(7, 5)
        await cursor.durable()
    assert [held_by(keeper) for keeper in keepers[:2]] == [share(0, 2), share(1, 2)]
    for keeper in keepers[:2]:
        await keeper.kill()
    tell_workers(keepers[:1])
    await keepers[0].start()
    for cursor in cursors:
        await cursor.ack(7, 6)
        await cursor.durable()
    assert held_by(keepers[0]) == set(TOPICS)


async def test_workers_that_dial_in_get_their_share(keepers: list[FakeKeeper]) -> None:
    async with SourceServer(settings=SETTINGS) as server:
        dialling = [asyncio.create_task(keeper.dial(server.address)) for keeper in keepers]
        try:
            async with Client(server, SETTINGS) as client:
                await opened(client)
                assert [held_by(keeper) for keeper in keepers] == [share(n) for n in range(WORKERS)]
        finally:
            for task in dialling:
                task.cancel()
            await asyncio.gather(*dialling, return_exceptions=True)
