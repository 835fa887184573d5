"""Bounds of what cannot be cut, from which the limits of intake follow."""

from __future__ import annotations

from cursorkeeper.core.sizes import (
    COUNT_BYTES_MAX,
    FIELD_BITS_BYTES,
    common_bytes_max,
    leb_size,
    record_body_bytes_max,
    slice_bytes_max,
)
from cursorkeeper.core.values import SnapshotEnd

CONTAINERS_PER_SEGMENT = 127
"""Containers of 65,536 entries that fit a record of 1 MiB whatever they hold, with 7 KB to
spare.
"""
SNAPSHOT_END_FIXED_BYTES = 28


def partial_bytes_limit(max_entry_bytes: int) -> int:
    """The largest `partial_bytes_max` that still fits a record: alone in a delta, or with a slice
    of one entry in a segment.
    """
    return (
        record_body_bytes_max(max_entry_bytes)
        - FIELD_BITS_BYTES
        - 2 * COUNT_BYTES_MAX
        - slice_bytes_max(0, 0)
    )


def snapshot_end_body_bytes_max(end: SnapshotEnd) -> int:
    """The body of a snapshot's end record. It cannot be cut: see `property_map_bytes_max`."""
    entries = end.segment_entries
    gaps = (
        leb_size(entries[0]) + (len(entries) - 1) * leb_size(entries[-1] - entries[0])
        if entries
        else 0
    )
    return SNAPSHOT_END_FIXED_BYTES + leb_size(len(entries)) + gaps + common_bytes_max(end)
