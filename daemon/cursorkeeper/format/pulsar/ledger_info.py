"""ManagedLedgerInfo, the topic znode: which data ledgers there are, in which order, how many
entries each has.

What a cursor has no use for (offload contexts, properties of a ledger) is kept verbatim, so that
re-writing a topic znode loses nothing.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError, too_new
from cursorkeeper.format.pulsar.messages import TOPIC_INFO
from cursorkeeper.format.pulsar.values import Compression, ManagedLedgerInfo
from cursorkeeper.format.pulsar.wire import read, write

VALUE_BYTES_MAX: Final = 64 << 20
"""A topic znode is never expanded beyond this."""


def encode(
    info: ManagedLedgerInfo, compression: Compression = Compression.NONE, threshold: int = 0
) -> bytes:
    """The znode's value; with PIP-146's header if compression is not NONE and the message is longer
    than `threshold` bytes.
    """
    values = (info.ledgers, info.terminated, info.properties.items(), info.unknown)
    return cursor_info.wrap(bytes(write(TOPIC_INFO, values)), compression, threshold)


def decode(value: bytes, *, limit_bytes: int = VALUE_BYTES_MAX) -> ManagedLedgerInfo:
    """Of the znode's value, compressed or not. Raises PulsarFormatError, TooNewError."""
    raw, _ = cursor_info.unwrap(value, limit_bytes=limit_bytes)
    newer: list[str] = []
    ledgers, terminated, properties, unknown = read(raw, 0, len(raw), TOPIC_INFO, newer)
    for each in ledgers:
        if each.ledger < 0 or (each.entries or 0) < 0:
            raise PulsarFormatError(f"data ledger {each.ledger} with {each.entries} entries")
    if newer:
        raise too_new("; ".join(newer[:3]))
    return ManagedLedgerInfo(tuple(ledgers), terminated, dict(properties), unknown)
