"""What one flush writes, by the daemon's own encoders on a state in memory: up to a billion
entries, exact, without a stack that would add nothing to a number of bytes.

Data ledgers of 50,000 entries, as Pulsar rolls them. Bytes are those of the entries that BookKeeper
is given, each of which it stores once for every replica.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.bitmaps import U32
from cursorkeeper.core.delta_parts import cut_delta
from cursorkeeper.core.limits import MIB
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Record
from cursorkeeper.core.whole_form import Taken
from cursorkeeper.format import record
from cursorkeeper.format.pulsar.values import Compression
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings

LEDGER_ENTRIES = 50_000
FIRST_LEDGER = 1_000
ACKS = 1_000
HOLES, FEW_HOLES = 0.1, 0.001
FLUSHES = 8
"""The mean of so many; they differ by some bytes."""


def ledgers(entries: int) -> range:
    return range(FIRST_LEDGER, FIRST_LEDGER + entries // LEDGER_ENTRIES)


def holes(ledger: int, share: float) -> BitMap:
    """What is not acked of a ledger: about this share of it anywhere, its first entry (so
    mark-delete stays), and never its last.
    """
    rng = np.random.default_rng((25985, ledger))
    draws = int(-math.log1p(-share) * LEDGER_ENTRIES)
    found = bitmaps.from_unsorted(rng.integers(1, LEDGER_ENTRIES - 1, draws, dtype=np.uint32))
    found.add(0)
    return found


def acked(ledger: int, share: float) -> BitMap:
    return bitmaps.span(0, LEDGER_ENTRIES - 1) - holes(ledger, share)


def backlog(entries: int, share: float) -> AckState:
    """A state in which all of the backlog is acked but the holes."""
    state = AckState(Position(FIRST_LEDGER, -1))
    for ledger in ledgers(entries):
        state.ledgers.own(ledger).ack(acked(ledger, share))
    return state


def uniform(entries: int, flushes: int, seed: int) -> Iterator[dict[int, U32]]:
    """For each flush 1,000 entries by ledger, uniform over a backlog of which a tenth is holes: of
    these, and none twice.
    """
    rng, every = np.random.default_rng(seed), ledgers(entries)
    left: dict[int, U32] = {}
    for _ in range(flushes):
        columns = {}
        drawn = np.unique(rng.integers(0, len(every), ACKS), return_counts=True)
        for number, count in zip(*map(np.ndarray.tolist, drawn), strict=True):
            ledger = every[number]
            if ledger not in left:
                left[ledger] = rng.permutation(np.array(holes(ledger, HOLES), np.uint32)[1:])
            if len(left[ledger]) < count:
                raise ValueError(
                    f"a backlog of {entries:,} has too few holes for {flushes} flushes"
                )
            columns[ledger], left[ledger] = np.sort(left[ledger][:count]), left[ledger][count:]
        yield columns


def delta_bytes(delta: Delta) -> int:
    """Of the records that a flush cuts it into."""
    parts = cut_delta(delta, MIB - RECORD_HEADER_BYTES)
    return sum(len(record.encode(Record(1, 1, 1, 1, part))) for part in parts)


def ours(state: AckState, entries: int) -> float:
    """The mean of some flushes of 1,000 acks."""
    total = 0
    for number, columns in enumerate(uniform(entries, FLUSHES, 7), 1):
        parts = tuple(LedgerColumns(at, BitMap(found)) for at, found in columns.items())
        delta = state.apply([AckBatch(number, 1, ledgers=parts, acks=ACKS)])
        assert sum(map(len, delta.acks.values())) == ACKS
        total += delta_bytes(delta)
    return total / FLUSHES


def whole(state: AckState, compression: Compression) -> int:
    """The state as Pulsar's long arrays, in slices where one entry is too small (PIP-381)."""
    settings = WholeStateSettings(multiple=True, compression=compression, state_bytes_max=None)
    taken = PulsarStateWriter(settings).take(state)
    assert isinstance(taken, Taken)
    return sum(map(len, taken.entries))


def figures(point: str, entries: int) -> dict[str, float]:
    """All of one backlog. A billion entries take some 2 GB."""
    state = backlog(entries, HOLES)
    found = {
        f"pulsar_bytes_per_flush_{point}": float(whole(state, Compression.NONE)),
        f"pulsar_zstd_bytes_per_flush_{point}": float(whole(state, Compression.ZSTD)),
        f"bytes_per_flush_1000_uniform_{point}": ours(state, entries),
    }
    few = backlog(entries, FEW_HOLES)
    key = f"pulsar_zstd_few_holes_bytes_per_flush_{point}"
    return found | {key: float(whole(few, Compression.ZSTD))}
