"""A cursor's number in our tables, and the bucket of ZooKeeper that follows from it. Pure.

For whoever joins tables or chooses cursors by number.
"""

from __future__ import annotations

from cursorkeeper.core.names import CursorName


def cursor_key(name: CursorName) -> int:
    """The hash that every record of the cursor carries (the first 8 bytes of SHA-256 of its
    canonical name), as a signed number.
    """
    return int.from_bytes(name.record_hash.to_bytes(8, "little"), "little", signed=True)


def bucket_of(key: int) -> str:
    """Where the cursor of a `cursor_key` is: both are of the same hash."""
    return key.to_bytes(8, "little", signed=True).hex()[:3]
