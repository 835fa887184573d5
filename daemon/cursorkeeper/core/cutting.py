"""Cutting a delta that is too large for one record into several whose join is the original.

Owns the order in which parts are packed: mark-delete and properties first, then layout, acks,
partly acked batches. Does not own the sizes (`core.sizes`). Invariants: the parts join to exactly
the delta; each part's body is at most the limit by `core.sizes`, it claims at most `EXPANSION_MAX`
acks, and its sets lie in few enough containers and are few enough themselves for a reader to take
them in at once; there is at least one part; no bitmap of the delta is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from pyroaring import BitMap

from cursorkeeper.core.bitmaps import between
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import (
    COUNT_BYTES_MAX,
    EXPANSION_MAX,
    FIELD_BITS_BYTES,
    LAYOUT_ITEM_BYTES_MAX,
    LEDGER_BYTES_MAX,
    RECORD_CONTAINERS_MAX,
    cursor_properties_bytes,
    delta_body_bytes_ceiling,
    delta_body_bytes_max,
    delta_containers_max,
    delta_members,
    mark_delete_bytes,
    mark_delete_properties_bytes,
    partial_bytes_max,
    set_bytes_max,
    set_containers_max,
)
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    MarkDeleteProperties,
    Partial,
    PartialKey,
)

PART_SETS_MAX = 1_024
"""Ledgers and partly acked batches in one part: encoding it does not hold up anybody."""


class _AckPiece(NamedTuple):
    ledger: int
    entries: BitMap


class _PartialPiece(NamedTuple):
    key: PartialKey
    partial: Partial


P = TypeVar("P")

_Piece = Position | MarkDeleteProperties | CursorProperties | LayoutItem | _AckPiece | _PartialPiece


def cut_delta(delta: Delta, body_bytes_max: int) -> tuple[Delta, ...]:
    """The delta as one or more records of at most `body_bytes_max` uncompressed body bytes each.

    Raises ValueError when a single property map or partly acked batch cannot fit: intake refuses
    those (`property_map_bytes_max`, `partial_bytes_limit`).
    """
    members = delta_members(delta)
    fits = (
        delta_body_bytes_ceiling(delta, members) <= body_bytes_max
        or delta_body_bytes_max(delta) <= body_bytes_max
    )
    few = len(delta.acks) + len(delta.partials) <= PART_SETS_MAX
    near = members <= RECORD_CONTAINERS_MAX or delta_containers_max(delta) <= RECORD_CONTAINERS_MAX
    if fits and few and near and members <= EXPANSION_MAX:
        return (delta,)
    parts = [_Part()]
    for piece in _pieces(delta, body_bytes_max):
        size, members, containers = (
            _bytes_max(piece),
            _piece_members(piece),
            _piece_containers(piece),
        )
        if not parts[-1].has_room(piece, size, members, containers, body_bytes_max):
            parts.append(_Part())
            if not parts[-1].has_room(piece, size, members, containers, body_bytes_max):
                raise ValueError(
                    f"{type(piece).__name__} may take {size} bytes, a record body has "
                    f"{body_bytes_max}"
                )
        parts[-1].add(piece, size, members, containers)
    return tuple(part.taken() for part in parts if part.pieces)


def portion(delta: Delta, sets_max: int) -> tuple[Delta, Delta]:
    """The delta as two that join to it: the first with at most so many ledgers and batches, and
    with all that is neither; the second is empty if that is all of it.
    """
    if len(delta.acks) + len(delta.partials) <= sets_max:
        return delta, Delta()
    acks = list(delta.acks.items())
    partials = list(delta.partials.items())
    left = max(0, sets_max - len(acks))
    first = replace(delta, acks=dict(acks[:sets_max]), partials=dict(partials[:left]))
    return first, Delta(acks=dict(acks[sets_max:]), partials=dict(partials[left:]))


def _pieces(delta: Delta, body_bytes_max: int) -> Iterator[_Piece]:
    """Everything in the delta, in packing order, in pieces that are small enough."""
    for head in (delta.mark_delete, delta.mark_delete_properties, delta.cursor_properties):
        if head is not None:
            yield head
    yield from delta.layout
    for ledger in sorted(delta.acks):
        yield from _ack_pieces(ledger, delta.acks[ledger], body_bytes_max)
    for key in sorted(delta.partials):
        yield _PartialPiece(key, delta.partials[key])


def _ack_pieces(ledger: int, entries: BitMap, body_bytes_max: int) -> Iterator[_AckPiece]:
    """Halves of halves, ascending. A single ack takes twenty bytes at most, so this ends."""
    todo = [_AckPiece(ledger, entries)]
    while todo:
        piece = todo.pop()
        if (
            len(piece.entries) == 1
            or FIELD_BITS_BYTES + COUNT_BYTES_MAX + _bytes_max(piece) <= body_bytes_max
        ):
            yield piece
            continue
        middle = piece.entries[len(piece.entries) // 2]
        todo.append(_AckPiece(ledger, between(piece.entries, middle, piece.entries.max())))
        todo.append(_AckPiece(ledger, between(piece.entries, piece.entries.min(), middle - 1)))


def _bytes_max(piece: _Piece) -> int:
    """Of the piece alone, wherever it stands, without its field's count."""
    if isinstance(piece, Position):
        return mark_delete_bytes(piece)
    if isinstance(piece, MarkDeleteProperties):
        return mark_delete_properties_bytes(piece)
    if isinstance(piece, CursorProperties):
        return cursor_properties_bytes(piece)
    if isinstance(piece, LayoutItem):
        return LAYOUT_ITEM_BYTES_MAX
    if isinstance(piece, _AckPiece):
        return LEDGER_BYTES_MAX + set_bytes_max(piece.entries)
    return partial_bytes_max(piece.partial)


