"""The rows of `holes` and of `hole_stats`, from a state. Both see the same extents, so the counts
of one are those of the other.

A cursor may come in pieces, in order of position: each begins at an acked entry or with a data
ledger (`source.cuts`), so no run of holes is in two of them, and what comes out is that of the
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.positions import Position
from cursorkeeper_pipeline.decode.columns import Column, same
from cursorkeeper_pipeline.decode.extents import Extent, runs_in_blocks

CHUNK_ROWS: Final = 16_384
"""Several chunks of several cursors wait to be taken: half a MiB each."""


def hole_columns(cursor_key: int, found: Iterable[Extent]) -> Iterator[tuple[Column, ...]]:
    """cursor_key, ledger_id, first_entry, last_entry: at most `CHUNK_ROWS` of one data ledger at a
    time.
    """
    for extent in found:
        for runs in runs_in_blocks(extent.holes):
            for at in range(0, runs.first.size, CHUNK_ROWS):
                first, last = (column[at : at + CHUNK_ROWS] for column in runs)
                yield same(cursor_key, first.size), same(extent.ledger, first.size), first, last


@dataclass(slots=True)
class Counts:
    """Of one cursor, as far as it was added. `data_ledgers`: those whose first described entry is
    there. `first_hole` None: there is no hole.
    """

    data_ledgers: int = 0
    span_entries: int = 0
    hole_entries: int = 0
    hole_runs: int = 0
    longest_run: int = 0
    first_hole: Position | None = None
    partial_batches: int = 0

    @property
    def acked_entries(self) -> int:
        """Described entries that are no holes."""
        return self.span_entries - self.hole_entries

    def add(self, found: Iterable[Extent], *, cut: Position | None = None) -> None:
        """The sums, without one row for each run. `cut`: where the window begins; a ledger that it
        cuts is counted by the piece before.
        """
        for extent in found:
            self.data_ledgers += cut is None or Position(extent.ledger, 0) >= cut
            self.span_entries += extent.end - extent.first
            if extent.holes:
                runs = count_runs(extent.holes)
                self.hole_entries += len(extent.holes)
                self.hole_runs += runs
                self.longest_run = max(self.longest_run, _longest(extent.holes, runs))
                self.first_hole = self.first_hole or Position(extent.ledger, extent.holes.min())


def _longest(holes: BitMap, runs: int) -> int:
    if len(holes) == runs:
        return 1  # often so, and then the runs themselves are not needed
    return max(int((found.last - found.first).max()) for found in runs_in_blocks(holes)) + 1
