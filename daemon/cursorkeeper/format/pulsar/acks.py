"""What PositionInfo and ManagedCursorInfo have in common: acked entries and partly acked batches.

`AcksReader` takes the fields of either message in any order and gives one tidy state: nothing at or
below mark-delete, no empty set, ledgers ascending, an entry acked or partly acked but not both.
Whatever had to be put right is said in `notes`. What a newer writer put where acks are raises
TooNewError, but only after the message as a whole turned out to be sound: what merely looks newer
because it is damaged is damage.
"""

from __future__ import annotations

from pyroaring import BitMap

from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import batches, long_array
from cursorkeeper.format.pulsar.errors import PulsarFormatError, too_new
from cursorkeeper.format.pulsar.long_array import Element
from cursorkeeper.format.pulsar.ranges import RangeReader
from cursorkeeper.format.pulsar.values import CrossingRange, Form
from cursorkeeper.format.pulsar.wire import Field, Kind, Message, Reader, expect, read_field


@frozen
class Acks:
    """The tidy state above a mark-delete."""

    acked: dict[int, BitMap]
    batches: dict[PartialKey, BitMap]
    crossing: tuple[CrossingRange, ...]
    form: Form | None


class AcksReader:
    """Reads either message. `ranges`, `batches` and `long_arrays` are the numbers of the fields of
    acks; the values of all others are in `rest`.
    """

    def __init__(
        self, data: bytes, message: Message, ranges: int, batches: int, long_arrays: int = 0
    ) -> None:
        """Raises PulsarFormatError."""
        self._data = data
        self.newer: list[str] = []
        self.notes: list[str] = []
        self.rest = Reader(data, message, self.newer)
        self.ranges = RangeReader(data, ranges, self.newer)
        self._elements: list[Element] = []
        self._batches: dict[Position, BitMap] = {}
        self._empty_batches = self._double_batches = 0
        pos, end = 0, len(data)
        while (pos := self.ranges.take(pos, end)) < end:
            field = read_field(data, pos, end)
            pos = field.end
            if field.number == ranges:
                self.ranges.add(field)
            elif field.number == batches:
                self.take_batch(field)
            elif field.number == long_arrays:
                expect(field, Kind.LEN, "individualDeletedMessageRanges")
                self._elements.append(Element(field.start, field.end))
            else:
                self.rest.take(field)

    def take_batch(self, field: Field) -> None:
        """A BatchedEntryDeletionIndexInfo field."""
        position, missing = batches.decode(self._data, field, self.newer)
        checked_entry(position)
        if not missing:
            self._empty_batches += 1
            return
        known = self._batches.get(position)
        if known is not None:
            self._double_batches += 1
            missing = known & missing
        self._batches[position] = missing

    @property
    def holds_acks(self) -> bool:
        """Whether there was anything but properties."""
        return bool(self.ranges.count or self._elements or self._batches)

    def nothing(self) -> Acks:
        """For a message that has no mark-delete and no acks. Raises TooNewError as `finish`."""
        if self.newer:
            raise too_new("; ".join(sorted(set(self.newer))[:3]))
        return Acks({}, {}, (), None)

    def finish(self, mark_delete: Position) -> Acks:
        """The state. Raises TooNewError if any part of it is in a form that this release does not
        know.
        """
        acked, crossing = self._whole_entries()
        if self.newer:
            raise too_new("; ".join(sorted(set(self.newer))[:3]))
        acked = self._above(mark_delete, acked)
        crossing = tuple(c for c in crossing if c.upper > mark_delete)
        kept = self._kept_batches(mark_delete, acked)
        written = Form.RANGES if self.ranges.count or not self._elements else Form.LONG_ARRAY
        form = written if acked or crossing else None
        self._note_batches()
        return Acks({ledger: acked[ledger] for ledger in sorted(acked)}, kept, crossing, form)

    def _whole_entries(self) -> tuple[dict[int, BitMap], tuple[CrossingRange, ...]]:
        arrays = self._long_arrays()
        acked, crossing = self.ranges.result()
        if self.ranges.empty:
            self.notes.append(f"{self.ranges.empty} ranges that cover nothing")
        if not self.ranges.count:
            return arrays, ()
        if self._elements:
            self.notes.append(
                f"{len(self._elements)} long arrays beside {self.ranges.count} ranges: ignored, "
                f"as Pulsar does"
            )
        return acked, crossing

    def _long_arrays(self) -> dict[int, BitMap]:
        """A ledger that is there twice: the union. (Pulsar throws, and then has lost all of
        them.)
        """
        out: dict[int, BitMap] = {}
        twice = set()
        for ledger, entries in long_array.decode_elements(self._data, self._elements, self.newer):
            if ledger in out:
                twice.add(ledger)
                entries |= out[ledger]
            out[ledger] = entries
        if twice:
            self.notes.append(
                f"ledgers {sorted(twice)[:5]} have more than one long array: joined (Pulsar "
                f"would lose all acks of the cursor)"
            )
        return {ledger: entries for ledger, entries in out.items() if entries}

    def _above(self, mark_delete: Position, acked: dict[int, BitMap]) -> dict[int, BitMap]:
        below = [ledger for ledger in acked if ledger < mark_delete.ledger]
        dropped = sum(len(acked.pop(ledger)) for ledger in below)
        own = acked.get(mark_delete.ledger)
        if own is not None and mark_delete.entry > BEFORE_FIRST and own.min() <= mark_delete.entry:
            before = len(own)
            own.remove_range(0, mark_delete.entry + 1)
            dropped += before - len(own)
            if not own:
                del acked[mark_delete.ledger]
        if dropped:
            self.notes.append(
                f"{dropped} entries at or below mark-delete {mark_delete} are named again: dropped"
            )
        return acked

    def _kept_batches(
        self, mark_delete: Position, acked: dict[int, BitMap]
    ) -> dict[PartialKey, BitMap]:
        for position, missing in self._batches.items():
            # two elements of one entry that left nothing
            if not missing and position > mark_delete:
                acked.setdefault(position.ledger, BitMap()).add(position.entry)
        kept = {
            PartialKey(*position): missing
            for position, missing in sorted(self._batches.items())
            if missing
            and position > mark_delete
            and position.entry not in acked.get(position.ledger, ())
        }
        dropped = sum(map(bool, self._batches.values())) - len(kept)
        if dropped:
            self.notes.append(
                f"{dropped} partly acked batches of entries that are acked as a whole: dropped"
            )
        return kept

    def _note_batches(self) -> None:
        if self._empty_batches:
            self.notes.append(
                f"{self._empty_batches} batch elements without a bit: ignored, as Pulsar does"
            )
        if self._double_batches:
            self.notes.append(
                f"{self._double_batches} batch elements for an entry that has one already: an "
                f"index acked in either is acked"
            )


def checked_entry(position: Position) -> Position:
    """The position of a partly acked batch. Raises PulsarFormatError where there can be none."""
    if position.ledger < 0 or position.entry < 0:
        raise PulsarFormatError(f"a partly acked batch at {position}")
    if position.entry > ENTRY_ID_MAX:
        raise PulsarFormatError(
            f"a partly acked batch at {position}: entries above {ENTRY_ID_MAX} are more than "
            f"this release can hold"
        )
    return position


def checked_mark_delete(ledger: int, entry: int) -> Position:
    """The position. Raises PulsarFormatError where it cannot be one."""
    if ledger < 0 or entry < BEFORE_FIRST:
        raise PulsarFormatError(f"mark-delete {ledger}:{entry} is no position")
    if entry > ENTRY_ID_MAX:
        raise PulsarFormatError(
            f"mark-delete {ledger}:{entry}: entries above {ENTRY_ID_MAX} are more than this "
            f"release can hold"
        )
    return Position(ledger, entry)
