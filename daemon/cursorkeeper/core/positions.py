"""Positions: where an entry is, and the largest ids the native format can hold.

Owns the ordering of raw positions. Does not know the layout: (L, last entry of L) and (successor of
L, -1) mean the same only to `Layout`, which normalises before it compares.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LEDGER_ID_MAX: Final = (1 << 63) - 1
ENTRY_ID_MAX: Final = (1 << 32) - 1
"""The largest entry id. Roaring bitmaps of 32 bits hold entry ids; larger ones are refused at
intake.
"""

NUMBER_MAX: Final = (1 << 32) - 1
"""The largest epoch and generation: a record carries both as u32."""

BEFORE_FIRST: Final = -1


class Position(NamedTuple):
    """An entry of a data ledger. `entry == -1` is the place before the first one.

    Tuples compare as positions do within one ledger and across ledgers, because ledger ids of a
    topic grow.
    """

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


FIRST: Final = Position(0, BEFORE_FIRST)
"""The mark-delete of a cursor that was created without start and without layout."""
