"""The hole model of Pulsar issue #25985: holes spread over a backlog, the gaps between them uniform
with +-50 %.

Everything in a backlog is acked but the holes; the oldest entry is a hole, so it pins mark-delete.
One seed gives one state. Cost: about 8 bytes of memory per hole and one byte per 8 entries of the
widest ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.pulsar.values import PositionInfo

I64 = npt.NDArray[np.int64]
GAP_VARIANCE = 0.5
"""A gap lies between half and one and a half of its mean."""
ENTRIES_PER_LEDGER = 50_000
"""Where Pulsar rolls a data ledger by default (`managedLedgerMaxEntriesPerLedger`)."""
FIRST_LEDGER = 1_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog of `entries`, `density` of them un-acked. `ledger_entries` 0: all in one data
    ledger.
    """

    entries: int
    density: float
    seed: int = 25985
    ledger_entries: int = ENTRIES_PER_LEDGER

    def __post_init__(self) -> None:
        if not 1 <= self.entries <= 1 << 32:
            raise ValueError(f"a backlog of {self.entries} entries: from 1 to {1 << 32}")
        if not 0 < self.density <= 0.5:
            raise ValueError(f"{self.density} of the entries un-acked: more than 0, at most 0.5")
        if self.ledger_entries < 0:
            raise ValueError(f"{self.ledger_entries} entries per data ledger")

    def layout(self) -> list[tuple[int, int]]:
        """(data ledger, entries), ascending; ids have gaps, as a topic's have."""
        size = self.ledger_entries or self.entries
        return [
            (FIRST_LEDGER + 3 * at, min(size, self.entries - start))
            for at, start in enumerate(range(0, self.entries, size))
        ]

    def holes(self) -> I64:
        """The un-acked places in the backlog, ascending, from 0 on; the first is 0."""
        mean = 1 / self.density
        low, high = (
            max(1, round(mean * (1 - GAP_VARIANCE))),
            max(1, round(mean * (1 + GAP_VARIANCE))),
        )
        rng = np.random.default_rng((self.seed, self.entries, round(mean * 1000)))
        # one draw is almost always enough; the loop is for the rest
        count = int(self.entries * self.density * 1.1) + 64
        places = np.zeros(1, dtype=np.int64)
        while places[-1] < self.entries:
            gaps = rng.integers(low, high + 1, count, dtype=np.int64)
            places = np.concatenate([places, places[-1] + np.cumsum(gaps)])
        return places[places < self.entries]

    def states(self) -> tuple[PositionInfo, AckState]:
        """The same acks as Pulsar's message and as our state."""
        holes, layout = self.holes(), self.layout()
        acked: dict[int, BitMap] = {}
        state = AckState(Position(FIRST_LEDGER, -1), Layout(_closed(layout)))
        for ledger, count, own in _per_ledger(holes, layout):
            un_acked = bitmaps.from_sorted(own)
            entries = bitmaps.span(0, count - 1) - un_acked
            if not entries:
                continue
            entries.run_optimize()
            acked[ledger] = entries
            # as acks would have left it: entries above the highest acked one are unknown, not holes
            acks = state.ledgers.own(ledger)
            acks.high_water = entries.max() + 1
            un_acked.remove_range(acks.high_water, count + 1)
            acks.holes = un_acked
        return PositionInfo(Position(FIRST_LEDGER, -1), acked), state


def further_acks(state: AckState, count: int, seed: int) -> dict[int, npt.NDArray[np.uint32]]:
    """`count` random holes of a state, as columns per ledger: the acks that arrive until the next
    flush.
    """
    sizes = {ledger: len(acks.holes) for ledger, acks in state.ledgers.items()}
    total = sum(sizes.values())
    chosen = np.sort(
        np.random.default_rng((seed, 1)).choice(total, min(count, total), replace=False)
    )
    found: dict[int, npt.NDArray[np.uint32]] = {}
    start = 0
    for ledger, size in sizes.items():
        low, high = np.searchsorted(chosen, [start, start + size])
        if high > low:
            found[ledger] = bitmaps.to_column(state.ledgers[ledger].holes)[chosen[low:high] - start]
        start += size
    return found


def _closed(layout: list[tuple[int, int]]) -> list[LayoutItem]:
    return [LayoutItem(ledger, LayoutState.CLOSED, count) for ledger, count in layout]


def _per_ledger(
    holes: I64, layout: list[tuple[int, int]]
) -> Iterator[tuple[int, int, npt.NDArray[np.uint32]]]:
    start = 0
    for ledger, count in layout:
        low, high = np.searchsorted(holes, [start, start + count])
        yield ledger, count, (holes[low:high] - start).astype(np.uint32)
        start += count
