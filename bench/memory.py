"""Memory of a cursor's state, the topic's layout included, over the size of the same holes as
serialised roaring bitmaps.

Each case in a process of its own: what an allocator kept from an earlier case must not count.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from pyroaring import BitMap

from bench.rows import Row
from cursorkeeper.core import bitmaps
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState

ENTRIES = 100_000_000
ROARING_SHARE = 1.2
MEASURED_BYTES = 100_000_000
"""So many copies of a state that the allocator's own pages do not show."""


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
            done = subprocess.run(
                [sys.executable, "-m", "bench.memory", str(ledgers), str(share)],
                capture_output=True,
                text=True,
                check=True,
            )
            found = json.loads(done.stdout)
            case = f"100 M entries, {ledgers} ledgers, {share:.1%} holes"
            grown, roaring = found["grown"], found["roaring"]
            beyond = (grown - ROARING_SHARE * roaring) / ledgers
            rows += [
                Row(
                    "memory",
                    case,
                    "resident growth",
                    grown / 1e6,
                    "MB",
                    grown / roaring,
                    "roaring bytes",
                ),
                Row(
                    "memory",
                    case,
                    f"beyond {ROARING_SHARE}x roaring",
                    max(0.0, beyond),
                    "B a ledger",
                    aim="128 B",
                ),
            ]
    return rows


def _state(ledgers: int, share: float) -> AckState:
    state, size = AckState(), ENTRIES // ledgers
    for ledger in range(1, ledgers + 1):
        rng = np.random.default_rng(ledger)
        # made as a daemon makes it: acks in some order, holes stay
        values = np.flatnonzero(rng.random(size) >= share).astype(np.uint32)
        state.ledgers.own(ledger).ack(bitmaps.from_sorted(values))
    state.apply_layout(
        LayoutItem(ledger, LayoutState.CLOSED, size) for ledger in range(1, ledgers + 1)
    )
    return state


def _main() -> None:
    ledgers, share = int(sys.argv[1]), float(sys.argv[2])
    first = _state(ledgers, share)
    roaring = sum(len(a.holes.serialize()) for a in first.ledgers.values())
    gc.collect()
    # what making it left free would be used for the copies, and they would cost nothing
    ctypes.CDLL(None).malloc_trim(0)
    before = _resident_bytes()
    copies = [_copy(first) for _ in range(max(2, MEASURED_BYTES // roaring))]
    grown = _resident_bytes() - before
    print(json.dumps({"grown": grown / len(copies), "roaring": roaring}))


def _copy(state: AckState) -> AckState:
    other = AckState()
    for ledger, acks in state.ledgers.items():
        mine = other.ledgers.own(ledger)
        mine.holes, mine.high_water = BitMap(acks.holes, optimize=False), acks.high_water
    other.apply_layout(LayoutItem(*item) for item in state.layout)
    other.settle()
    return other


if __name__ == "__main__":
    _main()
