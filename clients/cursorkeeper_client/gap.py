"""The pause between two messages of a stream, for whoever sends many small ones: the daemon to the
gateway and to sources, a source to the daemon. A gRPC message costs either side about 100 us,
whatever it holds, so what comes shortly after a message goes together.

Who knows of nothing that follows waits a fifth of it: else two sides that are both quick would
send each other thousands of small messages a second. Who says how long answers take
(`answered`: the appends of the daemon) waits longer where they take long: who is slow because there
is much to do has less of it in larger messages.

Invariants: the first message after a pause leaves at once; none waits longer than the gap; more
than fits one message does not wait.
"""

from __future__ import annotations

import asyncio

GAP_MS, LONGEST_GAP_MS = 5.0, 15.0
_NOTHING_KNOWN = 0.2
_OF_ANSWER = 0.3
"""So much of the time that an answer takes is waited for the next message."""
_NEWEST = 0.1
"""So much the newest answer counts."""


class Gap:
    """Of one sender, who waits, takes what there is, sends it, and says so unless more follows than
    one message holds. 0: no pause.
    """

    def __init__(self, gap_ms: float = GAP_MS) -> None:
        self._least_s = self.pause_s = gap_ms / 1000
        self._until_s = self._answer_s = 0.0

    async def wait(self, *, follows: bool = True) -> None:
        """Until the next message may leave. `follows`: more is known to come shortly."""
        left_s = self._until_s - asyncio.get_running_loop().time()
        if not follows:
            left_s -= (1 - _NOTHING_KNOWN) * self.pause_s
        if left_s > 0:
            await asyncio.sleep(left_s)

    def answered(self, after_s: float) -> None:
        """An answer came so long after what it answers was ready to be sent."""
        self._answer_s += _NEWEST * (after_s - self._answer_s)
        most_s = LONGEST_GAP_MS / GAP_MS * self._least_s
        self.pause_s = min(max(self._least_s, _OF_ANSWER * self._answer_s), most_s)

    def over(self) -> None:
        """Nothing follows shortly: the next message leaves at once."""
        self._until_s = 0.0

    def sent(self) -> None:
        """A message left that held everything there was."""
        self._until_s = asyncio.get_running_loop().time() + self.pause_s
