"""gRPC as this package uses it: the channel, request metadata, and what a failed call said.

Owns: the only untyped edges to grpc, reading `Failure` trailers. Does not own:
what calls mean.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar, cast

import grpc
import grpc.aio

from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper._proto import ledgers_pb2_grpc
from cursorkeeper.bookkeeper.errors import (
    BY_REACTION,
    NO_SUCH_LEDGER_CODES,
    NO_SUCH_LEDGER_REASON,
    GatewayError,
    GatewayRefused,
    GatewayRoll,
    NoSuchLedger,
    Outcome,
    from_status,
)
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper_client.channels import Dialled, connection_options

FAILURE_TRAILER = "cursorkeeper-failure-bin"
CallMetadata = tuple[tuple[str, str], ...]
END: object = grpc.aio.EOF

Q = TypeVar("Q", contravariant=True)
A = TypeVar("A", covariant=True)


class Unary(Protocol[Q, A]):
    def __call__(self, request: Q, *, timeout: float, metadata: CallMetadata) -> Awaitable[A]: ...


class StreamCall(Protocol[A]):
    """A running call whose answers are read one by one; `read` gives `END` at the end."""

    async def read(self) -> A | object: ...

    def cancel(self) -> bool: ...


class ServerStream(Protocol[Q, A]):
    """A call with many answers."""

    def __call__(self, request: Q, *, timeout: float, metadata: CallMetadata) -> StreamCall[A]: ...


class AppendCall(StreamCall["pb.AppendReply"], Protocol):
    async def write(self, request: pb.AppendRequest) -> None: ...


class AppendMethod(Protocol):
    def __call__(self, *, metadata: CallMetadata) -> AppendCall: ...


class Stub(Protocol):
    """The methods of the `Ledgers` service, with types that gRPC's generated code lacks."""

    Create: Unary[pb.CreateRequest, pb.CreateReply]
    Append: AppendMethod
    Read: ServerStream[pb.ReadRequest, pb.ReadReply]
    Fence: Unary[pb.FenceRequest, pb.FenceReply]
    Close: Unary[pb.CloseRequest, pb.CloseReply]
    Delete: Unary[pb.DeleteRequest, pb.DeleteReply]
    Metadata: Unary[pb.MetadataRequest, pb.LedgerMetadata]
    End: Unary[pb.EndRequest, pb.EndReply]
    List: ServerStream[pb.ListRequest, pb.ListReply]
    Describe: Unary[pb.DescribeRequest, pb.DescribeReply]


class Service:
    """The service at the gateway's address, on one connection of its own: behind the address may be
    several gateways, and a ledger is written by the one that created it. Used in one loop.
    """

    def __init__(self, settings: GatewayClientSettings) -> None:
        options = [
            *connection_options(
                settings.receive_bytes_max,
                settings.keepalive_time_ms,
                settings.keepalive_timeout_ms,
            ),
            ("grpc.initial_reconnect_backoff_ms", settings.stream_back_off_min_ms),
            # how long one attempt may take; pauses are the other two
            ("grpc.min_reconnect_backoff_ms", settings.connect_timeout_ms),
            ("grpc.max_reconnect_backoff_ms", settings.stream_back_off_max_ms),
        ]
        self._dialled = Dialled(
            settings.address, options, settings.tls, settings.tls_server_name, refresh_s=0.0
        )
        self._channel: Any = None
        self._stub: Stub | None = None

    def stub(self) -> Stub:
        """Its methods. Raises TlsError, the first time."""
        return self._on(self._dialled.channel())

    def renewed(self) -> Stub:
        """The same with the certificates of now: for who begins to append, when no handle of a
        ledger is left on the connection before.
        """
        return self._on(self._dialled.renewed())

    def _on(self, channel: Any) -> Stub:
        if self._stub is None or channel is not self._channel:
            self._channel = channel
            self._stub = cast(Stub, ledgers_pb2_grpc.LedgersStub(channel))  # type: ignore[no-untyped-call]
        return self._stub

    @property
    def is_connected(self) -> bool:
        return (
            self._channel is not None
            and self._channel.get_state() is grpc.ChannelConnectivity.READY
        )

    async def close(self) -> None:
        """What is under way on its connections fails."""
        await self._dialled.close()


def call_metadata(role: str, token: str, deployment: str) -> CallMetadata:
    """Who we are, sent with every call, and the deployment whose ledgers may be written, ended and
    deleted.
    """
    said = {
        "cursorkeeper-role": role,
        "cursorkeeper-token": token,
        "cursorkeeper-deployment": deployment,
    }
    return tuple((key, value) for key, value in said.items() if value)


def error_of(failed: Exception, ledger: int = -1, *, of_append: bool = False) -> GatewayError:
    """What a failed call means: the gateway's `Failure` if it sent one, else the status."""
    rpc: Any = failed
    for key, value in rpc.trailing_metadata() or ():
        if key == FAILURE_TRAILER:
            # A stream that the gateway refuses as a whole may have taken entries before: never
            # certain for an append.
            failure = pb.Failure.FromString(value)
            return of_failure(failure, ledger, unknown=of_append)
    return from_status(
        rpc.code().name, ledger=ledger, message=rpc.details() or "", of_append=of_append
    )


def of_failure(failure: pb.Failure, ledger: int, *, unknown: bool = False) -> GatewayError:
    """The gateway's `Failure` message as an exception. An unknown reaction (a newer gateway) is
    read as the most careful one, ROLL.
    """
    known = failure.reaction in pb.Reaction.values()
    kind = BY_REACTION.get(pb.Reaction.Name(failure.reaction) if known else "", GatewayRoll)
    if kind is GatewayRefused and (
        failure.reason == NO_SUCH_LEDGER_REASON or failure.bookkeeper_code in NO_SUCH_LEDGER_CODES
    ):
        kind = NoSuchLedger
    not_done = failure.outcome == pb.NOT_DONE and not unknown
    return kind(
        failure.reason,
        Outcome.NOT_DONE if not_done else Outcome.UNKNOWN,
        bookkeeper_code=failure.bookkeeper_code,
        ledger=ledger,
        message=failure.message,
    )
