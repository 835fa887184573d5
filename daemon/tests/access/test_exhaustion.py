"""Peers who want to hold what they may not: who never ends a request, who does not read, and who
leaves before what they asked for is done.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Callers, Shown, Table
from cursorkeeper.access.identities_file import Known
from cursorkeeper.access.identity import (
    ANYBODY,
    EVERY_TOPIC,
    Identity,
    Quotas,
    Role,
    Topics,
)
from cursorkeeper.access.signed_tokens import TokenProblem, of_settings
from cursorkeeper.stream import servers
from cursorkeeper_client import Client, ClientSettings, LayoutItem, LayoutState
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX
from daemon.tests.access.identities import digest
from daemon.tests.stream.served import ServedKeeper

BOUND = Identity("bound", frozenset({Role.SOURCE}), EVERY_TOPIC, Quotas(streams=2))
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)


def table_of(*identities: Identity) -> Table:
    hashes = {digest(one.name).removeprefix("sha256:"): one for one in identities}
    return Table(Known(hashes, {}, {}))


@asynccontextmanager
async def served(table: Table | None = None, **how: Any) -> AsyncIterator[ServedKeeper]:
    keeper = ServedKeeper()
    keeper.callers = Callers(table) if table is not None else None
    for name, value in how.items():
        setattr(keeper, name, value)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.kill()


async def becomes(what: str, is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    try:
        async with asyncio.timeout(limit_s):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not so within {limit_s} s: {what}")


async def half_a_request(address: str, headers: bytes) -> tuple[asyncio.StreamWriter, Any]:
    """An HTTP/2 connection with a request whose message lacks its last byte."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return (
            struct.pack("!I", len(body))[1:]
            + bytes([kind, flags])
            + struct.pack("!I", stream)
            + body
        )

    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    writer.write(frame(1, 4, 1, headers))
    writer.write(frame(0, 0, 1, b"\0" + struct.pack("!I", 1_000) + bytes(999)))
    await writer.drain()
    return writer, reader


def literal(name: str, value: str) -> bytes:
    return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def headers(method: str, *more: tuple[str, str]) -> bytes:
    return b"".join(
        literal(*pair)
        for pair in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "a"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *more,
        )
    )


async def ended(reader: asyncio.StreamReader, limit_s: float) -> bytes:
    """What the server says until the request has its status, or nothing comes any more."""
    said = b""
    try:
        async with asyncio.timeout(limit_s):
            while b"grpc-status" not in said and b"grpc-message" not in said:
                more = await reader.read(65_536)
                if not more:
                    break
                said += more
    except TimeoutError:
        pytest.fail("the request has not ended")
    return said


@pytest.mark.parametrize("is_known", [False, True])
async def test_half_a_request_ends(is_known: bool) -> None:
    """A stranger's at once, and others' when their time is over."""
    token = [("authorization", "Bearer bound")] if is_known else []
    async with served(table_of(BOUND), request_max_s=0.5) as keeper:
        got = await half_a_request(
            keeper.address, headers("/cursorkeeper.acks.v1.CursorStore/Get", *token)
        )
        writer, reader = got
        said = await ended(reader, 60)
        assert (b"did not come within" in said) is is_known, said
        writer.close()


async def test_a_stream_that_does_not_read_is_gone() -> None:
    """After it was told too much, and after its identity is gone; it counts until then."""
    hello = pb.Hello(
        name="n",
        incarnation="1",
        protocol_versions=[1],
        credentials=b"bound",
        group_messages_max=GROUP_MESSAGES_MAX,
    )
    wrong = pb.SourceMessage()
    for _ in range(GROUP_MESSAGES_MAX):
        wrong.group.messages.add(close_cursor=pb.CloseCursor(handle=99))

    def begin(channel: Any) -> Any:
        return channel.stream_stream(
            "/cursorkeeper.acks.v1.AckSink/Publish",
            request_serializer=pb.SourceMessage.SerializeToString,
        )()

    async with served(table_of(BOUND), unread_end_max_s=0.5) as keeper:
        guard = keeper.guard
        assert guard is not None
        counts = guard.usage._of(BOUND).counts
        async with (
            grpc.aio.insecure_channel(keeper.address) as full,
            grpc.aio.insecure_channel(keeper.address) as revoked,
        ):
            first = begin(full)
            await first.write(pb.SourceMessage(hello=hello))
            await becomes("one is in", lambda: counts.get("streams") == 1)

            async def flood() -> None:
                while True:
                    await first.write(wrong)

            flooding = asyncio.create_task(flood())
            await becomes("the one that does not read is gone", lambda: counts["streams"] == 0)
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
            second = begin(revoked)
            await second.write(pb.SourceMessage(hello=hello))
            await becomes("one is in", lambda: counts["streams"] == 1)
            guard.callers.table = table_of()
            await guard.look()
            await becomes("the one without an identity is gone", lambda: not guard.staying)


