"""A Pulsar cursor that was read, as the engine's source of state: bounded batches of its
bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice

from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, Partial
from cursorkeeper.migration.cursor_maker import Part
from cursorkeeper.migration.pulsar_cursor import PulsarCursor

ENTRIES_PER_BATCH = 1 << 22
"""The widest range of one batch: half a MiB of bits at most."""
PARTIALS_PER_BATCH = 2_000


class PulsarSource:
    """See the module. Sizes of batches are not known to Pulsar's cursors: 0."""

    def __init__(self, cursor: PulsarCursor) -> None:
        self._cursor = cursor

    @property
    def name(self) -> CursorName:
        return self._cursor.ref.name

    @property
    def mark_delete(self) -> Position:
        return self._cursor.state.mark_delete

    @property
    def cursor_properties(self) -> Mapping[str, str] | None:
        return self._cursor.cursor_properties or None

    @property
    def mark_delete_properties(self) -> Mapping[str, int] | None:
        return self._cursor.state.properties or None

    def parts(self) -> Iterator[Part]:
        """Entries of each ledger, then the partly acked batches."""
        for ledger, entries in self._cursor.state.acked.items():
            for first in range(entries.min(), entries.max() + 1, ENTRIES_PER_BATCH):
                part = bitmaps.between(entries, first, first + ENTRIES_PER_BATCH - 1)
                if part:
                    yield Part((LedgerColumns(ledger, bitmap=part),), 0)
        batches = iter(self._cursor.state.batches.items())
        while some := list(islice(batches, PARTIALS_PER_BATCH)):
            by_ledger = groupby(some, key=lambda item: item[0].ledger)
            columns = [
                LedgerColumns(
                    ledger,
                    partials=tuple((key.entry, Partial(0, missing)) for key, missing in items),
                )
                for ledger, items in by_ledger
            ]
            yield Part(tuple(columns), 0)

    def layout(self) -> Sequence[LayoutItem]:
        return self._cursor.layout
