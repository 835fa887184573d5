"""ManagedLedgerInfo, the topic znode: which data ledgers there are, in which order, how many entries each has."""

from __future__ import annotations

from cursorkeeper.format.pulsar.values import Compression, ManagedLedgerInfo

VALUE_BYTES_MAX = 64 << 20
"""A topic znode is never expanded beyond this."""


def encode(info: ManagedLedgerInfo, compression: Compression = Compression.NONE, threshold: int = 0) -> bytes:
    """The znode's value; with PIP-146's header if compression is not NONE and the message is longer than `threshold` bytes."""
    raise NotImplementedError


def decode(value: bytes, *, limit_bytes: int = VALUE_BYTES_MAX) -> ManagedLedgerInfo:
    """Of the znode's value, compressed or not. Raises PulsarFormatError, TooNewError."""
    raise NotImplementedError
