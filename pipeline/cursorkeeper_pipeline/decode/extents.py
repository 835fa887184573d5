"""What a state says of each data ledger above mark-delete: the span that is described, and the
holes in it, as a bitmap and as runs.

Owns the rule which entries count: those above mark-delete and below the ledger's high water, in
ledgers that the topic has not trimmed, and inside the window if there is one. Invariants: nothing
here is per entry or per run in Python; only `carried` changes a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta
from cursorkeeper.core.window import EVERY, WHOLE, StateWindow

I64 = NDArray[np.int64]
BLOCK_RUNS: Final = 1 << 19
"""16 MiB in two columns, and while they are made half as much again."""


class Extent(NamedTuple):
    """Entries first..end-1 of one data ledger are described; `holes` are the un-acked ones, all of
    them inside. May be empty.
    """

    ledger: int
    first: int
    end: int
    holes: BitMap


class Runs(NamedTuple):
    """Maximal runs, ascending, closed at both ends: one element each in both columns."""

    first: I64
    last: I64


def extents(state: AckState, window: StateWindow = WHOLE) -> Iterator[Extent]:
    """Those inside the window, ascending by ledger. The bitmaps may be the state's own."""
    for ledger in state.ledgers:
        span = window.span(ledger)
        if span is None or state.layout.is_trimmed(ledger):  # wholly acked, whatever is kept of it
            continue
        acks = state.ledgers[ledger]
        first = max(
            span.first, state.mark_delete.entry + 1 if ledger == state.mark_delete.ledger else 0
        )
        end = max(first, min(acks.high_water, span.last + 1))
        holes = (
            acks.holes
            if span == EVERY
            else bitmaps.between(acks.holes, first, end - 1)
            if end > first
            else BitMap()
        )
        yield Extent(ledger, first, end, holes)


def carried(state: AckState, reached: Position) -> Position:
    """Gives a later piece of a cursor the mark-delete that the pieces before it have reached, and
    says how far it is with this one: by itself a piece does not know that what lies before it is
    acked.
    """
    state.join_delta(Delta(mark_delete=reached))
    state.settle()
    return state.mark_delete


def runs_in_blocks(entries: BitMap, runs: int = BLOCK_RUNS) -> Iterator[Runs]:
    """The runs of a set, so many at a time: beside one block there are never more than bitmaps of
    their beginnings and ends. Costs by containers and runs, not by entries: a run of a million is
    two numbers.
    """
    if not entries:
        return
    firsts, lasts = entries - entries.shift(1), entries - entries.shift(-1)
    count = len(firsts)
    if count <= runs:
        yield Runs(
            bitmaps.to_column(firsts).astype(np.int64), bitmaps.to_column(lasts).astype(np.int64)
        )
        return
    for at in range(0, count, runs):
        upto = min(count, at + runs) - 1
        yield Runs(
            *(
                bitmaps.to_column(bitmaps.between(ends, ends[at], ends[upto])).astype(np.int64)
                for ends in (firsts, lasts)
            )
        )
