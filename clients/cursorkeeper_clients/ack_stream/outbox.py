"""Serialised messages on their way to the network.

Owns: their order and the bound on their bytes. Control messages always go in: they are few, and answers wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Outbox:
    """What leaves on a stream, in order. One task takes from it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._messages: deque[bytes] = deque()
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

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
        """The next one, in order."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        if self._bytes < self._bytes_max:
            self._room.set()
        return message
