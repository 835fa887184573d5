"""Who may ask: tokens of the daemon's services. The stream's own is in its Hello; every other call
proves itself in its metadata.

Owns: comparing tokens in a time that says nothing, and what a call without one is told. Does not
own: where tokens come from (`connections.read_token`). gRPC health and reflection are open: a probe
has no token, and they tell nothing of cursors.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

AUTHORIZATION, BEARER = "authorization", b"bearer "
GUARDED = "/cursorkeeper.acks.v1.CursorStore/"
CHANGING = frozenset({"DeleteTopic"})
"""Methods of it for sources, and not for those who only ask."""
DENIED = (
    "the token is missing or wrong: send the content of the daemon's source_token_file or "
    "reader_token_file in the metadata "
    "`authorization: Bearer TOKEN`; what deletes needs that of source_token_file"
)


def same(wanted: bytes, given: bytes) -> bool:
    """Whether they are equal; how long it takes does not say how much of them is."""
    return hmac.compare_digest(wanted, given)


def proves(tokens: Sequence[bytes], given: str | bytes) -> bool:
    """Whether `given`, the value of `authorization`, carries one of them. All are compared."""
    value = given.encode(errors="replace") if isinstance(given, str) else given
    if value[: len(BEARER)].lower() != BEARER:
        return False
    return sum([same(token, value[len(BEARER) :].strip()) for token in tokens]) > 0


class CursorStoreGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio is untyped
    """Lets `CursorStore` be asked only with the token of sources, or with that of readers, who
    change nothing; without any, by everybody who reaches the port.
    """

    def __init__(self, source: bytes, readers: bytes = b"") -> None:
        self._source = [source] if source else []
        self._tokens = [token for token in (source, readers) if token]

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """As grpc calls it, before the method is."""
        handler = await continuation(details)
        if handler is None or not self._tokens or not details.method.startswith(GUARDED):
            return handler
        given = [value for key, value in details.invocation_metadata if key == AUTHORIZATION]
        tokens = self._source if details.method.removeprefix(GUARDED) in CHANGING else self._tokens
        if len(given) == 1 and proves(tokens, given[0]):
            return handler
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_denied_stream, **codecs)
        return grpc.unary_unary_rpc_method_handler(_denied, **codecs)


async def _denied(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, DENIED)


async def _denied_stream(_request: Any, context: Any) -> AsyncIterator[Any]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, DENIED)
    yield
