"""Delta bytes per newly acked entry, for the patterns of the format. Exact: no timing."""

from __future__ import annotations

import numpy as np

from bench.rows import Row
from cursorkeeper.core import bitmaps
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.values import Delta, Record
from cursorkeeper.demo.workload import split
from cursorkeeper.format import record

N = 1_000


def _patterns() -> dict[str, tuple[dict[int, np.ndarray], str]]:
    rng = np.random.default_rng(7)

    def one(values: np.ndarray) -> dict[int, np.ndarray]:
        return {9: np.unique(values).astype(np.uint32)}

    def many(size: int) -> dict[int, np.ndarray]:
        keys = rng.choice(100_000_000, N, replace=False)
        return split(
            ((keys // size).astype(np.uint64) << np.uint64(32)) | (keys % size).astype(np.uint64)
        )

    window = rng.choice(65_536, 65_536 // 2, replace=False)
    shared = np.flatnonzero(rng.random(4 * N) < 0.4)[:N]
    return {
        "contiguous": (one(np.arange(5_000, 5_000 + N)), "11 B"),
        "every fifth": (one(np.arange(0, 5 * N, 5)), "31 B"),
        "key-shared window (2 of 5)": (one(shared), "0.33 B"),
        "random half of a window": (one(np.sort(window)[:N]), "0.26 B"),
        "uniform over 10 M": (one(rng.choice(10_000_000, N, replace=False)), "2.2 B"),
        "uniform over 100 M, ledgers of 5 M": (many(5_000_000), "2.9 B"),
        "uniform over 100 M, ledgers of 50,000": (many(50_000), "3.8 B"),
    }


def run() -> list[Row]:
    """One row per pattern."""
    rows = []
    for name, (columns, aim) in _patterns().items():
        acks = {ledger: bitmaps.from_unsorted(values) for ledger, values in sorted(columns.items())}
        count = sum(map(len, acks.values()))
        stored = len(record.encode(Record(1, 1, 1, 1, Delta(acks=acks)))) - RECORD_HEADER_BYTES
        rows.append(
            Row(
                "delta_bytes", name, "body", stored, "B", aim=aim if aim in ("11 B", "31 B") else ""
            )
        )
        rows.append(
            Row(
                "delta_bytes",
                name,
                "body per ack",
                stored / count,
                "B/ack",
                aim="" if aim in ("11 B", "31 B") else aim,
            )
        )
    return rows
