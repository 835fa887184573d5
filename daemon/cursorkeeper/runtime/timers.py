"""One timer for all cursors: a heap and a single `call_at`. An idle cursor costs an entry at most,
never a task. A time that moves later, as those of a busy cursor do with each message, is looked at
when the earlier one has come.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """At most one time per key; `fire(key)` is called when it has come. Times are of the running
    loop's clock.
    """

    def __init__(self, fire: Callable[[K], None]) -> None:
        self._fire, self._loop = fire, asyncio.get_running_loop()
        self._heap: list[tuple[float, int, K]] = []
        self._times: dict[K, float] = {}
        self._queued: dict[K, tuple[float, int]] = {}
        """When a key is looked at, not after its time, and the number of that in the heap."""
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        self._runs_at_s = 0.0
        """When the handle runs: not every loop's handles say so."""

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: K, at: float | None) -> None:
        """Set, move or (None) remove a key's time."""
        if at is None:
            self._times.pop(key, None)
            return
        self._times[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued[0]:
            self._queue(key, at)
            if len(self._heap) > 64 + 4 * len(self._times):
                self._tidy()
            self._arm()

    def _queue(self, key: K, at: float) -> None:
        self._count += 1
        self._queued[key] = (at, self._count)
        heapq.heappush(self._heap, (at, self._count, key))

    def _tidy(self) -> None:
        """Forgets what was moved earlier, or removed."""
        self._queued = {key: at for key, at in self._queued.items() if key in self._times}
        self._heap = [(at, number, key) for key, (at, number) in self._queued.items()]
        heapq.heapify(self._heap)

    def close(self) -> None:
        self._times.clear()
        self._queued.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._handle is not None:
            if self._runs_at_s <= at:
                return
            self._handle.cancel()
        self._runs_at_s = at
        self._handle = self._loop.call_at(at, self._run)

    def _run(self) -> None:
        self._handle = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            _, number, key = heapq.heappop(self._heap)
            queued = self._queued.get(key)
            if queued is None or queued[1] != number:
                continue  # it was moved earlier
            del self._queued[key]
            at = self._times.get(key)
            if at is None:
                continue
            if at > now:
                self._queue(key, at)
                continue
            del self._times[key]
            self._fire(key)
        self._arm()
