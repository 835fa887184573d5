"""Clients that mean harm, or have a bug, against a gateway with little memory: a well-behaved one's
appends flow, and it lives.

The gateway has 256 MiB of heap and as much beside it. A hostile client speaks gRPC or HTTP/2
without our client, so that it may stop reading, stop in the middle of a message, and send what ours
never would; in plain text, and through TLS with a certificate that is good.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import struct
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from cursorkeeper.bookkeeper import GatewayRefused, GatewayRetry, GatewayRoll, LedgerSpec
from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.demo.stack import JavaProcess, LocalCluster
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.support.frozen import freeze, thaw

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NAME = "gateway.example.com"
OURS = {"application": b"cursorkeeper"}
SERVICE, HEALTH = "/cursorkeeper.ledgers.v1.Ledgers/", "/grpc.health.v1.Health/"
WRITER = (("cursorkeeper-role", "writer"),)
STALL_MAX_MS = 3_000
SILENT_S = 30
WRITERS = 200
IN_FLIGHT_MAX_BYTES = 40 << 20
"""An eighth of the memory, and one message on top."""
CUT_OFF_MAX = 5
"""So often a reader that reads is cut off at most, on a machine that has much else to do."""
APPENDS = 150
"""Of the well-behaved client while the others do their worst."""
APPEND_MAX_S = 60.0
"""Of one of them: generous, for a busy machine. Before there were budgets they never came back."""
LARGE, MIB = 5_000_000, 1 << 20
ALONE, TRIPLE = LedgerSpec(1, 1, 1), LedgerSpec(3, 3, 2)
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One bookie."""
    with LocalCluster(tmp_path_factory.mktemp("hostile"), bookies=1, gateways=0) as running:
        yield running


class Gateway(JavaProcess):
    """`files`: with TLS, for certificates of that authority alone."""

    files: TlsFiles | None = None


