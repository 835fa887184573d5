"""gRPC as the ack stream uses it: options of both ends and the only untyped edges to grpc.

Messages of a source leave as bytes that are serialised already; messages of the keeper arrive
parsed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, cast

import grpc
import grpc.aio

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.errors import AckStreamError, stream_ended
from cursorkeeper_client.settings import SourceSettings

SINK_METHOD = "/cursorkeeper.acks.v1.AckSink/Publish"
RpcFailed = cast(type[Exception], grpc.aio.AioRpcError)
END: object = grpc.aio.EOF


class PublishCall(Protocol):
    """A running stream to the keeper; `read` gives `END` at the end."""

    async def write(self, message: bytes) -> None: ...

    async def read(self) -> pb.KeeperMessage | object: ...

    def cancel(self) -> bool: ...


class SubscribeContext(Protocol):
    """A running stream from the keeper that dialled us."""

    async def write(self, message: bytes) -> None: ...


Subscribe = Callable[[AsyncIterator[pb.KeeperMessage], SubscribeContext], Awaitable[None]]


def _same(message: bytes) -> bytes:
    return message


def _options(settings: SourceSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.receive_bytes_max),
        ("grpc.max_send_message_length", -1),  # cut here; the keeper's limit is known
        ("grpc.keepalive_time_ms", settings.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        # without it the keepalive timeout counts for nothing
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def open_publish(address: str, settings: SourceSettings) -> tuple[Any, PublishCall]:
    """A channel to the keeper at `host:port` or `unix:path`, and the stream on it."""
    options: list[tuple[str, int]] = [
        *_options(settings),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    channel = grpc.aio.insecure_channel(address, options=options)
    method = channel.stream_stream(
        SINK_METHOD, request_serializer=_same, response_deserializer=pb.KeeperMessage.FromString
    )
    return channel, cast(PublishCall, method())


def serve_subscribe(
    address: str, settings: SourceSettings, subscribe: Subscribe
) -> tuple[Any, int]:
    """A server with `AckSource.Subscribe`, not started yet, and the port it got (0 if it could not
    bind).
    """
    options = [
        *_options(settings),
        # else the keepalive of a keeper to whom nothing is said ends the stream
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    method = grpc.stream_stream_rpc_method_handler(
        subscribe, request_deserializer=pb.KeeperMessage.FromString, response_serializer=_same
    )
    service = grpc.method_handlers_generic_handler(
        "cursorkeeper.acks.v1.AckSource", {"Subscribe": method}
    )
    server.add_generic_rpc_handlers((service,))
    return server, server.add_insecure_port(address)


def why_ended(failed: Exception) -> AckStreamError:
    """What the end of a call means."""
    rpc: Any = failed
    return stream_ended(rpc.code().name, rpc.details() or "")
