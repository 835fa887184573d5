"""A source that never stops: random acks on some cursors at a steady pace, until SIGTERM. The
compose demo runs it, and the containerised tests, as `python -m cursorkeeper.demo.steady`.

Owns: what it says. With `--ledger` every batch is two JSON lines on standard output, flushed one by
one: `sent` before it is handed over and `durable` when the keeper confirmed it. Batches are made
from seed and number (`random_acks`), so these lines are the whole truth about what may and what
must be found later, and they outlive a kill of this process. A second life begins at batch 1 again:
acks are idempotent. Without `--ledger`: one line of totals every few seconds.

SIGTERM: no more batches; everything sent becomes durable, or `--drain-s` passes. Exit 0: all
durable. 1: not all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from cursorkeeper.demo.random_acks import LAYOUT, START, make_batch
from cursorkeeper_client.ack_stream.errors import AckStreamError, CursorDeposed
from cursorkeeper_client.ack_stream.resuming import ResumingSource
from cursorkeeper_client.ack_stream.resuming_cursor import ResumingCursor
from cursorkeeper_client.ack_stream.settings import SourceSettings
from cursorkeeper_client.ack_stream.values import CursorState

SUBSCRIPTION = "steady"
IN_FLIGHT_MAX = 200
"""Batches of one cursor that are sent and not confirmed; then it waits, as consumers wait for
messages.
"""
LOOK_S = 0.2


@dataclass(frozen=True)
class Plan:
    daemon: str
    topics: tuple[str, ...]
    seed: int
    interval_ms: float
    moves: bool
    ledger: bool
    batches: int
    """Batches of each cursor; 0: as many as there are until SIGTERM."""
    reset_every: int
    """After so many batches the cursor is set back to its start and filled again; 0: never."""
    drain_s: float
    report_s: float
    retake_ms: float
    """So long after somebody else took a cursor it is taken back; 0: that is the end."""
    keepalive_s: float
    """A silent daemon's stream is given up after that, and some seconds."""


def say(**line: Any) -> None:
    """Writes one line of JSON to standard output."""
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


class Flow:
    """One cursor: sends, and says what is sent and what is durable. `opens`: opens the cursor, and
    takes it from whoever has it.

    Batch `_base + t` is the one with ticket `t` of the cursor of now: every cursor begins at the
    first batch that is not durable.
    """

    def __init__(
        self, plan: Plan, at: int, opens: Callable[[], ResumingCursor], stop: asyncio.Event
    ) -> None:
        self.plan, self.at, self._opens, self._stop = plan, at, opens, stop
        self.sent = self.durable = 0
        """Numbers of batches."""
        self._base = self._handed = 0
        self._rng = random.Random(at)
        self._progress = asyncio.Event()
        self._paused = ""
        self.cursor = self._opened()

    async def run(self) -> None:
        """Until SIGTERM, or the plan's number of batches. Raises AckStreamError if the cursor is
        refused for good.
        """
        while not self._stop.is_set() and (not self.plan.batches or self.sent < self.plan.batches):
            if self.plan.ledger:
                say(sent=[self.at, self.sent + 1])
            self.sent += 1
            await self._hand_over()
            await self._wait(
                lambda: self.sent - self.durable < IN_FLIGHT_MAX or self._stop.is_set()
            )
            if self.plan.reset_every and self.sent % self.plan.reset_every == 0:
                await self.drain()
                await self.cursor.reset(START)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self.plan.interval_ms / 1000 * self._rng.uniform(0.5, 1.5)
                ):
                    await self._stop.wait()

    async def drain(self) -> None:
        """Returns when everything that was sent is durable."""
        await self._wait(lambda: self.durable == self.sent)

    async def _wait(self, enough: Callable[[], bool]) -> None:
        """Until then, taking the cursor back if that is the plan. Raises AckStreamError if it is
        lost for good.
        """
        while not enough():
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._progress.wait()
            if self.cursor.failed is not None:
                await self._retake(self.cursor.failed)
                await self._hand_over()

    async def _hand_over(self) -> None:
        """Everything that was sent and is not in the hands of the cursor of now."""
        while self._handed < self.sent:
            number = self._handed + 1
            batch = make_batch(self.plan.seed + self.at, number, moves=self.plan.moves)
            try:
                ticket = await self.cursor.send(batch.acks)
            except CursorDeposed as e:
                await self._retake(e)
                continue
            assert self._base + ticket == number, (
                f"ticket {ticket} of batch {number} after {self._base}"
            )
            self._handed = number

    async def _retake(self, lost: AckStreamError) -> None:
        """Takes the cursor back, after a while, from somebody else."""
        if not (isinstance(lost, CursorDeposed) and self.plan.retake_ms):
            raise lost
        await asyncio.sleep(self.plan.retake_ms / 1000 * self._rng.uniform(0.5, 1.5))
        self._base = self._handed = self.durable
        self.cursor = self._opened()

    def _opened(self) -> ResumingCursor:
        cursor, base = self._opens(), self._base
        cursor.on_durable = lambda upto: self._durable(base + upto)
        cursor.on_recovered = self._recovered
        return cursor

    def look(self) -> None:
        """Say it when the keeper asks to pause, or no longer does."""
        handle = self.cursor.handle
        reason = (
            "no connection"
            if handle is None
            else str(handle.pause_reason or "paused")
            if handle.paused
            else ""
        )
        if reason != self._paused:
            self._paused = reason
            say(paused=[self.at, reason])

    def _durable(self, upto: int) -> None:
        self._progress.set()
        if self.plan.ledger and upto > self.durable:
            say(durable=[self.at, upto])
        self.durable = max(self.durable, upto)

    def _recovered(self, state: CursorState) -> None:
        say(opened=[self.at, state.epoch, state.generation])


