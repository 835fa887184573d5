"""One cursor that a source has opened on a stream.

Owns: its seq series, credit, generation, what the keeper confirmed, and everybody who waits for any
of it. Does not own: the stream (`session`), resuming after a loss (`resuming`). Invariants:
durable_seq <= last_seq; bytes sent never exceed the credit granted, but for one batch alone; seqs
leave in growing order; once the handle has ended, whoever waits or calls gets the error it ended
with.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import (
    BatchLimits,
    ack_batch,
    encode_acks,
    source_message_of,
    split,
)
from cursorkeeper_client.ack_stream.messages import layout_run, layout_runs, position
from cursorkeeper_client.ack_stream.outbox import Outbox
from cursorkeeper_client.ack_stream.recovered import RecoveredParts
from cursorkeeper_client.errors import (
    AcksTooLarge,
    AckStreamError,
    CursorDeposed,
    HandleClosed,
    KeeperTimeout,
    SendWindowFull,
    refused,
)
from cursorkeeper_client.settings import SourceSettings
from cursorkeeper_client.values import Acks, CursorState, LayoutItem, Position

T = TypeVar("T")
NOT_TOLD = BatchLimits()


class CursorHandle:
    """Made by `SourceSession.open`. `on_durable(seq)` is called with every confirmation, in the
    loop, and must be quick.
    """

    def __init__(
        self,
        number: int,
        cursor: str,
        settings: SourceSettings,
        outbox: Outbox,
        known: CursorState | None = None,
        limits: BatchLimits = NOT_TOLD,
    ) -> None:
        self._limits = limits
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """seq and parts of batches that are not confirmed."""
        self._unconfirmed_parts = 0
        self.number, self.cursor, self._settings, self._outbox = number, cursor, settings, outbox
        self._known = known
        self.resumed = False
        """The keeper let this handle go on where an earlier one broke off: `wait_opened` returned
        the state that was known.
        """
        self.later_layout: Sequence[Sequence[LayoutItem]] = ()
        """Runs of the layout that the open had no room for: they follow the state."""
        self.on_durable: Callable[[int], None] | None = None
        self.on_ended: Callable[[], None] | None = None
        self.epoch = self.generation = 0
        self.last_seq = self.durable_seq = 0
        self.granted_bytes = self.sent_bytes = 0
        self.pause_reason: str | None = None
        self.truncated_acks = 0
        """As of the newest confirmation: so many acks the daemon was allowed to leave out of what
        it keeps.
        """
        self.ended: AckStreamError | None = None
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[CursorState] = loop.create_future()
        self._left: asyncio.Future[None] = loop.create_future()  # closed or deleted, as we asked
        self._reset: asyncio.Future[int] | None = None
        self._parts: RecoveredParts | None = None
        self._durable_waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()  # credit, pause or the end: whoever waits looks again
        self._sending = asyncio.Lock()
        self._senders = 0
        for future in (self._opened, self._left):
            future.add_done_callback(_seen)

    # --- for the source ---

    @property
    def paused(self) -> bool:
        """The keeper asks to stop dispatching: what is acked now cannot be persisted. Acks may
        still be sent.
        """
        return self.pause_reason is not None

    @property
    def state(self) -> CursorState | None:
        """The recovered state; None before it is complete."""
        return (
            self._opened.result() if self._opened.done() and not self._opened.exception() else None
        )

    async def wait_opened(self) -> CursorState:
        """The recovered state, or the known one of a handle that resumed. Nothing may be dispatched
        before it is here.
        """
        return await self._within(
            asyncio.shield(self._opened), self._settings.open_timeout_s, "open"
        )

    async def send_acks(self, acks: Acks | bytes) -> int:
        """Send one batch (or the bytes of `encode_acks`) and return its seq; waits for credit,
        first come first served. What is more than the keeper takes at once leaves as several; the
        seq is that of the last.

        Not confirmed yet: see `wait_durable`. After `AcksTooLarge` and `SendWindowFull` nothing was
        sent.
        """
        encoded = acks if isinstance(acks, bytes) else encode_acks(acks)
        if len(encoded) > self._settings.message_bytes_max:
            text = (
                f"{self.cursor}: {len(encoded)} bytes of acks, the limit is "
                f"{self._settings.message_bytes_max}. What to do: split them"
            )
            raise AcksTooLarge(text)
        generation = self.generation  # acks made before a reset do not join after it
        with self._queueing():
            async with self._sending:
                for part, parts in split(encoded, self._limits):
                    await self._send_batch(part, parts, generation)
                return self.last_seq

    async def wait_durable(self, seq: int, timeout_s: float | None = None) -> None:
        """Returns when everything up to `seq` is durable or decided."""
        if seq > self.last_seq:
            raise HandleClosed(
                f"{self.cursor}: seq {seq} was never sent, the last is {self.last_seq}"
            )
        if seq <= self.durable_seq:
            return
        self._check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_seen)
        heapq.heappush(self._durable_waiters, (seq, id(waiter), waiter))
        await self._within(
            waiter, timeout_s or self._settings.answer_timeout_s, f"seq {seq} to be durable"
        )

    async def wait_resumed(self) -> None:
        """Returns when the keeper no longer asks to pause."""
        while self.paused:
            await self._wait_changed("resume")

    def layout(self, items: Sequence[LayoutItem]) -> int:
        """Tell a run of the topic's data ledgers; returns its seq. What is more than the keeper
        takes at once leaves as several.
        """
        for run in layout_runs(items, self._limits.layout_ledgers_max):
            message = pb.Layout(
                handle=self.number,
                seq=self._next_seq(),
                generation=self.generation,
                run=layout_run(run),
            )
            self._outbox.put(pb.SourceMessage(layout=message).SerializeToString())
        return self.last_seq

    def set_cursor_properties(self, properties: Mapping[str, str]) -> int:
        """Replace the cursor's own properties; returns the seq."""
        message = pb.SetCursorProperties(
            handle=self.number, seq=self._next_seq(), generation=self.generation
        )
        message.properties.SetInParent()
        message.properties.values.update(properties)
        self._outbox.put(pb.SourceMessage(set_cursor_properties=message).SerializeToString())
        return self.last_seq

    async def reset(self, target: Position) -> int:
        """Seek: forget all acks, mark-delete = target. Returns the new generation; acks sent
        meanwhile wait for it.
        """
        with self._queueing():
            async with self._sending:
                seq = self._next_seq()
                self._reset = asyncio.get_running_loop().create_future()
                self._reset.add_done_callback(_seen)
                message = pb.ResetCursor(
                    handle=self.number, seq=seq, generation=self.generation, target=position(target)
                )
                self._outbox.put(pb.SourceMessage(reset_cursor=message).SerializeToString())
                return await self._within(
                    asyncio.shield(self._reset), self._settings.answer_timeout_s, "the reset"
                )

    async def close(self) -> None:
        """Give the cursor back. The keeper confirms what it made durable before; `durable_seq` says
        how far that went.
        """
        await self.wait_left(pb.SourceMessage(close_cursor=pb.CloseCursor(handle=self.number)))

    async def delete(self) -> None:
        """Deletes the cursor and waits for the answer."""
        await self.wait_left(pb.SourceMessage(delete_cursor=pb.DeleteCursor(handle=self.number)))

    # --- for the session ---

    def receive(self, kind: str, message: pb.KeeperMessage) -> None:
        """One message of the keeper for this handle."""
        match kind:
            case "opened":
                self.epoch, self.generation = message.opened.epoch, message.opened.generation
                if not message.opened.resumed:
                    self._parts = RecoveredParts(message.opened)
                elif self._known is None:
                    raise HandleClosed(f"{self.cursor}: the keeper resumes what nobody asked it to")
                elif not self._opened.done():
                    self.resumed = True
                    self._tell_later_layout()
                    self._opened.set_result(self._known)
            case "state_part" if self._parts:
                self._parts.add(message.state_part)
            case "state_end" if self._parts:
                parts, self._parts = self._parts, None
                if not self._opened.done():
                    self._tell_later_layout()
                    self._opened.set_result(parts.end(message.state_end))
            case "durable":
                self.truncated_acks = message.durable.truncated_acks
                self._confirmed(message.durable.seq)
            case "credit":
                self.granted_bytes = max(self.granted_bytes, message.credit.granted_bytes)
            case "pause":
                self.pause_reason = message.pause.reason or "no reason given"
            case "resume":
                self.pause_reason = None
            case "reset_done":
                self.generation = message.reset_done.generation
                if self._reset and not self._reset.done():
                    self._reset.set_result(self.generation)
            case "refused":
                said = message.refused
                self.end(
                    refused(_code(said.code), said.cursor or self.cursor, said.message, said.remedy)
                )
            case "deposed":
                self.end(CursorDeposed(self.cursor, message.deposed.epoch))
            case "closed" | "deleted":
                if not self._left.done():
                    self._left.set_result(None)
                self.end(HandleClosed(f"{self.cursor} was {kind}"))
            case _:
                raise HandleClosed(f"{self.cursor}: the keeper sent {kind} out of place")
        self._changed.set()

    async def wait_left(self, message: pb.SourceMessage) -> None:
        """Send what ends this handle and wait until the keeper has done it."""
        async with self._sending:
            self._check()
            self._outbox.put(message.SerializeToString())
            await self._within(
                asyncio.shield(self._left),
                self._settings.answer_timeout_s,
                f"{message.WhichOneof('message')}",
            )

    def end(self, error: AckStreamError) -> None:
        """The handle is gone; everybody who waits gets the error. The first reason counts."""
        self.ended = self.ended or error
        if self._unconfirmed:
            self._unconfirmed.clear()
            self._outbox.answered()
        waiters = [waiter for _, _, waiter in self._durable_waiters]
        self._durable_waiters.clear()
        for future in (self._opened, self._left, self._reset, *waiters):
            if future is not None and not future.done():
                future.set_exception(self.ended)
        self._changed.set()
        if self.on_ended:
            self.on_ended()

    # --- inside ---

    async def _send_batch(self, encoded: bytes, parts: int, generation: int) -> None:
        await self._outbox.wait_room()
        limit = self._limits.unconfirmed_parts_max
        while limit and self._unconfirmed_parts and self._unconfirmed_parts + parts > limit:
            await self._wait_changed("confirmations")
        batch = ack_batch(self.number, self.last_seq + 1, generation, encoded)
        while self.sent_bytes + len(batch) > self.granted_bytes and (
            self._unconfirmed or not self.granted_bytes
        ):
            await self._wait_changed("credit")
            batch = ack_batch(self.number, self.last_seq + 1, generation, encoded)
        self._check()
        self.sent_bytes += len(batch)
        self.last_seq += 1
        if not self._unconfirmed:
            self._outbox.expect()
        self._unconfirmed_parts += parts
        self._unconfirmed.append((self.last_seq, parts))
        self._outbox.put(source_message_of(batch))

    def _tell_later_layout(self) -> None:
        later, self.later_layout = self.later_layout, ()
        for run in later:
            self.layout(run)

    def _confirmed(self, seq: int) -> None:
        self.durable_seq = max(self.durable_seq, min(seq, self.last_seq))
        waited = bool(self._unconfirmed)
        while self._unconfirmed and self._unconfirmed[0][0] <= self.durable_seq:
            self._unconfirmed_parts -= self._unconfirmed.popleft()[1]
        if waited and not self._unconfirmed:
            self._outbox.answered()
        while self._durable_waiters and self._durable_waiters[0][0] <= self.durable_seq:
            waiter = heapq.heappop(self._durable_waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        if self.on_durable:
            self.on_durable(self.durable_seq)

    def _next_seq(self) -> int:
        self._check()
        self.last_seq += 1
        return self.last_seq

    def _check(self) -> None:
        if self.ended:
            raise self.ended

    @contextmanager
    def _queueing(self) -> Iterator[None]:
        """Bounds those who wait for their turn."""
        if self.state is None:
            self._check()
            raise HandleClosed(f"{self.cursor} is not opened yet: await wait_opened() first")
        if self._senders >= self._settings.senders_waiting_max:
            raise SendWindowFull(f"{self.cursor}: {self._senders} senders wait already")
        self._senders += 1
        try:
            yield
        finally:
            self._senders -= 1

    async def _wait_changed(self, what: str) -> None:
        self._check()
        self._changed.clear()
        await self._within(self._changed.wait(), self._settings.answer_timeout_s, what)
        self._check()

    async def _within(self, waiting: Awaitable[T], limit_s: float, what: str) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await waiting
        except TimeoutError:
            raise KeeperTimeout(f"{self.cursor}: waited {limit_s:g} s for {what}") from None


def _seen(future: asyncio.Future[T]) -> None:
    """Nobody may be waiting: that is no reason for a warning at collection."""
    if not future.cancelled():
        future.exception()


def _code(code: int) -> str:
    return pb.RefusedCode.Name(code) if code in pb.RefusedCode.values() else f"REFUSED_{code}"
