"""States to judge, as Pulsar would hold them."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar.values import Form, PositionInfo

ENTRIES = 50_000
"""Per data ledger: Pulsar's own roll-over size."""
FIRST = 20
"""With these ids the bytes are those of the measured table: an id below 128 takes one byte less."""


def backlog(entries: int, holes: float = 0.0, seed: int = 7) -> PositionInfo:
    """All acked but entry 0, or but entry 0 and random holes; ledgers of 50,000 entries with ids
    20, 21, ...
    """
    rng = np.random.default_rng(seed)
    acked: dict[int, BitMap] = {}
    for at, start in enumerate(range(0, entries, ENTRIES)):
        count = min(ENTRIES, entries - start)
        un_acked = np.flatnonzero(rng.random(count) < holes).astype(np.uint32)
        mine = bitmaps.span(0, count - 1) - bitmaps.from_sorted(un_acked)
        if at == 0:
            mine.discard(0)
        acked[FIRST + at] = mine
    return PositionInfo(Position(FIRST, -1), acked, form=Form.LONG_ARRAY)


def layout_of(entries: int) -> dict[int, int | None]:
    """The layout that goes with it, the last ledger closed too."""
    return {
        FIRST + at: min(ENTRIES, entries - start)
        for at, start in enumerate(range(0, entries, ENTRIES))
    }
