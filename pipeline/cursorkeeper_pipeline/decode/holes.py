"""The rows of `holes` and of `hole_stats`, from a state. Both see the same extents, so the counts of one are those of the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cursorkeeper.core.positions import Position
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper_pipeline.decode.columns import same
from cursorkeeper_pipeline.decode.extents import Extent, count_runs, runs_in_blocks

CHUNK_ROWS: Final = 16_384
"""Several chunks of several cursors wait to be taken: half a MiB each."""


def hole_columns(cursor_key: int, found: Iterable[Extent]) -> Iterator[tuple[NDArray[Any], ...]]:
    """cursor_key, ledger_id, first_entry, last_entry: at most `CHUNK_ROWS` of one data ledger at a time."""
    for extent in found:
        for runs in runs_in_blocks(extent.holes):
            for at in range(0, runs.first.size, CHUNK_ROWS):
                first, last = runs.first[at : at + CHUNK_ROWS], runs.last[at : at + CHUNK_ROWS]
                yield same(cursor_key, first.size), same(extent.ledger, first.size), first, last


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one cursor, or of one part of it: then those of the parts add up, but for `longest_run` (the maximum) and `first_hole` (the
    first). `data_ledgers`: those whose first described entry is here."""

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


def counts(found: Iterable[Extent], partial_batches: int = 0, *, cut: Position | None = None) -> Counts:
    """The sums, without one row for each run. `cut`: where the window begins; a ledger that it cuts is counted by the part before."""
    ledgers = span = holes = runs = longest = 0
    first_hole: Position | None = None
    for extent in found:
        ledgers += cut is None or Position(extent.ledger, 0) >= cut
        span += extent.end - extent.first
        if extent.holes:
            here = count_runs(extent.holes)
            holes += len(extent.holes)
            runs += here
            longest = max(longest, _longest(extent.holes, here))
            first_hole = first_hole or Position(extent.ledger, extent.holes.min())
    return Counts(ledgers, span, holes, runs, longest, first_hole, partial_batches)


def _longest(holes: BitMap, runs: int) -> int:
    if len(holes) == runs:
        return 1  # often so, and then the runs themselves are not needed
    return max(int((found.last - found.first).max()) for found in runs_in_blocks(holes)) + 1