def _piece_members(piece: _Piece) -> int:
    if isinstance(piece, _AckPiece):
        return len(piece.entries)
    return len(piece.partial.missing) if isinstance(piece, _PartialPiece) else 0


def _piece_containers(piece: _Piece) -> int:
    if isinstance(piece, _AckPiece):
        return set_containers_max(piece.entries)
    return set_containers_max(piece.partial.missing) if isinstance(piece, _PartialPiece) else 0


@dataclass(slots=True)
class _Part:
    pieces: list[_Piece] = field(default_factory=list)
    size: int = FIELD_BITS_BYTES
    members: int = 0
    containers: int = 0
    sets: int = 0
    last_ledger: int = -1

    def has_room(
        self, piece: _Piece, size: int, members: int, containers: int, body_bytes_max: int
    ) -> bool:
        """Two pieces of one ledger's acks never share a part: their union has no bound by
        theirs.
        """
        if isinstance(piece, _AckPiece) and piece.ledger == self.last_ledger:
            return False
        if containers and (
            self.sets >= PART_SETS_MAX or self.containers + containers > RECORD_CONTAINERS_MAX
        ):
            return False
        return (
            self.size + self._count_bytes(piece) + size <= body_bytes_max
            and self.members + members <= EXPANSION_MAX
        )

    def add(self, piece: _Piece, size: int, members: int, containers: int) -> None:
        self.size += self._count_bytes(piece) + size
        self.members += members
        self.containers += containers
        self.sets += containers > 0
        self.pieces.append(piece)
        if isinstance(piece, _AckPiece):
            self.last_ledger = piece.ledger

    def _count_bytes(self, piece: _Piece) -> int:
        counted = isinstance(piece, (LayoutItem, _AckPiece, _PartialPiece))
        is_first = not self.pieces or type(self.pieces[-1]) is not type(piece)
        return COUNT_BYTES_MAX if counted and is_first else 0

    def taken(self) -> Delta:
        return Delta(
            mark_delete=next(iter(_of(self.pieces, Position)), None),
            mark_delete_properties=next(iter(_of(self.pieces, MarkDeleteProperties)), None),
            cursor_properties=next(iter(_of(self.pieces, CursorProperties)), None),
            layout=tuple(_of(self.pieces, LayoutItem)),
            acks={piece.ledger: piece.entries for piece in _of(self.pieces, _AckPiece)},
            partials={piece.key: piece.partial for piece in _of(self.pieces, _PartialPiece)},
        )


def _of(pieces: Sequence[_Piece], kind: type[P]) -> list[P]:
    return [piece for piece in pieces if isinstance(piece, kind)]
