"""One cursor that was opened on a stream.

Owns: its credit, its generation, and what the daemon tells of it. Does not own: the stream
(`session`), going on after its loss (`cursor`). Invariants: bytes sent never exceed the credit
granted, but for one batch alone; seqs leave in growing order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import (
    ack_batch,
    encode_acks,
    source_message_of,
    split,
)
from cursorkeeper_client.ack_stream.messages import layout_run, layout_runs, position
from cursorkeeper_client.ack_stream.outbox import Outbox
from cursorkeeper_client.ack_stream.recovered import RecoveredParts
from cursorkeeper_client.ack_stream.series import Series, seen
from cursorkeeper_client.errors import (
    AcksTooLarge,
    ConnectionRefused,
    CursorClosed,
    CursorDeposed,
    CursorKeeperError,
    refused,
)
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.values import Acks, CursorState, LayoutItem, Position

BATCHES_MAX = 10_000
"""Not confirmed, of one handle; the daemon takes 100,000 messages."""


class CursorHandle(Series):
    """Made by `SourceSession.open`."""

    def __init__(
        self,
        number: int,
        cursor: str,
        settings: ClientSettings,
        outbox: Outbox,
        known: CursorState | None = None,
        keeper: pb.Hello | None = None,
    ) -> None:
        super().__init__(cursor, settings)
        self.keeper = keeper or pb.Hello()
        """Its limits are those of what is sent; 0: not told."""
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """seq and parts of batches that are not confirmed."""
        self._unconfirmed_parts = 0
        self.number, self._outbox, self._known = number, outbox, known
        self.resumed = False
        """The daemon let this handle go on where an earlier one broke off: `opened` returned the
        state that was known.
        """
        self.later_layout: Sequence[Sequence[LayoutItem]] = ()
        """Runs of the layout that the open had no room for: they follow the state."""
        self.on_ended: Callable[[], None] | None = None
        self.epoch = self.generation = 0
        self.granted_bytes = self.sent_bytes = 0
        self.paused_for = ""
        """Why the daemon asks to stop dispatching: what is acked now cannot be persisted. Acks may
        still be sent. Empty: it does not.
        """
        self.truncated_acks = 0
        """As of the newest confirmation: so many acks the daemon was allowed to leave out of what
        it keeps.
        """
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[CursorState] = loop.create_future()
        self._left: asyncio.Future[None] = loop.create_future()  # closed or deleted, as we asked
        self._reset: asyncio.Future[int] | None = None
        self._parts: RecoveredParts | None = None
        self._sending = asyncio.Lock()
        for future in (self._opened, self._left):
            future.add_done_callback(seen)

    # --- for the source ---

    async def opened(self) -> CursorState:
        """The recovered state, or the known one of a handle that resumed. Nothing may be dispatched
        before it is here.
        """
        return await self._within(
            asyncio.shield(self._opened), self._settings.open_timeout_s, "open"
        )

    async def send(self, acks: Acks | bytes) -> int:
        """Send one batch (or the bytes of `encode_acks`) and return its seq; waits for credit,
        first come first served. What is more than the daemon takes at once leaves as several; the
        seq is that of the last. After `AcksTooLarge` nothing was sent.
        """
        encoded = acks if isinstance(acks, bytes) else encoded_within(acks, self._settings)
        generation = self.generation  # acks made before a reset do not join after it
        if not self._opened.done():
            raise CursorClosed(f"{self.name} is not opened yet", "await opened() first")
        async with self._sending:
            for part, parts in split(encoded, self.keeper):
                await self._send_batch(part, parts, generation)
            return self.last_seq

    def layout(self, items: Sequence[LayoutItem]) -> int:
        """Tell a run of the topic's data ledgers; returns its seq. What is more than the daemon
        takes at once leaves as several.
        """
        for run in layout_runs(items, self.keeper.layout_ledgers_max):
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
        async with self._sending:
            seq = self._next_seq()
            self._reset = asyncio.get_running_loop().create_future()
            self._reset.add_done_callback(seen)
            message = pb.ResetCursor(
                handle=self.number, seq=seq, generation=self.generation, target=position(target)
            )
            self._outbox.put(pb.SourceMessage(reset_cursor=message).SerializeToString())
            return await self._within(asyncio.shield(self._reset), None, "the reset")

    async def close(self) -> None:
        """Give the cursor back. The daemon confirms what it made durable before; `durable_seq` says
        how far that went.
        """
        await self.leave(pb.SourceMessage(close_cursor=pb.CloseCursor(handle=self.number)))

    async def delete(self) -> None:
        """Deletes the cursor and waits for the answer."""
        await self.leave(pb.SourceMessage(delete_cursor=pb.DeleteCursor(handle=self.number)))

    # --- for the session ---

    def receive(self, kind: str, message: pb.KeeperMessage) -> None:
        """One message of the daemon for this handle."""
        match kind:
            case "opened":
                self.epoch, self.generation = message.opened.epoch, message.opened.generation
                if not message.opened.resumed:
                    self._parts = RecoveredParts(message.opened)
                elif self._known is None:
                    raise ConnectionRefused(
                        f"{self.name}: the daemon resumes what nobody asked it to"
                    )
                else:
                    self.resumed = True
                    self._is_open(self._known)
            case "state_part" if self._parts:
                self._parts.add(message.state_part)
            case "state_end" if self._parts:
                parts, self._parts = self._parts, None
                self._is_open(parts.end(message.state_end))
            case "durable":
                self.truncated_acks = message.durable.truncated_acks
                self._confirm(message.durable.seq)
            case "credit":
                self.granted_bytes = max(self.granted_bytes, message.credit.granted_bytes)
            case "pause":
                self.paused_for = message.pause.reason or "no reason given"
            case "resume":
                self.paused_for = ""
            case "reset_done":
                self.generation = message.reset_done.generation
                if self._reset and not self._reset.done():
                    self._reset.set_result(self.generation)
            case "refused":
                said = message.refused
                self.end(
                    refused(_code(said.code), said.cursor or self.name, said.message, said.remedy)
                )
            case "deposed":
                self.end(CursorDeposed(self.name, message.deposed.epoch))
            case "closed" | "deleted":
                if not self._left.done():
                    self._left.set_result(None)
                self.end(CursorClosed(f"{self.name} was {kind}"))
            case _:
                raise ConnectionRefused(f"{self.name}: the daemon sent {kind} out of place")
        self._changed.set()

    async def leave(self, message: pb.SourceMessage) -> None:
        """Send what ends this handle and wait until the daemon has done it."""
        async with self._sending:
            self._check()
            self._outbox.put(message.SerializeToString())
            await self._within(asyncio.shield(self._left), None, f"{message.WhichOneof('message')}")

    def abandon(self) -> None:
        """Nobody waits for its state any more: the daemon need not open it."""
        if self.ended is None:
            close = pb.SourceMessage(close_cursor=pb.CloseCursor(handle=self.number))
            self._outbox.put(close.SerializeToString())

    def end(self, error: CursorKeeperError) -> None:
        """The handle is gone; everybody who waits gets the error. The first reason counts."""
        self._end(error)
        assert self.ended
        self._parts = None
        if self._unconfirmed:
            self._unconfirmed.clear()
            self._outbox.answered()
        for future in (self._opened, self._left, self._reset):
            if future is not None and not future.done():
                future.set_exception(self.ended)
        if self.on_ended:
            self.on_ended()

    # --- inside ---

    async def _send_batch(self, encoded: bytes, parts: int, generation: int) -> None:
        await self._outbox.wait_room()
        limit = self.keeper.unconfirmed_parts_max

        def has_room() -> bool:
            return not self._unconfirmed or (
                len(self._unconfirmed) < BATCHES_MAX
                and not (limit and self._unconfirmed_parts + parts > limit)
            )

        def is_granted() -> bool:
            head = ack_batch(self.number, self.last_seq + 1, generation, b"")
            return self.sent_bytes + len(head) + len(encoded) <= self.granted_bytes or (
                not self._unconfirmed and self.granted_bytes > 0
            )

        for condition, what in ((has_room, "confirmations"), (is_granted, "credit")):
            if not condition():
                await self._within(self._wait_until(condition), None, what)
        self._check()
        self.last_seq += 1
        batch = ack_batch(self.number, self.last_seq, generation, encoded)
        self.sent_bytes += len(batch)
        if not self._unconfirmed:
            self._outbox.expect()
        self._unconfirmed_parts += parts
        self._unconfirmed.append((self.last_seq, parts))
        self._outbox.put(source_message_of(batch))

    def _is_open(self, state: CursorState) -> None:
        if not self._opened.done():
            later, self.later_layout = self.later_layout, ()
            for run in later:
                self.layout(run)
            self._opened.set_result(state)

    def _confirm(self, seq: int) -> None:
        waited = bool(self._unconfirmed)
        while self._unconfirmed and self._unconfirmed[0][0] <= seq:
            self._unconfirmed_parts -= self._unconfirmed.popleft()[1]
        if waited and not self._unconfirmed:
            self._outbox.answered()
        super()._confirm(seq)

    def _next_seq(self) -> int:
        self._check()
        self.last_seq += 1
        return self.last_seq


def encoded_within(acks: Acks, settings: ClientSettings) -> bytes:
    """The bytes of one batch. Raises `AcksTooLarge` where no message can hold them."""
    encoded = encode_acks(acks)
    if len(encoded) > settings.message_bytes_max:
        raise AcksTooLarge(
            f"{len(encoded)} bytes of acks, the limit is {settings.message_bytes_max}"
        )
    return encoded


def _code(code: int) -> str:
    return pb.RefusedCode.Name(code) if code in pb.RefusedCode.values() else f"REFUSED_{code}"
