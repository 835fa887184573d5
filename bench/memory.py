"""Memory of a cursor's state over the size of the same holes as serialised roaring bitmaps."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np

from bench.rows import Row
from cursorkeeper.core import bitmaps
from cursorkeeper.core.state import AckState

ENTRIES = 100_000_000


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def run() -> list[Row]:
    """Rows for 100 M entries in two layouts, 0.1 % and 10 % random holes."""
    rows = []
    for ledgers in (20, 2_000):
        for share in (0.001, 0.1):
            gc.collect()
            before = _resident_bytes()
            tracemalloc.start()
            state = _state(ledgers, share)
            python = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            gc.collect()
            grown = _resident_bytes() - before
            roaring = sum(len(a.holes.serialize()) for a in state.ledgers.values())
            case = f"100 M entries, {ledgers} ledgers, {share:.1%} holes"
            rows.append(Row("memory", case, "resident growth", grown / 1e6, "MB", grown / roaring, "roaring bytes"))
            rows.append(Row("memory", case, "python objects", python / 1e6, "MB", python / roaring, "roaring bytes"))
            del state
    return rows


def _state(ledgers: int, share: float) -> AckState:
    state, size = AckState(), ENTRIES // ledgers
    for ledger in range(1, ledgers + 1):
        rng = np.random.default_rng(ledger)
        acks = state._ledger(ledger)
        acks.holes = bitmaps.from_sorted(np.flatnonzero(rng.random(size) < share).astype(np.uint32))
        acks.high_water = size
    return state
