"""Numbers of what was sent, for whoever waits until it is durable: of a handle on one stream, and
of a cursor over all its streams.

Owns: `seq`s 1, 2, ..., how far they are durable, and everybody who waits for that or for any other
change. Invariants: durable_seq <= last_seq; once the series has ended, whoever waits or calls gets
the error it ended with.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cursorkeeper_client.errors import AnswerTimeout, CursorKeeperError
from cursorkeeper_client.settings import ClientSettings

T = TypeVar("T")


class Series:
    """`name` is the cursor's, for people. `on_durable(seq)` is called with every confirmation, in
    the loop, and must be quick.
    """

    def __init__(self, name: str, settings: ClientSettings) -> None:
        self.name, self._settings = name, settings
        self.last_seq = self.durable_seq = 0
        self.on_durable: Callable[[int], None] | None = None
        self.ended: CursorKeeperError | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    async def durable(self, seq: int | None = None, timeout_s: float | None = None) -> None:
        """Returns when everything up to `seq` (None: all so far) is durable, or decided because a
        reset came after it. Raises `AnswerTimeout` after `timeout_s` (None: `answer_timeout_s` of
        the settings; 0: unless it is durable already).
        """
        await self._wait_durable(self._sent(seq), timeout_s)

    def _sent(self, seq: int | None) -> int:
        if seq is not None and seq > self.last_seq:
            raise ValueError(f"{self.name}: seq {seq} was never sent, the last is {self.last_seq}")
        return self.last_seq if seq is None else seq

    async def _wait_durable(self, wanted: int, timeout_s: float | None) -> None:
        if wanted <= self.durable_seq:
            return
        self._check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(seen)
        heapq.heappush(self._waiters, (wanted, id(waiter), waiter))
        try:
            await self._within(waiter, timeout_s, f"seq {wanted} to be durable")
        finally:
            if waiter.cancelled():
                self._waiters = [each for each in self._waiters if not each[2].cancelled()]
                heapq.heapify(self._waiters)

    def _confirm(self, seq: int) -> None:
        self.durable_seq = max(self.durable_seq, min(seq, self.last_seq))
        while self._waiters and self._waiters[0][0] <= self.durable_seq:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        told(self.on_durable, self.durable_seq)
        self._changed.set()

    def _end(self, error: CursorKeeperError) -> None:
        """Everybody who waits gets the error; the first one counts."""
        self.ended = self.ended or error
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self.ended)
        self._changed.set()

    def _check(self) -> None:
        if self.ended:
            raise self.ended.with_traceback(None)  # it may be raised many times

    async def _wait_until(self, condition: Callable[[], object]) -> None:
        """Looks again at every change, until it holds or the series has ended."""
        self._check()
        while not condition():
            self._changed.clear()
            await self._changed.wait()
            self._check()

    async def _within(self, waiting: Awaitable[T], timeout_s: float | None, what: str) -> T:
        limit_s = self._settings.answer_timeout_s if timeout_s is None else timeout_s
        if isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or limit_s != limit_s:
            raise TypeError(f"timeout_s is a number of seconds, and this is {limit_s!r}")
        try:
            async with asyncio.timeout(limit_s):
                return await waiting
        except TimeoutError:
            raise AnswerTimeout(f"{self.name}: waited {limit_s:g} s for {what}") from None


def told(callback: Callable[[T], None] | None, value: T) -> None:
    """A program's callback. What it raises is reported to the loop: the stream lives on."""
    try:
        if callback:
            callback(value)
    except Exception as raised:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{callback} of a cursor raised", "exception": raised}
        )


def seen(future: asyncio.Future[T]) -> None:
    """Nobody may be waiting: that is no reason for a warning at collection."""
    if not future.cancelled():
        future.exception()
