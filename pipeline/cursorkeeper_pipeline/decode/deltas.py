"""Delta records as rows of the table `deltas`. Pure.

Owns what a record becomes: a row for each range of acks, each move of mark-delete, each partly acked batch, each property map and each
layout item; and a row for each record that cannot be read, so that a gap in the history is told. Records are checked many at once and
one by one only where one of them is damaged; ranges are taken from bitmaps and joined to columns by numpy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from cursorkeeper.core.bitmaps import to_column
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.values import Delta, LayoutState
from cursorkeeper.format import delta, record, replay
from cursorkeeper.format.record import Kind
from cursorkeeper_clients.bookkeeper.errors import GatewayError
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper_pipeline import schemas

I64 = NDArray[np.int64]
KINDS: Final = ("ack", "mark_delete", "partial", "properties", "layout", "damaged", "too_new", "missing")
ACK, MARK_DELETE, PARTIAL, PROPERTIES, LAYOUT, DAMAGED, TOO_NEW, MISSING = range(len(KINDS))
BATCH_ROWS: Final = 65_536
NOWHERE: Final = -1
"""A ledger that is not said, in `Piece`; a ledger or an entry that is not known, in rows of what cannot be read."""


class Where(NamedTuple):
    """What all records of one cursor ledger share. `created_us`: since 1970."""

    cursor_key: int
    bk_ledger: int
    created_us: int
    footer_version: int


class Head(NamedTuple):
    """Of one record."""

    entry: int
    sequence: int
    epoch: int
    generation: int


class Piece(NamedTuple):
    """Rows of one record that differ in nothing but `first` and `last`. `ledger` NOWHERE: it and the entries are null."""

    where: Where
    head: Head
    kind: int
    ledger: int
    first: I64
    last: I64


_NOTHING: Final = np.array([NOWHERE], np.int64)


def runs(entries: BitMap) -> tuple[I64, I64]:
    """First and last of every maximal run, ascending. Costs what there are runs, not what there are entries."""
    edges = to_column(entries ^ entries.shift(1)).astype(np.int64)
    if edges.size % 2:  # the last run ends at the largest entry there can be: its edge is shifted out
        edges = np.append(edges, np.int64(1 << 32))
    return edges[::2], edges[1::2] - 1


def pieces(where: Where, head: Head, found: Delta) -> Iterator[Piece]:
    """What one delta says."""
    for ledger, entries in found.acks.items():
        first, last = runs(entries)
        for start in range(0, first.size, BATCH_ROWS):
            yield Piece(where, head, ACK, ledger, first[start : start + BATCH_ROWS], last[start : start + BATCH_ROWS])
    if found.mark_delete is not None:
        at = np.array([found.mark_delete.entry], np.int64)
        yield Piece(where, head, MARK_DELETE, found.mark_delete.ledger, at, at)
    for key in found.partials:
        at = np.array([key.entry], np.int64)
        yield Piece(where, head, PARTIAL, key.ledger, at, at)
    for properties in (found.mark_delete_properties, found.cursor_properties):
        if properties is not None:
            yield unsaid(where, head, PROPERTIES)
    for item in found.layout:
        # an open or trimmed ledger holds nobody knows how many entries: 0..-1
        last_entry = item.entries - 1 if item.state is LayoutState.CLOSED else NOWHERE
        yield Piece(where, head, LAYOUT, item.ledger, np.zeros(1, np.int64), np.array([last_entry], np.int64))


def unsaid(where: Where, head: Head, kind: int) -> Piece:
    """A row without a place in the topic."""
    return Piece(where, head, kind, NOWHERE, _NOTHING, _NOTHING)


def unreadable(where: Where, entry: int, error: DamageError | GatewayError) -> Piece:
    """A record that cannot be read."""
    return unsaid(where, Head(entry, 0, 0, 0), TOO_NEW if isinstance(error, TooNewError) else DAMAGED)


class Unreadable(Exception):
    """Where damage must not become a row: the first record that cannot be read."""

    def __init__(self, ledger: int, entry: int, error: DamageError | GatewayError) -> None:
        super().__init__(f"ledger {ledger} entry {entry}: {error}")
        self.error = error


def read(where: Where, records: Sequence[tuple[int, bytes | GatewayError]], cursor_hash: int, *, strict: bool = False) -> list[Piece]:
    """The pieces of consecutive entries of one ledger; what is no delta is checked and left out. Raises Unreadable if `strict`."""
    found: list[Piece] = []
    payloads = [payload for _, payload in records if not isinstance(payload, GatewayError)]
    if len(payloads) == len(records):
        try:
            batch = replay.split_bodies(payloads, cursor_hash)
            for at in np.flatnonzero(batch.kind == Kind.DELTA).tolist():
                head = Head(records[at][0], int(batch.sequence[at]), int(batch.epoch[at]), int(batch.generation[at]))
                found += pieces(where, head, delta.decode(batch.bodies[at]))
            return found
        except DamageError:
            found.clear()  # which of them, and what the others say, is found one by one
    for entry, payload in records:
        try:
            if isinstance(payload, GatewayError):
                raise payload
            header, body = record.split_body(payload, cursor_hash)
            if header.kind is Kind.DELTA:
                found += pieces(where, Head(entry, header.sequence, header.epoch, header.generation), delta.decode(body))
        except (DamageError, GatewayError) as error:
            if strict:
                raise Unreadable(where.bk_ledger, entry, error) from error
            found.append(unreadable(where, entry, error))
    return found


class Rows:
    """Pieces on their way into batches of about `BATCH_ROWS` rows. Invariant: holds less than two batches after `full`."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._count = 0

    def add(self, found: Iterable[Piece]) -> None:
        """More."""
        for piece in found:
            self._pieces.append(piece)
            self._count += piece.first.size

    def full(self) -> Iterator[pa.RecordBatch]:
        """Batches as long as there is enough for one."""
        while self._count >= BATCH_ROWS:
            yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All that is left."""
        while self._pieces:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        taken: list[Piece] = []
        size = 0
        while self._pieces and (not taken or size + self._pieces[0].first.size <= BATCH_ROWS):
            taken.append(self._pieces.popleft())
            size += taken[-1].first.size
        self._count -= size
        return batch_of(taken)


def batch_of(found: Sequence[Piece]) -> pa.RecordBatch:
    """The rows of these pieces, in their order."""
    counts = np.array([piece.first.size for piece in found], np.int64)
    size = int(counts.sum())

    def column(values: Iterable[int]) -> I64:
        return np.repeat(np.fromiter(values, np.int64, len(found)), counts)

    def entries(part: Iterable[I64]) -> pa.Array:
        return pa.array(np.concatenate(list(part)) if found else np.empty(0, np.int64), pa.int64(), mask=is_unsaid)

    ledger = column(p.ledger for p in found)
    is_unsaid = ledger == NOWHERE
    moment = schemas.DELTAS.field("ledger_created").type
    kind = pa.array(KINDS, pa.string()).take(pa.array(column(p.kind for p in found)))
    arrays = [
        pa.array(column(p.where.cursor_key for p in found)),
        pa.array(column(p.where.bk_ledger for p in found)),
        pa.array(column(p.head.entry for p in found)),
        pa.array(column(p.head.sequence for p in found)),
        pa.array(column(p.head.epoch for p in found)),
        pa.array(column(p.head.generation for p in found)),
        pa.array(column(p.where.created_us for p in found)).cast(moment),
        pa.nulls(size, moment),
        kind,
        pa.array(ledger, pa.int64(), mask=is_unsaid),
        entries(p.first for p in found),
        entries(p.last for p in found),
        pa.array(column(p.where.footer_version for p in found).astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schemas.DELTAS)
