"""The local lease: how long this process may still believe that its session lives.

Owns the deadline and the call when it passes. Does not own the session: it is told about answers
and never asks the network. The server counts the timeout from the last request that *it* received,
so the count here starts when a request was *sent*, not when its answer came: the answer may have
been long under way. 2/3 of the timeout leave 1/3 for clocks that differ and for a loop that is
late.

Invariants: the deadline only moves forward, or to "lost now"; `on_lost` is called once for each
time the lease runs out or is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cursorkeeper.zookeeper.listeners import Listeners
from cursorkeeper.zookeeper.values import LeaseCallback, Unsubscribe

LEASE_SHARE = 2 / 3
"""Part of the negotiated session timeout that the lease lasts."""


class Lease:
    """Deadline of a session as this process sees it. `clock_s` is monotonic; timers come from the
    running loop.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._until_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost = Listeners[[]]()

    @property
    def s_left(self) -> float:
        """Seconds left, 0 when there is no lease."""
        return 0.0 if self._until_s is None else max(0.0, self._until_s - self._clock_s())

    def on_lost(self, callback: LeaseCallback) -> Unsubscribe:
        return self._lost.add(callback)

    def renew(self, sent_at_s: float, session_timeout_s: float) -> None:
        """A request sent at `sent_at_s` was answered."""
        until_s = sent_at_s + LEASE_SHARE * session_timeout_s
        if self._until_s is None or until_s > self._until_s:
            self._until_s = until_s
        if self._timer is None:
            self._arm()

    def drop(self) -> None:
        """The session is known to be gone."""
        held = self._until_s is not None
        self.stop()
        if held:
            self._lost.call()

    def stop(self) -> None:
        """Closed: no lease, and nobody to tell."""
        self._until_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.s_left, self._ring)

    def _ring(self) -> None:
        # Renewing does not touch the timer, which would cost more than the request: the timer looks
        # again when it rings.
        self._timer = None
        if self.s_left > 0:
            self._arm()
        else:
            self.drop()
