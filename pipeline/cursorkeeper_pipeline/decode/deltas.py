"""Delta records as rows of the table `deltas`. Pure.

Owns what a record becomes: a row for each range of acks, each move of mark-delete, each partly
acked batch, each property map and each layout item; and a row for each record that cannot be read,
so that a gap in the history is told. Ranges are taken from bitmaps and joined to columns by numpy.

Memory: a record of a hundred stored bytes may hold millions of ranges, so nothing here is bounded
by stored bytes: a piece is made when it is asked for, and `Piece.size_bytes` says what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.entries import as_set
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.values import Delta, LayoutState
from cursorkeeper.format import delta, record
from cursorkeeper.format.record import Kind
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import BATCH_ROWS, Column
from cursorkeeper_pipeline.decode.extents import I64, runs_in_blocks

KINDS: Final = (
    "ack",
    "mark_delete",
    "partial",
    "properties",
    "layout",
    "damaged",
    "too_new",
    "missing",
    "away",
)
ACK, MARK_DELETE, PARTIAL, PROPERTIES, LAYOUT, DAMAGED, TOO_NEW, MISSING, AWAY = range(len(KINDS))
PIECE_BYTES: Final = 384
"""About how much memory a piece takes beside its columns."""
NOWHERE: Final = -1
"""A ledger that is not said, in `Piece`; a ledger or an entry that is not known, in rows of what
cannot be read.
"""


class Where(NamedTuple):
    """What all records of one cursor ledger share. `created_us`: since 1970."""

    cursor_key: int
    bk_ledger: int
    created_us: int
    footer_version: int


class Head(NamedTuple):
    """What the rows of one record have in common."""

    entry: int
    sequence: int
    epoch: int
    generation: int


class Piece(NamedTuple):
    """Rows of one record that differ in nothing but `first` and `last`. `ledger` NOWHERE: it and
    the entries are null.
    """

    where: Where
    head: Head
    kind: int
    ledger: int
    first: I64
    last: I64

    @property
    def size_bytes(self) -> int:
        """Of memory, about."""
        return PIECE_BYTES + self.first.nbytes + self.last.nbytes


def pieces(where: Where, head: Head, found: Delta) -> Iterator[Piece]:
    """One piece for each run of acks and for everything else that the delta says."""
    for ledger, entries in found.acks.items():
        for first, last in runs_in_blocks(as_set(entries), BATCH_ROWS):
            yield Piece(where, head, ACK, ledger, first, last)
    if found.mark_delete is not None:
        at = _one(found.mark_delete.entry)
        yield Piece(where, head, MARK_DELETE, found.mark_delete.ledger, at, at)
    for key in found.partials:
        at = _one(key.entry)
        yield Piece(where, head, PARTIAL, key.ledger, at, at)
    for properties in (found.mark_delete_properties, found.cursor_properties):
        if properties is not None:
            yield unsaid(where, head, PROPERTIES)
    for item in found.layout:
        # an open or trimmed ledger holds nobody knows how many entries: 0..-1
        last_entry = item.entries - 1 if item.state is LayoutState.CLOSED else NOWHERE
        yield Piece(
            where,
            head,
            LAYOUT,
            item.ledger,
            _one(0),
            _one(last_entry),
        )


def unsaid(where: Where, head: Head, kind: int) -> Piece:
    """A row without a place in the topic."""
    return Piece(where, head, kind, NOWHERE, _one(NOWHERE), _one(NOWHERE))


def _one(value: int) -> I64:
    return np.array([value], np.int64)


def gap(where: Where, entry: int, kind: int) -> Piece:
    """What cannot be read."""
    return unsaid(where, Head(entry, 0, 0, 0), kind)


def damage(error: DamageError | GatewayError) -> int:
    """The kind of a row for what cannot be read because of this."""
    return TOO_NEW if isinstance(error, TooNewError) else DAMAGED


def read(
    where: Where, entry: int, payload: bytes | GatewayError, cursor_hash: int
) -> Iterator[Piece]:
    """The pieces of a record; none of what is no delta. Raises DamageError, GatewayError at
    once.
    """
    if not isinstance(payload, bytes):
        raise payload
    header, body = record.split_body(payload, cursor_hash)
    if header.kind is not Kind.DELTA:
        return iter(())
    head = Head(entry, header.sequence, header.epoch, header.generation)
    return pieces(where, head, delta.decode(body))


def columns(found: Sequence[Piece]) -> list[Column]:
    """Those of `schemas.DELTAS`: the rows of these pieces, in their order; one piece at least."""
    counts = np.array([piece.first.size for piece in found], np.int64)

    def column(values: Iterable[int]) -> I64:
        return np.repeat(np.fromiter(values, np.int64, len(found)), counts)

    def entries(part: Iterable[I64]) -> pa.Array:
        return pa.array(np.concatenate(list(part)), pa.int64(), mask=is_unsaid)

    ledger = column(p.ledger for p in found)
    is_unsaid = ledger == NOWHERE
    moment = schemas.DELTAS.field("ledger_created").type
    return [
        column(p.where.cursor_key for p in found),
        column(p.where.bk_ledger for p in found),
        *(np.repeat(column, counts) for column in np.array([p.head for p in found], np.int64).T),
        pa.array(column(p.where.created_us for p in found)).cast(moment),
        pa.nulls(len(ledger), moment),
        pa.array(KINDS, pa.string()).take(pa.array(column(p.kind for p in found))),
        pa.array(ledger, pa.int64(), mask=is_unsaid),
        entries(p.first for p in found),
        entries(p.last for p in found),
        column(p.where.footer_version for p in found).astype(np.int32),
    ]
