"""MessageRange lists: `(lower, upper]` of one ledger each, as columns.

A range as Pulsar writes it is exactly fourteen varints, tags and lengths included: `tag L | 0a l |
08 ledger | 10 entry | 12 l | 08 ledger | 10 entry`. So a list is a matrix of varints with fourteen
columns, of which seven are constants and three follow from the others; rows that fit are taken at
once, others one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, Position
from cursorkeeper.format.pulsar import varints
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.messages import RANGE
from cursorkeeper.format.pulsar.values import CrossingRange
from cursorkeeper.format.pulsar.varints import Bytes, Places
from cursorkeeper.format.pulsar.wire import Field, Kind, expect, read

_COLUMNS: Final = 14
_CONSTANTS: Final = ((2, 0x0A), (4, 0x08), (6, 0x10), (8, 0x12), (10, 0x08), (12, 0x10))
_LENGTHS: Final = ((1, 13), (3, 7), (9, 13))
"""Column of a length, and the last column it counts."""
_PIECE_BYTES: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16

Columns = tuple[Places, Places, Places]
"""Ledger, lower entry, upper entry."""


class RangeReader:
    """Collects the ranges of one message. `result` says what they cover."""

    def __init__(self, data: bytes, number: int, newer: list[str]) -> None:
        self._data, self._tag, self._newer = data, number << 3 | Kind.LEN, newer
        self._view = np.frombuffer(data, np.uint8)
        self._columns: list[Columns] = []
        self._crossing: list[CrossingRange] = []
        self._singles: list[tuple[int, int, int, int]] = []
        self._is_plain = True
        self._spanned = 0
        self.count = 0
        self.empty = 0

    def take(self, pos: int, end: int) -> int:
        """As many ranges from `pos` on as are written Pulsar's way, up to the first that is not;
        the place after them. All that follow are `add`ed: looking at a piece for each costs more.
        """
        while self._is_plain and pos < end and self._data[pos] == self._tag:
            pos += self._matrix(self._view[pos : min(end, pos + _PIECE_BYTES)])
        return pos

    def _matrix(self, piece: Bytes) -> int:
        """Takes rows from the beginning of the piece; their bytes."""
        ends = varints.ends_of(piece)
        rows = ends.size // _COLUMNS
        last = ends[: rows * _COLUMNS].reshape(rows, _COLUMNS)
        begin = np.concatenate([[0], last[:-1, 13] + 1])[:rows]
        good = piece[begin] == self._tag
        for column, tag in _CONSTANTS:
            good &= piece[last[:, column - 1] + 1] == tag
        for column, stop in _LENGTHS:
            length = last[:, stop] - last[:, column]
            good &= (piece[last[:, column]] == length) & (
                last[:, column] == last[:, column - 1] + 1
            )
        if not rows or not good.all():
            self._is_plain = False
            last = last[: int(np.argmin(good)) if rows else 0]
            if not last.size:
                return 0
        spare = varints.padded(piece[: int(last[-1, 13]) + 1])
        ledger, lower, upper_ledger, upper = (
            varints.read(spare, last[:, column - 1] + 1, last[:, column]).view(np.int64)
            for column in (5, 7, 11, 13)
        )
        self.count += len(last)
        self._check(ledger, lower, upper_ledger, upper)
        return int(last[-1, 13]) + 1

    def add(self, field: Field) -> None:
        """One range, however it is written."""
        expect(field, Kind.LEN, "a range")
        lower, upper = read(self._data, field.start, field.end, RANGE, self._newer)
        self.count += 1
        self._singles.append((*lower, *upper))

    def _check_singles(self) -> None:
        if self._singles:
            self._check(*np.array(self._singles, np.int64).T)
            self._singles = []

    def _check(self, ledger: Places, lower: Places, upper_ledger: Places, upper: Places) -> None:
        crossing = ledger != upper_ledger
        bad = (
            (ledger < 0)
            | (lower < BEFORE_FIRST)
            | (upper < BEFORE_FIRST)
            | (lower > ENTRY_ID_MAX)
            | (upper > ENTRY_ID_MAX)
        )
        bad |= (ledger > upper_ledger) | (~crossing & (lower > upper))
        if bad.any():
            at = int(np.argmax(bad))
            said = f"({ledger[at]}:{lower[at]}, {upper_ledger[at]}:{upper[at]}]"
            if max(lower[at], upper[at]) > ENTRY_ID_MAX:
                raise PulsarFormatError(
                    f"the range {said} has an entry above {ENTRY_ID_MAX}, which this release "
                    f"cannot hold"
                )
            raise PulsarFormatError(
                f"the range {said} is none: its ends are out of order or negative"
            )
        if crossing.any():
            for at in np.flatnonzero(crossing).tolist():
                self._crossing.append(
                    CrossingRange(
                        Position(int(ledger[at]), int(lower[at])),
                        Position(int(upper_ledger[at]), int(upper[at])),
                    )
                )
            ledger, lower, upper = ledger[~crossing], lower[~crossing], upper[~crossing]
        self._spanned += int(((upper >> 16) - ((lower + 1) >> 16)).sum())
        if self._spanned > containers.SPANNED_CONTAINERS_MAX:
            raise PulsarFormatError(
                f"ranges over more than "
                f"{containers.SPANNED_CONTAINERS_MAX * containers.CONTAINER_VALUES:,} entries"
            )
        self._columns.append((ledger, lower, upper))

    def result(self) -> tuple[dict[int, BitMap], tuple[CrossingRange, ...]]:
        """Acked entries per ledger (ascending, none empty), and the ranges that only the topic's
        layout can tell. Raises PulsarFormatError.
        """
        self._check_singles()
        if not self._columns:
            return {}, tuple(self._crossing)
        ledger, lower, upper = (np.concatenate(parts) for parts in zip(*self._columns, strict=True))
        covered = lower < upper
        if not covered.all():
            self.empty = int(np.count_nonzero(~covered))
            ledger, lower, upper = ledger[covered], lower[covered], upper[covered]
        if np.any(ledger[1:] < ledger[:-1]):
            order = np.argsort(ledger, kind="stable")
            ledger, lower, upper = ledger[order], lower[order], upper[order]
        bounds = [0, *(np.flatnonzero(ledger[1:] != ledger[:-1]) + 1).tolist(), ledger.size]
        acked = {
            int(ledger[first]): containers.from_runs(lower[first:stop] + 1, upper[first:stop])
            for first, stop in pairwise(bounds)
            if stop > first
        }
        return acked, tuple(self._crossing)


# ---- writing


def encode(
    number: int, acked: Mapping[int, BitMap], crossing: Sequence[CrossingRange] = ()
) -> Iterator[bytes]:
    """All ranges in the order of their positions, in pieces to join."""
    for columns in _in_order(acked, crossing):
        yield _encode_rows(number << 3 | Kind.LEN, *columns)


def encoded_bytes(acked: Mapping[int, BitMap], crossing: Sequence[CrossingRange] = ()) -> int:
    """What `encode` takes, for any field number below 16."""
    return sum(int(_widths(*columns)[-1].sum()) for columns in _in_order(acked, crossing))


def count(acked: Mapping[int, BitMap]) -> int:
    """How many ranges `encode` writes, without the crossing ones: what Pulsar's limit counts."""
    return sum(len(entries - entries.shift(1)) for entries in acked.values())


