"""What Pulsar's messages say, as values: the cursor-ledger entry, the cursor znode, the topic
znode.

Owns the vocabulary, not the bytes. Polarity is fixed here once: `acked` bitmaps hold acked entries,
`batches` hold the batch indexes that are still *un-acked* (as Pulsar's `deleteSet` does, in spite
of its name). Bitmaps in a value are never mutated. Only entries above `mark_delete` are in `acked`
and `batches`; what an older writer put below it is dropped when the bytes are read, because it is
acked anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import PartialKey


class Form(StrEnum):
    """How individually acked entries are written. Pulsar's reader takes ranges if there are any,
    else long arrays.
    """

    RANGES = "ranges"
    LONG_ARRAY = "longArray"


class Compression(IntEnum):
    """`MLDataFormats.CompressionType`, by Pulsar's numbers and names."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class CrossingRange(NamedTuple):
    """A range `(lower, upper]` whose ends lie in different ledgers. Old Pulsar versions wrote them
    (#7554); only the topic's layout says how many entries of each ledger it covers.
    """

    lower: Position
    upper: Position


@frozen
class PositionInfo:
    """One state as a cursor-ledger entry holds it. `acked` maps data ledger -> acked entry ids
    (never an empty bitmap, keys ascending); `batches` maps an entry -> un-acked batch indexes
    (never empty); `properties` are the mark-delete properties; `unknown` = the fields of newer
    versions, verbatim, in their order. `form` is None where nothing is acked individually.
    """

    mark_delete: Position
    acked: Mapping[int, BitMap] = field(default_factory=dict)
    batches: Mapping[PartialKey, BitMap] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    crossing: tuple[CrossingRange, ...] = ()
    form: Form | None = None
    unknown: bytes = b""


@frozen
class ManagedCursorInfo:
    """The cursor znode. `cursors_ledger == -1`: the state is in this message; else it is in the
    last entry of that ledger, and `mark_delete` is only a lower bound. Acked entries are always
    ranges here.
    """

    cursors_ledger: int
    mark_delete: Position | None = None
    acked: Mapping[int, BitMap] = field(default_factory=dict)
    batches: Mapping[PartialKey, BitMap] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    crossing: tuple[CrossingRange, ...] = ()
    last_active_ms: int | None = None
    unknown: bytes = b""

    @property
    def is_inline(self) -> bool:
        """Whether the znode holds the state itself."""
        return self.cursors_ledger == -1


class LedgerInfo(NamedTuple):
    """One data ledger of a topic. `entries` and `size` are 0 or absent (None) while the ledger is
    open. `unknown` = every other field, verbatim (offload context, properties).
    """

    ledger: int
    entries: int | None = None
    size_bytes: int | None = None
    timestamp_ms: int | None = None
    unknown: bytes = b""


@frozen
class ManagedLedgerInfo:
    """The topic znode: the layout of the topic's data ledgers, ascending."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    unknown: bytes = b""
