"""The real `LedgerStore`: a gRPC client of the ledger gateway.

Owns: calls with their deadlines, translation of values and errors. Does not own: appends
(`append_stream`), the channel (`transport`). Invariants: every call ends within its limit; every
error that leaves is a `GatewayError`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper.append_queue import AppendQueue
from cursorkeeper.bookkeeper.append_stream import AppendStream
from cursorkeeper.bookkeeper.errors import (
    GatewayRefused,
    GatewayRetry,
    Outcome,
    from_status,
)
from cursorkeeper.bookkeeper.port import (
    TO_LAST_CONFIRMED,
    Digest,
    FencedEnd,
    GatewayInfo,
    LedgerEnd,
    LedgerInfo,
    LedgerSpec,
    LedgerState,
    ReadChunk,
    SeenEnd,
)
from cursorkeeper.bookkeeper.settings import ENVELOPE_BYTES, GatewayClientSettings
from cursorkeeper.bookkeeper.token import Token
from cursorkeeper.bookkeeper.transport import (
    END,
    CallMetadata,
    ServerStream,
    Service,
    Stub,
    Unary,
    call_metadata,
    error_of,
)
from cursorkeeper_client.channels import RpcFailed
from cursorkeeper_client.gap import Gap
from cursorkeeper_client.tls import TlsError
from cursorkeeper_client.tls_causes import cause_of

_TRY_MIN_S = 0.05
_STATES = frozenset(int(state) for state in LedgerState)

Q = TypeVar("Q")
A = TypeVar("A")


class GatewayClient:
    """Implements `LedgerStore`. `start` connects; the loop that started it is the one that uses
    it.
    """

    def __init__(
        self,
        settings: GatewayClientSettings,
        rng: random.Random | None = None,
        append_gap: Gap | None = None,
    ) -> None:
        self._settings, self._rng = settings, rng or random.Random()
        self._append_gap = append_gap or Gap()
        self._token = Token(settings.token, settings.token_file)
        self._deployment = ""
        self._dialled = Service(settings)
        self._is_started = False
        self._appends: AppendStream | None = None
        self._closed = False
        self._queue = AppendQueue(
            entries_max=settings.append_window_entries_max,
            bytes_max=settings.append_window_bytes_max,
            batch_entries_max=settings.append_batch_entries_max,
            batch_bytes_max=settings.append_batch_bytes_max,
        )

    async def start(self) -> None:
        self._is_started = True  # a start that failed may be repeated
        info = await self._first_answer()
        needed = max(self._settings.append_batch_bytes_max, info.entry_bytes_max) + ENVELOPE_BYTES
        if needed > info.message_bytes_max:
            text = (
                f"a message may need {needed} bytes, the gateway takes "
                f"{info.message_bytes_max}: lower append_batch_bytes_max"
            )
            raise GatewayRefused("LIMITS", Outcome.NOT_DONE, message=text)
        if info.entry_bytes_max + ENVELOPE_BYTES > self._settings.receive_bytes_max:
            text = (
                f"an entry of {info.entry_bytes_max} bytes does not fit receive_bytes_max "
                f"{self._settings.receive_bytes_max}: raise it"
            )
            raise GatewayRefused("LIMITS", Outcome.NOT_DONE, message=text)
        self._appends = AppendStream(
            self._settings,
            self._queue,
            self.describe,
            lambda: self._dialled.renewed().Append(metadata=self._metadata),
            self._rng,
            self._append_gap,
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._appends:
            await self._appends.close()
        await self._dialled.close()

    def act_for(self, deployment: str) -> None:
        self._deployment = deployment

    @property
    def _metadata(self) -> CallMetadata:
        return call_metadata(self._settings.role, self._token.current(), self._deployment)

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        request = pb.CreateRequest(
            ensemble=spec.ensemble,
            write_quorum=spec.write_quorum,
            ack_quorum=spec.ack_quorum,
            digest=spec.digest.name,
            password=spec.password,
            custom_metadata=custom_metadata,
        )
        reply = await self._call(self._service.Create, request, self._settings.create_timeout_s)
        self._queue.created(reply.ledger_id)
        return reply.ledger_id

    def append(self, ledger: int, entry: int, payload: bytes) -> asyncio.Future[None]:
        if self._appends is None or self._closed or self._settings.role == "reader":
            reason = "READERS_MAY_NOT" if self._settings.role == "reader" else "CLIENT_CLOSED"
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(GatewayRefused(reason, Outcome.NOT_DONE, ledger=ledger))
            return failed
        return self._appends.append(ledger, entry, payload)

    async def read(
        self,
        ledger: int,
        first: int,
        last: int = TO_LAST_CONFIRMED,
        *,
        max_bytes: int = 0,
        unconfirmed: bool = False,
    ) -> AsyncIterator[ReadChunk]:
        request = pb.ReadRequest(
            ledger_id=ledger,
            first_entry_id=first,
            last_entry_id=last,
            max_bytes=max_bytes or self._settings.read_chunk_bytes,
            password=self._settings.password,
            unconfirmed=unconfirmed,
        )
        async for reply in self._stream(self._service.Read, request, ledger):
            yield ReadChunk(
                reply.first_entry_id,
                tuple(reply.payloads),
                reply.last_add_confirmed,
                reply.closed,
                reply.stopped_by,
            )

    async def fence(self, ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        request = pb.FenceRequest(
            ledger_id=ledger,
            password=self._settings.password,
            entries_bytes_max=entries_bytes_max,
        )
        reply = await self._call(
            self._service.Fence, request, self._settings.fence_timeout_s, ledger
        )
        self._queue.forget(ledger)
        return FencedEnd(reply.last_entry_id, reply.length, tuple(reply.entries))

    async def close_ledger(self, ledger: int) -> LedgerEnd:
        reply = await self._call(
            self._service.Close,
            pb.CloseRequest(ledger_id=ledger),
            self._settings.close_timeout_s,
            ledger,
        )
        # the answers to its last appends may still be on their way
        self._queue.ended(ledger, reply.last_entry_id)
        return LedgerEnd(reply.last_entry_id, reply.length)

    async def delete(self, ledger: int) -> None:
        await self._call(
            self._service.Delete,
            pb.DeleteRequest(ledger_id=ledger),
            self._settings.delete_timeout_s,
            ledger,
        )
        self._queue.ended(ledger, -1)

    async def metadata(self, ledger: int) -> LedgerInfo:
        request = pb.MetadataRequest(ledger_id=ledger)
        return _info(
            await self._call(
                self._service.Metadata,
                request,
                self._settings.metadata_timeout_s,
                ledger,
            )
        )

    async def end_of(self, ledger: int) -> SeenEnd:
        request = pb.EndRequest(ledger_id=ledger, password=self._settings.password)
        reply = await self._call(
            self._service.End, request, self._settings.metadata_timeout_s, ledger
        )
        return SeenEnd(reply.closed, reply.last_add_confirmed)

    async def list(self, custom_metadata: Mapping[str, bytes]) -> AsyncIterator[LedgerInfo]:
        request = pb.ListRequest(custom_metadata=custom_metadata)
        async for reply in self._stream(self._service.List, request, -1):
            for ledger in reply.ledgers:
                yield _info(ledger)

    async def describe(self) -> GatewayInfo:
        return await self._describe(self._settings.metadata_timeout_s)

    @property
    def _service(self) -> Stub:
        if not self._is_started or self._closed:
            raise GatewayRefused("CLIENT_CLOSED", Outcome.NOT_DONE)
        try:
            return self._dialled.stub()
        except TlsError as e:
            raise GatewayRetry("TLS_FILES", Outcome.NOT_DONE, message=str(e)) from e

    async def _first_answer(self) -> GatewayInfo:
        """Asks until the start's time is over. A refused connection is told as that, and not as an
        answer that took long.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.start_timeout_s
        pause_s = self._settings.stream_back_off_min_ms / 1000
        while True:
            try:
                return await self._describe(max(_TRY_MIN_S, until_s - loop.time()))
            except GatewayRetry as e:
                failure = (
                    e
                    if self._dialled.is_connected
                    else GatewayRetry("NOT_CONNECTED", Outcome.NOT_DONE, message=self._said(e))
                )
                if loop.time() + pause_s >= until_s:
                    raise failure from None
            await asyncio.sleep(pause_s)

    def _said(self, error: GatewayRetry) -> str:
        """With what is probably wrong, if that is TLS."""
        cause, remedy = cause_of(error.message, is_tls=self._settings.tls is not None)
        return f"{cause}: {remedy} ({error.message})" if cause else error.message

    async def _describe(self, timeout_s: float) -> GatewayInfo:
        reply = await self._call(self._service.Describe, pb.DescribeRequest(), timeout_s)
        self._queue.entry_bytes_max = reply.entry_bytes_max
        told = [most for most in (reply.message_entries_max, reply.message_ledgers_max) if most]
        # an entry is of one ledger
        self._queue.batch_entries_max = min([self._settings.append_batch_entries_max, *told])
        said = {name: getattr(reply, name) for name in GatewayInfo.__slots__}
        return GatewayInfo(**said | {"roles": tuple(reply.roles)})

    async def _call(
        self,
        method: Unary[Q, A],
        request: Q,
        timeout_s: float,
        ledger: int = -1,
    ) -> A:
        try:
            return await method(request, timeout=timeout_s, metadata=self._metadata)
        except RpcFailed as failed:
            raise error_of(failed, ledger) from None
        except asyncio.CancelledError:
            self._raise_if_closed_under(ledger)
            raise

    async def _stream(
        self, method: ServerStream[Q, A], request: Q, ledger: int
    ) -> AsyncIterator[A]:
        call = method(request, timeout=self._settings.read_timeout_s, metadata=self._metadata)
        try:
            while True:
                async with asyncio.timeout(self._settings.read_chunk_timeout_s):
                    reply = await call.read()
                if reply is END:
                    return
                yield reply  # type: ignore[misc]  # END is the only other object
        except TimeoutError:
            raise from_status("DEADLINE_EXCEEDED", ledger=ledger) from None
        except RpcFailed as failed:
            raise error_of(failed, ledger) from None
        except asyncio.CancelledError:
            self._raise_if_closed_under(ledger)
            raise
        finally:
            call.cancel()

    def _raise_if_closed_under(self, ledger: int) -> None:
        """Closing the channel looks like a cancellation of everybody's task; only a real one may
        stay one.
        """
        task = asyncio.current_task()
        if self._closed and task is not None and not task.cancelling():
            raise from_status("CANCELLED", ledger=ledger, message="the client was closed") from None


def _info(ledger: pb.LedgerMetadata) -> LedgerInfo:
    closed = ledger.state == pb.CLOSED
    return LedgerInfo(
        ledger.ledger_id,
        ledger.ensemble,
        ledger.write_quorum,
        ledger.ack_quorum,
        Digest(ledger.digest or Digest.CRC32C),
        LedgerState(int(ledger.state)) if int(ledger.state) in _STATES else LedgerState.UNKNOWN,
        ledger.last_entry_id if closed else -1,
        ledger.length if closed else 0,
        ledger.created_ms,
        dict(ledger.custom_metadata),
    )