Rows = tuple[Places, Places, Places, Places]
"""Lower ledger, lower entry, upper ledger, upper entry."""


def _in_order(acked: Mapping[int, BitMap], crossing: Sequence[CrossingRange]) -> Iterator[Rows]:
    left = sorted(crossing)
    pending: list[Columns] = []
    size = 0
    for ledger in sorted(acked):
        while left and left[0].lower.ledger < ledger:
            yield from _joined(pending)
            pending, size = [], 0
            yield _row_of(left.pop(0))
        for column in _columns_of(ledger, acked[ledger]):
            pending.append(column)
            size += column[0].size
            if size >= _ROWS_AT_ONCE:
                yield from _joined(pending)
                pending, size = [], 0
    yield from _joined(pending)
    yield from map(_row_of, left)


def _columns_of(ledger: int, acked: BitMap) -> Iterator[Columns]:
    starts, ends = containers.runs_of(acked)
    for first in range(0, starts.size, _ROWS_AT_ONCE):
        piece = slice(first, first + _ROWS_AT_ONCE)
        yield np.full(starts[piece].size, ledger, np.int64), starts[piece] - 1, ends[piece]


def _joined(pending: list[Columns]) -> Iterator[Rows]:
    if pending:
        ledger, lower, upper = (np.concatenate(parts) for parts in zip(*pending, strict=True))
        yield ledger, lower, ledger, upper


def _row_of(crossing: CrossingRange) -> Rows:
    a, b, c, d = (np.array([n], np.int64) for n in (*crossing.lower, *crossing.upper))
    return a, b, c, d


def _widths(*columns: Places) -> list[Places]:
    """Bytes of the four numbers of each row, and of the row."""
    sizes = [varints.sizes_of(column.view(np.uint64)) for column in columns]
    return [*sizes, 10 + sizes[0] + sizes[1] + sizes[2] + sizes[3]]


def _encode_rows(tag: int, *columns: Places) -> bytes:
    sizes = _widths(*columns)
    width = sizes.pop()
    at = np.cumsum(width) - width
    out = np.empty(int(at[-1] + width[-1]), np.uint8)
    out[at] = tag
    out[at + 1] = width - 2
    at += 2
    for inner, first in ((0x0A, 0), (0x12, 2)):
        out[at] = inner
        out[at + 1] = 2 + sizes[first] + sizes[first + 1]
        at += 2
        for key, column in ((0x08, first), (0x10, first + 1)):
            out[at] = key
            at += 1
            varints.write(out, at, columns[column].view(np.uint64), sizes[column])
            at += sizes[column]
    return out.tobytes()
