"""gRPC as every part of the system uses it, on either side of a connection: its options, and the
untyped edges of the library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import grpc.aio

Options = list[tuple[str, int]]
RpcFailed = cast(type[Exception], grpc.aio.AioRpcError)
SERVER_OPTIONS: Options = [
    # else the keepalive of a peer to whom nothing is said ends its stream
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]


def connection_options(
    receive_bytes_max: int, keepalive_time_ms: int = 10_000, keepalive_timeout_ms: int = 5_000
) -> Options:
    """Of both sides: a limit for what is received, and a keepalive that really ends a dead
    connection.
    """
    return [
        ("grpc.max_receive_message_length", receive_bytes_max),
        ("grpc.max_send_message_length", -1),  # cut by the sender, who knows the receiver's limit
        ("grpc.keepalive_time_ms", keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", keepalive_timeout_ms),
        # without it the keepalive timeout counts for nothing
        ("grpc.http2.ping_timeout_ms", keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def open_channel(address: str, options: Iterable[tuple[str, int]] = ()) -> Any:
    """A channel of its own connection to `host:port` or `unix:path`, whatever proxy the environment
    knows. Must be called in the loop that uses it.
    """
    own = [
        ("grpc.enable_retries", 0),  # a hidden repetition would make an outcome look certain
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.insecure_channel(address, options=[*options, *own])
