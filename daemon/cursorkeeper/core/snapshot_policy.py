"""When to take a snapshot: the cost rule of the format, bounded by chain length and age. Pure,
tested with numbers.
"""

from __future__ import annotations

from cursorkeeper.core.limits import Limits
from cursorkeeper.core.shape import component

SECONDS_PER_RECORD = 0.8e-6
SECONDS_PER_ACK = 80e-9


@component
class ReplayCost:
    """What lies after the last snapshot: what a recovery would have to replay."""

    delta_bytes: int = 0
    records: int = 0
    acks: int = 0
    snapshot_bytes: int = 0
    snapshot_at_s: float = 0.0

    def add(self, stored_bytes: int, acks: int) -> None:
        self.delta_bytes += stored_bytes
        self.records += 1
        self.acks += acks

    def recovered(
        self, delta_bytes: int, records: int, acks: int, snapshot_bytes: int, now_s: float
    ) -> None:
        """What the owners before left."""
        self.delta_bytes, self.records, self.acks = delta_bytes, records, acks
        self.snapshot_bytes, self.snapshot_at_s = snapshot_bytes, now_s

    def snapshot_begun(self, now_s: float) -> None:
        self.snapshot_at_s = now_s

    def snapshot_committed(self, snapshot_bytes: int, records_before: int, now_s: float) -> None:
        """Of the records, those are left that came while it was written."""
        self.recovered(0, max(0, self.records - records_before), 0, snapshot_bytes, now_s)

    def forget(self) -> None:
        """The footer holds it all."""
        self.delta_bytes = self.records = self.acks = self.snapshot_bytes = 0

    @property
    def replay_estimate_s(self) -> float:
        """Seconds that replaying the deltas would take."""
        return self.records * SECONDS_PER_RECORD + self.acks * SECONDS_PER_ACK


def snapshot_reason(
    limits: Limits,
    cost: ReplayCost,
    *,
    chain_ledgers: int,
    now_s: float,
    jitter: float,
    foreign: bool = False,
) -> str | None:
    """Why a snapshot should start now, or None. `jitter` in [-0.1, 0.1] spreads the cursors of a
    daemon. `foreign`: the footer names something that is not in the native form: one snapshot makes
    it the fall-back, the next one drops it.
    """
    # as the wake-up time was computed
    if now_s < cost.snapshot_at_s + limits.snapshot_interval_min_s:
        return None
    scale = 1.0 + jitter
    if foreign:
        return "format"
    if chain_ledgers >= limits.chain_ledgers_max:
        return "chain"
    if cost.records == 0:
        return None
    if cost.delta_bytes >= scale * max(
        limits.snapshot_bytes_min, limits.snapshot_cost_ratio * cost.snapshot_bytes
    ):
        return "cost"
    if cost.replay_estimate_s >= scale * limits.replay_estimate_max_s:
        return "replay"
    if now_s - cost.snapshot_at_s >= scale * limits.snapshot_age_max_s:
        return "age"
    return None
