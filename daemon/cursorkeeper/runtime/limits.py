"""Serves the daemon: what bounds its cursors as a whole, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass

from cursorkeeper.core.setting import setting


@dataclass(frozen=True, kw_only=True)
class KeeperLimits:
    """What bounds the daemon as a whole."""

    daemon_appends_in_flight_max: int = setting(
        2_048,
        "Records of all cursors on their way at once; 128 at most where answers take long.",
        4,
        65_536,
        is_shared=True,
    )
    daemon_append_bytes_in_flight_max: int = setting(
        256 << 20,
        "No cursor sends records while so many bytes of records, unpacked, are on their way.",
        1 << 20,
        1 << 40,
        is_shared=True,
    )
    cursors_max: int = setting(
        10_000, "Cursors held at once; an open beyond it is refused.", 1, 10_000_000, is_shared=True
    )
    detached_cursor_max_ms: int = setting(
        60_000, "How long a cursor stays open after its stream broke.", 0, 1e9
    )
    footer_poll_s: float = setting(
        60.0, "How often each footer is looked at, because a watch may be lost.", 0.01, 1e6
    )
    close_timeout_s: float = setting(
        20.0, "How long a daemon that stops goes on closing cursors.", 0, 1e6
    )
    openings_at_once_max: int = setting(
        128,
        "Requests of cursors that are being opened, first ledgers included, on their way at "
        "once where thousands are; the others wait, the oldest first.",
        1,
        1_000_000,
        is_shared=True,
    )
    openings_at_once_min: int = setting(
        24,
        "So many of them are on their way at once where few cursors are being opened, unless "
        "openings_at_once_max is less.",
        1,
        1_000_000,
        is_shared=True,
    )
    ledger_requests_at_once_max: int = setting(
        64,
        "Ledgers of open cursors that are being created or ended at once.",
        1,
        1_000_000,
        is_shared=True,
    )
    """And, counted apart, deleted."""
    footer_requests_at_once_max: int = setting(
        512,
        "Footers of open cursors that are being read or written at once.",
        1,
        1_000_000,
        is_shared=True,
    )
    inline_states_per_s_max: int = setting(
        50,
        "States that the daemon writes into footers while BookKeeper is away.",
        1,
        1_000_000,
        is_shared=True,
    )
    closings_at_once_max: int = setting(
        256, "Cursors that close at once when the daemon stops.", 1, 1_000_000, is_shared=True
    )
