"""A state in canonical form: to compare two of them, to count, and to write ranges.

Two states are the same if they acked the same entries above the same mark-delete, miss the same
indexes of the same batches, and hold the same properties and layout. High waters are no part of it:
nobody can see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState

WINDOW_ENTRIES = 1 << 22
_DIFFERENCES_MAX = 5


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of what lies above mark-delete, by the names of the file of `export`."""

    ledgers: int
    acked: int
    holes: int
    partials: int


def first_entry(state: AckState, ledger: int) -> int:
    """The first entry of a ledger that lies above mark-delete."""
    return state.mark_delete.entry + 1 if ledger == state.mark_delete.ledger else 0


def acked_above(state: AckState, ledger: int) -> BitMap:
    """The acked entries of a ledger above mark-delete."""
    acked = state.acked_of(ledger)
    if first := first_entry(state, ledger):
        acked.remove_range(0, first)
    return acked


def totals(state: AckState) -> Totals:
    acked = {ledger: len(acked_above(state, ledger)) for ledger in state.ledgers}
    return Totals(
        sum(1 for n in acked.values() if n),
        sum(acked.values()),
        state.hole_count,
        state.partial_count,
    )


def acked_runs(state: AckState, ledger: int) -> Iterator[NDArray[np.int64]]:
    """Maximal runs of acked entries above mark-delete as rows (first, last), ascending, many rows
    at a time.
    """
    acks = state.ledgers[ledger]
    open_first = open_last = -1
    for begin in range(first_entry(state, ledger), acks.high_water, WINDOW_ENTRIES):
        end = min(begin + WINDOW_ENTRIES, acks.high_water)
        window = bitmaps.span(begin, end - 1)
        window -= acks.holes
        values = bitmaps.to_column(window).astype(np.int64)
        if not values.size:
            continue
        breaks = np.flatnonzero(np.diff(values) != 1)
        firsts = np.concatenate((values[:1], values[breaks + 1]))
        lasts = np.concatenate((values[breaks], values[-1:]))
        if open_last >= 0:
            if firsts[0] == open_last + 1:
                firsts[0] = open_first
            else:
                firsts, lasts = np.insert(firsts, 0, open_first), np.insert(lasts, 0, open_last)
        open_first, open_last = int(firsts[-1]), int(lasts[-1])
        if firsts.size > 1:
            yield np.stack((firsts[:-1], lasts[:-1]), axis=1)
    if open_last >= 0:
        yield np.array([[open_first, open_last]], np.int64)


def differences(one: AckState, other: AckState, names: tuple[str, str]) -> list[str]:
    """What is not the same, at most a few lines; empty: nothing."""
    found: list[str] = []
    if one.mark_delete != other.mark_delete:
        found.append(
            f"mark-delete is {one.mark_delete} from {names[0]} and {other.mark_delete} from "
            f"{names[1]}"
        )
    for ledger in sorted({*one.ledgers, *other.ledgers}):
        if len(found) >= _DIFFERENCES_MAX:
            return found
        mine, theirs = acked_above(one, ledger), acked_above(other, ledger)
        if mine != theirs:
            odd = mine ^ theirs
            found.append(
                f"data ledger {ledger}: {len(odd):,} entries are acked in only one of them, the "
                f"first is {odd.min()}"
            )
    mine_partials, their_partials = dict(one.iter_partials()), dict(other.iter_partials())
    odd_keys = [
        k
        for k in mine_partials.keys() | their_partials.keys()
        if mine_partials.get(k) != their_partials.get(k)
    ]
    if odd_keys:
        found.append(
            f"{len(odd_keys):,} partly acked batches differ, the first is at "
            f"{Position(*min(odd_keys))}"
        )
    for what in ("mark_delete_properties", "cursor_properties"):
        if getattr(one, what) != getattr(other, what):
            found.append(f"{what.replace('_', ' ')} differ")
    if tuple(one.layout) != tuple(other.layout):
        found.append("the layout of the topic differs")
    return found
