"""Serves sources: when messages are taken in, and when cursors append. All times are of the loop's
clock.
"""

from __future__ import annotations

import asyncio

AT_ONCE_MAX, AT_ONCE_PER_S = 4, 500
"""Where nothing is in flight, so many cursors append without waiting for more acks or for a pause
of the messages; and so many times a second, so that a daemon whose loop is busy spends little on
them.
"""
PAUSE_S, PAUSE_TURNS = 0.001, 5
"""Intake makes a pause when no message came for so long, and in so many turns of the loop after
that.
"""
INTAKE_MIN_S, INTAKE_MAX_S, INTAKE_SHARE = 0.005, 2.0, 4.0
"""How long messages are taken in without a pause before cursors append again: so many times as long
as they appended before.
"""


class Intake:
    """When cursors may append: in a pause of the messages that come in, or when these have had
    their share of the time. All times are of the loop's clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._took_at_s = self._ends_at_s = self._appended_s = 0.0
        self._since_s: float | None = None
        """Since when cursors append; None: they do not, or wait for room."""
        self._quiet_turns = 0

    def took(self) -> None:
        self._took_at_s = self._loop.time()
        self._quiet_turns = 0

    @property
    def over_at_s(self) -> float:
        """When it may be over, as far as is known."""
        return min(self._took_at_s + PAUSE_S, self._ends_at_s)

    def is_over(self, now: float) -> bool:
        """Asked once in a turn of the loop: what lies in a socket becomes a message a turn or two
        later.
        """
        if now >= self._ends_at_s:
            return True
        self._quiet_turns += now >= self._took_at_s + PAUSE_S
        return self._quiet_turns > PAUSE_TURNS

    def stopped(self, now: float) -> None:
        """The messages wait from now on: cursors append."""
        if self._since_s is None:
            self._since_s = now

    def waits(self, now: float) -> None:
        """They wait for room. Meanwhile messages are taken in, so that this time takes none from
        them.
        """
        if self._since_s is not None:
            self._appended_s += now - self._since_s
            self._since_s = None

    def goes_on(self, now: float) -> None:
        """Messages are taken again: cursors have appended."""
        self.waits(now)
        share_s = min(max(INTAKE_MIN_S, INTAKE_SHARE * self._appended_s), INTAKE_MAX_S)
        self._ends_at_s, self._quiet_turns, self._appended_s = now + share_s, 0, 0.0


class Spare:
    """How many cursors may append at once. All times are of the loop's clock."""

    def __init__(self) -> None:
        self._full_at_s = 0.0

    def has(self, cursors: int, now: float) -> bool:
        return max(0.0, self._full_at_s - now) <= (AT_ONCE_MAX - cursors) / AT_ONCE_PER_S

    def used(self, cursors: int, now: float) -> None:
        self._full_at_s = max(self._full_at_s, now) + cursors / AT_ONCE_PER_S
