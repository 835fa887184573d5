"""Every limit of a cursor, as one frozen value. Units are in the names; the defaults are the product's.

Relations between limits are checked by `settings` at start-up, not here.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024

BATCH_SIZE_MAX = 65_536
LAYOUT_LEDGERS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one cursor's machine."""

    max_entry_bytes: int = MIB
    """Of one record: stored header + uncompressed body (PIP-381's threshold)."""
    flush_interval_ms: int = 10
    """The longest wait of the oldest pending ack."""
    flush_acks_max: int = 65_536
    flush_acks_min: int = 10
    """Below this a record is mostly header: wait for the interval."""
    flush_bytes_max: int = 512 * KIB
    appends_in_flight_max: int = 4
    open_ledger_span_max: int = 16_000_000
    layout_ledgers_max: int = LAYOUT_LEDGERS_MAX
    batch_size_max: int = BATCH_SIZE_MAX
    mark_delete_properties_bytes_max: int = 64 * KIB
    cursor_properties_bytes_max: int = 16 * KIB
    inline_state_max_bytes: int = 32 * KIB
    chain_ledgers_max: int = 32
    """A longer chain starts a snapshot."""
    chain_ledgers_hard_max: int = 64
    """A longer chain is NOT_PERSISTABLE until a snapshot shortened it."""
    ledger_bytes_max: int = 256 * MIB
    ledger_age_max_s: float = 14_400
    snapshot_age_max_s: float = 86_400
    snapshot_interval_min_s: float = 1.0
    snapshot_bytes_min: int = MIB
    snapshot_cost_ratio: float = 1.0
    replay_estimate_max_s: float = 2.0
    snapshot_segments_in_flight_max: int = 2
    inline_backstop_interval_ms: int = 1_000
    bookkeeper_away_ms: int = 2_000
    """Acks unconfirmed for longer pause the source; with BookKeeper away the inline backstop may then be used."""
    retry_min_ms: int = 50
    retry_max_ms: int = 5_000
