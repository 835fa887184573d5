"""Quotas of an identity: what it may hold, over all its streams and calls; others feel nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from cursorkeeper.access.callers import Callers, Table
from cursorkeeper.access.identities_file import Known
from cursorkeeper.access.identity import EVERY_TOPIC, Identity, Quotas, Role
from cursorkeeper.stream.credits import Credit, CreditPool
from cursorkeeper.stream.usage import OverQuota, Usage
from cursorkeeper_client import Client, ClientSettings, KeeperBusy, LayoutItem, LayoutState
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.access.identities import digest
from daemon.tests.stream.served import ServedKeeper

LAYOUT = (LayoutItem(7, LayoutState.OPEN),)
FEW = Quotas(streams=2, cursors=3, bytes_in_flight=64 << 10, reads=1, lists=1)


def identity(name: str, quotas: Quotas) -> Identity:
    return Identity(name, frozenset({Role.SOURCE}), EVERY_TOPIC, quotas)


FREE, BOUND = identity("free", Quotas()), identity("bound", FEW)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[ServedKeeper]:
    hashes = {digest(one.name).removeprefix("sha256:"): one for one in (FREE, BOUND)}
    keeper = ServedKeeper()
    keeper.callers = Callers(Table(Known(hashes, {}, {})))
    await keeper.start()
    yield keeper
    await keeper.kill()


def said(who: Identity) -> ClientSettings:
    return ClientSettings(credentials=who.name.encode())


async def test_streams_and_cursors_are_counted_and_given_back(served: ServedKeeper) -> None:
    async with asyncio.timeout(60):
        async with (
            SourceConnection(served.address, said(BOUND)) as first,
            SourceConnection(served.address, said(BOUND)) as second,
        ):
            with pytest.raises(ConnectionError, match="bound has 2 streams already"):
                async with SourceConnection(served.address, said(BOUND)):
                    pass
            async with SourceConnection(served.address, said(FREE)) as free:
                opened = [
                    session.open(f"persistent://t/n/{number}", "s")
                    for number, session in enumerate((first, second, first))
                ]
                for handle in opened:
                    await handle.opened()
                for session, works in ((second, False), (free, True)):
                    handle = session.open(f"persistent://t/n/more-{works}", "s")
                    if works:
                        await handle.opened()
                        continue
                    with pytest.raises(KeeperBusy, match="bound has 3 cursors already"):
                        await handle.opened()
                await opened[0].close()
                await second.open("persistent://t/n/again", "s").opened()
                # whoever takes one over has it
                taken = free.open("persistent://t/n/again", "s", takeover=True)
                await taken.opened()
                await first.open("persistent://t/n/one", "s").opened()
        while True:  # the daemon hears of the ends a moment later
            try:
                async with SourceConnection(served.address, said(BOUND)) as session:
                    # those of streams that are gone are still kept for it
                    with pytest.raises(KeeperBusy, match="bound has 3 cursors already"):
                        await session.open("persistent://t/n/later", "s").opened()
                    own = session.open("persistent://t/n/one", "s")
                    await own.opened()
                    await own.close()
                    await session.open("persistent://t/n/later", "s").opened()
                break
            except ConnectionError:
                await asyncio.sleep(0.05)


async def test_questions_are_counted(served: ServedKeeper) -> None:
    assert served.guard is not None
    metadata = (("authorization", f"Bearer {BOUND.name}"),)
    async with asyncio.timeout(60), grpc.aio.insecure_channel(served.address) as channel:
        store = rpc.CursorStoreStub(channel)

        async def read() -> Any:
            return await store.List(pb.ListRequest(), metadata=metadata).read()

        assert await read() is grpc.aio.EOF
        served.guard.usage.take(BOUND, "lists")
        with pytest.raises(grpc.aio.AioRpcError, match="bound has 1 lists already") as over:
            await read()
        assert over.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        served.guard.usage.give_back(BOUND, "lists")
        assert await read() is grpc.aio.EOF


async def test_one_who_does_not_wait_keeps_to_its_bytes(served: ServedKeeper) -> None:
    assert served.guard is not None
    pool = served.guard.usage.pool(BOUND)
    most = 0
    async with asyncio.timeout(60), Client(served.address, said(BOUND)) as client:
        cursors = [client.cursor(f"persistent://t/n/{n}", "s", layout=LAYOUT) for n in range(3)]
        for cursor in cursors:
            await cursor.opened()
        for turn in range(40):
            for cursor in cursors:
                await cursor.ack_many(7, range(turn * 3_000, turn * 3_000 + 6_000, 2))
            most = max(most, pool.unconfirmed_bytes)
        for cursor in cursors:
            await cursor.durable()
    assert 0 < most <= FEW.bytes_in_flight + 3 * (32 << 10)  # a message of each handle
    assert pool.unconfirmed_bytes == 0


def test_a_part_of_the_pool_is_a_part_of_the_whole() -> None:
    whole = CreditPool(handle_bytes=4_000, daemon_bytes=10_000, handle_bytes_min=100)
    usage = Usage(whole)
    bound = replace(BOUND, quotas=Quotas(bytes_in_flight=3_000))
    credits = [Credit(usage.pool(bound)) for _ in range(3)] + [Credit(usage.pool(FREE))]
    grants = [credit.first() for credit in credits]
    assert grants == [1_000, 1_000, 1_000, 2_500]
    assert all(credit.spend(1_000) for credit in credits)
    assert (usage.pool(bound).unconfirmed_bytes, whole.unconfirmed_bytes) == (3_000, 4_000)
    for credit in credits:
        credit.release(500)
        credit.close()
    assert (whole.unconfirmed_bytes, whole.handles) == (0, 0)
    assert usage.pool(bound).unconfirmed_bytes == 0


def test_what_one_has_is_not_anothers() -> None:
    usage = Usage(CreditPool())
    usage.take(BOUND, "reads")
    with pytest.raises(OverQuota, match="bound has 1 reads already"):
        usage.take(BOUND, "reads")
    for _ in range(3):
        usage.take(FREE, "reads")
    usage.give_back(BOUND, "reads")
    usage.take(BOUND, "reads")
