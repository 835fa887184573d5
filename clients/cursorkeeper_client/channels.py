"""gRPC as every part of the system uses it, on either side of a connection: its options, and the
untyped edges of the library.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import grpc.aio

from cursorkeeper_client.tls import TlsError, TlsFiles

Options = list[tuple[str, int]]
CALL_MAX_S = 3_600.0
"""So long a call goes on over a channel that was replaced."""
RpcFailed = cast(type[Exception], grpc.aio.AioRpcError)
STREAM_WINDOW_BYTES = 512 << 10
"""What a peer may have sent of a stream that is not read yet: 50 MB/s over 10 ms."""
SERVER_OPTIONS: Options = [
    # else the keepalive of a peer to whom nothing is said ends its stream
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
    # a window that is fixed: else that of a stream that nobody reads grows with what its peer sends
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    # of one connection: a source needs one, and a tool a few
    ("grpc.max_concurrent_streams", 1_024),
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


def open_channel(
    address: str,
    options: Iterable[tuple[str, int]] = (),
    tls: TlsFiles | None = None,
    server_name: str = "",
) -> Any:
    """A channel of its own connection to `host:port` or `unix:path`, whatever proxy the environment
    knows; with `tls`, to who shows a certificate for `server_name` (empty: for the host). Must be
    called in the loop that uses it. Raises TlsError.
    """
    own: list[tuple[str, Any]] = [
        ("grpc.enable_retries", 0),  # a hidden repetition would make an outcome look certain
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=[*options, *own])
    if server_name:
        own.append(("grpc.ssl_target_name_override", server_name))
    return grpc.aio.secure_channel(address, tls.channel_credentials(), options=[*options, *own])


class Dialled:
    """The channel to one address, and another one when the certificates have changed and somebody
    asks for that. What is under way on the one before goes on there.
    """

    def __init__(
        self,
        address: str,
        options: Iterable[tuple[str, int]] = (),
        tls: TlsFiles | None = None,
        server_name: str = "",
        refresh_s: float = 300.0,
    ) -> None:
        self._address, self._options = address, list(options)
        self._tls, self._server_name, self._refresh_s = tls, server_name, refresh_s
        self._channel: Any = None
        self._stamp: object = None
        self._look_at_s = 0.0
        self._before: dict[Any, asyncio.Task[None]] = {}
        """Channels that were replaced, until what is under way on them has ended."""

    def channel(self) -> Any:
        """As it is. Raises TlsError for files that cannot be used, the first time."""
        if self._channel is None:
            self._dial()
        return self._channel

    def renewed(self) -> Any:
        """The same, with the certificates of now; it is looked at them every `refresh_s`."""
        if self._channel is not None and self._tls is not None:
            now = time.monotonic()
            if now >= self._look_at_s:
                self._look_at_s = now + self._refresh_s
                # half of them are written: what was read before is still in use
                with suppress(TlsError):
                    if self._tls.stamp() != self._stamp:
                        self._dial()
        return self.channel()

    def _dial(self) -> None:
        stamp = self._tls.stamp() if self._tls is not None else None
        made = open_channel(self._address, self._options, self._tls, self._server_name)
        before, self._channel = self._channel, made
        self._stamp, self._look_at_s = stamp, time.monotonic() + self._refresh_s
        if before is not None:
            closing = asyncio.ensure_future(before.close(CALL_MAX_S))
            self._before[before] = closing
            closing.add_done_callback(lambda _done: self._before.pop(before, None))

    async def close(self) -> None:
        """What is under way fails. It may be used again."""
        before, self._before = self._before, {}
        for waiting in before.values():
            waiting.cancel()
        await asyncio.gather(*before.values(), return_exceptions=True)
        channel, self._channel = self._channel, None
        for one in [*before, *([channel] if channel is not None else [])]:
            await one.close()
