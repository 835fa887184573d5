"""Entries of small ledgers, as the fences of an opening gave them, until its chain is read: each
saves a request.

Invariants: only entries of closed ledgers, which never change; never more than `bytes_max`. What is
not kept is read.
"""

from __future__ import annotations

from collections.abc import Mapping

LEDGER_BYTES_MAX = 16 << 10
"""Of the entries of one ledger: those of a cursor that was opened again and again have few."""


class KeptEntries:
    """Cursors by their number in the daemon."""

    def __init__(self, bytes_max: int = 8 << 20) -> None:
        self._bytes_left = bytes_max
        self._kept: dict[int, dict[int, tuple[bytes, ...]]] = {}

    def keep(self, cursor: int, ledger: int, last_entry: int, entries: tuple[bytes, ...]) -> None:
        """Nothing is kept of a ledger of which the entries are not all there, or for which there is
        no room.
        """
        size = sum(map(len, entries))
        of_cursor = self._kept.get(cursor, {})
        is_whole = 0 < len(entries) == last_entry + 1
        if not is_whole or size > self._bytes_left or ledger in of_cursor:
            return
        self._bytes_left -= size
        self._kept.setdefault(cursor, of_cursor)[ledger] = entries

    def take(self, cursor: int) -> Mapping[int, tuple[bytes, ...]]:
        """Ledger -> its entries from 0 on; they are not kept any more."""
        taken = self._kept.pop(cursor, {})
        self._bytes_left += sum(len(entry) for entries in taken.values() for entry in entries)
        return taken
