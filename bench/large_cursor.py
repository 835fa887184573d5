"""A cursor of a billion entries on the real stack, made through the engine of `import`: acks of
whole data ledgers as bitmaps.

The holes are random (so nearly every one is a run), from a seed by ledger: who reads them can count
them again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from cursorkeeper import connections
from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.migration.cursor_maker import Imported, Part, Source, make_cursor
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.output import Bar

FIRST_LEDGER = 1_000
STALL_S = 600.0


@dataclass(frozen=True, slots=True)
class LargeCursor:
    """`ledgers` data ledgers of `entries_each`, of which `hole_share` are not acked."""

    name: CursorName
    ledgers: int
    entries_each: int
    hole_share: float

    def holes(self, at: int) -> BitMap:
        """Of one ledger; its first and never its last entry, so that mark-delete stays and every
        entry is described.
        """
        rng = np.random.default_rng(at)
        count = int(self.entries_each * self.hole_share)
        found = bitmaps.from_unsorted(
            rng.integers(1, self.entries_each - 1, count, dtype=np.uint32)
        )
        found.add(0)
        return found

    def parts(self) -> Iterator[Part]:
        """A ledger at a time."""
        for at in range(self.ledgers):
            acked = bitmaps.span(0, self.entries_each - 1) - self.holes(at)
            acked.run_optimize()
            yield Part((LedgerColumns(FIRST_LEDGER + at, bitmap=acked),), 1)

    def layout(self) -> list[LayoutItem]:
        """All closed."""
        return [
            LayoutItem(FIRST_LEDGER + at, LayoutState.CLOSED, self.entries_each)
            for at in range(self.ledgers)
        ]


async def make(settings: Settings, cursor: LargeCursor) -> Imported:
    """Raises ProblemError."""
    start = Position(FIRST_LEDGER, BEFORE_FIRST)
    whole = Source(cursor.name, start, cursor.parts(), cursor.layout())
    async with connections.ports(settings, "writer") as ports:
        return await make_cursor(
            ports, settings, whole, Bar("large cursor"), stall_s=STALL_S, rng=random.Random(1)
        )
