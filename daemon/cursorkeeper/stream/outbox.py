"""What waits to be sent on one stream. Bounded: cumulative messages replace each other, states are made when their turn
comes, and everything else is few by protocol; a peer that does not read ends its own stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from cursorkeeper_clients._proto import acks_pb2 as pb

MESSAGES_MAX = 20_000


class OutboxFull(Exception):
    """The peer does not read."""


class Outbox:
    """First in, first out; `Durable` and `Credit` of a handle are merged while they wait."""

    def __init__(self) -> None:
        self._items: deque[pb.KeeperMessage | Iterator[pb.KeeperMessage] | tuple[str, int]] = deque()
        self._durable: dict[int, int] = {}
        self._credit: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, message: pb.KeeperMessage | Iterator[pb.KeeperMessage]) -> None:
        """One message, or several made on demand. Raises OutboxFull."""
        if len(self._items) >= MESSAGES_MAX:
            raise OutboxFull(f"{len(self._items)} messages wait")
        self._items.append(message)
        self._wake.set()

    def put_durable(self, handle: int, seq: int) -> None:
        """Cumulative."""
        if handle not in self._durable:
            self._items.append(("durable", handle))
        self._durable[handle] = seq
        self._wake.set()

    def put_credit(self, handle: int, granted: int) -> None:
        """Cumulative."""
        if handle not in self._credit:
            self._items.append(("credit", handle))
        self._credit[handle] = granted
        self._wake.set()

    def close(self) -> None:
        """What is queued is still sent, then the stream ends."""
        self._closed = True
        self._wake.set()

    async def next(self) -> pb.KeeperMessage | None:
        """The next message; None when closed and empty."""
        while True:
            while self._items:
                found = self._pop()
                if found is not None:
                    return found
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()

    def _pop(self) -> pb.KeeperMessage | None:
        item = self._items[0]
        if isinstance(item, pb.KeeperMessage):
            self._items.popleft()
            return item
        if isinstance(item, tuple):
            self._items.popleft()
            kind, handle = item
            if kind == "durable":
                return pb.KeeperMessage(durable=pb.Durable(handle=handle, seq=self._durable.pop(handle)))
            return pb.KeeperMessage(credit=pb.Credit(handle=handle, granted_bytes=self._credit.pop(handle)))
        message = next(item, None)
        if message is None:
            self._items.popleft()
        return message
