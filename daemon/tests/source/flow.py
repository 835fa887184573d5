"""One cursor that is sent numbered batches.

Owns: what is said of a batch. Every batch is two JSON lines on standard output, flushed one by one:
`sent` before it is handed over and `durable` when the keeper confirmed it, each with the cursor's
place and the batch's number. Batches are made from a seed and their number, so these lines are the
whole truth about what may and what must be found later, and they outlive a kill of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from cursorkeeper_client import (
    Acks,
    Cursor,
    CursorDeposed,
    CursorKeeperError,
    CursorState,
)

LOOK_S = 0.2


def say(**line: Any) -> None:
    """Writes one line of JSON to standard output."""
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


class Flow:
    """`opens`: opens the cursor, and takes it from whoever has it. `retake_ms`: so long after
    somebody else took the cursor it is taken back; 0: that is the end. At most `in_flight_max`
    batches are sent and not confirmed; then it waits, as consumers wait for messages.

    Batch `_base + t` is the one with seq `t` of the cursor of now: every cursor begins at the
    first batch that is not durable.
    """

    def __init__(
        self,
        at: int,
        opens: Callable[[], Cursor],
        *,
        in_flight_max: int,
        retake_ms: float = 0,
    ) -> None:
        self.at, self._opens = at, opens
        self._in_flight_max, self._retake_ms = in_flight_max, retake_ms
        self.sent = self.durable = 0
        """How many batches were handed over, and how many of them are confirmed."""
        self.durable_acks = 0
        self._base = self._handed = 0
        self._unconfirmed: deque[tuple[Acks, int]] = deque()
        self._rng = random.Random(at)
        self._progress = asyncio.Event()
        self.cursor = self._opened()

    async def send(self, acks: Acks, count: int = 1) -> None:
        """One batch of `count` acks. Raises CursorKeeperError if the cursor is lost for good."""
        say(sent=[self.at, self.sent + 1])
        self.sent += 1
        self._unconfirmed.append((acks, count))
        await self._hand_over()
        await self._wait(self._in_flight_max - 1)

    async def drain(self) -> None:
        """Returns when everything that was sent is durable, also what a cancelled `send` left."""
        await self._hand_over()
        await self._wait(0)

    async def _wait(self, left: int) -> None:
        """Until so few batches are not durable."""
        while len(self._unconfirmed) > left:
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._progress.wait()
            if self.cursor.ended is not None:
                await self._retake(self.cursor.ended)
                await self._hand_over()

    async def _hand_over(self) -> None:
        """Everything that was sent and is not in the hands of the cursor of now."""
        while self._handed < self.sent:
            acks, _ = self._unconfirmed[self._handed - self.durable]
            try:
                seq = await self.cursor.send(acks)
            except CursorDeposed as e:
                await self._retake(e)
                continue
            self._handed += 1
            assert self._base + seq == self._handed, (self._base, seq, self._handed)

    async def _retake(self, lost: CursorKeeperError) -> None:
        """Takes the cursor back, after a while, from somebody else."""
        if not (isinstance(lost, CursorDeposed) and self._retake_ms):
            raise lost
        await asyncio.sleep(self._retake_ms / 1000 * self._rng.uniform(0.5, 1.5))
        self._base = self._handed = self.durable
        self.cursor = self._opened()

    def _opened(self) -> Cursor:
        cursor, base = self._opens(), self._base
        cursor.on_durable = lambda seq: self._durable(base + seq)
        cursor.on_recovered = self._recovered
        return cursor

    def _recovered(self, state: CursorState) -> None:
        say(opened=[self.at, state.epoch, state.generation])

    def _durable(self, upto: int) -> None:
        if upto > self.durable:
            say(durable=[self.at, upto])
        while self.durable < upto:
            self.durable_acks += self._unconfirmed.popleft()[1]
            self.durable += 1
        self._progress.set()
