"""The stream over gRPC, in both directions: `AckSink` for sources that dial us, `AckSource` for
sources we dial.

Owns transport and its limits; what messages mean is in `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from cursorkeeper.access import rights
from cursorkeeper.access.callers import Shown, shown_by
from cursorkeeper.access.identity import Identity
from cursorkeeper.runtime.supervised import supervised
from cursorkeeper.stream.guard import Guard, Unwanted, unwanted
from cursorkeeper.stream.outbox import OutboxFull
from cursorkeeper.stream.session import ProtocolViolation, Session
from cursorkeeper.stream.usage import OverQuota
from cursorkeeper.stream.wire import messages_of
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.channels import connection_options, open_channel
from cursorkeeper_client.tls import TlsError, TlsFiles

log = structlog.get_logger("cursorkeeper.stream")

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
HELLO_TIMEOUT_S = 10.0
STREAMS_MAX = 1_000
GREETINGS_MAX = 32
"""So many streams without a Hello are read at once: each may make us hold one message of any peer,
whole or half.
"""


UNREAD_END_MAX_S = 5.0
"""So long the last messages of a stream that has ended here wait for a peer that does not read."""
REQUESTS_READ_MAX, REQUEST_MAX_S = 32, 10.0
"""Of calls with one message so many are read at once, each for so long."""
STRANGERS_MAX = 160
"""Streams without a Hello, read or not: each holds as much as its window."""
ENVELOPE_BYTES = 64 << 10
"""What a message may have beside its acks."""
SLICE_S, SLICE_MESSAGES = 0.002, 32
"""For so long, and of so many, messages of one stream are taken before other streams, and the
cursors, get their turn. What messages cost differs a hundredfold: with a count alone the cheap ones
would wait for turns that the dear ones make long.
"""


async def read_first(session: Session, messages: AsyncIterator[Any]) -> None:
    """The message that must be Hello, if one comes. Raises ProtocolViolation, Unwanted."""
    async for message in messages:
        session.receive(message)
        break


async def read_all(session: Session, messages: AsyncIterator[Any]) -> None:
    """Every message of a stream, in slices. Raises ProtocolViolation."""
    now = asyncio.get_running_loop().time
    taken, ends_at_s = 0, now() + SLICE_S
    async for message in messages:
        for part in session.ungrouped(message):
            session.receive(part)
            taken += 1
            if taken >= SLICE_MESSAGES or now() >= ends_at_s:
                await asyncio.sleep(0)
                taken, ends_at_s = 0, now() + SLICE_S


class AckSinkService:
    """`AckSink`: the source dials. A stream that sends no Hello in time ends, and so does one
    beyond `streams_max`: neither has proved anything yet. Of those without a Hello `greetings_max`
    are read at once; the others wait, unread, until their time is over.
    """

    def __init__(
        self,
        sessions: Callable[[Shown], Session],
        *,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        streams_max: int = STREAMS_MAX,
        greetings_max: int = GREETINGS_MAX,
        unread_end_max_s: float = UNREAD_END_MAX_S,
    ) -> None:
        self._unread_end_max_s = unread_end_max_s
        self._sessions, self._hello_timeout_s, self._streams_max = (
            sessions,
            hello_timeout_s,
            streams_max,
        )
        self._streams, self._strangers, self._greetings_max = 0, 0, greetings_max
        self._greetings = asyncio.Semaphore(greetings_max)

    def add_to(self, server: grpc.aio.Server) -> None:
        """As the generated code would, but that what is sent is serialised already, and what comes
        is looked at before it is parsed.
        """
        method = grpc.stream_stream_rpc_method_handler(self.publish)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "cursorkeeper.acks.v1.AckSink", {"Publish": method}
                ),
            )
        )

    async def publish(
        self, request_iterator: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """One stream. Ends with FAILED_PRECONDITION on a violation of the protocol,
        RESOURCE_EXHAUSTED if not read, or if there are too many, or too many without a Hello before
        it, DEADLINE_EXCEEDED without a Hello; UNAUTHENTICATED or PERMISSION_DENIED for a peer who
        may not have it.
        """
        if self._strangers >= STRANGERS_MAX:
            text = (
                f"{self._strangers} streams have not said Hello yet: dial again in a moment, and "
                f"say it at once"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        if self._streams >= self._streams_max:
            text = (
                f"this daemon has {self._streams} streams, streams_max: send the acks of many "
                f"cursors on one stream"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._streams += 1
        session = self._sessions(shown_by(context))
        session.on_end = _Cutting(asyncio.current_task(), self._unread_end_max_s)
        is_read = asyncio.Event()
        reader = asyncio.ensure_future(self._read(session, messages_of(request_iterator), is_read))
        reader.add_done_callback(lambda _task: session.outbox.close())
        is_late = asyncio.get_running_loop().call_later(
            self._hello_timeout_s, _end_if_silent, session
        )
        try:
            while (message := await _next(session, context)) is not None:
                yield message
            if session.unwanted is not None:
                await _end_unwanted(session.unwanted, context)
            if not (is_read.is_set() or reader.done()):
                text = (
                    f"{self._greetings_max} streams before this one have not said Hello in "
                    f"{self._hello_timeout_s:g} s: dial again"
                )
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            if not (session.greeted or reader.done()):
                text = (
                    f"no Hello in {self._hello_timeout_s:g} s (hello_timeout_s): it is the "
                    f"first message of a stream"
                )
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
            await _check(reader, context)
        finally:
            self._streams -= 1
            session.on_end.disarm()
            is_late.cancel()
            reader.cancel()
            session.end()
            session.leave()
            session.outbox.forget()

    async def _read(
        self, session: Session, messages: AsyncIterator[Any], is_read: asyncio.Event
    ) -> None:
        self._strangers += 1
        try:
            async with self._greetings:
                is_read.set()
                await read_first(session, messages)
        finally:
            self._strangers -= 1
        await read_all(session, messages)


class _Cutting:
    """Ends the task of a stream whose session has ended, where its peer does not read the end."""

    def __init__(self, task: asyncio.Task[Any] | None, after_s: float) -> None:
        self._task, self._after_s = task, after_s
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._timer is None and self._task is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._after_s, self._task.cancel)

    def disarm(self) -> None:
        self._task = None
        if self._timer is not None:
            self._timer.cancel()


def _end_if_silent(session: Session) -> None:
    if not session.greeted:
        session.outbox.close()


async def _next(session: Session, context: Any) -> Any:
    try:
        return await session.outbox.next()
    except OutboxFull as e:
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the source does not read: {e}; read Durable and Credit as they come",
        )
    except Exception as e:
        log.exception("bug: stream ended", source=session.source)
        await context.abort(
            grpc.StatusCode.INTERNAL,
            f"what was to be sent could not be made: {e!r}; open again, and report this",
        )


async def _end_unwanted(error: Unwanted, context: Any) -> None:
    await context.abort(grpc.StatusCode[error.status], str(error))


async def _check(reader: asyncio.Future[None], context: Any) -> None:
    error = None if reader.cancelled() or not reader.done() else reader.exception()
    if isinstance(error, Unwanted):
        await _end_unwanted(error, context)
    if isinstance(error, ProtocolViolation):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    if isinstance(error, DecodeError):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"the bytes are no message of acks.proto: {error}; send a SourceMessage",
        )
    if error is not None and not isinstance(error, asyncio.CancelledError | grpc.RpcError):
        log.error("bug: stream ended", exc_info=error)
        await context.abort(
            grpc.StatusCode.INTERNAL,
            f"a message could not be taken: {error!r}; open again, and report this",
        )


class CallCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio is untyped
    """Requests of one message: who may not make them, and bytes that are no message, are the
    caller's mistake, and not an error of this daemon. `is_sibling`: whether another worker of this
    daemon asks, which has looked who its caller is.
    """

    def __init__(
        self,
        guard: Guard,
        is_sibling: Callable[[Any], bool] = lambda _context: False,
        request_max_s: float = REQUEST_MAX_S,
    ) -> None:
        self._guard, self._is_sibling, self._request_max_s = guard, is_sibling, request_max_s
        self._reading = asyncio.Semaphore(REQUESTS_READ_MAX)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """The handler, which reads and parses for itself, when it knows who calls: a stranger must
        not make us hold a message. A stream says in its Hello whose it is.
        """
        handler, method = await continuation(details), details.method
        if handler is None or rights.is_open(method) or method == rights.PUBLISH:
            return handler
        if handler.request_streaming:
            return None

        async def answered(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            async with await self._caller(method, context) as call:
                request = await self._request(handler, requests, context)
                await call.check(request)
                if not handler.response_streaming:
                    yield await handler.unary_unary(request, context)
                    return
                async for message in handler.unary_stream(request, context):
                    if call.sees(message):
                        yield message

        return grpc.stream_stream_rpc_method_handler(answered, None, handler.response_serializer)

    async def _caller(self, method: str, context: Any) -> _Call:
        """Ends the call of who may not make it, whatever they ask."""
        shown, identity = shown_by(context), None
        if not self._is_sibling(context):
            try:
                identity = self._guard.let_in(shown, method)
            except Unwanted as e:
                await _end_unwanted(e, context)
        return _Call(self._guard, identity, shown, method, context)

    async def _request(self, handler: Any, requests: AsyncIterator[bytes], context: Any) -> Any:
        try:
            return handler.request_deserializer(await self._read(requests, context))
        except DecodeError as e:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the bytes are no message of acks.proto: {e}"
            )

    async def _read(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        """The one message of a request."""
        try:
            async with asyncio.timeout(self._request_max_s), self._reading:
                async for raw in requests:
                    return raw
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the request did not come within {self._request_max_s:g} s, or "
                f"{REQUESTS_READ_MAX} others were being read: send it whole, and again",
            )
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request: send one")
        raise AssertionError


class _Call:
    """One request of an identity, within its quota, or of a worker of this daemon."""

    def __init__(
        self, guard: Guard, identity: Identity | None, shown: Shown, method: str, context: Any
    ) -> None:
        self._guard, self._identity, self._shown = guard, identity, shown
        self._method, self._context = method, context
        self._what = "lists" if method in rights.WALKS else "reads"

    async def __aenter__(self) -> _Call:
        if self._identity is not None:
            try:
                self._guard.usage.take(self._identity, self._what)
            except OverQuota as e:
                name = self._method.rpartition("/")[2]
                self._guard.audit.refused(name, self._identity, self._shown, str(e))
                await _end_unwanted(unwanted(e), self._context)
        return self

    async def check(self, request: Any) -> None:
        """Ends the call of who may not ask this. What goes on without them is in the audit log."""
        if self._identity is None:
            return
        topics = rights.topics_of(self._method, request)
        try:
            self._guard.let_in(self._shown, self._method, *topics)
        except Unwanted as e:
            await _end_unwanted(e, self._context)
        if self._method in rights.CHANGING:
            name = self._method.rpartition("/")[2]
            self._guard.audit.did(name, self._identity, self._shown, "asked", topics=topics)

    async def __aexit__(self, *_: object) -> None:
        if self._identity is not None:
            self._guard.usage.give_back(self._identity, self._what)

    def sees(self, message: Any) -> bool:
        """Whether a message of the answer is for the caller. A deletion is in the audit log."""
        identity = self._identity
        if identity is None:
            return True
        if isinstance(message, pb.TopicCursorDeleted):
            name = f"{message.cursor.topic}|{message.cursor.subscription}"
            if message.refused:
                self._guard.audit.refused(
                    "delete", identity, self._shown, message.message, cursor=name
                )
            else:
                self._guard.audit.did("delete", identity, self._shown, cursor=name)
        return not isinstance(message, pb.CursorInfo) or identity.topics.hold(message.cursor.topic)


class Subscriber:
    """Keeps one subscription to one source, for ever: dials, subscribes, and dials again with a
    bounded back-off, also where nobody says Hello in time.
    """

    def __init__(
        self,
        address: str,
        sessions: Callable[[Shown], Session],
        message_bytes_max: int,
        *,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        tls: TlsFiles | None = None,
        server_name: str = "",
    ) -> None:
        self.address, self._tls, self._server_name = address, tls, server_name
        self._sessions, self._message_bytes_max, self._hello_timeout_s = (
            sessions,
            message_bytes_max,
            hello_timeout_s,
        )

    async def run(self) -> None:
        """Connects again and again until it is cancelled."""
        await supervised(self.address, self._once, self._ended, RETRY_MIN_S, RETRY_MAX_S)

    def _ended(self, source: str, error: Exception | None) -> None:
        match error:
            case ProtocolViolation() | Unwanted():
                log.warning("source refused", source=source, problem=str(error))
            case grpc.RpcError():
                code = error.code() if hasattr(error, "code") else error
                log.info("source away", source=source, problem=str(code))
            case DecodeError():
                log.warning("source refused", source=source, problem=f"no SourceMessage: {error}")
            case TlsError():
                log.warning("source not dialled", source=source, problem=str(error))
            case OutboxFull():
                log.warning("source does not read", source=source, problem=str(error))
            # the last place that knows this source: without it nobody would dial again
            case Exception():
                log.error(
                    "bug: subscription ended; it is tried again", source=source, exc_info=error
                )

    async def _once(self) -> None:
        session = self._sessions(Shown(self.address))
        options = connection_options(self._message_bytes_max + ENVELOPE_BYTES)
        async with open_channel(self.address, options, self._tls, self._server_name) as channel:
            call = channel.stream_stream("/cursorkeeper.acks.v1.AckSource/Subscribe")()
            reader = asyncio.ensure_future(read_all(session, messages_of(call)))
            writer = asyncio.ensure_future(self._write_all(session, call))
            try:
                done, _ = await asyncio.wait(
                    {reader, writer},
                    timeout=self._hello_timeout_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not (done or session.greeted):
                    raise ProtocolViolation(
                        f"no Hello in {self._hello_timeout_s:g} s (hello_timeout_s): is it a "
                        f"source that listens there?"
                    )
                await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
                if session.unwanted is not None:
                    raise session.unwanted
                # the reader's end says more: it has the call's status
                for task in (reader, writer):
                    if task.done() and not task.cancelled():
                        task.result()
            finally:
                session.end()
                session.leave()
                call.cancel()
                reader.cancel()
                writer.cancel()
                await asyncio.gather(reader, writer, return_exceptions=True)

    @staticmethod
    async def _write_all(session: Session, call: Any) -> None:
        while (message := await session.outbox.next()) is not None:
            await call.write(message)
        await call.done_writing()