@pytest.fixture(scope="module", params=["plain", "tls"])
def gateway(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """A gateway of 256 MiB."""
    where = ["--port", str(free_port()), "--metadata-service-uri", cluster.metadata_service_uri]
    files = None
    if request.param == "tls":
        files = Authority(cluster.data_dir / "authority").issue("gateway", NAME)
        where += [
            *("--tls-certificate-file-path", files.certificate),
            *("--tls-key-file-path", files.key),
            *("--tls-trust-certs-file-path", files.trust_certs),
            "--tls-require-trusted-client-cert-on-connect",
        ]
    process = Gateway(
        "gateway",
        [*where, "--stall-max-ms", str(STALL_MAX_MS)],
        cluster.data_dir / f"gateway-{request.param}.log",
        heap_mib=256,
    )
    process.files = files
    process.start()
    yield process
    process.kill()


def address(gateway: Gateway) -> str:
    return str(gateway.ready["gateway"])


def context(gateway: Gateway) -> ssl.SSLContext | None:
    """Of a client of HTTP/2 that is not gRPC's."""
    if gateway.files is None:
        return None
    made = gateway.files.client_context()
    made.check_hostname = False
    made.set_alpn_protocols(["h2"])
    return made


async def dialled(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address(gateway).split(":")
    return await asyncio.open_connection(host, int(port), ssl=context(gateway))


@asynccontextmanager
async def client(gateway: Gateway) -> AsyncIterator[GatewayClient]:
    made = GatewayClient(
        GatewayClientSettings(
            address=address(gateway),
            append_batch_bytes_max=MIB,
            tls=gateway.files,
            tls_server_name=NAME if gateway.files else "",
        )
    )
    await made.start()
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def channel(gateway: Gateway) -> AsyncIterator[Any]:
    """A connection of its own, without anything of our client. It does not measure how much may be
    on the way: of a machine that is slow that may be all that the gateway would ever send.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    if gateway.files is None:
        made = grpc.aio.insecure_channel(address(gateway), options=options)
    else:
        shown = gateway.files.channel_credentials()
        options.append(("grpc.ssl_target_name_override", NAME))
        made = grpc.aio.secure_channel(address(gateway), shown, options=options)
    async with made:
        yield made


async def created(store: GatewayClient, spec: LedgerSpec = ALONE) -> int:
    """A ledger. A bookie may be away for a moment: its session ends when it stands still, or the
    machine does.
    """
    return await patiently(lambda: store.create(spec, OURS))


async def patiently(attempt: Callable[[], Awaitable[int]]) -> int:
    async with asyncio.timeout(120):
        while True:
            try:
                return await attempt()
            except GatewayRetry:
                pass
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.2)


async def ledger_of(gateway: Gateway, entries: int, size: int) -> int:
    async with client(gateway) as store:
        ledger = await created(store)
        for entry in range(entries):
            await store.append(ledger, entry, bytes(size))
        await store.close_ledger(ledger)
        return ledger


def raw(channel: Any, method: str, kind: str) -> Any:
    return getattr(channel, kind)(
        SERVICE + method, request_serializer=lambda b: b, response_deserializer=lambda b: b
    )


async def create(connection: Any, spec: LedgerSpec) -> int:
    """A ledger, without our client; as `created`, where a bookie is away for a moment."""
    request = pb.CreateRequest(
        ensemble=spec.ensemble,
        write_quorum=spec.write_quorum,
        ack_quorum=spec.ack_quorum,
        custom_metadata=OURS,
    )
    call, sent = raw(connection, "Create", "unary_unary"), request.SerializeToString()

    async def attempt() -> int:
        return int(pb.CreateReply.FromString(await call(sent, metadata=WRITER)).ledger_id)

    return await patiently(attempt)


async def health(gateway: Gateway) -> int:
    async with channel(gateway) as fresh:
        check = fresh.unary_unary(
            HEALTH + "Check",
            request_serializer=lambda b: b,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int((await check(b"", timeout=120, wait_for_ready=True)).status)


# ---- what they do; each returns when the worst is under way, and goes on until it is closed

Hostile = Callable[[Gateway, AsyncExitStack], Awaitable[None]]


async def readers_that_never_read(gateway: Gateway, stack: AsyncExitStack) -> None:
    ledger = await ledger_of(gateway, 40, MIB)
    request = pb.ReadRequest(
        ledger_id=ledger, last_entry_id=-1, max_bytes=4 * MIB
    ).SerializeToString()
    for _ in range(40):
        call = raw(await stack.enter_async_context(channel(gateway)), "Read", "unary_stream")(
            request
        )
        stack.callback(call.cancel)
        await call.initial_metadata()


async def readers_of_large_entries(gateway: Gateway, stack: AsyncExitStack) -> None:
    ledger = await ledger_of(gateway, 12, LARGE)

    async def whole(store: GatewayClient) -> int:
        """Read again where this machine was too slow to take it in time, and was cut off."""
        for _ in range(CUT_OFF_MAX):
            with suppress(GatewayRetry):
                chunks = [chunk async for chunk in store.read(ledger, 0)]
                return sum(len(payload) for chunk in chunks for payload in chunk.payloads)
        raise AssertionError(f"cut off {CUT_OFF_MAX} times")

    async def read() -> None:
        async with client(gateway) as store:
            for _ in range(3):
                assert await whole(store) == 12 * LARGE

    readers = asyncio.gather(read(), read(), read(), read())
    stack.push_async_callback(lambda: readers)


async def small_entries_before_large_ones(gateway: Gateway, stack: AsyncExitStack) -> None:
    """What was seen so far says nothing of what comes."""
    async with client(gateway) as store:
        ledger = await created(store)
        for entry in range(200):
            await store.append(ledger, entry, bytes(LARGE if entry >= 190 else 10))
        await store.close_ledger(ledger)
    request = pb.ReadRequest(ledger_id=ledger, last_entry_id=-1).SerializeToString()
    for _ in range(20):
        call = raw(await stack.enter_async_context(channel(gateway)), "Read", "unary_stream")(
            request
        )
        stack.callback(call.cancel)
        await call.initial_metadata()


async def messages_of_millions(gateway: Gateway, stack: AsyncExitStack) -> None:
    entries = pb.LedgerAppend(ledger_id=1).SerializeToString() + b"\x1a\x00" * 2_500_000
    nested = b"\x0a" + _varint(len(entries)) + entries
    for message in (b"\x0a\x00" * 2_500_000, nested):
        for _ in range(4):
            call = raw(
                await stack.enter_async_context(channel(gateway)), "Append", "stream_stream"
            )(metadata=WRITER)
            await call.write(message)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (
                "message_ledgers_max" in refused.value.details()
                or "message_entries_max" in refused.value.details()
            )


async def messages_that_never_end(gateway: Gateway, stack: AsyncExitStack) -> None:
    """Of 5 MB each, of which as much is sent as may be before anybody reads."""
    for _ in range(60):
        _, writer = await dialled(gateway)
        stack.callback(writer.close)
        writer.write(PREFACE + _frame(1, 4, 1, _headers(SERVICE + "Append")))
        writer.write(_frame(0, 0, 1, struct.pack(">BI", 0, LARGE) + bytes(16_000)))
        for _ in range(3):
            writer.write(_frame(0, 0, 1, bytes(16_000)))
        await writer.drain()


async def appends_whose_answers_nobody_takes(gateway: Gateway, stack: AsyncExitStack) -> None:
    many = pb.AppendRequest(
        appends=[pb.LedgerAppend(ledger_id=n, payloads=[b"x"]) for n in range(1_000_000, 1_004_000)]
    ).SerializeToString()

    async def write(call: Any) -> None:
        while True:
            await call.write(many)

    for _ in range(4):
        call = raw(await stack.enter_async_context(channel(gateway)), "Append", "stream_stream")(
            metadata=WRITER
        )
        task = asyncio.ensure_future(write(call))
        stack.callback(task.cancel)


async def fences_whose_entries_nobody_takes(gateway: Gateway, stack: AsyncExitStack) -> None:
    """Of 15 KB each, and the peer lets nothing be sent."""
    ledger = await ledger_of(gateway, 15, 1_000)
    request = pb.FenceRequest(ledger_id=ledger, entries_bytes_max=MIB).SerializeToString()
    message = struct.pack(">BI", 0, len(request)) + request
    for _ in range(8):
        _, writer = await dialled(gateway)
        stack.callback(writer.close)
        writer.write(MAGIC + _frame(4, 0, 0, INITIAL_WINDOW + bytes(4)))
        for number in range(1, 401, 2):
            writer.write(_frame(1, 4, number, _headers(SERVICE + "Fence")))
            writer.write(_frame(0, 1, number, message))
        await writer.drain()
    await eventually(lambda: gauge(gateway, "reply_bytes") > 7 * MIB)
    assert gauge(gateway, "reply_bytes") < 9 * MIB, "half of a sixteenth of the memory"


async def connections_and_streams_without_end(gateway: Gateway, stack: AsyncExitStack) -> None:
    for _ in range(300):
        _, writer = await dialled(gateway)
        stack.callback(writer.close)
    opened = await stack.enter_async_context(channel(gateway))
    for _ in range(400):
        stack.callback(raw(opened, "Append", "stream_stream")(metadata=WRITER).cancel)
    await eventually(lambda: gauge(gateway, "streams") >= 256)  # they have every place


async def requests_that_never_end(gateway: Gateway, stack: AsyncExitStack) -> None:
    """All of the message is there, and the end of the stream is not: nobody can answer yet."""
    large = b"\xa2\x06" + _varint(MIB) + bytes(MIB)
    for method in (SERVICE + "Metadata", HEALTH + "Check"):
        for _ in range(4):
            opened = await stack.enter_async_context(channel(gateway))
            calls = [
                opened.stream_stream(method, request_serializer=lambda b: b)() for _ in range(120)
            ]
            for call in calls:
                stack.callback(call.cancel)
            await asyncio.wait(
                [asyncio.ensure_future(call.write(large)) for call in calls], timeout=20
            )


async def watchers_of_long_names(gateway: Gateway, stack: AsyncExitStack) -> None:
    """Health needs no token."""
    name = health_pb2.HealthCheckRequest(service="x" * LARGE).SerializeToString()
    opened = await stack.enter_async_context(channel(gateway))
    for _ in range(120):
        call = opened.unary_stream(HEALTH + "Watch", request_serializer=lambda b: b)(name)
        stack.callback(call.cancel)
        with suppress(grpc.aio.AioRpcError):
            await call.initial_metadata()


async def watchers_without_end(gateway: Gateway, stack: AsyncExitStack) -> None:
    for _ in range(9):
        opened = await stack.enter_async_context(channel(gateway))
        for _ in range(1_000):
            stack.callback(
                opened.unary_stream(HEALTH + "Watch", request_serializer=lambda b: b)(b"").cancel
            )
        await asyncio.sleep(0.5)


async def a_byte_at_a_time(gateway: Gateway, stack: AsyncExitStack) -> None:
    """Each arrives among much that nobody keeps."""
    filler = _frame(0xEE, 0, 0, bytes(16_000)) * 4

    async def send() -> None:
        _, writer = await dialled(gateway)
        stack.callback(writer.close)
        writer.write(
            PREFACE
            + _frame(1, 4, 1, _headers(HEALTH + "Check"))
            + _frame(0, 0, 1, struct.pack(">BI", 0, LARGE))
        )
        with suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(_frame(0, 0, 1, b"x") + filler)
                await writer.drain()

    await asyncio.gather(*(send() for _ in range(8)))


async def connections_that_only_answer_pings(gateway: Gateway, stack: AsyncExitStack) -> None:

    async def live(is_up: asyncio.Event) -> None:
        with suppress(OSError, EOFError):
            try:
                reader, writer = await dialled(gateway)
                stack.callback(writer.close)
                writer.write(PREFACE)
                while True:
                    head = await reader.readexactly(9)
                    is_up.set()
                    body = await reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] in (4, 6) and not head[4]:  # settings and pings
                        writer.write(_frame(head[3], 1, 0, body if head[3] == 6 else b""))
            finally:
                is_up.set()  # or turned away

    ups = [asyncio.Event() for _ in range(300)]
    for is_up in ups:
        stack.callback(asyncio.ensure_future(live(is_up)).cancel)
    async with asyncio.timeout(60):
        await asyncio.gather(*(is_up.wait() for is_up in ups))
    async with client(gateway) as another:
        await another.describe()


ALL: list[Hostile] = [
    readers_that_never_read,
    readers_of_large_entries,
    small_entries_before_large_ones,
    messages_of_millions,
    messages_that_never_end,
    appends_whose_answers_nobody_takes,
    fences_whose_entries_nobody_takes,
    connections_and_streams_without_end,
    requests_that_never_end,
    watchers_of_long_names,
    watchers_without_end,
    a_byte_at_a_time,
    connections_that_only_answer_pings,
]


async def test_streams_that_wait_the_longest_to_append_give_way_first(
    gateway: Gateway,
) -> None:
    """One that was opened a moment ago may be a daemon's, with its first entry on the way."""
    async with asyncio.timeout(120), channel(gateway) as opened, AsyncExitStack() as stack:

        def open_streams(count: int) -> list[Any]:
            calls = [raw(opened, "Append", "stream_stream")(metadata=WRITER) for _ in range(count)]
            for call in calls:
                stack.callback(call.cancel)
            return calls

        await eventually(lambda: gauge(gateway, "streams") == 0)  # of tests before this one
        old = open_streams(256)
        await eventually(lambda: gauge(gateway, "streams") == 256)
        new = open_streams(200)
        await eventually(lambda: sum(call.done() for call in old) == 200)
        assert not any(call.done() for call in new)


@pytest.mark.parametrize("worst", ALL, ids=lambda worst: worst.__name__)
async def test_a_well_behaved_clients_appends_flow_beside(gateway: Gateway, worst: Hostile) -> None:
    slowest_s, loop = 0.0, asyncio.get_running_loop()
    async with asyncio.timeout(240), client(gateway) as store, AsyncExitStack() as stack:
        ledger = await created(store)
        await worst(gateway, stack)
        for entry in range(APPENDS):
            began = loop.time()
            async with asyncio.timeout(APPEND_MAX_S):
                await store.append(ledger, entry, bytes(200))
            slowest_s = max(slowest_s, loop.time() - began)
        assert gateway.running, gateway.log_tail()
        assert [p async for chunk in store.read(ledger, 0, 20) for p in chunk.payloads] == [
            bytes(200)
        ] * 21, "a daemon can recover"
    print(f"{worst.__name__}: the slowest of {APPENDS} appends took {slowest_s * 1000:.0f} ms")
    assert await health(gateway) == SERVING
    assert gateway.running, gateway.log_tail()
    for room in ("reply_bytes", "read_bytes"):
        await eventually(lambda room=room: gauge(gateway, room) == 0)  # type: ignore[misc]


def gauge(gateway: Gateway, name: str) -> int:
    made = context(gateway)
    if made is not None:
        made.set_alpn_protocols(["http/1.1"])
    at = f"http{'s' if made else ''}://{gateway.ready['metrics']}/metrics"
    with urllib.request.urlopen(at, timeout=60, context=made) as page:
        lines = page.read().decode().splitlines()
    return next(
        int(line.split()[1]) for line in lines if line.startswith(f"cursorkeeper_gateway_{name} ")
    )


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def append_until_it_succeeds(
    connection: Any, spec: LedgerSpec, ledger: int, entry: bytes, over: asyncio.Event
) -> None:
    """A writer that sends its one entry, however large, to a new ledger as soon as the last one
    failed.
    """
    message = pb.AppendRequest(appends=[pb.LedgerAppend(ledger_id=ledger, payloads=[entry])])
    while not over.is_set():
        call = raw(connection, "Append", "stream_stream")(metadata=WRITER)
        # it was cut off, or there are too few bookies
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(message.SerializeToString())
            reply = await call.read()
            if reply is not grpc.aio.EOF and pb.AppendReply.FromString(reply).appended:
                return
            message.appends[0].ledger_id = await create(connection, spec)
        call.cancel()
        await asyncio.sleep(0.2)


async def an_append_succeeds(store: GatewayClient) -> None:
    """To three bookies that may still be busy with what came before."""
    while True:
        with suppress(GatewayRoll):
            await store.append(await created(store, TRIPLE), 0, b"x")
            return


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies, and a gateway of 256 MiB."""
    where = tmp_path_factory.mktemp("silent")
    with LocalCluster(where, gateways=0) as running:
        arguments = [
            "--port",
            str(free_port()),
            "--metadata-service-uri",
            running.metadata_service_uri,
        ]
        running.gateways.append(Gateway("gateway", arguments, where / "gateway.log", heap_mib=256))
        running.gateways[0].start()
        yield running
    shutil.rmtree(where)


@pytest.mark.parametrize("silent", [1, 3])
async def test_bookies_that_stand_still_hold_no_more_than_the_window(
    three: LocalCluster, silent: int
) -> None:
    """Of the entries of 200 writers, for six times as long as the gateway waits for a bookie; what
    other bookies can do goes on.
    """
    gateway, frozen, others = three.gateways[0], three.bookies[:silent], three.bookies[silent:]
    loop, over, most, beside, latest = asyncio.get_running_loop(), asyncio.Event(), 0, 0, 0.0
    spec = ALONE if silent == 1 else TRIPLE
    async with asyncio.timeout(480), client(gateway) as store, AsyncExitStack() as stack:
        small, entry = await created(store, TRIPLE), 0
        for bookie in others:  # so that all of the ledgers are on the first
            bookie.stop()
        connections = [await stack.enter_async_context(channel(gateway)) for _ in range(8)]
        ledgers = [await create(connections[number % 8], spec) for number in range(WRITERS)]
        for bookie in others:
            await asyncio.to_thread(bookie.start)
        await eventually(lambda: gauge(gateway, "writable_bookies") == 3)
        for bookie in frozen:
            freeze(bookie.pid)
        try:
            ends = loop.time() + SILENT_S
            writers = [
                asyncio.ensure_future(
                    append_until_it_succeeds(
                        connections[number % 8], spec, ledger, bytes(LARGE - 100_000), over
                    )
                )
                for number, ledger in enumerate(ledgers)
            ]
            # longer on a busy machine: until the writers' entries have come, and appends beside
            # them in the second half
            while loop.time() < ends or not most or (others and latest < ends - SILENT_S / 2):
                if others:
                    try:
                        async with asyncio.timeout(APPEND_MAX_S):
                            await store.append(small, entry, bytes(200))
                        beside, entry, latest = beside + 1, entry + 1, loop.time()
                    except GatewayRoll:  # the others may be slow on a busy machine
                        small, entry = await created(store, LedgerSpec(2, 2, 2)), 0
                await asyncio.sleep(0.1)
                most = max(most, await asyncio.to_thread(gauge, gateway, "in_flight_bytes"))
                assert gateway.running, gateway.log_tail()
            await eventually(lambda: gauge(gateway, "serving") == bool(others))
        finally:
            over.set()
            for bookie in frozen:
                thaw(bookie.pid)
        await asyncio.wait(writers, timeout=120)
    print(f"at most {most} bytes in flight; {beside} appends beside them")
    async with asyncio.timeout(120), client(gateway) as store:
        await an_append_succeeds(store)
        await eventually(
            lambda: gauge(gateway, "in_flight_bytes") == 0 and gauge(gateway, "serving") == 1
        )
    assert most <= IN_FLIGHT_MAX_BYTES
    assert gateway.running, gateway.log_tail()


async def test_a_reader_that_does_not_read_is_cut_off(gateway: Gateway) -> None:
    ledger = await ledger_of(gateway, 8, MIB)
    request = pb.ReadRequest(ledger_id=ledger, last_entry_id=-1).SerializeToString()
    async with asyncio.timeout(120), channel(gateway) as one:
        call = raw(one, "Read", "unary_stream")(request)
        assert await call.code() is not grpc.StatusCode.OK


async def test_the_limits_of_a_message_are_told_and_kept_by_our_client(
    gateway: Gateway,
) -> None:
    async with client(gateway) as store:
        info = await store.describe()
        assert (info.message_entries_max, info.message_ledgers_max) == (4_096, 4_096)
        ledger = await created(store)
        await asyncio.gather(*(store.append(ledger, entry, b"") for entry in range(6_000)))
        with pytest.raises(GatewayRefused, match="ENTRY_TOO_LARGE"):
            await store.append(ledger, 6_000, bytes(info.entry_bytes_max + 1))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2."""
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


MAGIC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFACE = MAGIC + _frame(4, 0, 0, b"")
INITIAL_WINDOW = b"\x00\x04"
"""The setting that says how much may be sent on a stream."""


def _headers(path: str) -> bytes:
    """As literals, which need no table."""
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in (*pairs.items(), *WRITER)
    )
