"""What waits to be sent on one stream. Bounded by number and by bytes: cumulative messages replace
each other, states are made when their turn comes, and everything else is few by protocol; a peer
that does not read ends its own stream.

Invariant: nothing here raises into whoever puts. A full outbox forgets what it holds, takes no
more, and `next` says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from cursorkeeper.format import leb
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_BYTES, keeper_group
from cursorkeeper_client.gap import Gap

MESSAGES_PER_CURSOR = 8
"""State, credit, durable, pause and resume, a refusal, and room: all cursors of a daemon may be
opened on one stream.
"""
MESSAGES_MAX = MESSAGES_PER_CURSOR * 10_000
BYTES_PER_MESSAGE = 512
"""On average: a refusal names its cursor twice, and a name has at most 1,024 bytes."""
_OF_BYTES = 2
"""How protobuf writes a message within a message: its field, shifted by three, and this."""
_HELLO = bytes([pb.KeeperMessage.HELLO_FIELD_NUMBER << 3 | _OF_BYTES])
"""With it a KeeperMessage begins that is a Hello."""
_DURABLE = pb.KeeperMessage.DURABLE_FIELD_NUMBER
_CREDIT = pb.KeeperMessage.CREDIT_FIELD_NUMBER
Item = bytes | tuple[int, Iterator[pb.KeeperMessage]] | tuple[str, int]
"""A serialised message; a handle and the messages of its state; or which number of a handle is to
be told.
"""


class OutboxFull(Exception):
    """The peer does not read."""


class Outbox:
    """First in, first out; `Durable` and `Credit` of a handle are merged while they wait.

    `messages_max` wait at most, and of those that are already made so many times
    `BYTES_PER_MESSAGE` bytes, or one alone. `on_overflow` is called once, from the event loop and
    never from within a put. `group_messages_max`: so many messages the source takes in one group, 0
    until its Hello says so. `more_follows`: whether more is to be told shortly, for which a message
    waits a little longer.
    """

    def __init__(
        self,
        messages_max: int = MESSAGES_MAX,
        on_overflow: Callable[[], None] = lambda: None,
        more_follows: Callable[[], bool] = lambda: True,
    ) -> None:
        self._messages_max, self._on_overflow, self._more_follows = (
            messages_max,
            on_overflow,
            more_follows,
        )
        self._bytes_max, self._bytes = messages_max * BYTES_PER_MESSAGE, 0
        self._items: deque[Item] = deque()
        self._states: dict[int, Iterator[pb.KeeperMessage]] = {}
        self._durable: dict[int, tuple[int, int]] = {}
        self._credit: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._closed = False
        self._gap = Gap()
        self.group_messages_max = 0
        self.overflowed = False
        self._overflow = ""

    def put(self, message: pb.KeeperMessage) -> None:
        data = message.SerializeToString()
        size = len(data)
        is_too_much = bool(self._bytes) and self._bytes + size > self._bytes_max
        self._bytes += size
        self._add(data, is_too_much=is_too_much)

    def put_state(self, handle: int, messages: Iterator[pb.KeeperMessage]) -> None:
        """Several, made one by one when their turn comes, unless `drop` comes first."""
        self._states[handle] = messages
        self._add((handle, messages))

    def drop(self, handle: int) -> None:
        """The handle has ended: the rest of its state is not made any more."""
        self._states.pop(handle, None)

    def put_durable(self, handle: int, seq: int, truncated_acks: int = 0) -> None:
        """Cumulative; the newest number of what is left out counts."""
        if handle not in self._durable:
            self._add(("durable", handle))
        self._durable[handle] = (seq, truncated_acks)

    def put_credit(self, handle: int, granted: int) -> None:
        """`granted` counts from the beginning: only the newest number is kept."""
        if handle not in self._credit:
            self._add(("credit", handle))
        self._credit[handle] = granted

    def _add(self, item: Item, *, is_too_much: bool = False) -> None:
        if self.overflowed:
            return
        self._wake.set()
        if len(self._items) < self._messages_max and not is_too_much:
            self._items.append(item)
            return
        self.overflowed = True
        self._overflow = (
            f"{len(self._items)} messages waited, {self._bytes} bytes with the next one"
        )
        self._items.clear()
        self._states.clear()
        asyncio.get_running_loop().call_soon(self._on_overflow)

    def close(self) -> None:
        """What is queued is still sent, then the stream ends."""
        self._closed = True
        self._wake.set()

    def forget(self) -> None:
        """Nobody takes what is queued: states that were not made let go of their cursors."""
        self._items.clear()
        self._states.clear()
        self._durable.clear()
        self._credit.clear()
        self._bytes = 0

    async def next(self) -> bytes | None:
        """The next message, serialised; in a group with those behind it, if the source takes
        groups. Hello is alone. None when closed and empty. Raises OutboxFull.
        """
        if self.group_messages_max > 1:
            while not (self._items or self._closed or self.overflowed):
                await self._wait()
            await self._gap.wait(follows=self._more_follows())
        while (message := self._take()) is None and not self._closed:
            await self._wait()
        if message is None:
            return None
        taken = [message]
        size = len(message)
        most = 1 if message.startswith(_HELLO) else self.group_messages_max
        while len(taken) < most and size < GROUP_BYTES:
            message = self._take()
            if message is None:
                self._gap.sent()
                break
            taken.append(message)
            size += len(message)
        return keeper_group(taken)

    async def _wait(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _take(self) -> bytes | None:
        """The next one that is there. Raises OutboxFull."""
        if self.overflowed:
            raise OutboxFull(self._overflow)
        while self._items:
            found = self._pop()
            if found is not None:
                return found
        return None

    def _pop(self) -> bytes | None:
        item = self._items[0]
        if isinstance(item, bytes):
            self._items.popleft()
            self._bytes -= len(item)
            return item
        first, second = item
        if isinstance(first, int):
            return self._pop_state(first)
        assert isinstance(second, int)
        self._items.popleft()
        if first == "durable":
            seq, truncated = self._durable.pop(second)
            return _numbers(_DURABLE, (second, seq, truncated))
        return _numbers(_CREDIT, (second, self._credit.pop(second)))

    def _pop_state(self, handle: int) -> bytes | None:
        item = self._items[0]
        assert isinstance(item, tuple)
        messages = self._states.get(handle)
        message = next(messages, None) if messages is not None and messages is item[1] else None
        if message is None:
            self._items.popleft()
            if messages is item[1]:
                self._states.pop(handle, None)
            return None
        return message.SerializeToString()


def _numbers(kind: int, numbers: tuple[int, ...]) -> bytes:
    """A KeeperMessage of this field, which has these numbers, from its field 1 on. A source has one
    for each flush of each of its cursors, and an object of protobuf takes four times as long.
    """
    body = [kind << 3 | _OF_BYTES, 0]
    for field, number in enumerate(numbers, 1):
        if number:
            body.append(field << 3)
            leb.put(body, number)
    body[1] = len(body) - 2
    return bytes(body)
