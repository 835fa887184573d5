"""Entries of small ledgers, as the fences of an opening gave them, until its chain was read: each
saves its cursor a request.

Invariants: only entries of closed ledgers, which never change; never more than `bytes_max`, those
that are being read included. What is not kept is read.
"""

from __future__ import annotations

from collections.abc import Mapping

LEDGER_BYTES_MAX = 16 << 10
"""Of the entries of one ledger: those of a cursor that was opened again and again have few."""
ENTRY_BYTES = 64
"""What an entry takes beside its bytes."""


class KeptEntries:
    """Cursors by their number in the daemon."""

    def __init__(self, bytes_max: int = 8 << 20) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._kept: dict[int, dict[int, tuple[bytes, ...]]] = {}

    @property
    def kept_bytes(self) -> int:
        """Of all cursors."""
        return self._bytes

    def keep(self, cursor: int, ledger: int, last_entry: int, entries: tuple[bytes, ...]) -> None:
        """Nothing is kept of a ledger of which the entries are not all there, or for which there is
        no room.
        """
        size, of_cursor = _size(entries), self._kept.get(cursor, {})
        is_whole = 0 < len(entries) == last_entry + 1
        if not is_whole or self._bytes + size > self._bytes_max or ledger in of_cursor:
            return
        self._bytes += size
        self._kept.setdefault(cursor, of_cursor)[ledger] = entries

    def of(self, cursor: int) -> Mapping[int, tuple[bytes, ...]]:
        """Ledger -> its entries from 0 on."""
        return self._kept.get(cursor, {})

    def drop(self, cursor: int) -> None:
        """Its chain was read, or nobody will read it."""
        self._bytes -= sum(map(_size, self._kept.pop(cursor, {}).values()))


def _size(entries: tuple[bytes, ...]) -> int:
    return sum(map(len, entries)) + ENTRY_BYTES * len(entries)
