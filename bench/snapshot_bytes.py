"""Stored bytes of a snapshot over the entropy of its holes, with slices as Roaring bitmaps (records
of version 1) and as sets where they are smaller (version 2), and the times to encode and to decode
the one over the other. Sizes are exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap

from bench.rows import Row
from cursorkeeper.core import bitmaps
from cursorkeeper.core.containers import from_runs
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES, SLICE_HEADER_BYTES
from cursorkeeper.core.values import Record, Segment, Slice
from cursorkeeper.format import record

HEAD_BYTES = RECORD_HEADER_BYTES + SLICE_HEADER_BYTES + 2
"""Of a record with one slice, whatever it holds."""
LEDGER_ENTRIES = 5_000_000
UNIFORM = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.3)
CLUSTERED = ((0.001, 5, 500), (0.01, 5, 500), (0.1, 5, 500), (0.01, 5, 50), (0.1, 5, 50))
"""Part of the entries that are holes, shortest and longest run; all lengths alike."""
PLAIN = record.EncodeSettings()
SETS = record.EncodeSettings(record_version=record.SEGMENT_VERSION)


class Ledger(NamedTuple):
    holes: BitMap
    entropy_bytes: float


def _bits(part: float) -> float:
    """Entropy of one of two outcomes."""
    return -part * math.log2(part) - (1 - part) * math.log2(1 - part)


def _uniform(rng: np.random.Generator, part: float, entries: int) -> Ledger:
    holes = np.flatnonzero(rng.random(entries) < part).astype(np.uint32)
    share = max(holes.size, 1) / entries
    return Ledger(bitmaps.from_sorted(holes), entries * _bits(share) / 8)


def _clustered(
    rng: np.random.Generator, part: float, entries: int, shortest: int, longest: int
) -> Ledger:
    """A run begins anywhere: the bits to say where the runs are, and how long each is."""
    count = int(entries * part / ((shortest + longest) / 2))
    sizes = rng.integers(shortest, longest + 1, count)
    between = entries - int(sizes.sum())
    starts = np.sort(rng.choice(between, count, replace=False)) + np.cumsum(sizes) - sizes
    bits = between * _bits(count / between) + count * math.log2(longest - shortest + 1)
    return Ledger(from_runs(starts, starts + sizes - 1), bits / 8)


def _segments(ledgers: Iterable[Ledger], entries: int) -> list[Record]:
    return [
        Record(1, 1, 1, 1, Segment(slices=(Slice(number, 0, entries - 1, True, ledger.holes),)))
        for number, ledger in enumerate(ledgers)
    ]


def _rows(case: str, ledgers: list[Ledger], entries: int) -> list[Row]:
    segments = _segments(ledgers, entries)
    entropy = sum(ledger.entropy_bytes for ledger in ledgers)
    plain, sets = ([record.encode(s, how) for s in segments] for how in (PLAIN, SETS))
    sizes = [sum(len(entry) - HEAD_BYTES for entry in form) for form in (plain, sets)]
    assert sizes[1] <= sizes[0], f"{case}: sets made it larger"

    def ratio(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
        """The least of three, in turns."""
        times = [(_cpu(one), _cpu(other)) for _ in range(3)]
        least = [min(column) for column in zip(*times, strict=True)]
        return least[1] * 1_000, least[1] / max(least[0], 1e-9)

    encode_ms, encode = ratio(
        lambda: [record.encode(s, PLAIN) for s in segments],
        lambda: [record.encode(s, SETS) for s in segments],
    )
    decode_ms, decode = ratio(
        lambda: [record.decode(e, 1) for e in plain], lambda: [record.decode(e, 1) for e in sets]
    )
    return [
        Row("snapshot_bytes", case, "Roaring", sizes[0], "B", sizes[0] / entropy, "entropy"),
        Row("snapshot_bytes", case, "sets", sizes[1], "B", sizes[1] / entropy, "entropy", "1.2"),
        Row("snapshot_bytes", case, "encoding sets", encode_ms, "ms CPU", encode, "Roaring"),
        Row("snapshot_bytes", case, "decoding sets", decode_ms, "ms CPU", decode, "Roaring"),
    ]


def _cpu(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def run(millions: tuple[int, ...] = (1, 10, 100)) -> list[Row]:
    """Four rows per pattern and size."""
    rng = np.random.default_rng(7)
    rows = []
    for total in millions:
        entries = min(total * 1_000_000, LEDGER_ENTRIES)
        count = total * 1_000_000 // entries
        for part in UNIFORM:
            name = f"{total} M entries, {part:.2%} uniform holes"
            rows += _rows(name, [_uniform(rng, part, entries) for _ in range(count)], entries)
        for part, shortest, longest in CLUSTERED:
            name = f"{total} M entries, {part:.1%} in runs of {shortest} to {longest}"
            rows += _rows(
                name,
                [_clustered(rng, part, entries, shortest, longest) for _ in range(count)],
                entries,
            )
    return rows
