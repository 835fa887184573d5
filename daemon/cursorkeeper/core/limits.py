"""Every limit of a cursor, as one frozen value. Units are in the names; the defaults are the
product's.

Relations between limits are checked by `settings` at start-up, not here.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024

BATCH_SIZE_MAX = 65_536
LAYOUT_LEDGERS_MAX = 1_000_000
STATE_BYTES_MAX = 256 * MIB
ACK_LEDGERS_MAX = 1_000
"""Data ledgers in one message of acks. What a message costs grows with them, and nobody may hold up
the others for long.
"""
ACK_PARTIALS_MAX = 1_000
"""Partly acked batches in one message of acks."""
LAYOUT_RUN_LEDGERS_MAX = 10_000
"""Data ledgers in one run of the layout: some 30 ms of work."""
UNCONFIRMED_PARTS_MAX = 65_536
"""Data ledgers and partly acked batches in the unconfirmed messages of a handle: each takes
hundreds of bytes until it is durable.
"""
QUEUED_PARTS_MAX = 1_024
"""Data ledgers and partly acked batches that wait to be applied: more are applied at once, so that
a flush never finds many.
"""
TAKEN_PARTS_MAX = 2_048
"""Data ledgers and partly acked batches that one step turns into records."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one cursor's machine."""

    max_entry_bytes: int = MIB
    """Bytes of one record: stored header + uncompressed body (PIP-381's threshold)."""
    flush_interval_ms: int = 10
    """The longest wait of the oldest pending ack."""
    flush_acks_max: int = 65_536
    """So many pending acks are flushed at once."""
    flush_acks_min: int = 10
    """Below this a record is mostly header: wait for the interval."""
    flush_bytes_max: int = 512 * KIB
    """So many bytes of pending messages are flushed at once."""
    appends_in_flight_max: int = 4
    """Records of one cursor sent and not answered."""
    open_ledger_span_max: int = 16_000_000
    """An ack may lie so many entries above the highest known one of a ledger that is not closed."""
    state_bytes_max: int = STATE_BYTES_MAX
    """What the state may take in memory. A billion entries in ledgers of 50,000, a tenth of them
    holes anywhere, take 175 MiB.
    """
    layout_ledgers_max: int = LAYOUT_LEDGERS_MAX
    """Data ledgers in the layout."""
    batch_size_max: int = BATCH_SIZE_MAX
    """Messages in one batch entry."""
    mark_delete_properties_bytes_max: int = 368 * KIB
    """Bytes of all properties of a mark-delete together: a broker's deduplication cursor has one of
    each of its 10,000 producers.
    """
    cursor_properties_bytes_max: int = 16 * KIB
    """Bytes of all properties of a subscription; they have to fit a footer."""
    inline_state_max_bytes: int = 32 * KIB
    """A state up to this size (before base64) is closed into its footer; 0: never."""
    chain_ledgers_max: int = 32
    """A longer chain starts a snapshot."""
    chain_ledgers_hard_max: int = 64
    """A longer chain is NOT_PERSISTABLE until a snapshot shortened it."""
    ledger_bytes_max: int = 256 * MIB
    """A cursor ledger is rolled at this size."""
    ledger_age_max_s: float = 14_400
    """A cursor ledger is rolled at this age, at the next flush."""
    snapshot_age_max_s: float = 86_400
    """Deltas older than this are worth a snapshot."""
    snapshot_interval_min_s: float = 1.0
    """The shortest time between two snapshots of a cursor."""
    snapshot_bytes_min: int = MIB
    """Fewer delta bytes than this start no snapshot."""
    snapshot_cost_ratio: float = 1.0
    """Delta bytes over the bytes of the last snapshot that start one."""
    replay_estimate_max_s: float = 2.0
    """Estimated time of a replay that starts one."""
    snapshot_segments_in_flight_max: int = 2
    """Segments sent and not answered."""
    inline_backstop_interval_ms: int = 1_000
    """The time between two states written into the footer because BookKeeper is away."""
    bookkeeper_away_ms: int = 2_000
    """Acks unconfirmed for longer pause the source; with BookKeeper away the inline backstop may
    then be used.
    """
    whole_state_interval_ms: int = 1_000
    """Where every flush writes the whole state: from one to the next (Pulsar's
    managedLedgerDefaultMarkDeleteRateLimit).
    """
    pause_at_limit: bool = True
    """Tell the source to pause when the state may not be written because of a limit."""
    batch_index_acks: bool = True
    """Keep which indexes of a batch are acked; off: a partial ack records nothing."""
    answer_wait_max_ms: int = 30_000
    """An open waits so long for ZooKeeper's word that the footer is ours, then it is refused as
    UNAVAILABLE. A broker gives up after 60 s.
    """
    retry_min_ms: int = 50
    """First pause before something is tried again; doubled each time."""
    retry_max_ms: int = 2_000
    """Longest pause before something is tried again."""
