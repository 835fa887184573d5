"""The values that travel from the state to the bytes and back: deltas, segments, and what they are
made of.

All of them are frozen: a record is taken at one instant (in code that cannot suspend) and encoding
it later changes nothing. Bitmaps inside are never mutated after they were put into a value; who
needs to change one copies it. Joining is defined here because it is the law of the format: acks by
union, mark-delete by maximum, partial batches by intersection of what is missing, properties by
their stamp, layout by progress OPEN < CLOSED < TRIMMED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from pyroaring import BitMap

from cursorkeeper.core.entries import Entries, beyond, first_of
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import direct, frozen


class Stamp(NamedTuple):
    """Orders property maps within a generation: the later (epoch, sequence) wins."""

    epoch: int
    sequence: int


@frozen
class MarkDeleteProperties:
    """Numbers that travel with mark-delete (compaction horizon, producers' sequence ids): string to
    int64.
    """

    stamp: Stamp
    values: Mapping[str, int]


@frozen
class CursorProperties:
    """The subscription's own properties: string to string."""

    stamp: Stamp
    values: Mapping[str, str]


@direct
class LayoutState(IntEnum):
    """What the topic says of one of its data ledgers. The order is the order of the join."""

    OPEN = 0
    CLOSED = 1
    TRIMMED = 2


class LayoutItem(NamedTuple):
    """One data ledger. `entries` counts only if CLOSED; 0 otherwise."""

    ledger: int
    state: LayoutState
    entries: int

    def is_ahead_of(self, known: LayoutItem | None) -> bool:
        """Whether a join takes this item and not the known one of the same ledger: the later state,
        and of two closed ones the longer. A ledger believed to be shorter than it is would let
        mark-delete cross over entries that nobody acked.
        """
        return known is None or (self.state, self.entries) > (known.state, known.entries)


class PartialKey(NamedTuple):
    """The entry that holds a partly acked batch."""

    ledger: int
    entry: int


@frozen
class Partial:
    """A partly acked batch. `missing` = batch indexes not yet acked, never empty; `batch_size` 0 =
    not known.
    """

    batch_size: int
    missing: BitMap

    def joined(self, other: Partial) -> Partial:
        """The batch after both are known; `missing` may come out empty: then the entry is acked."""
        return Partial(max(self.batch_size, other.batch_size), self.missing & other.missing)


@frozen
class Delta:
    """What changed since the last one. Nothing in it depends on order.

    `acks` holds no empty entries; how they are kept says nothing, and two deltas that say the same
    may differ in it. An entry is never in both `acks` and `partials`.
    """

    mark_delete: Position | None = None
    mark_delete_properties: MarkDeleteProperties | None = None
    cursor_properties: CursorProperties | None = None
    layout: tuple[LayoutItem, ...] = ()
    acks: Mapping[int, Entries] = field(default_factory=dict)
    partials: Mapping[PartialKey, Partial] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.mark_delete is not None
            or self.mark_delete_properties is not None
            or self.cursor_properties is not None
            or self.layout
            or self.acks
            or self.partials
        )


class Slice(NamedTuple):
    """Entries `first..last` (inclusive) of a ledger. `bitmap` holds absolute entry ids inside that
    range: the un-acked ones if `holes`, else the acked ones. A hole never un-acks what another
    record acked.
    """

    ledger: int
    first: int
    last: int
    holes: bool
    bitmap: BitMap


@frozen
class Segment:
    """A part of the whole state: slices, the partial batches of their ranges, and (in the leading
    ones) the rest.
    """

    mark_delete: Position | None = None
    mark_delete_properties: MarkDeleteProperties | None = None
    cursor_properties: CursorProperties | None = None
    layout: tuple[LayoutItem, ...] = ()
    partials: Mapping[PartialKey, Partial] = field(default_factory=dict)
    slices: tuple[Slice, ...] = ()


@frozen
class SnapshotEnd:
    """The last record of a snapshot: names its segments, so that parts of an aborted one are never
    counted.

    `segments_crc32c` is over the segments' own checksums (little-endian u32 each, in order) and
    `length` the sum of their stored sizes in bytes; both are filled by whoever encoded the
    segments.
    """

    snapshot_id: int
    epoch: int
    generation: int
    segment_entries: tuple[int, ...]
    mark_delete: Position
    mark_delete_properties: MarkDeleteProperties | None
    cursor_properties: CursorProperties | None
    length: int = 0
    segments_crc32c: int = 0


@frozen
class OpenRecord:
    """Entry 0 of every cursor ledger: whose it is. For people and for repair; recovery checks the
    record header.
    """

    cursor: str
    epoch: int
    generation: int
    writer: str


@frozen
class RawEntry:
    """One BookKeeper entry as it is: part of a whole state that something else has encoded."""

    payload: bytes


RecordBody = Delta | Segment | SnapshotEnd | OpenRecord


@frozen
class Record:
    """One BookKeeper entry before it is encoded, or after it was decoded."""

    cursor_hash: int
    epoch: int
    generation: int
    sequence: int
    body: RecordBody


def above(mark_delete: Position | None, acks: dict[int, Entries]) -> dict[int, Entries]:
    """What of these acks, by ledger, a mark-delete does not say too. No set is changed."""
    if mark_delete is None:
        return acks
    out = {ledger: entries for ledger, entries in acks.items() if ledger >= mark_delete.ledger}
    own = out.get(mark_delete.ledger)
    if own is not None and mark_delete.entry >= 0 and first_of(own) <= mark_delete.entry:
        rest = beyond(own, mark_delete.entry)
        if rest:
            out[mark_delete.ledger] = rest
        else:
            del out[mark_delete.ledger]
    return out


P = TypeVar("P", MarkDeleteProperties, CursorProperties)


def newer(mine: P | None, other: P | None) -> P | None:
    """The map with the later stamp. Of two different maps with one stamp, which no writer makes,
    the one whose sorted pairs are
    greater: so the order of the joins never counts.
    """
    if mine is None or other is None:
        return other if mine is None else mine
    if other.stamp != mine.stamp:
        return other if other.stamp > mine.stamp else mine
    return other if sorted(other.values.items()) > sorted(mine.values.items()) else mine
