"""What the fake does wrong on purpose.

Owns the kinds of misbehaviour and the decision which request gets which. Does not own their
execution (`fake`). Invariants: all chance comes from the `random.Random` passed in, asked in the
order of the requests, so that a run is its seed; a fault that was scripted is used before chance is
asked; without script and probabilities nothing is asked and nothing happens.

Faults that a real connection can produce: an answer lost before or after the server did it, a write
that the caller gave up and that is applied later all the same, no connection, expiry, a read from a
server that lags. And what others do at the worst moment.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Delay:
    """The server takes this long."""

    s: float


@dataclass(frozen=True, slots=True)
class UnknownNotDone:
    """OutcomeUnknown; the request never reached the server. With `disconnect_s` the connection is
    lost for that long, too.
    """

    disconnect_s: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownDone:
    """OutcomeUnknown, but the server did it."""

    disconnect_s: float | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """OutcomeUnknown now; the server does it `s` later, checking versions then. Not if the session
    is over by then.
    """

    s: float
    disconnect_s: float | None = None


@dataclass(frozen=True, slots=True)
class NotNow:
    """NotConnected: certainly not sent."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The session expires before the server sees the request, which gets SessionExpired."""


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Somebody else is quicker: `others` is through before the request is sent, which then goes its
    ordinary way.
    """

    others: Callable[[], Awaitable[object]]


Fault: TypeAlias = Delay | UnknownNotDone | UnknownDone | Late | NotNow | Expire | Meanwhile

ANY = "*"
"""In place of the name of an operation: all of them."""


@dataclass(slots=True)
class Faults:
    """Knobs of one fake session, or of all that share the object. Operations go by the name of
    their method; `ensure_path` is made of exists and create.
    """

    random: random.Random
    latency_s: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest time of each way, request and answer."""
    stale_reads: bool = False
    """Reads see the tree as it was at the session's last write, sync or catch-up."""
    catch_up_probability: float = 0.0
    """Per stale read: that the lagging server has caught up with everything by now."""
    lost_with_connection_probability: float = 0.5
    """Of a request that was under way when the connection broke: that the server never sees it."""
    watch_drop_probability: float = 0.0
    """Real servers do not do that; a caller with a periodic re-read survives it."""
    watch_delay_s: float = 0.0
    spurious_watches_at_reconnect: bool = False
    _script: list[tuple[str, Callable[[str], bool], Fault]] = field(default_factory=list)
    _chances: list[tuple[str, float, Fault]] = field(default_factory=list)

    def next(
        self, operation: str, fault: Fault, path: str | None = None, *, times: int = 1
    ) -> None:
        """Script: the next `times` matching requests get this fault, one each. Entries are used in
        the order given.
        """
        self._script += [(operation, lambda asked: path is None or asked == path, fault)] * times

    def chance(self, operation: str, probability: float, fault: Fault) -> None:
        """From now on each matching request gets this fault with this probability; the first of
        several that hits counts.
        """
        self._chances.append((operation, probability, fault))

    def clear(self) -> None:
        """No more script and no more probabilities; the plain fields stay."""
        self._script.clear()
        self._chances.clear()

    def take(self, operation: str, path: str) -> Fault | None:
        """The fault of this request."""
        for index, (name, matches, fault) in enumerate(self._script):
            if name in (ANY, operation) and matches(path):
                del self._script[index]
                return fault
        for name, probability, fault in self._chances:
            if name in (ANY, operation) and self.hit(probability):
                return fault
        return None

    def hit(self, probability: float) -> bool:
        """Ask chance; does not touch the random source for 0 and 1."""
        return probability >= 1 or (probability > 0 and self.random.random() < probability)

    def one_way_s(self) -> float:
        """Seconds that one message takes one way."""
        low, high = self.latency_s
        return low if low == high else self.random.uniform(low, high)
