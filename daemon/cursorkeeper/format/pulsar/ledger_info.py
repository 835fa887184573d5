"""ManagedLedgerInfo, the topic znode: which data ledgers there are, in which order, how many
entries each has.

What a cursor has no use for (offload contexts, properties of a ledger) is kept verbatim, so that
re-writing a topic znode loses nothing.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import acks, batches, cursor_info
from cursorkeeper.format.pulsar.errors import PulsarFormatError, too_new
from cursorkeeper.format.pulsar.ranges import read_position
from cursorkeeper.format.pulsar.values import Compression, LedgerInfo, ManagedLedgerInfo
from cursorkeeper.format.pulsar.wire import (
    Field,
    Kind,
    Once,
    append_bytes,
    append_number,
    expect,
    fields,
)

VALUE_BYTES_MAX: Final = 64 << 20
"""A topic znode is never expanded beyond this."""

LEDGERS, TERMINATED, PROPERTIES = range(1, 4)
"""Field numbers."""
_NUMBERS: Final = {1: "ledgerId", 2: "entries", 3: "size", 4: "timestamp"}


def encode(
    info: ManagedLedgerInfo, compression: Compression = Compression.NONE, threshold: int = 0
) -> bytes:
    """The znode's value; with PIP-146's header if compression is not NONE and the message is longer
    than `threshold` bytes.
    """
    out = bytearray()
    for ledger in info.ledgers:
        content = bytearray()
        for number, value in zip(
            _NUMBERS,
            (ledger.ledger, ledger.entries, ledger.size_bytes, ledger.timestamp_ms),
            strict=True,
        ):
            if value is not None:
                append_number(content, number, value)
        content += ledger.unknown
        append_bytes(out, LEDGERS, content)
    if info.terminated is not None:
        batches.append_position(out, TERMINATED, info.terminated)
    acks.append_text_properties(out, PROPERTIES, info.properties)
    return cursor_info.wrap(bytes(out) + info.unknown, compression, threshold)


def decode(value: bytes, *, limit_bytes: int = VALUE_BYTES_MAX) -> ManagedLedgerInfo:
    """Of the znode's value, compressed or not. Raises PulsarFormatError, TooNewError."""
    raw, _ = cursor_info.unwrap(value, limit_bytes=limit_bytes)
    ledgers: list[LedgerInfo] = []
    terminated: Position | None = None
    properties: dict[str, str] = {}
    newer: list[str] = []
    unknown = bytearray()
    for field in fields(raw, 0, len(raw)):
        if field.number == LEDGERS:
            ledgers.append(_ledger(raw, field))
        elif field.number == TERMINATED:
            expect(field, Kind.LEN, "terminatedPosition")
            if terminated is not None:
                raise PulsarFormatError(f"byte {field.at}: terminatedPosition is there twice")
            terminated = read_position(raw, field.start, field.end, "terminatedPosition", newer)
        elif field.number == PROPERTIES:
            name, text = acks.read_text_property(raw, field, newer)
            properties[name] = text
        else:
            unknown += raw[field.at : field.end]
    if newer:
        raise too_new("; ".join(newer[:3]))
    return ManagedLedgerInfo(tuple(ledgers), terminated, properties, bytes(unknown))


def _ledger(raw: bytes, field: Field) -> LedgerInfo:
    expect(field, Kind.LEN, "ledgerInfo")
    numbers = Once("LedgerInfo")
    unknown = bytearray()
    for inner in fields(raw, field.start, field.end):
        if inner.number in _NUMBERS:
            numbers.put(inner, _NUMBERS[inner.number])
        else:
            unknown += raw[inner.at : inner.end]
    ledger = numbers.required("ledgerId")
    if ledger < 0 or (numbers.get("entries") or 0) < 0:
        raise PulsarFormatError(f"data ledger {ledger} with {numbers.get('entries')} entries")
    return LedgerInfo(
        ledger,
        numbers.get("entries"),
        numbers.get("size"),
        numbers.get("timestamp"),
        bytes(unknown),
    )
