"""The recovered state of a cursor, put together from the parts that the keeper streams.

Owns: `StatePart`s and `StateEnd` to `CursorState`. Pure. Invariant: parts only add; an entry that
is acked as a whole is not among the partial batches.
"""

from __future__ import annotations

from pyroaring import BitMap

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import missing_of
from cursorkeeper_client.ack_stream.messages import layout_of, position_of
from cursorkeeper_client.values import CursorState, PartialBatch, Position


class RecoveredParts:
    """Collects the recovered state that comes between `Opened` and `StateEnd`."""

    def __init__(self, opened: pb.Opened) -> None:
        self.epoch, self.generation, self.created = opened.epoch, opened.generation, opened.created
        self.mark_delete = position_of(opened.mark_delete)  # a lower bound
        self._acked: dict[int, BitMap] = {}
        self._partials: dict[tuple[int, int], PartialBatch] = {}

    def add(self, part: pb.StatePart) -> None:
        for piece in part.slices:
            bitmap = BitMap.deserialize(piece.roaring) if piece.roaring else BitMap()
            if piece.holes:
                bitmap = BitMap(range(piece.first, piece.last + 1)) - bitmap
            known = self._acked.setdefault(piece.ledger_id, BitMap())
            known |= bitmap
        for partial in part.partials:
            key = (partial.ledger_id, partial.entry)
            missing, size = missing_of(partial.ack_set), partial.batch_size
            if known_partial := self._partials.get(key):
                missing, size = missing & known_partial.missing, max(size, known_partial.batch_size)
            self._partials[key] = PartialBatch(partial.entry, size, missing)

    def end(self, end: pb.StateEnd) -> CursorState:
        mark_delete = position_of(end.mark_delete)
        return CursorState(
            epoch=self.epoch,
            generation=self.generation,
            created=self.created,
            mark_delete=mark_delete,
            acked={
                ledger: above
                for ledger, bitmap in sorted(self._acked.items())
                if (above := _above(ledger, bitmap, mark_delete))
            },
            partials={
                key: partial
                for key, partial in sorted(self._partials.items())
                if self._remains(key, mark_delete)
            },
            layout=layout_of(end.layout),
            mark_delete_properties=dict(end.mark_delete_properties.values),
            cursor_properties=dict(end.cursor_properties.values),
            acked_entries=end.acked_entries,
            holes=end.holes,
        )

    def _remains(self, key: tuple[int, int], mark_delete: Position) -> bool:
        ledger, entry = key
        return (
            key > mark_delete
            and entry not in self._acked.get(ledger, ())
            and bool(self._partials[key].missing)
        )


def _above(ledger: int, acked: BitMap, mark_delete: Position) -> BitMap:
    """What mark-delete does not say already; a keeper's slices may cover more."""
    if ledger < mark_delete.ledger:
        return BitMap()
    if ledger == mark_delete.ledger and mark_delete.entry >= 0:
        acked.remove_range(0, mark_delete.entry + 1)
    return acked