async def run(plan: Plan) -> int:
    """The whole life; returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = SourceSettings(
        name="steady-source",
        back_off_max_ms=1_000,
        open_timeout_s=60,
        connect_timeout_s=5,
        keepalive_time_ms=int(plan.keepalive_s * 1000),
        # of every ping of gRPC's, those for its window included
        keepalive_timeout_ms=int(plan.keepalive_s * 500),
    )
    async with ResumingSource.dialling(plan.daemon, settings) as source:
        flows = [
            Flow(
                plan,
                at,
                partial(source.cursor, topic, SUBSCRIPTION, layout=LAYOUT, start=START),
                stop,
            )
            for at, topic in enumerate(plan.topics)
        ]
        say(ready="steady", topics=list(plan.topics))
        reporter = asyncio.create_task(_report(flows, plan))
        try:
            await asyncio.gather(*(flow.run() for flow in flows))
            async with asyncio.timeout(plan.drain_s):
                await asyncio.gather(*(flow.drain() for flow in flows))
        except (AckStreamError, TimeoutError) as e:
            missing = sum(flow.sent - flow.durable for flow in flows)
            say(
                done=False,
                unconfirmed_batches=missing,
                problem=str(e) or f"not all durable within {plan.drain_s} s",
            )
            return 1
        finally:
            reporter.cancel()
        say(done=True, unconfirmed_batches=0)
    return 0


async def _report(flows: list[Flow], plan: Plan) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        for flow in flows:
            flow.look()
        if plan.report_s and time.monotonic() - began >= plan.report_s:
            began = time.monotonic()
            say(
                sent_batches=sum(f.sent for f in flows),
                durable_batches=sum(f.durable for f in flows),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="random acks at a steady pace, until SIGTERM")
    parser.add_argument("--daemon", required=True, help="host:port of the daemon's ack stream")
    parser.add_argument("--topic", action="append", required=True, help="one cursor per topic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--interval-ms", type=float, default=20, help="from one batch of a cursor to the next"
    )
    parser.add_argument("--moves", action="store_true", help="with a mark-delete that goes forward")
    parser.add_argument(
        "--ledger",
        action="store_true",
        help="say of every batch when it is sent and when it is durable",
    )
    parser.add_argument("--batches", type=int, default=0, help="of each cursor; 0: until SIGTERM")
    parser.add_argument(
        "--reset-every",
        type=int,
        default=0,
        help="batches after which a cursor begins again; 0: never",
    )
    parser.add_argument("--drain-s", type=float, default=60)
    parser.add_argument("--report-s", type=float, default=0)
    parser.add_argument(
        "--retake-ms",
        type=float,
        default=0,
        help="take a cursor back from another owner after so long; 0: end then",
    )
    parser.add_argument(
        "--keepalive-s",
        type=float,
        default=10,
        help="of silence, then the daemon is asked; half of it for the answer",
    )
    given = parser.parse_args()
    plan = Plan(
        given.daemon,
        tuple(given.topic),
        given.seed,
        given.interval_ms,
        given.moves,
        given.ledger,
        given.batches,
        given.reset_every,
        given.drain_s,
        given.report_s,
        given.retake_ms,
        given.keepalive_s,
    )
    sys.exit(asyncio.run(run(plan)))


if __name__ == "__main__":
    main()
