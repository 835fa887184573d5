"""What each identity holds of a daemon, within its quotas. Serves everybody else who needs the
daemon, too.

Invariant: what was taken is given back once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cursorkeeper.access.identity import Identity
from cursorkeeper.stream.credits import CreditPool


class OverQuota(Exception):
    """The message names the identity, the quota and its number."""


@dataclass(slots=True)
class Held:
    """By one identity, over all its streams and calls. `pool`: its share of the daemon's credit."""

    pool: CreditPool
    counts: dict[str, int] = field(default_factory=dict)


class Usage:
    """By the names of identities: what a new file says of their quotas counts from then on."""

    def __init__(self, pool: CreditPool) -> None:
        self._pool = pool
        self._held: dict[str, Held] = {}

    def take(self, identity: Identity, what: str) -> None:
        """One more of `what`, a quota that counts. Raises OverQuota."""
        counts = self._of(identity).counts
        has, limit = counts.get(what, 0), getattr(identity.quotas, what)
        if limit and has >= limit:
            raise OverQuota(
                f"{identity.name} has {has} {what} already, which is its quota: end some, or raise "
                f"`{what}` of its quotas in identities_file"
            )
        counts[what] = has + 1

    def give_back(self, identity: Identity, what: str) -> None:
        counts = self._of(identity).counts
        counts[what] = counts.get(what, 0) - 1

    @contextmanager
    def taken(self, identity: Identity, what: str) -> Iterator[None]:
        """One of `what` for as long as it lasts. Raises OverQuota."""
        self.take(identity, what)
        try:
            yield
        finally:
            self.give_back(identity, what)

    def pool(self, identity: Identity) -> CreditPool:
        """What its handles draw their credit from."""
        return self._of(identity).pool

    def _of(self, identity: Identity) -> Held:
        held = self._held.get(identity.name)
        if held is None:
            held = self._held[identity.name] = Held(CreditPool.within(self._pool))
        held.pool.daemon_bytes = identity.quotas.bytes_in_flight or self._pool.daemon_bytes
        return held
