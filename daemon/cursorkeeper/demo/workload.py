"""What the demo's source acknowledges, made from one seed: the same batches in every process that
asks.

The bad case of Pulsar issue #25985: a large backlog in many data ledgers, everything acked but the
oldest entry and a sprinkle of random holes, arriving out of order from several consumers that work
in windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from cursorkeeper.core import bitmaps

U32 = npt.NDArray[np.uint32]
Columns = dict[int, U32]
"""Data ledger -> entries, in any order."""


@dataclass(frozen=True)
class BadCase:
    """`entries` over `ledgers` equal data ledgers; about `hole_share` of them never acked, the
    oldest among them.
    """

    entries: int = 50_000_000
    ledgers: int = 1_000
    hole_share: float = 0.001
    window_ledgers: int = 4
    batch_acks: int = 16_384
    seed: int = 25985
    first_ledger: int = 1_000

    @property
    def entries_per_ledger(self) -> int:
        """Entries of each data ledger; the last may have fewer."""
        return -(-self.entries // self.ledgers)

    def layout(self) -> list[tuple[int, int]]:
        """(ledger id, entries), ascending; ids have gaps, as a topic's have."""
        size, left, found = self.entries_per_ledger, self.entries, []
        for at in range(self.ledgers):
            count = min(size, left)
            if count <= 0:
                break
            found.append((self.first_ledger + 3 * at, count))
            left -= count
        return found

    def _acked(self, ledger: int, count: int) -> U32:
        rng = np.random.default_rng((self.seed, ledger))
        entries: U32 = np.flatnonzero(rng.random(count) >= self.hole_share).astype(np.uint32)
        if ledger == self.first_ledger:
            entries = entries[entries != 0]
        return entries

    def acked(self) -> dict[int, BitMap]:
        return {
            ledger: bitmaps.from_sorted(self._acked(ledger, count))
            for ledger, count in self.layout()
        }

    def batches(self) -> Iterator[Columns]:
        """In the order in which they are sent.

        Consumers take turns; each has shuffled its share of a window of ledgers, so a batch touches
        all of the window.
        """
        layout = self.layout()
        for start in range(0, len(layout), self.window_ledgers):
            window = layout[start : start + self.window_ledgers]
            keys = np.concatenate(
                [
                    (np.uint64(ledger) << np.uint64(32))
                    | self._acked(ledger, count).astype(np.uint64)
                    for ledger, count in window
                ]
            )
            np.random.default_rng((self.seed, start, 1)).shuffle(keys)
            for share in np.array_split(keys, max(1, len(keys) // self.batch_acks)):
                if share.size:
                    yield split(share)


def split(keys: npt.NDArray[np.uint64]) -> Columns:
    """Keys (ledger << 32 | entry) to columns per ledger."""
    ledgers = (keys >> np.uint64(32)).astype(np.int64)
    entries = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return {int(ledger): entries[ledgers == ledger] for ledger in np.unique(ledgers)}
