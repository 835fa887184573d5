"""PositionInfo, the entry of a Pulsar cursor ledger: one whole state of a cursor (`MLDataFormats.PositionInfo`)."""

from __future__ import annotations

from cursorkeeper.format.pulsar.values import Form, PositionInfo


def encode(info: PositionInfo, form: Form) -> bytes:
    """Byte for byte what Pulsar writes for this state. Raises ValueError: crossing ranges in long arrays."""
    raise NotImplementedError


def encoded_bytes(info: PositionInfo, form: Form) -> int:
    """`len(encode(info, form))`, without building it."""
    raise NotImplementedError


def decode(data: bytes) -> PositionInfo:
    """The state. Raises PulsarFormatError (damage) and TooNewError (acks in a field this release does not know)."""
    return decode_with_notes(data)[0]


def decode_with_notes(data: bytes) -> tuple[PositionInfo, tuple[str, ...]]:
    """The state, and what was odd but harmless about its bytes, for people. Raises as `decode`."""
    raise NotImplementedError
