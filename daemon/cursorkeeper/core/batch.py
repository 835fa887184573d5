"""A batch of acks as it was sent: columns per data ledger. Checked against the state by
`intake_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import U32
from cursorkeeper.core.entries import NONE, Sent, count_of
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import Partial


@frozen
class LedgerColumns:
    """Acks of one data ledger: never changed. `entries` were sent one by one, `bitmap` as a set.
    `ranges` is flat: first, last (inclusive), first, last, ...; None: there are none.
    """

    ledger: int
    entries: Sent = NONE
    ranges: U32 | None = None
    partials: tuple[tuple[int, Partial], ...] = ()
    bitmap: BitMap | None = None


@frozen
class AckBatch:
    """One message of acks. `size_bytes` is what it costs of the handle's credit; `acks` counts what
    it names.
    """

    seq: int
    generation: int
    mark_delete: Position | None = None
    ledgers: tuple[LedgerColumns, ...] = ()
    properties: Mapping[str, int] | None = None
    size_bytes: int = 0
    acks: int = 0

    @property
    def parts(self) -> int:
        """Data ledgers and partly acked batches in it: what it costs beside its bytes."""
        return len(self.ledgers) + sum(len(columns.partials) for columns in self.ledgers)


def count_acks(ledgers: tuple[LedgerColumns, ...], mark_delete: Position | None = None) -> int:
    """How many acks a batch names (a cumulative one counts as one)."""
    total = 0 if mark_delete is None else 1
    for columns in ledgers:
        total += count_of(columns.entries) + len(columns.partials)
        if columns.ranges is not None:
            pairs = columns.ranges.size // 2  # half a one is refused later, with its cursor's name
            wide = columns.ranges[: 2 * pairs].astype(np.int64)
            total += int((wide[1::2] - wide[0::2] + 1).sum())
        if columns.bitmap is not None:
            total += len(columns.bitmap)
    return total


def without_partials(batch: AckBatch) -> tuple[AckBatch, int]:
    """The batch as a cursor takes it that keeps no batch indexes (PIP-54's switch is off), and how
    many acks that ignores.
    """
    ignored = sum(len(columns.partials) for columns in batch.ledgers)
    if not ignored:
        return batch, 0
    kept = tuple(replace(columns, partials=()) for columns in batch.ledgers)
    return replace(batch, ledgers=kept, acks=batch.acks - ignored), ignored
