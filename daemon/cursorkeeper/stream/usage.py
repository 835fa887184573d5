"""What each identity holds of a daemon, within its quotas. Serves everybody else who needs the
daemon, too.

Invariant: what was taken is given back once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cursorkeeper.access.identity import Identity
from cursorkeeper.core.names import CursorName
from cursorkeeper.stream.credits import CreditPool


class OverQuota(Exception):
    """The message names the identity, the quota and its number."""


@dataclass(slots=True)
class Held:
    """By one identity, over all its streams and calls. `pool`: its share of the daemon's credit."""

    pool: CreditPool
    counts: dict[str, int] = field(default_factory=dict)
    cursors: set[CursorName] = field(default_factory=set)
    """Those that it opened, as far as they are bounded; some may have ended since."""


def _over(identity: Identity, has: int, what: str) -> OverQuota:
    return OverQuota(
        f"{identity.name} has {has} {what} already, which is its quota: end some, or raise "
        f"`{what}` of its quotas in identities_file"
    )


class Usage:
    """By the names of identities: what a new file says of their quotas counts from then on."""

    def __init__(self, pool: CreditPool) -> None:
        self._pool = pool
        self._held: dict[str, Held] = {}
        self._holders: dict[CursorName, str] = {}
        """Of cursors that are counted: the identity that opened them last."""

    def take(self, identity: Identity, what: str) -> None:
        """One more of `what`, a quota that counts. Raises OverQuota."""
        counts = self._of(identity).counts
        has, limit = counts.get(what, 0), getattr(identity.quotas, what)
        if limit and has >= limit:
            raise _over(identity, has, what)
        counts[what] = has + 1

    def give_back(self, identity: Identity, what: str) -> None:
        counts = self._of(identity).counts
        counts[what] = counts.get(what, 0) - 1

    def hold(
        self, identity: Identity, cursor: CursorName, is_held: Callable[[CursorName], bool]
    ) -> None:
        """The identity opens a cursor, which is its own then: also after its stream has ended, for
        as long as the daemon keeps it (`is_held`). Raises OverQuota.
        """
        limit = identity.quotas.cursors
        former = self._holders.get(cursor, "")
        if former == identity.name and limit:
            return
        if limit:
            held = self._of(identity)
            if len(held.cursors) >= limit:
                self._forget(held, [one for one in held.cursors if not is_held(one)])
            if len(held.cursors) >= limit:
                raise _over(identity, len(held.cursors), "cursors")
        if former:
            self._forget(self._held[former], [cursor])
        if limit:
            held.cursors.add(cursor)
            self._holders[cursor] = identity.name

    def _forget(self, held: Held, cursors: Sequence[CursorName]) -> None:
        for cursor in cursors:
            held.cursors.discard(cursor)
            del self._holders[cursor]

    def limit(self, identity: Identity) -> None:
        """What a new file says of its bytes counts from now on."""
        whole = self._pool.daemon_bytes
        self._of(identity).pool.daemon_bytes = identity.quotas.bytes_in_flight or whole

    def pool(self, identity: Identity) -> CreditPool:
        """What its handles draw their credit from."""
        return self._of(identity).pool

    def _of(self, identity: Identity) -> Held:
        held = self._held.get(identity.name)
        if held is None:
            held = self._held[identity.name] = Held(CreditPool.within(self._pool))
            self.limit(identity)
        return held
