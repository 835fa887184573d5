"""The client against a gateway that is told what to do wrong: silence, broken streams, statuses,
limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from cursorkeeper.bookkeeper import (
    GatewayError,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    LedgerSpec,
    Outcome,
)
from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper._proto import ledgers_pb2_grpc
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client.gap import Gap

OURS = {"application": b"cursorkeeper"}
Step = Callable[[Any], Awaitable[None]]


class ScriptedGateway(ledgers_pb2_grpc.LedgersServicer):
    """Answers Describe and Create; everything else as the test says."""

    def __init__(self) -> None:
        self.requests: list[pb.AppendRequest] = []
        self.metadata: dict[str, str] = {}
        self.streams = 0
        self.silent = False
        self.fail_with: grpc.StatusCode | None = None
        self.failure: pb.Failure | None = None
        self.cut_stream = asyncio.Event()
        self.message_bytes_max = 4 << 20

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeReply:  # noqa: N802
        return pb.DescribeReply(
            instance="one",
            entry_bytes_max=1 << 20,
            message_bytes_max=self.message_bytes_max,
            writable_bookies=3,
        )

    async def Create(self, request: pb.CreateRequest, context: Any) -> pb.CreateReply:  # noqa: N802
        self.metadata = dict(context.invocation_metadata())
        await self._misbehave(context)
        return pb.CreateReply(ledger_id=5)

    async def Read(self, request: pb.ReadRequest, context: Any) -> AsyncIterator[pb.ReadReply]:  # noqa: N802
        yield pb.ReadReply(first_entry_id=0, payloads=[b"a"])
        await self._misbehave(context)

    async def Append(  # noqa: N802
        self, requests: AsyncIterator[pb.AppendRequest], context: Any
    ) -> AsyncIterator[pb.AppendReply]:
        self.streams += 1
        async for request in requests:
            self.requests.append(request)
            if self.fail_with:
                await self._misbehave(context)
            if not self.silent:
                yield pb.AppendReply(
                    appended=[
                        pb.Appended(
                            ledger_id=a.ledger_id,
                            last_entry_id=a.first_entry_id + len(a.payloads) - 1,
                        )
                        for a in request.appends
                    ]
                )

    async def _misbehave(self, context: Any) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.failure:
            context.set_trailing_metadata(
                (("cursorkeeper-failure-bin", self.failure.SerializeToString()),)
            )
        if self.fail_with:
            await context.abort(self.fail_with, "on purpose")


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    service = ScriptedGateway()
    server = grpc.aio.server()
    ledgers_pb2_grpc.add_LedgersServicer_to_server(service, server)
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"  # type: ignore[attr-defined]
    await server.start()
    yield service
    await server.stop(grace=0)


@pytest_asyncio.fixture
async def connect(
    gateway: ScriptedGateway,
) -> AsyncIterator[Callable[..., Awaitable[GatewayClient]]]:
    made: list[GatewayClient] = []

    async def start(append_gap: Gap | None = None, **given: Any) -> GatewayClient:
        settings = GatewayClientSettings(address=gateway.address, stream_back_off_min_ms=5, **given)  # type: ignore[attr-defined]
        client = GatewayClient(settings, append_gap=append_gap)
        made.append(client)
        await client.start()
        return client

    yield start
    for client in made:
        await client.close()


async def failure(waiting: Awaitable[object]) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await waiting
    return caught.value


Connect = Callable[..., Awaitable[GatewayClient]]


async def test_role_and_token_travel_with_every_call(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect(token="secret")
    assert await client.create(LedgerSpec(), OURS) == 5
    assert (gateway.metadata["cursorkeeper-role"], gateway.metadata["cursorkeeper-token"]) == (
        "writer",
        "secret",
    )


async def test_a_burst_is_gathered_and_cut(gateway: ScriptedGateway, connect: Connect) -> None:
    client = await connect(append_batch_entries_max=64)
    await asyncio.gather(
        *(client.append(ledger, entry, b"x") for entry in range(100) for ledger in (1, 2))
    )
    sizes = [sum(len(a.payloads) for a in request.appends) for request in gateway.requests]
    assert sum(sizes) == 200 and max(sizes) == 64 and len(sizes) <= 6
    assert gateway.streams == 1


class Pause(Gap):
    """It is over when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def wait(self) -> None:
        await self.over.wait()


