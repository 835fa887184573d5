"""Pulsar's messages (`MLDataFormats`), each field said once: what is read, what is written, and
what a slice of a state can look like.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar.values import CrossingRange, LedgerInfo
from cursorkeeper.format.pulsar.wire import Known, Message


def _row(*values: object) -> tuple[object, ...]:
    return values


POSITION: Final = Message(
    "NestedPositionInfo", Position, {1: Known("ledgerId"), 2: Known("entryId")}
)
RANGE: Final = Message(
    "MessageRange",
    CrossingRange,
    {1: Known("lowerEndpoint", POSITION), 2: Known("upperEndpoint", POSITION)},
)
LONG_PROPERTY: Final = Message("LongProperty", _row, {1: Known("name", "text"), 2: Known("value")})
STRING_PROPERTY: Final = Message(
    "StringProperty", _row, {1: Known("name", "text"), 2: Known("value", "text")}
)
BATCH: Final = Message(
    "BatchedEntryDeletionIndexInfo",
    _row,
    {1: Known("position", POSITION), 2: Known("deleteSet", "word", is_many=True)},
)
LONG_ARRAY: Final = Message(
    "LongListMap", _row, {1: Known("key"), 2: Known("values", "word", is_many=True)}
)

POSITION_INFO: Final = Message(
    "PositionInfo",
    _row,
    {
        1: Known("ledgerId"),
        2: Known("entryId"),
        3: Known("individualDeletedMessages", RANGE, is_many=True),
        4: Known("properties", LONG_PROPERTY, is_many=True),
        5: Known("batchedEntryDeletionIndexInfo", BATCH, is_many=True),
        6: Known("individualDeletedMessageRanges", LONG_ARRAY, is_many=True),
    },
    keeps=True,
)
"""The entry of a cursor ledger. 7 is `idleSince` (a number, Pulsar 5.0.1), kept as unknown; a
fork's `cursorStateChunk` if it is bytes.
"""
CURSOR_INFO: Final = Message(
    "ManagedCursorInfo",
    _row,
    {
        1: Known("cursorsLedgerId"),
        2: Known("markDeleteLedgerId", is_optional=True),
        3: Known("markDeleteEntryId", is_optional=True),
        4: Known("individualDeletedMessages", RANGE, is_many=True),
        5: Known("properties", LONG_PROPERTY, is_many=True),
        6: Known("lastActive", is_optional=True),
        7: Known("batchedEntryDeletionIndexInfo", BATCH, is_many=True),
        8: Known("cursorProperties", STRING_PROPERTY, is_many=True),
    },
    keeps=True,
)
"""The cursor znode. 9 is `idleSince` since Pulsar 5.0.1, kept as unknown."""
LEDGER_INFO: Final = Message(
    "LedgerInfo",
    LedgerInfo,
    {
        1: Known("ledgerId"),
        2: Known("entries", is_optional=True),
        3: Known("size", is_optional=True),
        4: Known("timestamp", is_optional=True),
    },
    keeps=True,
)
TOPIC_INFO: Final = Message(
    "ManagedLedgerInfo",
    _row,
    {
        1: Known("ledgerInfo", LEDGER_INFO, is_many=True),
        2: Known("terminatedPosition", POSITION, is_optional=True),
        3: Known("properties", STRING_PROPERTY, is_many=True),
    },
    keeps=True,
)
COMPRESSION_HEADER: Final = Message(
    "the compression header", _row, {1: Known("compressionType"), 2: Known("uncompressedSize")}
)
"""What PIP-146 puts in front of a znode's message."""
