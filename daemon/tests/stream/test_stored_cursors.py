"""Cursors listed and deleted by topic, whoever holds them or nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.stream import stored_cursors
from cursorkeeper.stream.stored_cursors import WALKS_MAX, StoredCursors, TooManyWalks
from cursorkeeper_client import ClientSettings
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.stream.served import ServedKeeper
from daemon.tests.support.machine_bench import DATA
from daemon.tests.support.world import Source, World, acks

GONE, STAYS = "persistent://t/ns/gone", "persistent://t/ns/stays"


async def open_one(keeper: Keeper, subscription: str, topic: str = GONE, **request: Any) -> Source:
    """Opened, with an ack that is durable."""
    one = Source(keeper, CursorName(topic, subscription))
    await one.open(**request)
    one.ack(acks(DATA, 3))
    await one.durable()
    return one


async def closed_one(keeper: Keeper, subscription: str, topic: str = GONE, **request: Any) -> None:
    one = await open_one(keeper, subscription, topic, **request)
    one.send_close()
    await until(lambda: bool(one.told.ended))


async def listed(keeper: Keeper, *topics: str) -> dict[str, str]:
    found = [s async for s in StoredCursors(keeper).walk(topics)]
    return {
        s.name.display: str(s.footer.state) if not isinstance(s.footer, Exception) else "damaged"
        for s in found
    }


async def deleted(
    keeper: Keeper, topic: str = GONE, *, token: int = 0, takeover: bool = False
) -> dict[str, Refusal | None]:
    found = StoredCursors(keeper).delete(topic, fencing_token=token, takeover=takeover)
    return {o.name.subscription: o.refused async for o in found}


@virtual
async def test_what_is_stored_is_listed_by_topic() -> None:
    world = World()
    keeper, other = await world.keeper("one"), await world.keeper("two")
    await closed_one(keeper, "closed")
    await open_one(keeper, "held")
    await open_one(other, "elsewhere")
    await closed_one(keeper, "s", STAYS)
    await closed_one(keeper, "deleted")
    assert await deleted(keeper, STAYS) == {"s": None}
    await closed_one(keeper, "s", STAYS)
    assert await listed(keeper, STAYS) == {f"{STAYS}|s": "closed"}
    of_gone = {
        f"{GONE}|{name}": state
        for name, state in [
            ("closed", "closed"),
            ("deleted", "closed"),
            ("held", "open"),
            ("elsewhere", "open"),
        ]
    }
    assert await listed(keeper, GONE) == of_gone
    assert (
        await listed(keeper)
        == await listed(keeper, GONE, STAYS)
        == {**of_gone, f"{STAYS}|s": "closed"}
    )
    assert await listed(keeper, "persistent://t/ns/other") == {}


@virtual
async def test_a_tombstone_is_not_listed() -> None:
    world = World()
    keeper = await world.keeper()
    await closed_one(keeper, "a")
    assert await deleted(keeper) == {"a": None}
    assert await listed(keeper) == {} and await deleted(keeper) == {}


@virtual
async def test_without_a_token_no_cursor_goes_that_somebody_has_open() -> None:
    """Held here by a source, held by another daemon, left open by one that was killed; one that
    nobody holds goes.
    """
    world = World()
    keeper, other, killed = (
        await world.keeper("one"),
        await world.keeper("two"),
        await world.keeper("three"),
    )
    await closed_one(keeper, "closed")
    held = await open_one(keeper, "held")
    elsewhere = await open_one(other, "elsewhere")
    await open_one(killed, "left open")
    killed.abandon()
    detached = await open_one(keeper, "detached")
    keeper.detach(detached.name, detached.attach)
    await closed_one(keeper, "s", STAYS)
    assert await deleted(keeper) == {
        "closed": None,
        "detached": None,
        "held": Refusal.ALREADY_OPEN,
        "elsewhere": Refusal.OPEN_ELSEWHERE,
        "left open": Refusal.OPEN_ELSEWHERE,
    }
    for one in (held, elsewhere):
        one.ack(acks(DATA, 5))
        await one.durable()
    assert await deleted(keeper, takeover=True) == {
        "held": Refusal.ALREADY_OPEN,
        "elsewhere": None,
        "left open": None,
    }
    assert await listed(keeper) == {held.name.display: "open", f"{STAYS}|s": "closed"}
    assert keeper.failures == other.failures == []


@virtual
async def test_a_token_deletes_what_has_no_higher_one() -> None:
    world = World()
    keeper, other = await world.keeper("one"), await world.keeper("two")
    await closed_one(keeper, "none")
    await closed_one(keeper, "lower", fencing_token=5)
    await closed_one(keeper, "higher", fencing_token=9)
    await open_one(keeper, "held", fencing_token=7)
    await open_one(other, "elsewhere", fencing_token=6)
    newer = await open_one(keeper, "held higher", fencing_token=8)
    assert set((await deleted(keeper)).items()) == {
        ("none", None),
        *(
            (name, Refusal.FENCED)
            for name in ("lower", "higher", "held", "elsewhere", "held higher")
        ),
    }
    assert await deleted(keeper, token=7) == {
        "lower": None,
        "held": None,
        "elsewhere": None,
        "higher": Refusal.FENCED,
        "held higher": Refusal.FENCED,
    }
    newer.ack(acks(DATA, 5))
    await newer.durable()


@virtual
async def test_a_cursor_that_is_opened_meanwhile_stays() -> None:
    """Between the look at its footer and the claim a source opens it elsewhere: without a token it
    is left alone.
    """
    world = World()
    keeper, other = await world.keeper("one"), await world.keeper("two")
    await closed_one(keeper, "a")
    stored = StoredCursors(keeper)
    [found] = [s async for s in stored.walk([GONE])]
    late = await open_one(other, "a")
    outcome = await stored._delete(found, 0, True)
    assert outcome.refused is Refusal.OPEN_ELSEWHERE
    late.ack(acks(DATA, 5))
    await late.durable()


@virtual
async def test_a_footer_that_cannot_be_read_is_told_and_left() -> None:
    world = World()
    keeper = await world.keeper()
    await closed_one(keeper, "a")
    name = CursorName(GONE, "a")
    session = world.zookeeper.session()
    await session.start()
    await session.set(name.path(), b"nonsense", (await session.get(name.path())).version)
    assert await listed(keeper) == {name.display: "damaged"}
    assert await deleted(keeper) == {"a": Refusal.DAMAGED}


@virtual
async def test_walks_are_bounded_and_their_places_come_back() -> None:
    world = World()
    keeper = await world.keeper()
    await closed_one(keeper, "a")
    stored = StoredCursors(keeper)
    walks = [stored.walk([]) for _ in range(WALKS_MAX)]
    for walk in walks:
        await anext(walk)
    with pytest.raises(TooManyWalks, match="ask again later"):
        await anext(stored.walk([]))
    await walks[0].aclose()
    await anext(stored.walk([]))


@virtual
async def test_a_deletion_that_is_not_decided_is_told_so() -> None:
    world = World()
    keeper = await world.keeper()
    await closed_one(keeper, "a")
    [found] = [s async for s in StoredCursors(keeper).walk([])]
    world.zookeeper.stop()
    assert (await StoredCursors(keeper)._delete(found, 0, False)).refused is Refusal.UNAVAILABLE


async def test_over_grpc_with_the_sources_token_only() -> None:
    served = ServedKeeper()
    served.credentials, served.readers_token = b"source", b"reader"
    await served.start()
    try:
        said = ClientSettings(credentials=b"source")
        async with SourceConnection(served.address, said) as session:
            for topic, subscription in [(GONE, "a"), (GONE, "b"), (STAYS, "a")]:
                handle = session.open(topic, subscription)
                await handle.opened()
                await handle.close()
        async with asyncio.timeout(60), grpc.aio.insecure_channel(served.address) as channel:
            store = rpc.CursorStoreStub(channel)
            reader = (("authorization", "Bearer reader"),)
            ask = pb.ListRequest(topics=[GONE], stored=True)
            found = [info async for info in store.List(ask, metadata=reader)]
            assert sorted((i.cursor.subscription, i.state, i.held) for i in found) == [
                ("a", "closed", False),
                ("b", "closed", False),
            ]
            assert [
                i async for i in store.List(pb.ListRequest(topics=[GONE]), metadata=reader)
            ] == []
            with pytest.raises(grpc.aio.AioRpcError, match="needs the role") as denied:
                await store.DeleteTopic(pb.DeleteTopicRequest(topic=GONE), metadata=reader).read()
            assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    finally:
        await served.kill()


async def test_a_caller_who_leaves_gives_his_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_cursors, "WALKS_MAX", 1)
    monkeypatch.setattr(stored_cursors, "READ_AT_ONCE", 1)
    monkeypatch.setattr(stored_cursors, "BUCKET_PAUSE_S", 3_600.0)
    served = await ServedKeeper().start()
    try:
        async with (
            asyncio.timeout(60),
            SourceConnection(served.address) as session,
            grpc.aio.insecure_channel(served.address) as channel,
        ):
            await session.open(GONE, "a").opened()
            store = rpc.CursorStoreStub(channel)
            for _ in range(2):
                call = store.List(pb.ListRequest(stored=True))
                assert (await call.read()).cursor.subscription == "a"
                with pytest.raises(grpc.aio.AioRpcError, match="ask again later") as said:
                    await store.DeleteTopic(pb.DeleteTopicRequest(topic=GONE)).read()
                assert said.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                call.cancel()
                await until(lambda: not served.store._stored._walks)
    finally:
        await served.kill()


async def test_over_grpc_a_topic_is_deleted() -> None:
    served = await ServedKeeper().start()
    try:
        async with (
            SourceConnection(served.address) as session,
            grpc.aio.insecure_channel(served.address) as channel,
        ):
            store = rpc.CursorStoreStub(channel)
            await session.open(GONE, "a").opened()
            await (closing := session.open(GONE, "b")).opened()
            await closing.close()
            outcomes = {
                o.cursor.subscription: o
                async for o in store.DeleteTopic(pb.DeleteTopicRequest(topic=GONE))
            }
            assert (
                outcomes["b"].refused == 0
                and outcomes["a"].refused == pb.ALREADY_OPEN
                and outcomes["a"].remedy
            )
            for wrong in (
                pb.DeleteTopicRequest(),
                pb.DeleteTopicRequest(topic=GONE, fencing_token=1 << 63),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as said:
                    await store.DeleteTopic(wrong).read()
                assert said.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError, match="1000 are allowed"):
                await store.List(pb.ListRequest(topics=["t"] * 1_001)).read()
            assert [
                i.cursor.subscription
                async for i in store.List(pb.ListRequest(topics=[GONE, STAYS]))
            ] == ["a"]
    finally:
        await served.kill()


def test_states_are_those_of_footers() -> None:
    assert {str(s) for s in FooterState} == {"open", "closed", "deleted"}