async def test_what_comes_in_the_pause_after_a_message_goes_together(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    pause = Pause()
    client = await connect(pause)
    gateway.silent = True
    waiting = [client.append(1, 0, b"x")]
    async with asyncio.timeout(60):
        while not gateway.requests:
            await client.describe()
    gateway.silent = False
    waiting.append(client.append(1, 1, b"x"))
    await client.describe()  # time enough for it to leave
    waiting.append(client.append(2, 0, b"x"))
    pause.over.set()
    await asyncio.gather(*waiting)
    assert [len(request.appends) for request in gateway.requests] == [1, 2]


async def test_who_appends_one_after_the_other_waits_for_no_pause(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect(Pause())
    async with asyncio.timeout(60):
        for entry in range(3):
            await client.append(1, entry, b"x")
    assert len(gateway.requests) == 3


async def test_an_append_that_is_never_answered_fails_in_time(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    gateway.silent = True
    client = await connect(append_timeout_s=3)
    error = await failure(client.append(1, 0, b"x"))
    assert isinstance(error, GatewayRoll) and (error.outcome, error.reason) == (
        Outcome.UNKNOWN,
        "TIMEOUT",
    )
    after = await failure(client.append(1, 1, b"x"))
    assert isinstance(after, GatewayRoll) and after.outcome is Outcome.NOT_DONE
    gateway.silent = False
    await client.append(2, 0, b"the stream lives on")
    assert gateway.streams == 1


async def test_a_broken_stream_fails_what_is_unanswered_and_is_opened_again(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect()
    await client.append(1, 0, b"x")
    gateway.fail_with = grpc.StatusCode.INTERNAL
    errors = [await failure(f) for f in [client.append(1, entry, b"x") for entry in range(1, 4)]]
    assert all(
        isinstance(e, GatewayRoll) and e.outcome is Outcome.UNKNOWN and e.reason == "GATEWAY_FAILED"
        for e in errors
    )
    gateway.fail_with = None
    await client.append(2, 0, b"x")
    assert gateway.streams == 2 and not client._queue.has_unanswered


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        (grpc.StatusCode.UNAVAILABLE, GatewayRetry, Outcome.UNKNOWN),
        (grpc.StatusCode.INTERNAL, GatewayRetry, Outcome.UNKNOWN),
        (grpc.StatusCode.UNAUTHENTICATED, GatewayRefused, Outcome.NOT_DONE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, GatewayRefused, Outcome.UNKNOWN),
    ],
)
async def test_a_status_becomes_our_error(
    gateway: ScriptedGateway,
    connect: Connect,
    status: grpc.StatusCode,
    kind: type[GatewayError],
    outcome: Outcome,
) -> None:
    client = await connect()
    gateway.fail_with = status
    error = await failure(client.create(LedgerSpec(), OURS))
    assert type(error) is kind and error.outcome is outcome and "on purpose" in str(error)


async def test_the_failure_in_the_trailers_wins_over_the_status(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect()
    gateway.fail_with = grpc.StatusCode.UNAVAILABLE
    gateway.failure = pb.Failure(
        bookkeeper_code=-6, reaction="RETRY", outcome="NOT_DONE", reason="NOT_ENOUGH_BOOKIES"
    )
    error = await failure(client.create(LedgerSpec(), OURS))
    assert (type(error), error.outcome, error.bookkeeper_code) == (
        GatewayRetry,
        Outcome.NOT_DONE,
        -6,
    )


async def test_every_call_has_a_limit(gateway: ScriptedGateway, connect: Connect) -> None:
    client = await connect(create_timeout_s=0.1, read_chunk_timeout_s=3)
    gateway.silent = True
    created = await failure(client.create(LedgerSpec(), OURS))
    assert isinstance(created, GatewayRetry) and (created.reason, created.outcome) == (
        "TIMEOUT",
        Outcome.UNKNOWN,
    )
    got = []
    with pytest.raises(GatewayRetry, match="TIMEOUT"):
        async for chunk in client.read(1, 0):
            got.append(chunk)
    assert len(got) == 1


async def test_closing_under_a_call_is_an_error_and_no_cancellation(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect()
    gateway.silent = True
    call = asyncio.ensure_future(client.create(LedgerSpec(), OURS))
    append = client.append(1, 0, b"x")
    await asyncio.wait([call], timeout=0.05)
    await client.close()
    assert (await failure(call)).outcome is Outcome.UNKNOWN
    assert isinstance(await failure(append), GatewayRoll)


async def test_cancelling_a_caller_stays_a_cancellation(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    client = await connect()
    gateway.silent = True
    call = asyncio.ensure_future(client.create(LedgerSpec(), OURS))
    await asyncio.wait([call], timeout=0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_limits_that_do_not_fit_are_told_at_the_start(
    gateway: ScriptedGateway, connect: Connect
) -> None:
    gateway.message_bytes_max = 1 << 20
    error = await failure(connect())
    assert isinstance(error, GatewayRefused) and error.reason == "LIMITS"


async def test_nobody_there_is_told_in_time() -> None:
    client = GatewayClient(GatewayClientSettings(address="127.0.0.1:1", start_timeout_s=3))
    error = await failure(client.start())
    assert isinstance(error, GatewayRetry) and (error.reason, error.outcome) == (
        "NOT_CONNECTED",
        Outcome.NOT_DONE,
    )
    assert "127.0.0.1:1" in error.message and "Connection refused" in error.message
    await client.close()


async def test_a_gateway_that_comes_late_is_found_by_the_same_start() -> None:
    address = f"127.0.0.1:{free_port()}"
    client = GatewayClient(GatewayClientSettings(address=address, start_timeout_s=60))
    starting = asyncio.create_task(client.start())
    done, _ = await asyncio.wait({starting}, timeout=0.5)
    assert not done, "it goes on asking"
    server = grpc.aio.server()
    ledgers_pb2_grpc.add_LedgersServicer_to_server(ScriptedGateway(), server)
    server.add_insecure_port(address)
    await server.start()
    await starting
    await client.close()
    await server.stop(0)


def test_settings_that_contradict_are_told() -> None:
    for wrong in (
        {"role": "owner"},
        {"append_timeout_s": 0},
        {"append_window_bytes_max": 1},
        {"read_chunk_bytes": 8 << 20},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GatewayClientSettings(**wrong)  # type: ignore[arg-type]


async def test_a_gateway_that_is_slow_to_greet_is_waited_for() -> None:
    """Each attempt begins from nothing: given up after a moment, none would ever succeed on a busy
    machine.
    """
    attempts = 0

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.Event().wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = GatewayClient(
        GatewayClientSettings(
            address=f"127.0.0.1:{port}", start_timeout_s=3, connect_timeout_ms=60_000
        )
    )
    error = await failure(client.start())
    assert error.reason == "NOT_CONNECTED"
    assert attempts == 1
    await client.close()
    server.close()