async def test_streams_without_a_hello_are_bounded_and_make_room() -> None:
    async with (
        served(streams_max=10_000, hello_timeout_s=2.0) as keeper,
        grpc.aio.insecure_channel(keeper.address) as channel,
    ):
        silent = [
            channel.stream_stream("/cursorkeeper.acks.v1.AckSink/Publish")()
            for _ in range(servers.STRANGERS_MAX + 20)
        ]
        codes = [await call.code() for call in silent]
        refused = codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert refused >= 20 and codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) >= 1
        async with Client(keeper.address, ClientSettings()) as client:
            await client.cursor("persistent://t/n/topic", "s", layout=LAYOUT).opened()


async def test_what_goes_on_when_who_asked_has_left_is_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    async with served(audit=Audit(str(file))) as keeper:
        async with Client(keeper.address, ClientSettings()) as client:
            cursor = client.cursor("persistent://t/n/topic", "s", layout=LAYOUT)
            await cursor.opened()
            await cursor.close()
        async with grpc.aio.insecure_channel(keeper.address) as channel:
            call = rpc.CursorStoreStub(channel).DeleteTopic(
                pb.DeleteTopicRequest(topic="persistent://t/n/topic")
            )
            await becomes("it was asked for", lambda: "DeleteTopic" in file.read_text())
            call.cancel()
    keeper.audit.close()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    asked = {line["action"] for line in told if line["result"] == "asked"}
    assert asked == {"close_cursor", "DeleteTopic"}


def test_the_audit_log_goes_on_after_a_rotation_that_failed(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    dropped: list[int] = []
    audit = Audit(str(folder / "audit.log"), lambda: dropped.append(1))

    def did(number: int) -> None:
        audit.did("open", ANYBODY, Shown("a"), cursor=number)

    async def story() -> None:
        did(1)
        await becomes("written", lambda: '"cursor":1' in (folder / "audit.log").read_text())
        folder.rename(tmp_path / "away")
        did(2)
        await becomes("counted", lambda: dropped == [1])
        folder.mkdir()
        did(3)
        await becomes("there again", (folder / "audit.log").exists)

    asyncio.run(story())
    audit.close()
    assert '"cursor":3' in (folder / "audit.log").read_text()


def test_every_other_algorithm_than_the_keys_is_nobodys(tmp_path: Path) -> None:
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
    for own, curve in curves.items():
        key = ec.generate_private_key(curve)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        file = tmp_path / f"{own}.pem"
        file.write_bytes(public)
        signed = of_settings("", str(file), "sub", "", "")
        assert signed is not None
        assert signed.subject(jwt.encode({"sub": "s"}, key, own).encode()) == "s"
        tokens = [
            jwt.encode({"sub": "s"}, ec.generate_private_key(other), name)
            for name, other in curves.items()
        ]
        header, body, _ = jwt.encode({"sub": "s"}, b"x" * 64, "HS256").split(".")
        tokens += [f"{header}.{body}.AAAA", f"{header}.{body}."]
        for token in tokens:
            with pytest.raises(TokenProblem):
                signed.subject(token.encode())


async def test_an_identity_of_many_topics_is_told_so() -> None:
    many = Topics(tuple(f"persistent://tenant-{n}/" for n in range(5_000)))
    table = table_of(Identity("many", frozenset({Role.READER}), many))
    async with served(table) as keeper, grpc.aio.insecure_channel(keeper.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="and 4997 more") as denied:
            await rpc.CursorStoreStub(channel).Get(
                pb.GetRequest(cursor=pb.CursorRef(topic="persistent://x/n/t", subscription="s")),
                metadata=(("authorization", "Bearer many"),),
            )
        assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
