"""Serves everybody who tries again what may work later: how long each pause is, and when it is
enough.

Owns the doubling, the spread and the limit; what may be tried again is for its users to know. The
limit counts from the first failure, and one more try always follows that one: a caller whose loop
stood still while a request was under way (a Spark task between two batches) finds that request too
late, however soon its system answered.
"""

from __future__ import annotations

import asyncio
import math
import random


class BackOff:
    """The pauses of one wait: they double from the least to the most. With `rng` each is between
    half of its step and all of it, so that many who wait for one system spread.
    """

    def __init__(
        self,
        min_s: float,
        max_s: float,
        rng: random.Random | None = None,
        *,
        limit_s: float = math.inf,
    ) -> None:
        self._min_s, self._max_s, self._limit_s, self._rng = min_s, max_s, limit_s, rng
        self.reset()

    def reset(self) -> None:
        """It worked: begin with the least, and a new limit."""
        self._step_s, self._until_s = self._min_s, math.inf

    def next_s(self) -> float:
        pause_s = self._step_s * (self._rng.uniform(0.5, 1.0) if self._rng is not None else 1.0)
        self._step_s = min(self._step_s * 2, self._max_s)
        return pause_s

    def is_over(self) -> bool:
        """Told of a failure: whether there is no time for one more pause."""
        now_s = asyncio.get_running_loop().time()
        if self._until_s == math.inf:
            self._until_s = now_s + self._limit_s
            return False
        return now_s + self._step_s > self._until_s
