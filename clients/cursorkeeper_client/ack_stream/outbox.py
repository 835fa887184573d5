"""Serialised messages on their way to the network.

Owns: their order, the bound on their bytes, what goes together. Control messages always go in: they
are few, and answers wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque

from cursorkeeper_client.ack_stream.groups import GROUP_BYTES, source_group
from cursorkeeper_client.gap import Gap


class Outbox:
    """What leaves on a stream, in order. One task takes from it. `group_messages_max` is what the
    keeper's Hello says, 0 until then.
    """

    def __init__(self, bytes_max: int, gap: Gap | None = None) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._messages: deque[bytes] = deque()
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._gap = gap or Gap()
        self._unanswered = 0
        self.group_messages_max = 0

    def expect(self) -> None:
        """A cursor waits for the confirmation of what is put next. Where no other one does, that
        leaves at once.
        """
        if not self._unanswered:
            self._gap.over()
        self._unanswered += 1

    def answered(self) -> None:
        """A cursor waits for no confirmation any more."""
        self._unanswered -= 1

    def put(self, message: bytes) -> None:
        """Never waits. Batches of acks ask `wait_room` first."""
        self._messages.append(message)
        self._bytes += len(message)
        self._filled.set()
        if self._bytes >= self._bytes_max:
            self._room.clear()

    async def wait_room(self) -> None:
        """Returns when there is room for one more batch."""
        await self._room.wait()

    async def take(self) -> bytes:
        """The next one, in order; in a group with those behind it, if the keeper takes groups."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        if self.group_messages_max > 1:
            await self._gap.wait()
        taken = [self._messages.popleft()]
        size = len(taken[0])
        while (
            self._messages
            and len(taken) < self.group_messages_max
            and size + len(self._messages[0]) <= GROUP_BYTES
        ):
            taken.append(self._messages.popleft())
            size += len(taken[-1])
        if not self._messages:
            self._gap.sent()
        self._bytes -= size
        if self._bytes < self._bytes_max:
            self._room.set()
        return source_group(taken)
