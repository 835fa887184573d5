"""The clock of the cursors' machines: seconds in which this process could have heard an answer.

While something was sent and is not answered, the clock beats, and from one beat to the next it goes
on by little more than a beat. A loop that was busy for three seconds has not listened for three
seconds: an answer may lie in its socket. So a limit of two seconds means twenty beats of listening,
however busy the daemon is. While nothing is unanswered it does not beat, and is the loop's clock.
"""

from __future__ import annotations

import asyncio

BEAT_S = 0.1
STEP_MAX_S = 0.15
"""The longest time between two beats of a loop that listens."""
ROUNDING_S = 1e-6
"""More than the sums of `loop_time` can be off."""


class PatientClock:
    """Monotonic; never faster than the loop's clock. `watch` and `rest` count what is
    unanswered.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unanswered = 0
        self._beat: asyncio.TimerHandle | None = None
        self._at = self._loop_at = self._loop.time()

    def __call__(self) -> float:
        since = self._loop.time() - self._loop_at
        return self._at + (since if self._beat is None else min(since, STEP_MAX_S))

    def loop_time(self, at: float) -> float:
        """When the loop's clock will say so, should nothing hold it up. Not earlier by a rounding
        error: who is called too early finds that it is not time yet, and asks to be called at once.
        """
        return self._loop_at + (at - self._at) + ROUNDING_S

    def watch(self) -> None:
        """Something was sent: the clock beats until it is answered."""
        self._unanswered += 1
        if self._beat is None:
            self._go_on()

    def rest(self) -> None:
        self._unanswered -= 1

    def close(self) -> None:
        if self._beat is not None:
            self._beat.cancel()

    def _go_on(self) -> None:
        self._at, self._loop_at = self(), self._loop.time()
        self._beat = self._loop.call_later(BEAT_S, self._go_on) if self._unanswered else None
