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

from collections.abc import Iterator

from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.format.pulsar import acks, batches, long_array, ranges
from cursorkeeper.format.pulsar.acks import AcksReader
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.format.pulsar.wire import Kind, Once, append_number, read_field, varint_bytes

LEDGER, ENTRY, RANGES, PROPERTIES, BATCHES, LONG_ARRAYS, IDLE_SINCE = range(1, 8)
"""Field numbers. 7 is `idleSince` (a number, Pulsar 5.0.1), kept as unknown; a fork's
`cursorStateChunk` if it is bytes.
"""


def encode(info: PositionInfo, form: Form) -> bytes:
    """Byte for byte what Pulsar writes for this state. Raises ValueError: crossing ranges in long
    arrays, an impossible position.
    """
    _check(info, form)
    head = bytearray()
    _append_mark_delete(head, info.mark_delete)
    middle = bytearray()
    acks.append_number_properties(middle, PROPERTIES, info.properties)
    batches.encode(middle, BATCHES, info.batches)
    return b"".join([head, *_ranges(info, form), middle, *_long_arrays(info, form), info.unknown])


def _append_mark_delete(out: bytearray, mark_delete: Position) -> None:
    append_number(out, LEDGER, mark_delete.ledger)
    append_number(out, ENTRY, mark_delete.entry)


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


def _ranges(info: PositionInfo, form: Form) -> Iterator[bytes]:
    if form is Form.RANGES:
        yield from ranges.encode(RANGES, info.acked, info.crossing)


def _long_arrays(info: PositionInfo, form: Form) -> Iterator[bytes]:
    if form is Form.LONG_ARRAY:
        yield from long_array.encode(LONG_ARRAYS, info.acked)


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
    reader = AcksReader(data, RANGES)
    info = read_fields(data, reader)
    return info, tuple(reader.notes)


def read_fields(data: bytes, reader: AcksReader) -> PositionInfo:
    """The message through a reader (PIP-54's draft has another message in field 5, and its own
    reader).
    """
    mark_delete = Once("PositionInfo")
    properties: dict[str, int] = {}
    unknown = bytearray()
    pos, end = 0, len(data)
    while pos < end:
        pos = reader.ranges.take(pos, end)
        if pos == end:
            break
        field = read_field(data, pos, end)
        pos = field.end
        if field.number == RANGES:
            reader.ranges.add(field)
        elif field.number == LONG_ARRAYS:
            reader.take_long_array(field)
        elif field.number == BATCHES:
            reader.take_batch(field)
        elif field.number == PROPERTIES:
            name, value = acks.read_number_property(data, field, reader.newer)
            properties[name] = value
        elif field.number in (LEDGER, ENTRY):
            mark_delete.put(field, "ledgerId" if field.number == LEDGER else "entryId")
        else:
            if field.number == IDLE_SINCE and field.kind == Kind.LEN:
                reader.newer.append("a part of a state (field 7, cursorStateChunk)")
            unknown += data[field.at : field.end]
    at = acks.checked_mark_delete(mark_delete.required("ledgerId"), mark_delete.required("entryId"))
    found = reader.finish(at)
    return PositionInfo(
        at, found.acked, found.batches, properties, found.crossing, found.form, bytes(unknown)
    )
