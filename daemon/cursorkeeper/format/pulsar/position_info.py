"""PositionInfo, the entry of a Pulsar cursor ledger: one whole state of a cursor
(`MLDataFormats.PositionInfo`).

Owns the message as a whole: which field is what, in which order Pulsar writes them, and that
unknown fields come back verbatim at the end. Reading is strict about damage and newer writers
(errors), lenient about legal oddities (`notes`, which are for people). A reader prefers ranges when
a message has ranges and long arrays, because Pulsar's does: such a message says less than it holds,
and the notes say so.

Memory: encoding holds its output twice (pieces, and the joined bytes); decoding holds one piece
beside the result.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.format.pulsar import acks, batches, long_array, ranges
from cursorkeeper.format.pulsar.acks import AcksReader, Message
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.format.pulsar.wire import Kind, append_number, varint_bytes

LEDGER, ENTRY, RANGES, PROPERTIES, BATCHES, LONG_ARRAYS, IDLE_SINCE = range(1, 8)
"""Field numbers. 7 is `idleSince` (a number, Pulsar 5.0.1), kept as unknown; a fork's
`cursorStateChunk` if it is bytes.
"""
_MESSAGE: Final = Message(
    "PositionInfo", {LEDGER: "ledgerId", ENTRY: "entryId"}, RANGES, PROPERTIES, BATCHES
)


def encode(info: PositionInfo, form: Form) -> bytes:
    """Byte for byte what Pulsar writes for this state. Raises ValueError: crossing ranges in long
    arrays, an impossible position.
    """
    _check(info, form)
    head = bytearray()
    append_number(head, LEDGER, info.mark_delete.ledger)
    append_number(head, ENTRY, info.mark_delete.entry)
    middle = bytearray()
    acks.append_number_properties(middle, PROPERTIES, info.properties)
    batches.encode(middle, BATCHES, info.batches)
    if form is Form.RANGES:
        written = ranges.encode(RANGES, info.acked, info.crossing)
        return b"".join([head, *written, middle, info.unknown])
    return b"".join([head, middle, *long_array.encode(LONG_ARRAYS, info.acked), info.unknown])


def _check(info: PositionInfo, form: Form) -> None:
    if info.crossing and form is Form.LONG_ARRAY:
        raise ValueError(
            "ranges across ledgers have no long array: resolve them with the topic's layout, or "
            "write ranges"
        )
    if info.mark_delete.ledger < 0 or not -1 <= info.mark_delete.entry <= ENTRY_ID_MAX:
        raise ValueError(f"mark-delete {info.mark_delete} is no position")
    if any(ledger < 0 for ledger in info.acked):
        raise ValueError("a negative ledger id")


def encoded_bytes(info: PositionInfo, form: Form) -> int:
    """`len(encode(info, form))`, without building it. Raises as `encode`."""
    _check(info, form)
    total = (
        2
        + varint_bytes(info.mark_delete.ledger)
        + varint_bytes(info.mark_delete.entry)
        + len(info.unknown)
    )
    total += acks.number_properties_bytes(info.properties) + batches.encoded_bytes(info.batches)
    if form is Form.RANGES:
        return total + ranges.encoded_bytes(info.acked, info.crossing)
    return total + long_array.encoded_bytes(LONG_ARRAYS, info.acked)


def decode(data: bytes) -> PositionInfo:
    """The state. Raises PulsarFormatError (damage) and TooNewError (acks in a field this release
    does not know).
    """
    return decode_with_notes(data)[0]


def decode_with_notes(data: bytes) -> tuple[PositionInfo, tuple[str, ...]]:
    """The state, and what was odd but harmless about its bytes, for people. Raises as `decode`."""
    reader = AcksReader(data, _MESSAGE)
    for field in reader.others():
        if field.number == LONG_ARRAYS:
            reader.take_long_array(field)
            continue
        if field.number == IDLE_SINCE and field.kind == Kind.LEN:
            reader.newer.append("a part of a state (field 7, cursorStateChunk)")
        reader.keep(field)
    at = acks.checked_mark_delete(
        reader.numbers.required("ledgerId"), reader.numbers.required("entryId")
    )
    found = reader.finish(at)
    info = PositionInfo(
        at,
        found.acked,
        found.batches,
        reader.properties,
        found.crossing,
        found.form,
        bytes(reader.unknown),
    )
    return info, tuple(reader.notes)
