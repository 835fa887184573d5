"""What travels on the ack stream, as Python values: positions, layout, columns of acks, the
recovered state.

Owns: the values and their rules. Does not own: bytes (`columns`, `messages`) or the stream.
Invariants: values are frozen; arrays and bitmaps inside are not changed after they were put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

U32 = NDArray[np.uint32]


class Position(NamedTuple):
    """An entry of a data ledger. Entry -1 = before the first one: for mark-delete, start and reset
    target only.
    """

    ledger: int
    entry: int


class LayoutState(IntEnum):
    """What is known of one data ledger. The numbers are those of the protocol."""

    CLOSED = 1
    OPEN = 2
    TRIMMED = 3


class LayoutItem(NamedTuple):
    """One data ledger; `entries` counts only if CLOSED."""

    ledger: int
    state: LayoutState
    entries: int = 0


class PartialBatch(NamedTuple):
    """A batch message of which some are acked. `missing` = the indexes not acked yet; `batch_size`
    0 = not known.
    """

    entry: int
    batch_size: int
    missing: BitMap


class AckedIndexes(NamedTuple):
    """The other way to say it (PIP-54): the indexes that were acked now, as ranges (first, last
    inclusive).
    """

    entry: int
    batch_size: int
    acked: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LedgerAcks:
    """Acks of one data ledger, as columns; all parts are joined. `entries` and `ranges` are u32
    arrays (anything that numpy turns into one); `ranges` is first, last (inclusive), first, last,
    ...
    """

    ledger: int
    entries: U32 | Sequence[int] = ()
    ranges: U32 | Sequence[int] = ()
    partials: Sequence[PartialBatch | AckedIndexes] = ()
    roaring: BitMap | None = None


@dataclass(frozen=True, slots=True)
class Acks:
    """One batch of acks. `properties` (of the mark-delete): None = unchanged, {} = cleared."""

    ledgers: Sequence[LedgerAcks] = ()
    mark_delete: Position | None = None
    properties: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class CursorState:
    """What the keeper gave back when the cursor was opened; all of it is durable.

    `acked[ledger]` holds entries acked above mark-delete; `partials[(ledger, entry)]` batches that
    are partly acked. `created`: the cursor was made for this opening.
    """

    epoch: int
    generation: int
    mark_delete: Position
    acked: Mapping[int, BitMap] = field(default_factory=dict)
    partials: Mapping[tuple[int, int], PartialBatch] = field(default_factory=dict)
    layout: tuple[LayoutItem, ...] = ()
    mark_delete_properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    acked_entries: int = 0
    holes: int = 0
    created: bool = False

    def is_acked(self, ledger: int, entry: int) -> bool:
        """Whether the whole entry is acked: a source must not dispatch it again."""
        if (ledger, entry) <= self.mark_delete:
            return True
        return entry in self.acked.get(ledger, ()) or any(
            i.ledger == ledger and i.state is LayoutState.TRIMMED for i in self.layout
        )

    def run_of(self, own: Sequence[LayoutItem]) -> tuple[LayoutItem, ...]:
        """The run to tell behind the state of a cursor that was opened without a layout, where the
        topic has the ledgers `own`. What the keeper knows, or where mark-delete lies, and what is
        not there any more, was trimmed while nobody listened.
        """
        there = {item.ledger for item in own}
        gone = ({item.ledger for item in self.layout} | {self.mark_delete.ledger}) - there
        trimmed = [
            LayoutItem(ledger, LayoutState.TRIMMED)
            for ledger in gone
            if own and ledger < own[-1].ledger
        ]
        return tuple(sorted([*trimmed, *own]))
