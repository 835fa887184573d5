"""Every limit of a cursor, as one frozen value. Units are in the names; the defaults are the
product's.

Relations between limits are checked by `settings` at start-up, not here.
"""

from __future__ import annotations

from cursorkeeper.core.setting import setting
from cursorkeeper.core.shape import frozen

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


@frozen
class CursorLimits:
    """What a person sets of them."""

    max_entry_bytes: int = setting(
        MIB,
        "Bytes of one record: stored header + uncompressed body (PIP-381's threshold).",
        is_size=True,
        pulsar=("persistentUnackedRangesMaxEntrySize",),
    )
    flush_interval_ms: int = setting(
        10, "The longest wait of the oldest pending ack.", 1, 3_600_000
    )
    flush_acks_max: int = setting(65_536, "So many pending acks are flushed at once.", 1, 1 << 31)
    flush_acks_min: int = setting(
        10, "Below this a record is mostly header: wait for the interval.", 1, 1 << 31
    )
    flush_bytes_max: int = setting(
        512 * KIB, "So many bytes of pending messages are flushed at once.", 1, 1024 * MIB
    )
    appends_in_flight_max: int = setting(
        4, "Records of one cursor sent and not answered.", 2, 4_096
    )
    open_ledger_span_max: int = setting(
        16_000_000,
        "An ack may lie so many entries above the highest known one of a ledger that is not "
        "closed.",
        1,
        1 << 32,
    )
    state_bytes_max: int = setting(
        STATE_BYTES_MAX,
        "What the state may take in memory. A billion entries in ledgers of 50,000, a tenth of "
        "them holes anywhere, take 175 MiB.",
        64 * KIB,
        1 << 40,
    )
    layout_ledgers_max: int = setting(
        LAYOUT_LEDGERS_MAX, "Data ledgers in the layout.", 1, LAYOUT_LEDGERS_MAX
    )
    batch_size_max: int = setting(BATCH_SIZE_MAX, "Messages in one batch entry.", 1, BATCH_SIZE_MAX)
    mark_delete_properties_bytes_max: int = setting(
        368 * KIB,
        "Bytes of all properties of a mark-delete together: a broker's deduplication cursor has "
        "one of each of its 10,000 producers.",
    )
    cursor_properties_bytes_max: int = setting(
        16 * KIB, "Bytes of all properties of a subscription; they have to fit a footer."
    )
    inline_state_max_bytes: int = setting(
        32 * KIB, "A state up to this size (before base64) is closed into its footer; 0: never."
    )
    restart_state_max_bytes: int = setting(
        8 * KIB,
        "The first new acks after a restart, or after the gateway was lost, go with the whole "
        "state into the footer, in place of a new ledger, if the state is no larger than this "
        "(before base64); 0: never.",
    )
    chain_ledgers_max: int = setting(32, "A longer chain starts a snapshot.", 1, 10_000)
    chain_ledgers_hard_max: int = setting(
        64, "A longer chain is NOT_PERSISTABLE until a snapshot shortened it.", 2, 10_000
    )
    ledger_bytes_max: int = setting(
        256 * MIB, "A cursor ledger is rolled at this size.", 1, 1 << 40
    )
    ledger_age_max_s: float = setting(
        14_400,
        "A cursor ledger is rolled at this age, at the next flush.",
        0.01,
        1e9,
        broker_conf=("managedLedgerCursorRolloverTimeInSeconds",),
    )
    snapshot_age_max_s: float = setting(86_400, "Deltas older than this are worth a snapshot.")
    snapshot_interval_min_s: float = setting(
        1.0, "The shortest time between two snapshots of a cursor."
    )
    snapshot_bytes_min: int = setting(MIB, "Fewer delta bytes than this start no snapshot.")
    snapshot_cost_ratio: float = setting(
        1.0, "Delta bytes over the bytes of the last snapshot that start one."
    )
    replay_estimate_max_s: float = setting(2.0, "Estimated time of a replay that starts one.")
    snapshot_segments_in_flight_max: int = setting(2, "Segments sent and not answered.", 1, 64)
    inline_backstop_interval_ms: int = setting(
        1_000,
        "The time between two states written into the footer because BookKeeper is away.",
        1,
        3_600_000,
    )
    bookkeeper_away_ms: int = setting(
        2_000,
        "Acks unconfirmed for longer pause the source; with BookKeeper away the inline backstop "
        "may then be used.",
        1,
        3_600_000,
    )
    answer_wait_max_ms: int = setting(
        30_000,
        "An open waits so long for ZooKeeper's word that the footer is ours, then it is refused "
        "as UNAVAILABLE. A broker gives up after 60 s.",
        1,
        3_600_000,
    )
    retry_min_ms: int = setting(
        50, "First pause before something is tried again; doubled each time.", 1, 3_600_000
    )
    retry_max_ms: int = setting(
        2_000, "Longest pause before something is tried again.", 1, 3_600_000
    )


@frozen
class Limits(CursorLimits):
    """What bounds one cursor's machine."""

    whole_state_interval_ms: int = 1_000
    """Where every flush writes the whole state: from one to the next (Pulsar's
    managedLedgerDefaultMarkDeleteRateLimit).
    """
    pause_at_limit: bool = True
    """Tell the source to pause when the state may not be written because of a limit."""
    batch_index_acks: bool = True
    """Keep which indexes of a batch are acked; off: a partial ack records nothing."""
