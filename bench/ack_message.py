"""CPU of one message of acks in the daemon, without gRPC and without other systems: decoded,
checked, taken into the state, written as a record, acknowledged, confirmed. 1,000 machines in turn,
so that no cursor finds its state in the processor's cache.

`python -m bench.ack_message [PATTERN]` prints the stages as JSON: microseconds of this process for
a message. With another tree first in PYTHONPATH the same is measured of that one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np

from bench.rows import Row
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.format import record
from cursorkeeper.stream import codec, wire
from cursorkeeper_client import Acks, LedgerAcks
from cursorkeeper_client.ack_stream.columns import ack_batch, encode_acks, source_message_of

MACHINES = 1_000
ROUNDS, WARM_UP = 8, 3
ENTRIES = 1_000_000
LEDGER_ENTRIES = 50_000
WINDOW = 2_000
PATTERNS = {"uniform": 100, "window": 100, "single": 1}
"""Acks of a message. Single ones are what a consumer sends that acks each entry by itself."""


def run() -> list[Row]:
    rows = []
    for pattern, acks in PATTERNS.items():
        found, case = measure(pattern), f"{acks} acks, {pattern}"
        whole = sum(found.values())
        for stage, spent in found.items():
            rows.append(
                Row(
                    "ack_message",
                    case,
                    stage,
                    spent,
                    "us",
                    spent / whole,
                    "the whole",
                )
            )
        rows.append(Row("ack_message", case, "whole", whole, "us"))
    return rows


def messages(pattern: str) -> Iterator[bytes]:
    """Serialised messages of one cursor after the other, without end."""
    rng, seq, acks = np.random.default_rng(11), 0, PATTERNS[pattern]
    while True:
        seq += 1
        for _ in range(MACHINES):
            at = (
                (seq - 1) * acks + rng.choice(WINDOW, acks, replace=False)
                if pattern == "window"
                else rng.integers(0, ENTRIES, acks)
            )
            ledgers = []
            for ledger in np.unique(at // LEDGER_ENTRIES).tolist():
                entries = at[at // LEDGER_ENTRIES == ledger] % LEDGER_ENTRIES
                ledgers.append(LedgerAcks(ledger + 1, np.unique(entries).astype(np.uint32)))
            yield source_message_of(ack_batch(1, seq, 1, encode_acks(Acks(ledgers))))


class Cursor:
    """A machine whose outside answers at once. Times are of the process, in seconds, by stage."""

    def __init__(self, number: int, spent: dict[str, float]) -> None:
        self.name = CursorName.checked(f"persistent://bench/ns/topic-{number}", "s")
        self.machine = CursorMachine(self.name, Limits(), "bench")
        self.now, self._wake_at_s, self._spent, self._ledger = 0.0, None, spent, number + 1
        self._todo: deque[fx.Effect] = deque()
        self._step("open", ev.Open())
        self._step("open", ev.Attach(1))
        self._do()
        assert self.machine.handles.attach == 1

    def message(self, data: bytes) -> None:
        """One message, until it is confirmed."""
        at = time.thread_time()
        message = wire.source_message(data).ack_batch
        batch = codec.batch_of(codec.sent_acks(message), message)
        self._spent["decode"] += time.thread_time() - at
        self._step("accept", ev.Acks(1, batch))
        self._do()
        while not self.machine.progress.is_clear:
            assert self._wake_at_s is not None
            self.now = max(self.now, self._wake_at_s)
            self._step("flush", ev.Tick(64))
            self._do()

    def _step(self, stage: str, event: ev.Event) -> None:
        """One event, as the keeper gives it, and what it leads to."""
        m, begun = self.machine, time.thread_time()
        effects = m.step(event, self.now)
        stepped = time.thread_time()
        at, append_at = m.timer_at_s, m.append_at_s
        self._spent["timers"] += time.thread_time() - stepped
        self._spent[stage] += stepped - begun
        self._wake_at_s = (
            append_at if at is None else at if append_at is None else min(at, append_at)
        )
        self._todo += effects

    def _do(self) -> None:
        while self._todo:
            answer = self._answer(self._todo.popleft())
            if answer is not None:
                self._step("confirm", answer)

    def _answer(self, effect: fx.Effect) -> ev.Event | None:
        match effect:
            case fx.Append():
                at = time.thread_time()
                data = record.encode(effect.record)  # type: ignore[arg-type]
                self._spent["encode"] += time.thread_time() - at
                return ev.Appended(effect.ledger, effect.entry, len(data), 0)
            case fx.CreateLedger():
                return ev.LedgerCreated(effect.token, self._ledger)
            case fx.WriteFooter():
                return ev.FooterWritten(effect.token, effect.expected_version + 1)
            case fx.ReadFooter():
                return ev.FooterRead(
                    effect.token,
                    self.machine.ownership.commit.committed,
                    self.machine.ownership.commit.version,
                )
            case fx.CheckFooter():
                return ev.FooterChecked(effect.token)
            case fx.ReadChain():
                return ev.ChainRead(effect.token, AckState(), False, False, 0, 0, 0)
            case _:
                return None


def measure(pattern: str) -> dict[str, float]:
    """Microseconds of each stage for a message. The garbage collector is off: it would look at the
    bench's own messages.
    """
    gc.disable()
    spent: dict[str, float] = defaultdict(float)
    source = messages(pattern)
    cursors = [Cursor(number, spent) for number in range(MACHINES)]
    for turn in range(WARM_UP + ROUNDS):
        if turn == WARM_UP:
            spent.clear()
        for cursor, data in zip(cursors, [next(source) for _ in cursors], strict=True):
            cursor.message(data)
    gc.enable()
    return {stage: seconds * 1e6 / (ROUNDS * MACHINES) for stage, seconds in spent.items()}


if __name__ == "__main__":
    for name in sys.argv[1:] or PATTERNS:
        print(
            json.dumps({"pattern": name, **{k: round(v, 1) for k, v in measure(name).items()}}),
            flush=True,
        )
