"""Where a large cursor is cut, so that several tasks share it: at the beginnings of segments of its newest snapshot that a reader sees.

Owns the choice of the boundaries. Read for it, on the driver: the snapshot's end record, the leading segments and one segment for each
boundary. Segments ascend in position, so those between two boundaries hold all that lies between them. Parts have about equal numbers of
segments, which are about equal in entries and not in bytes. Invariants: the windows lie side by side and cover everything; what cannot be
cut (damage, a ledger that is gone, a snapshot in few segments) is read whole, and whoever reads it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import EntryAddress, Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.values import Segment, SnapshotEnd
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.format import record
from cursorkeeper.migration.patience import Patience
from cursorkeeper_clients.bookkeeper.errors import GatewayRefused, NoSuchLedger
from cursorkeeper_clients.bookkeeper.port import LedgerStore

LEADING_MAX: Final = 64
"""So many segments may pass before the first slice: each of them is read by every task of the cursor."""


class Unsplittable(Exception):
    """Nothing to cut at."""


class Splitter:
    """For one plan."""

    def __init__(self, ledgers: LedgerStore, patience: Patience, split_bytes: int) -> None:
        self._ledgers, self._patience, self._split_bytes = ledgers, patience, split_bytes

    async def windows(self, name: CursorName, footer: Footer) -> list[StateWindow]:
        """In order of position; `[WHOLE]` if it is not to be cut. Raises MigrationError (BookKeeper is away)."""
        bases = [footer.base] if footer.previous is None else [footer.base, footer.previous.base]
        for base in bases:
            if isinstance(base, SnapshotBase) and base.length > self._split_bytes:
                try:
                    return await self._of(name, base)
                except (Unsplittable, DamageError, NoSuchLedger, GatewayRefused):
                    continue  # of an open cursor the newest end may not be visible yet
        return [WHOLE]

    async def _of(self, name: CursorName, base: SnapshotBase) -> list[StateWindow]:
        end = await self._body(name, base.ledger, base.last_entry)
        if not isinstance(end, SnapshotEnd):
            raise Unsplittable
        entries = end.segment_entries
        leading = await self._leading(name, base.ledger, entries)
        parts = min(-(-base.length // self._split_bytes), len(entries) - leading)
        cuts = sorted({leading + (len(entries) - leading) * part // parts for part in range(1, parts)} - {leading})
        starts: list[tuple[int, Position]] = []
        for cut in cuts:
            segment = await self._body(name, base.ledger, entries[cut])
            if isinstance(segment, Segment) and segment.slices:
                starts.append((cut, Position(segment.slices[0].ledger, segment.slices[0].first)))
        return windows_between(base, entries, leading, starts)

    async def _leading(self, name: CursorName, ledger: int, entries: Sequence[int]) -> int:
        """Which segment is the first with slices: up to it, mark-delete, properties and layout may come."""
        for at, entry in enumerate(entries[:LEADING_MAX]):
            segment = await self._body(name, ledger, entry)
            if isinstance(segment, Segment) and segment.slices:
                return at
        raise Unsplittable

    async def _body(self, name: CursorName, ledger: int, entry: int) -> object:
        async def read() -> bytes:
            async for chunk in self._ledgers.read(ledger, entry, entry):
                if chunk.payloads:
                    return chunk.payloads[0]
            raise Unsplittable

        return record.decode(await self._patience.repeat(str(name), read), name.record_hash).body


def windows_between(base: SnapshotBase, entries: Sequence[int], leading: int, starts: Sequence[tuple[int, Position]]) -> list[StateWindow]:
    """One more than there are starts: (place of a segment in `entries`, where its first slice begins), ascending in both."""
    snapshot = EntryAddress(base.ledger, base.last_entry)
    bounds = [(0, FIRST), *starts]
    found = []
    for number, (place, first) in enumerate(bounds):
        upto, end = starts[number] if number < len(starts) else (len(entries), None)
        segments = frozenset([*entries[: leading + 1], *entries[place:upto]])
        found.append(StateWindow(first, end, snapshot, segments))
    return found if len(found) > 1 else [WHOLE]
