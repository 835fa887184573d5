"""Tokens of the daemon's services, over real gRPC; streams that never say who they are, and too
many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from cursorkeeper.access import rights
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from daemon.tests.stream.served import ServedKeeper

REF = pb.CursorRef(topic="persistent://t/n/topic", subscription="s")
ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "Get": lambda store, said: store.Get(pb.GetRequest(cursor=REF), metadata=said),
    "List": lambda store, said: store.List(pb.ListRequest(), metadata=said).read(),
    "AckState": lambda store, said: store.AckState(pb.AckStateRequest(cursor=REF), metadata=said),
    "DeleteTopic": lambda store, said: store.DeleteTopic(
        pb.DeleteTopicRequest(topic="none"), metadata=said
    ).read(),
    "Export": lambda store, said: store.Export(pb.ExportRequest(cursor=REF), metadata=said).read(),
}
WRONG = [
    (),
    (("authorization", "Bearer other"),),
    (("authorization", "source"),),
    (("authorization", "Bearer "),),
]


@asynccontextmanager
async def served(**how: Any) -> AsyncIterator[Any]:
    keeper = ServedKeeper()
    for name, value in how.items():
        setattr(keeper, name, value)
    await keeper.start()
    try:
        async with grpc.aio.insecure_channel(keeper.address) as channel:
            yield channel
    finally:
        await keeper.kill()


def test_all_of_the_store_is_asked_about() -> None:
    (service,) = [s for s in pb.DESCRIPTOR.services_by_name.values() if s.name == "CursorStore"]
    assert {method.name for method in service.methods} == set(ASKED)
    assert {method for method in rights.RIGHTS if method.startswith(rights.STORE)} == {
        f"/{service.full_name}/{name}" for name in ASKED
    }


@pytest.mark.parametrize("method", sorted(ASKED))
async def test_the_store_answers_only_who_has_a_token(method: str) -> None:
    async with served(credentials=b"source", readers_token=b"reader") as channel:
        store = rpc.CursorStoreStub(channel)
        for said in WRONG:
            with pytest.raises(grpc.aio.AioRpcError, match="Bearer TOKEN") as denied:
                await ASKED[method](store, said)
            assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for token in ("source", "reader"):
            if token == "reader" and method == "DeleteTopic":
                with pytest.raises(grpc.aio.AioRpcError, match="it needs the role") as denied:
                    await ASKED[method](store, (("authorization", f"Bearer {token}"),))
                assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
                continue
            try:
                await ASKED[method](store, (("authorization", f"Bearer {token}"),))
            except grpc.aio.AioRpcError as e:
                # there is no such cursor, and that is told
                assert e.code() is grpc.StatusCode.NOT_FOUND


async def test_a_daemon_without_a_token_asks_nobody() -> None:
    async with served() as channel:
        assert await rpc.CursorStoreStub(channel).List(pb.ListRequest()).read() is grpc.aio.EOF


async def test_a_stream_without_a_hello_ends() -> None:
    async with asyncio.timeout(60), served(hello_timeout_s=3.0) as channel:
        good = rpc.AckSinkStub(channel).Publish()
        await good.write(
            pb.SourceMessage(hello=pb.Hello(name="t", incarnation="1", protocol_versions=[1]))
        )
        assert (await good.read()).HasField("hello")
        call = rpc.AckSinkStub(channel).Publish()
        with pytest.raises(grpc.aio.AioRpcError, match="hello_timeout_s") as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert not good.done(), "it lasts longer than a silent one may"
        good.cancel()


async def test_streams_are_bounded_and_their_places_come_back() -> None:
    async with asyncio.timeout(60), served(streams_max=2) as channel:
        calls = []
        for _ in range(2):
            calls.append(rpc.AckSinkStub(channel).Publish())
            await calls[-1].write(
                pb.SourceMessage(hello=pb.Hello(name="t", incarnation="1", protocol_versions=[1]))
            )
            assert (await calls[-1].read()).HasField("hello")
        with pytest.raises(grpc.aio.AioRpcError, match="streams_max") as full:
            await rpc.AckSinkStub(channel).Publish().read()
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await calls[0].done_writing()
        assert await calls[0].read() is grpc.aio.EOF
        again = rpc.AckSinkStub(channel).Publish()
        await again.write(
            pb.SourceMessage(hello=pb.Hello(name="t", incarnation="1", protocol_versions=[1]))
        )
        assert (await again.read()).HasField("hello")
        for call in (calls[1], again):
            call.cancel()
