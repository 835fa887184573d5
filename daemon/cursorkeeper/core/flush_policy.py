"""When to flush: numbers in, a time out. Pure, tested with numbers.

Where nothing at all is in flight there is nothing to wait for. Else linger so that a record holds
more than its own header; never longer than the interval. While appends are in flight the next batch
grows; a full window means wait for an answer, not for a time.
"""

from __future__ import annotations

from cursorkeeper.core.limits import Limits


def flush_at(
    limits: Limits,
    *,
    pending_acks: int,
    pending_bytes: int,
    oldest_s: float | None,
    in_flight: int,
    urgent: bool = False,
    at_once: bool = False,
) -> float | None:
    """The time (seconds, the caller's clock) at which to flush: the past means now, None means not
    before something changes.

    `oldest_s` is when the oldest pending ack arrived; `urgent` skips the linger (a close, a
    snapshot, a control message), and so does `at_once` where nothing is in flight: the daemon has
    nothing else to do.
    """
    if oldest_s is None:
        return None
    if in_flight >= limits.appends_in_flight_max:
        return None
    if (
        urgent
        or (at_once and in_flight == 0)
        or pending_acks >= limits.flush_acks_max
        or pending_bytes >= limits.flush_bytes_max
    ):
        return oldest_s
    if in_flight == 0 and pending_acks >= limits.flush_acks_min:
        # nothing to wait for: a record of ten acks is worth its header, and the interval may be cut
        # short
        return oldest_s + min(limits.flush_interval_ms, 1) / 1000
    return oldest_s + limits.flush_interval_ms / 1000
