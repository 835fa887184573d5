"""Pulsar's own forms of one state, written and read: seconds, over protobuf's C parser on the same
bytes in the same run.

The baseline does less: it stops at lists of numbers, and no bitmap is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bench.rows import Row
from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.format.pulsar import position_info, ranges
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from daemon.tests.format.pulsar.oracle import MESSAGES

T = TypeVar("T")
FIRST_LEDGER = 100_000
ROUNDS = 3


def run() -> list[Row]:
    """Rows for 100 M entries as long arrays and a million ranges, in few ledgers and in many."""
    rows = []
    for entries, ledgers, share in (
        (100_000_000, 1, 0.1),
        (100_000_000, 20, 0.001),
        (100_000_000, 2_000, 0.1),
    ):
        case = f"{entries // 10**6} M entries, {ledgers:,} ledgers, {share:.1%} holes"
        rows += _rows(f"long array: {case}", _state(entries, ledgers, share), Form.LONG_ARRAY)
    for ledgers in (20, 20_000):
        state = _state(10_000_000, ledgers, 0.113)
        rows += _rows(
            f"{ranges.count(state.acked) / 1e6:.2f} M ranges, {ledgers:,} ledgers",
            state,
            Form.RANGES,
        )
    return rows


def _state(entries: int, ledgers: int, share: float) -> PositionInfo:
    acked = {}
    for at in range(ledgers):
        rng = np.random.default_rng(at)
        one = bitmaps.from_sorted(
            np.flatnonzero(rng.random(entries // ledgers) >= share).astype(np.uint32)
        )
        one.discard(0)
        one.run_optimize()
        acked[FIRST_LEDGER + at] = one
    return PositionInfo(Position(FIRST_LEDGER, BEFORE_FIRST), acked)


def _best(do: Callable[[], T]) -> tuple[float, T]:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        out = do()
        best = min(best, time.perf_counter() - began)
    return best, out


def _rows(case: str, state: PositionInfo, form: Form) -> list[Row]:
    wrote, data = _best(lambda: position_info.encode(state, form))
    sized, size = _best(lambda: position_info.encoded_bytes(state, form))
    read, back = _best(lambda: position_info.decode(data))
    parsed, _ = _best(lambda: MESSAGES["PositionInfo"].FromString(data))
    if size != len(data) or back.acked != state.acked:
        raise AssertionError(f"{case}: what was read is not what was written")
    against = "protobuf's C parser"
    return [
        Row(
            "pulsar_codec",
            case,
            f"read {len(data) / 1e6:.1f} MB",
            1000 * read,
            "ms",
            read / parsed,
            against,
        ),
        Row("pulsar_codec", case, "write", 1000 * wrote, "ms", wrote / parsed, against),
        Row("pulsar_codec", case, "size alone", 1000 * sized, "ms", sized / parsed, against),
    ]
