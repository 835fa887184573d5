"""How many requests, and bytes of them, are in flight.

Owns the two limits and the queue in front of them. A request counts until its answer came or its
connection died, not until its caller gave up: the bytes are still in a buffer somewhere.
Invariants: neither limit is passed; first come, first served; a waiter that is cancelled takes no
place.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InFlight:
    """Lets so many requests, and so many bytes of them, be in flight at once."""

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._requests_max, self._bytes_max = requests_max, bytes_max
        self.requests = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def enter_now(self, request_bytes: int) -> bool:
        """Whether there was room, and nobody who waits for it. Then one `leave` with the same
        number is to follow.
        """
        if self._waiting or not self._has_room(request_bytes):
            return False
        self._take(request_bytes)
        return True

    async def enter(self, request_bytes: int) -> None:
        """Wait for room. Every return is to be followed by one `leave` with the same number."""
        if self.enter_now(request_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((request_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit()  # a smaller one may have waited behind this one
            else:
                self.leave(request_bytes)
            raise

    def leave(self, request_bytes: int) -> None:
        self.requests -= 1
        self.bytes -= request_bytes
        self._admit()

    def _has_room(self, request_bytes: int) -> bool:
        return self.requests < self._requests_max and self.bytes + request_bytes <= self._bytes_max

    def _take(self, request_bytes: int) -> None:
        self.requests += 1
        self.bytes += request_bytes

    def _admit(self) -> None:
        while self._waiting:
            request_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._has_room(request_bytes):
                    return
                self._take(request_bytes)
                turn.set_result(None)
            self._waiting.popleft()
