"""The pause between attempts to connect.

Owns the doubling and the jitter. Pure but for the random source passed in. Invariant: each pause is
between half of the current step and all of it, so that clients of one ensemble spread.
"""

from __future__ import annotations

import random


class BackOff:
    """Doubles from the least to the most."""

    def __init__(self, min_ms: int, max_ms: int, random_source: random.Random) -> None:
        self._min_s, self._max_s = min_ms / 1000, max_ms / 1000
        self._random = random_source
        self._step_s = self._min_s

    def next_s(self) -> float:
        """The next pause in seconds."""
        pause_s = self._step_s * self._random.uniform(0.5, 1.0)
        self._step_s = min(self._step_s * 2, self._max_s)
        return pause_s

    def reset(self) -> None:
        """A connection held: start with the least again."""
        self._step_s = self._min_s
