"""One time for each of many keys, kept by the loop. An idle cursor costs an entry at most, never a
task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """`fire(key)` is called when the key's time has come. Times are of the running loop's clock."""

    def __init__(self, fire: Callable[[K], None]) -> None:
        self._fire = fire
        self._set: dict[K, tuple[float, asyncio.TimerHandle]] = {}

    def set(self, key: K, at: float | None) -> None:
        """Set, move or (None) remove a key's time."""
        known = self._set.get(key)
        if known is not None:
            if known[0] == at:
                return
            known[1].cancel()
            del self._set[key]
        if at is not None:
            self._set[key] = at, asyncio.get_running_loop().call_at(at, self._run, key)

    def close(self) -> None:
        for key in list(self._set):
            self.set(key, None)

    def _run(self, key: K) -> None:
        del self._set[key]
        self._fire(key)
