"""Credit: how many bytes of unconfirmed acks a handle may have with us. What bounds the daemon's
memory.
"""

from __future__ import annotations

from cursorkeeper.core.shape import component

GATHERED_BYTES = 64 << 10
"""What a client may have gathered for a handle before it knew how small the handle's share is."""


@component
class CreditPool:
    """The daemon's total, or an identity's part of it, shared evenly when many handles are live.
    `unconfirmed_bytes` is what all of them hold of it.
    """

    handle_bytes: int = 4 << 20
    daemon_bytes: int = 256 << 20
    handle_bytes_min: int = 16 << 10
    handles: int = 0
    unconfirmed_bytes: int = 0
    whole: CreditPool | None = None
    """The one that this is a part of."""

    @classmethod
    def within(cls, whole: CreditPool) -> CreditPool:
        """A part that may be as large as the whole."""
        return cls(whole.handle_bytes, whole.daemon_bytes, whole.handle_bytes_min, whole=whole)

    @property
    def window(self) -> int:
        own = min(
            self.handle_bytes, max(self.handle_bytes_min, self.daemon_bytes // max(1, self.handles))
        )
        return own if self.whole is None else min(own, self.whole.window)

    def join(self, handles: int) -> None:
        """So many more handles draw from it."""
        self.handles += handles
        if self.whole is not None:
            self.whole.join(handles)

    def hold(self, size: int) -> None:
        """So many bytes more are unconfirmed."""
        self.unconfirmed_bytes += size
        if self.whole is not None:
            self.whole.hold(size)

    def has_room(self, size: int) -> bool:
        """For what is larger than a handle's share. Of a part it may be too much, if it is small,
        as what clients gather, or if the part has nothing else: else nobody could send it.
        """
        fits = self.unconfirmed_bytes + size <= self.daemon_bytes
        if self.whole is None:
            return fits
        may = fits or size <= GATHERED_BYTES or not self.unconfirmed_bytes
        return may and self.whole.has_room(size)


class Credit:
    """The credit of one handle: cumulative grants since Opened."""

    __slots__ = ("_pool", "_released", "granted", "spent")

    def __init__(self, pool: CreditPool) -> None:
        self._pool = pool
        self.granted = self.spent = self._released = 0
        pool.join(1)

    def close(self) -> None:
        """Gives the handle's share back to the pool."""
        self._pool.join(-1)
        self._pool.hold(self._released - self.spent)
        self._released = self.spent

    def spend(self, size: int) -> bool:
        """A batch arrived; False: it was not covered. One that is larger than the handle's share,
        as properties of thousands of producers are, cannot be cut: it is taken while the handle has
        nothing else with us and the daemon's total has room.
        """
        pool = self._pool
        if self.spent + size > self.granted and (
            self.spent > self._released or not pool.has_room(size)
        ):
            return False
        self.spent += size
        pool.hold(size)
        return True

    def release(self, size: int) -> int | None:
        """Bytes are durable, dropped or duplicate; returns the new cumulative grant when it is
        worth telling.
        """
        self._pool.hold(-max(0, min(size, self.spent - self._released)))
        self._released += size
        window = self._pool.window
        target = self._released + window
        everything_back = self._released >= self.spent
        if target > self.granted and (everything_back or target - self.granted >= window // 8):
            self.granted = target
            return target
        return None

    def first(self) -> int:
        """The grant that follows StateEnd."""
        self.granted = self._pool.window
        return self.granted
