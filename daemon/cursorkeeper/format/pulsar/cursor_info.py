"""ManagedCursorInfo, the cursor znode, and the compression header in front of it (PIP-146)."""

from __future__ import annotations

from cursorkeeper.format.pulsar.values import Compression, ManagedCursorInfo, PositionInfo


def encode(info: ManagedCursorInfo) -> bytes:
    """The message, without header. Acked entries become ranges."""
    raise NotImplementedError


def decode(raw: bytes) -> ManagedCursorInfo:
    """Of the message, without header (`unwrap` first). Raises PulsarFormatError, TooNewError."""
    return decode_with_notes(raw)[0]


def decode_with_notes(raw: bytes) -> tuple[ManagedCursorInfo, tuple[str, ...]]:
    """`decode`, and what was odd but harmless."""
    raise NotImplementedError


def inline_state(info: ManagedCursorInfo) -> PositionInfo:
    """The state a znode holds itself. Raises ValueError unless `info.is_inline` with a mark-delete."""
    raise NotImplementedError


def wrap(raw: bytes, compression: Compression, threshold_bytes: int) -> bytes:
    """The znode's value: with header and payload if compression is not NONE and `raw` is longer than the threshold."""
    raise NotImplementedError


def unwrap(value: bytes, *, limit_bytes: int) -> tuple[bytes, Compression]:
    """The message and how it was compressed. Raises PulsarFormatError: a header that lies, or promises more than the limit."""
    raise NotImplementedError
