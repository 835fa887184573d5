"""One stream of the fake keeper: handles, seqs, credit, confirmations.

Owns: the rules of the stream (`proto/acks.proto`): growing seqs, credit, generations, takeover.
Does not own: the cursor's own rules (`fake_cursor`), serving (`fake_keeper`). Invariant: a refused
handle is forgotten; what it had accepted before still becomes durable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.tests.ack_stream.fake_cursor import FakeCursor, FakeRefusal, FakeState
from cursorkeeper_client import Position
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import parts_of
from cursorkeeper_client.ack_stream.messages import hello, position, position_of

if TYPE_CHECKING:
    from clients.tests.ack_stream.fake_keeper import FakeKeeper

_Change = Callable[[FakeState], None]


@dataclass
class _Handle:
    """`granted` and `used` in bytes, cumulative; `confirmed` is the last seq told."""

    cursor: FakeCursor
    granted: int = 0
    used: int = 0
    last_seq: int = 0
    confirmed: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """seq and parts of batches that are not confirmed."""


class FakeStream:
    """`receive` returns a text if the stream must end."""

    def __init__(self, keeper: FakeKeeper) -> None:
        self.keeper = keeper
        self.outbox: asyncio.Queue[pb.KeeperMessage] = asyncio.Queue()
        self.handles: dict[int, _Handle] = {}
        self.source = ""
        self._group_messages_max = 0
        self._refused: set[int] = set()
        keeper.streams.add(self)

    def hello(self) -> None:
        """The keeper's first message."""
        said = hello("fake-keeper", f"{self.keeper.incarnation}")
        said.MergeFrom(self.keeper.faults.limits)
        said.group_messages_max = self.keeper.faults.group_messages_max
        self.send(pb.KeeperMessage(hello=said))

    def send(self, message: pb.KeeperMessage) -> None:
        self.outbox.put_nowait(message)

    async def next(self) -> pb.KeeperMessage:
        """What is to be written: all that waits in one group, if both sides know groups."""
        first = await self.outbox.get()
        most = min(self._group_messages_max, self.keeper.faults.group_messages_max)
        if most < 2 or self.outbox.empty() or first.HasField("hello"):
            return first
        together = pb.KeeperMessage(group=pb.KeeperGroup(messages=[first]))
        while not self.outbox.empty() and len(together.group.messages) < most:
            together.group.messages.append(self.outbox.get_nowait())
        return together

    def receive(self, message: pb.SourceMessage) -> str | None:
        kind = message.WhichOneof("message")
        if kind is None:
            return "an empty message"
        if kind == "group":
            return self._receive_group(message.group)
        if kind == "hello":
            self._group_messages_max = message.hello.group_messages_max
            self.source = f"{message.hello.name}/{message.hello.incarnation}"
            return None
        number = getattr(message, kind).handle
        try:
            match kind:
                case "open_cursor":
                    self._open(message.open_cursor)
                case "delete_cursor":
                    self._delete(message.delete_cursor)
                case _ if number in self._refused:
                    pass  # sent before the source knew
                case "ack_batch":
                    self._acks(self._handle(number), message.ack_batch)
                case "layout":
                    run, cursor = message.layout.run, self._handle(number).cursor
                    self._check_layout(run)
                    cursor.take_layout(run)
                    self._control(
                        number, message.layout.seq, message.layout.generation, lambda state: None
                    )
                case "set_cursor_properties":
                    values = dict(message.set_cursor_properties.properties.values)
                    self._control(
                        number,
                        message.set_cursor_properties.seq,
                        message.set_cursor_properties.generation,
                        lambda state: setattr(state, "cursor_properties", values),
                    )
                case "reset_cursor":
                    self._reset(message.reset_cursor)
                case "close_cursor":
                    self.confirm(number)
                    self.keeper.shown.pop(self._handle(number).cursor.name, None)
                    self._forget(number)
                    self.send(pb.KeeperMessage(closed=pb.Closed(handle=number)))
        except FakeRefusal as refusal:
            self._refuse(number, refusal)
        return None

    def _receive_group(self, group: pb.SourceGroup) -> str | None:
        most = self.keeper.faults.group_messages_max if self.source else 0
        if len(group.messages) > most:
            return f"a group of {len(group.messages)} messages, {most} are allowed"
        for part in group.messages:
            problem = "a group within a group" if part.HasField("group") else self.receive(part)
            if problem:
                return problem
        return None

    def confirm(self, number: int) -> None:
        """What is accepted becomes durable and is confirmed, credit flows back."""
        handle = self.handles.get(number)
        if handle is None:
            return
        while handle.cursor.pending:
            seq, size, change = handle.cursor.pending.popleft()
            change(handle.cursor.durable)
            handle.granted += size
            handle.confirmed = seq
            while handle.waiting and handle.waiting[0][0] <= seq:
                handle.waiting.popleft()
        self.send(pb.KeeperMessage(durable=pb.Durable(handle=number, seq=handle.confirmed)))
        self.send(pb.KeeperMessage(credit=pb.Credit(handle=number, granted_bytes=handle.granted)))

    def confirm_all(self) -> None:
        """Confirms what every handle has sent."""
        for number in list(self.handles):
            self.confirm(number)

    def left(self) -> None:
        """The stream is over; its cursors stay, without a handle. What was accepted is still
        written.
        """
        self.keeper.streams.discard(self)
        for number in list(self.handles):
            if not self.keeper.faults.hold_durable:
                self.confirm(number)
            self._forget(number)

    def _check_layout(self, run: pb.LayoutRun) -> None:
        limit = self.keeper.faults.limits.layout_ledgers_max
        if limit and len(run.ids) > limit:
            raise FakeRefusal(
                "TOO_LARGE", f"a layout of {len(run.ids)} ledgers, {limit} are allowed at once"
            )

    def _open(self, message: pb.OpenCursor) -> None:
        keeper, number, name = (
            self.keeper,
            message.handle,
            f"{message.topic}|{message.subscription}",
        )
        self._check_layout(message.layout)
        if keeper.faults.refuse_opens:
            keeper.faults.refuse_opens -= 1
            raise FakeRefusal("UNAVAILABLE", "refused on purpose")
        if number in self.handles:
            raise FakeRefusal("BAD_MESSAGE", f"handle {number} is in use")
        same_token = self._check_token(name, message.fencing_token)
        cursor = keeper.cursors.get(name)
        if cursor is None:
            if not message.create:
                raise FakeRefusal("NOT_FOUND", "no such cursor")
            first = message.layout.ids[0] if message.layout.ids else 0
            start = position_of(message.start) if message.HasField("start") else Position(first, -1)
            cursor = FakeCursor(name, start, dict(message.cursor_properties), message.layout)
            keeper.cursors[name] = cursor
        elif held := keeper.holders.get(name):
            if not (message.takeover or message.fencing_token):
                raise FakeRefusal("ALREADY_OPEN", "another handle has it")
            held[0].depose(held[1], cursor.epoch)
        keeper.fencing_tokens[name] = message.fencing_token
        resumes = (
            message.HasField("resume")
            and same_token
            and keeper.shown.get(name) == self.source
            and (message.resume.epoch, message.resume.generation)
            == (cursor.epoch, cursor.generation)
        )
        if keeper.faults.zookeeper_away and not resumes:
            raise FakeRefusal("UNAVAILABLE", "ZooKeeper is away")
        if name not in keeper.shown:
            cursor.epoch += 1  # not held: a claim
        cursor.take_layout(message.layout)
        self._refused.discard(number)
        keeper.holders[name] = (self, number)
        handle = self.handles[number] = _Handle(cursor, granted=keeper.faults.credit_bytes)
        if resumes:
            opened = pb.Opened(
                handle=number, epoch=cursor.epoch, generation=cursor.generation, resumed=True
            )
            self.send(pb.KeeperMessage(opened=opened))
        else:
            keeper.shown[name] = self.source
            for part in cursor.recovered(number):
                self.send(part)
        self.send(pb.KeeperMessage(credit=pb.Credit(handle=number, granted_bytes=handle.granted)))

    def depose(self, number: int, epoch: int) -> None:
        """Somebody else has its cursor now; what was accepted is kept."""
        self.confirm(number)
        self._forget(number)
        self._refused.add(number)
        self.send(pb.KeeperMessage(deposed=pb.Deposed(handle=number, epoch=epoch)))

    def _check_token(self, name: str, token: int) -> bool:
        """Whether it is the one that was seen last."""
        seen = self.keeper.fencing_tokens.get(name, 0)
        if token < seen:
            raise FakeRefusal("FENCED", f"fencing token {token}, and {seen} was seen")
        return token == seen

    def _acks(self, handle: _Handle, batch: pb.AckBatch) -> None:
        self.keeper.batches += 1
        size = batch.ByteSize()
        self._seq(handle, batch.seq)
        handle.used += size
        if handle.used > handle.granted and handle.cursor.pending:
            raise FakeRefusal(
                "CREDIT_EXCEEDED", f"{handle.used} bytes used, {handle.granted} granted"
            )
        limits, ledgers, parts = self.keeper.faults.limits, len(batch.ledgers), parts_of(batch)
        if ledgers > limits.ack_ledgers_max or parts - ledgers > limits.ack_partials_max:
            raise FakeRefusal(
                "TOO_LARGE", f"{ledgers} data ledgers and {parts - ledgers} batches: split it"
            )
        waiting = sum(count for _, count in handle.waiting)
        if waiting and waiting + parts > limits.unconfirmed_parts_max:
            raise FakeRefusal(
                "CREDIT_EXCEEDED", f"{waiting + parts} data ledgers and batches are not confirmed"
            )
        handle.waiting.append((batch.seq, parts))
        if batch.generation > handle.cursor.generation:
            raise FakeRefusal(
                "WRONG_GENERATION",
                f"generation {batch.generation}, the cursor has {handle.cursor.generation}",
            )
        if batch.generation < handle.cursor.generation:  # from before a reset: dropped, decided
            self._accept(batch.handle, handle, batch.seq, size, lambda state: None)
            return
        handle.cursor.check(batch)
        self._accept(batch.handle, handle, batch.seq, size, lambda state: state.join(batch))

    def _control(self, number: int, seq: int, generation: int, change: _Change) -> None:
        handle = self._handle(number)
        self._seq(handle, seq)
        if generation > handle.cursor.generation:
            raise FakeRefusal(
                "WRONG_GENERATION",
                f"generation {generation}, the cursor has {handle.cursor.generation}",
            )
        self._accept(number, handle, seq, 0, change)

    def _reset(self, message: pb.ResetCursor) -> None:
        handle = self._handle(message.handle)
        cursor, target = handle.cursor, position_of(message.target)
        self._control(
            message.handle, message.seq, message.generation, lambda state: state.reset(target)
        )
        cursor.generation += 1
        self.confirm(message.handle)
        done = pb.ResetDone(
            handle=message.handle, generation=cursor.generation, mark_delete=position(target)
        )
        self.send(pb.KeeperMessage(reset_done=done))

    def _delete(self, message: pb.DeleteCursor) -> None:
        number = message.handle
        name = (
            self.handles[number].cursor.name
            if number in self.handles
            else f"{message.topic}|{message.subscription}"
        )
        cursor = self.keeper.cursors.get(name)
        if cursor is None:
            raise FakeRefusal("NOT_FOUND", "no such cursor")
        if message.topic:
            self._check_token(name, message.fencing_token)
            held = self.keeper.holders.get(name)
            if held is not None and not message.fencing_token:
                raise FakeRefusal("ALREADY_OPEN", "it is open on another handle")
            if held is not None:
                held[0].depose(held[1], cursor.epoch)
            self.keeper.fencing_tokens[name] = message.fencing_token
        del self.keeper.cursors[name]
        self.keeper.shown.pop(name, None)
        self._forget(number)
        self.send(pb.KeeperMessage(deleted=pb.Deleted(handle=number)))

    def _accept(self, number: int, handle: _Handle, seq: int, size: int, change: _Change) -> None:
        handle.cursor.pending.append((seq, size, change))
        faults = self.keeper.faults
        if faults.hold_durable:
            return
        if faults.durable_delay_s:
            asyncio.get_running_loop().call_later(faults.durable_delay_s, self.confirm, number)
        else:
            self.confirm(number)

    def _handle(self, number: int) -> _Handle:
        if number not in self.handles:
            raise FakeRefusal("UNKNOWN_HANDLE", f"handle {number} is not open")
        return self.handles[number]

    def _seq(self, handle: _Handle, seq: int) -> None:
        if seq <= handle.last_seq:
            raise FakeRefusal("SEQ_NOT_GROWING", f"seq {seq} after {handle.last_seq}")
        handle.last_seq = seq

    def _refuse(self, number: int, refusal: FakeRefusal) -> None:
        handle = self.handles.get(number)
        if handle:
            self.confirm(number)
        self._forget(number)
        self._refused.add(number)
        name = handle.cursor.name if handle else ""
        said = pb.Refused(
            handle=number,
            code=refusal.code,
            cursor=name,
            message=refusal.message,
            remedy="see the message",
        )
        self.send(pb.KeeperMessage(refused=said))

    def _forget(self, number: int) -> None:
        handle = self.handles.pop(number, None)
        if handle and self.keeper.holders.get(handle.cursor.name, (None, 0)) == (self, number):
            del self.keeper.holders[handle.cursor.name]
