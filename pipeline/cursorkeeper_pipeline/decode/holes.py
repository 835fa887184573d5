"""The rows of `holes` and of `hole_stats`, from a state. Both see the same extents, so the counts
of one are those of the other.

A cursor may come in pieces, in order of position. Invariant: what comes out is that of the whole: a
run that a boundary of two pieces cuts is one run, one row, and as long as both of its sides
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.positions import Position
from cursorkeeper_pipeline.decode.columns import same
from cursorkeeper_pipeline.decode.extents import Extent, runs_in_blocks

CHUNK_ROWS: Final = 16_384
"""Several chunks of several cursors wait to be taken: half a MiB each."""


class Run(NamedTuple):
    """Un-acked entries first..last of one data ledger, as many as there are."""

    ledger: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1

    def goes_on_in(self, other: Run | None) -> bool:
        """Whether the other one begins where this one ends."""
        return other is not None and (self.ledger, self.last + 1) == other[:2]


class HoleRuns:
    """Of one cursor: takes extents in order of position. The last run is held back until it is
    known where it ends.
    """

    def __init__(self, cursor_key: int) -> None:
        self._key = cursor_key
        self._held: Run | None = None

    def add(self, found: Iterable[Extent]) -> Iterator[tuple[NDArray[Any], ...]]:
        """cursor_key, ledger_id, first_entry, last_entry: at most `CHUNK_ROWS` of one data ledger
        at a time.
        """
        for extent in found:
            for runs in runs_in_blocks(extent.holes):
                first, last = runs.first, runs.last
                held, head = self._held, Run(extent.ledger, int(first[0]), int(last[0]))
                if held is not None and held.goes_on_in(head):
                    first = np.concatenate((first[:0], [held.first], first[1:]))
                else:
                    yield from self.rest()
                self._held = Run(extent.ledger, int(first[-1]), int(last[-1]))
                for at in range(0, first.size - 1, CHUNK_ROWS):
                    upto = min(at + CHUNK_ROWS, first.size - 1)
                    yield (
                        same(self._key, upto - at),
                        same(extent.ledger, upto - at),
                        first[at:upto],
                        last[at:upto],
                    )

    def rest(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """The run that was held back."""
        if self._held is not None:
            held, self._held = self._held, None
            yield tuple(same(value, 1) for value in (self._key, *held))


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one cursor, or of one piece of it; `joined` makes those of the whole of them.
    `data_ledgers`: those whose first described entry is here; `leading`, `trailing`: the first and
    the last run, which may go on in the pieces beside.
    """

    data_ledgers: int = 0
    span_entries: int = 0
    hole_entries: int = 0
    hole_runs: int = 0
    longest_run: int = 0
    leading: Run | None = None
    trailing: Run | None = None
    partial_batches: int = 0

    @property
    def first_hole(self) -> Position | None:
        """None: there is no hole."""
        return None if self.leading is None else Position(self.leading.ledger, self.leading.first)

    @property
    def acked_entries(self) -> int:
        """Described entries that are no holes."""
        return self.span_entries - self.hole_entries

    def joined(self, after: Counts) -> Counts:
        """The counts of this piece and of the one that lies behind it."""
        sums = Counts(
            self.data_ledgers + after.data_ledgers,
            self.span_entries + after.span_entries,
            self.hole_entries + after.hole_entries,
            self.hole_runs + after.hole_runs,
            max(self.longest_run, after.longest_run),
            self.leading or after.leading,
            after.trailing or self.trailing,
            self.partial_batches + after.partial_batches,
        )
        if (
            self.trailing is None
            or after.leading is None
            or not self.trailing.goes_on_in(after.leading)
        ):
            return sums
        across = Run(self.trailing.ledger, self.trailing.first, after.leading.last)
        return replace(
            sums,
            hole_runs=sums.hole_runs - 1,
            longest_run=max(sums.longest_run, across.entries),
            leading=across if self.hole_runs == 1 else sums.leading,
            trailing=across if after.hole_runs == 1 else sums.trailing,
        )


def counts(
    found: Iterable[Extent], partial_batches: int = 0, *, cut: Position | None = None
) -> Counts:
    """The sums, without one row for each run. `cut`: where the window begins; a ledger that it cuts
    is counted by the piece before.
    """
    ledgers = span = holes = runs = longest = 0
    leading: Run | None = None
    trailing: Run | None = None
    for extent in found:
        ledgers += cut is None or Position(extent.ledger, 0) >= cut
        span += extent.end - extent.first
        if extent.holes:
            here = count_runs(extent.holes)
            holes += len(extent.holes)
            runs += here
            longest = max(longest, _longest(extent.holes, here))
            leading = leading or _first(extent)
            trailing = _last(extent)
    return Counts(ledgers, span, holes, runs, longest, leading, trailing, partial_batches)


def _first(extent: Extent) -> Run:
    first = extent.holes.min()
    acked = extent.holes.flip(first, extent.end)
    return Run(extent.ledger, first, (acked.min() if acked else extent.end) - 1)


def _last(extent: Extent) -> Run:
    last = extent.holes.max()
    acked = extent.holes.flip(extent.first, last + 1)
    return Run(extent.ledger, acked.max() + 1 if acked else extent.first, last)


def _longest(holes: BitMap, runs: int) -> int:
    if len(holes) == runs:
        return 1  # often so, and then the runs themselves are not needed
    return max(int((found.last - found.first).max()) for found in runs_in_blocks(holes)) + 1
