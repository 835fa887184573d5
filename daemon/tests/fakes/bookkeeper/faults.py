"""What goes wrong in the fake, and when: delays, refusals, lost answers, by order or by chance.

Owns: the plan of misbehaviour of a `FakeBookKeeper`; everything in it is public and may be changed
while it runs. Does not own: what a fault does to a ledger (`fake_ledger`, `fake_gateway`). Damage
to stored bytes, bookies away or silent, spontaneous fencing and gateway restarts are calls of
`FakeBookKeeper` and `FakeGateway`, not entries of this plan. Invariant: chance comes only from the
`random.Random` that the fake was given.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from cursorkeeper.bookkeeper.errors import GatewayError, GatewayRetry, Outcome
from daemon.tests.fakes.bookkeeper.operation import Operation


class Fault(StrEnum):
    REFUSE = "refuse"  # a typed error; nothing happened
    LOST_BEFORE = "lost_before"  # no answer; it did not happen (a fence may be left half done)
    LOST_AFTER = "lost_after"  # no answer; it happened
    FENCE = "fence"  # before this append arrives, somebody (auto-recovery) fences the ledger


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come; `error` is for REFUSE."""

    fault: Fault
    error: GatewayError | None = None


def overloaded() -> GatewayError:
    """The refusal used where none is named."""
    return GatewayRetry("OVERLOADED", Outcome.NOT_DONE, message="refused on purpose by the fake")


@dataclass
class Faults:
    """All durations in seconds. `chance[(operation, fault)]` is a probability per call, 0..1."""

    delay_min_s: float = 0.0  # of each call, each way
    delay_max_s: float = 0.0
    # of an append, between the bookies' storing it and their ack: slow bookies
    ack_delay_min_s: float = 0.0
    ack_delay_max_s: float = 0.0
    acks_per_s: float = 0.0  # one append after the other; 0: as many at once as there are
    chance: dict[tuple[Operation, Fault], float] = field(default_factory=dict)
    fence_without_entries: float = 0.0
    """How probable it is that a fence does not give the entries that it was asked for."""
    _next: dict[Operation, deque[Planned | None]] = field(default_factory=dict)
    _busy_until_s: float = 0.0

    def refuse(
        self, operation: Operation, error: GatewayError | None = None, times: int = 1
    ) -> None:
        """The next calls fail with this error, nothing done."""
        self._plan(operation, Planned(Fault.REFUSE, error or overloaded()), times)

    def lose_before(self, operation: Operation, times: int = 1) -> None:
        """The next calls are lost on their way there."""
        self._plan(operation, Planned(Fault.LOST_BEFORE), times)

    def lose_after(self, operation: Operation, times: int = 1) -> None:
        """The next calls are done, their answers lost."""
        self._plan(operation, Planned(Fault.LOST_AFTER), times)

    def fence_next_append(self, times: int = 1) -> None:
        """The next appends find their ledger fenced although nobody took over."""
        self._plan(Operation.APPEND, Planned(Fault.FENCE), times)

    def spare(self, operation: Operation, times: int = 1) -> None:
        """The next calls go well; what is planned behind them waits."""
        self._plan(operation, None, times)

    def clear(self) -> None:
        """Nothing goes wrong from now on; delays end too."""
        self.chance.clear()
        self._next.clear()
        self.delay_min_s = self.delay_max_s = self.ack_delay_min_s = self.ack_delay_max_s = 0.0
        self.acks_per_s = 0.0

    def take(self, operation: Operation, rng: random.Random) -> Planned | None:
        """The fault of the call that begins now, if any: first what was ordered, then chance."""
        planned = self._next.get(operation)
        if planned:
            return planned.popleft()
        if not self.chance:
            return None
        for fault in Fault:
            if (p := self.chance.get((operation, fault), 0.0)) and rng.random() < p:
                return Planned(fault, overloaded() if fault is Fault.REFUSE else None)
        return None

    def delay_s(self, rng: random.Random) -> float:
        """Seconds that one way of one call takes."""
        return rng.uniform(self.delay_min_s, self.delay_max_s) if self.delay_max_s else 0.0

    def ack_delay_s(self, rng: random.Random) -> float:
        """Seconds until the bookies answer one append."""
        if self.acks_per_s:
            now = asyncio.get_running_loop().time()
            self._busy_until_s = max(now, self._busy_until_s) + 1 / self.acks_per_s
            return self._busy_until_s - now
        return (
            rng.uniform(self.ack_delay_min_s, self.ack_delay_max_s) if self.ack_delay_max_s else 0.0
        )

    def _plan(self, operation: Operation, planned: Planned | None, times: int) -> None:
        self._next.setdefault(operation, deque()).extend([planned] * times)
