"""One Append stream that carries the entries of all ledgers of a client.

Owns: opening the stream when it is first needed and again after it broke (with a pause that grows),
the two tasks on it (sender, receiver), the clock of append limits. Does not own: what is queued and
how answers match (`append_queue`). Invariants: messages batch by themselves: while one is written,
and for a short pause after it while answers are out, the next one fills; when the stream ends, for
whatever reason, everything unanswered fails at once, because the gateway's write handles end with
it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper.append_queue import AppendQueue
from cursorkeeper.bookkeeper.errors import GatewayError, from_status
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.bookkeeper.transport import END, AppendCall, error_of, of_failure
from cursorkeeper_client import tasks
from cursorkeeper_client.back_off import BackOff
from cursorkeeper_client.channels import RpcFailed
from cursorkeeper_client.gap import Gap

_EXPIRY_CHECKS = 8  # per append timeout


class AppendStream:
    """`connect` proves that the gateway answers; `open_call` opens the stream."""

    def __init__(
        self,
        settings: GatewayClientSettings,
        queue: AppendQueue,
        connect: Callable[[], Awaitable[object]],
        open_call: Callable[[], AppendCall],
        rng: random.Random,
        gap: Gap,
    ) -> None:
        self._settings, self._queue = settings, queue
        self._connect, self._open_call = connect, open_call
        self._gap = gap
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._is_broken = False
        self._back_off = BackOff(
            settings.stream_back_off_min_ms / 1000, settings.stream_back_off_max_ms / 1000, rng
        )
        self._closed = False

    def append(self, ledger: int, entry: int, payload: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.add(ledger, entry, payload, self._loop.time(), future)
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="append stream")
        if self._expiry is None:
            self._watch()
        self._wake.set()
        return future

    async def close(self) -> None:
        """End the stream; what is unanswered fails."""
        self._closed = True
        if self._expiry:
            self._expiry.cancel()
        if self._task:
            await tasks.end(self._task)
        self._fail_all(_ended("CANCELLED", "the client was closed"))

    async def _run(self) -> None:
        """Lives from the first append to the end of the stream."""
        error = _ended()
        try:
            if self._is_broken:
                await asyncio.sleep(self._back_off.next_s())
            await self._connect()
            error = await self._stream(self._open_call())
        except GatewayError as failed:  # of `connect`: nothing was sent yet
            error = _ended(message=str(failed))
        finally:
            self._is_broken = True
            self._task = None
            self._fail_all(error)

    async def _stream(self, call: AppendCall) -> GatewayError:
        """Send and receive until the stream ends; returns what it ended with."""
        sender = self._loop.create_task(self._send(call), name="append sender")
        # without a sender the stream must not look alive
        sender.add_done_callback(lambda _: call.cancel())
        try:
            while (reply := await call.read()) is not END:
                assert isinstance(reply, pb.AppendReply)
                self._is_broken = False
                self._back_off.reset()
                self._answer(reply)
            return _ended("OK")
        except RpcFailed as failed:
            return error_of(failed, of_append=True)
        except asyncio.CancelledError:
            if not sender.done() or sender.cancelled():
                raise
            sender.result()  # it died of a defect: that is what should be seen
            return _ended()
        finally:
            call.cancel()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self, call: AppendCall) -> None:
        while True:
            await self._wake.wait()
            if self._queue.has_sent:  # whoever appends one after the other has waited long enough
                await self._gap.wait()
            self._wake.clear()
            while (batch := self._queue.take_batch()) is not None:
                is_full = self._queue.has_unsent
                try:
                    await call.write(batch)
                except (RpcFailed, asyncio.InvalidStateError):
                    # the stream has ended; why is the receiver's to say, who then cancels this
                    await asyncio.Event().wait()
                if not is_full:
                    self._gap.sent()
                    break  # what came while it was written has set `_wake`

    def _answer(self, reply: pb.AppendReply) -> None:
        for appended in reply.appended:
            self._queue.acknowledged(appended.ledger_id, appended.last_entry_id)
        for failure in reply.failures:
            self._queue.failed(
                failure.ledger_id,
                failure.first_entry_id,
                of_failure(failure.failure, failure.ledger_id),
            )
        since = self._queue.answered_since_s
        if since is not None:
            self._gap.answered(self._loop.time() - since)
            self._queue.answered_since_s = None

    def _fail_all(self, error: GatewayError) -> None:
        self._queue.fail_all(error)
        self._wake.clear()

    def _watch(self) -> None:
        """Runs only while somebody waits."""
        limit_s = self._settings.append_timeout_s
        self._queue.expire(self._loop.time(), limit_s)
        waits = self._queue.has_unanswered and not self._closed
        self._expiry = (
            self._loop.call_later(limit_s / _EXPIRY_CHECKS, self._watch) if waits else None
        )


def _ended(status: str = "UNAVAILABLE", message: str = "") -> GatewayError:
    return from_status(status, message=message, of_append=True)
