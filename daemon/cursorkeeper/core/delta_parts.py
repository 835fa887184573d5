"""Cutting a delta that is too large for one record into several whose join is the original.

Owns the order in which parts are packed: mark-delete and properties first, then layout, acks,
partly acked batches. Does not own the sizes (`core.sizes`). Invariants: the parts join to exactly
the delta; each part's body is at most the limit by `core.sizes`, it claims at most `EXPANSION_MAX`
acks, and its sets lie in few enough containers and are few enough themselves for a reader to take
them in at once; there is at least one part; no bitmap of the delta is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import NamedTuple

from cursorkeeper.core.bitmaps import between
from cursorkeeper.core.entries import Entries, as_set
from cursorkeeper.core.join import join
from cursorkeeper.core.shape import component
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
)
from cursorkeeper.core.values import Delta

PART_SETS_MAX = 1_024
"""Ledgers and partly acked batches in one part: encoding it does not hold up anybody."""


COUNTED = ("layout", "acks", "partials")
"""Fields that say how many members they have."""


class _Piece(NamedTuple):
    """A piece of one field, as a delta. `size`: what it may take wherever it stands, without its
    field's count.
    """

    field: str
    delta: Delta
    size: int


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
        if not parts[-1].has_room(piece, body_bytes_max):
            parts.append(_Part())
            if not parts[-1].has_room(piece, body_bytes_max):
                raise ValueError(
                    f"{piece.field} may take {piece.size} bytes, a record body has {body_bytes_max}"
                )
        parts[-1].add(piece)
    return tuple(join(part.pieces) for part in parts if part.pieces)


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
    if (position := delta.mark_delete) is not None:
        yield _Piece("mark_delete", Delta(position), mark_delete_bytes(position))
    if (numbers := delta.mark_delete_properties) is not None:
        yield _Piece(
            "mark_delete_properties",
            Delta(mark_delete_properties=numbers),
            mark_delete_properties_bytes(numbers),
        )
    if (texts := delta.cursor_properties) is not None:
        yield _Piece(
            "cursor_properties", Delta(cursor_properties=texts), cursor_properties_bytes(texts)
        )
    for item in delta.layout:
        yield _Piece("layout", Delta(layout=(item,)), LAYOUT_ITEM_BYTES_MAX)
    for ledger in sorted(delta.acks):
        yield from _ack_pieces(ledger, delta.acks[ledger], body_bytes_max)
    for key in sorted(delta.partials):
        partial = delta.partials[key]
        yield _Piece("partials", Delta(partials={key: partial}), partial_bytes_max(partial))


def _ack_pieces(ledger: int, entries: Entries, body_bytes_max: int) -> Iterator[_Piece]:
    """Halves of halves, ascending. A single ack takes twenty bytes at most, so this ends."""
    todo = [as_set(entries)]
    while todo:
        some = todo.pop()
        size = LEDGER_BYTES_MAX + set_bytes_max(some)
        if len(some) == 1 or FIELD_BITS_BYTES + COUNT_BYTES_MAX + size <= body_bytes_max:
            yield _Piece("acks", Delta(acks={ledger: some}), size)
            continue
        middle = some[len(some) // 2]
        todo.append(between(some, middle, some.max()))
        todo.append(between(some, some.min(), middle - 1))


@component
class _Part:
    pieces: list[Delta] = field(default_factory=list)
    fields: set[str] = field(default_factory=set)
    size: int = FIELD_BITS_BYTES
    members: int = 0
    containers: int = 0
    sets: int = 0

    def has_room(self, piece: _Piece, body_bytes_max: int) -> bool:
        """Two pieces of one ledger's acks never share a part: their union has no bound by
        theirs.
        """
        if self.pieces and piece.delta.acks.keys() & self.pieces[-1].acks.keys():
            return False
        containers = delta_containers_max(piece.delta)
        if containers and (
            self.sets >= PART_SETS_MAX or self.containers + containers > RECORD_CONTAINERS_MAX
        ):
            return False
        return (
            self._size_with(piece) <= body_bytes_max
            and self.members + delta_members(piece.delta) <= EXPANSION_MAX
        )

    def add(self, piece: _Piece) -> None:
        containers = delta_containers_max(piece.delta)
        self.size = self._size_with(piece)
        self.members += delta_members(piece.delta)
        self.containers += containers
        self.sets += containers > 0
        self.pieces.append(piece.delta)
        self.fields.add(piece.field)

    def _size_with(self, piece: _Piece) -> int:
        is_first = piece.field in COUNTED and piece.field not in self.fields
        return self.size + is_first * COUNT_BYTES_MAX + piece.size
