"""PositionInfo, the entry of a Pulsar cursor ledger: one whole state of a cursor
(`MLDataFormats.PositionInfo`).

Owns the message as a whole: in which order its parts are written, and that unknown fields come back
verbatim at the end. Reading is strict about damage and newer writers
(errors), lenient about legal oddities (`notes`, which are for people). A reader prefers ranges when
a message has ranges and long arrays, because Pulsar's does: such a message says less than it holds,
and the notes say so.

Memory: encoding holds its output twice (pieces, and the joined bytes); decoding holds one piece
beside the result.
"""

from __future__ import annotations

from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.format.pulsar import acks, batches, long_array, ranges
from cursorkeeper.format.pulsar.acks import AcksReader
from cursorkeeper.format.pulsar.messages import POSITION_INFO
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.format.pulsar.wire import Kind, fields, write

RANGES, BATCHES, LONG_ARRAYS, IDLE_SINCE = 3, 5, 6, 7


class Writing:
    """A state in one form: its size, and its bytes, for which alone the acked entries are encoded.
    Raises ValueError: crossing ranges in long arrays, an impossible position.
    """

    def __init__(self, info: PositionInfo, form: Form) -> None:
        if info.crossing and form is Form.LONG_ARRAY:
            raise ValueError(
                "ranges across ledgers have no long array: resolve them with the topic's layout, "
                "or write ranges"
            )
        if info.mark_delete.ledger < 0 or not -1 <= info.mark_delete.entry <= ENTRY_ID_MAX:
            raise ValueError(f"mark-delete {info.mark_delete} is no position")
        if any(ledger < 0 for ledger in info.acked):
            raise ValueError("a negative ledger id")
        self._info, self._form = info, form
        others = (None, None, None, info.properties.items(), batches.rows(info.batches))
        self._head, self._middle = (
            write(POSITION_INFO, info.mark_delete),
            write(POSITION_INFO, others),
        )

    def size(self) -> int:
        """In bytes, of what `join` gives; nothing is written for it."""
        info = self._info
        acked = (
            ranges.encoded_bytes(info.acked, info.crossing)
            if self._form is Form.RANGES
            else long_array.encoded_bytes(LONG_ARRAYS, info.acked)
        )
        return len(self._head) + len(self._middle) + acked + len(info.unknown)

    def join(self) -> bytes:
        """Byte for byte what Pulsar writes for this state."""
        info = self._info
        if self._form is Form.RANGES:
            acked = ranges.encode(RANGES, info.acked, info.crossing)
            return b"".join([self._head, *acked, self._middle, info.unknown])
        arrays = long_array.encode(LONG_ARRAYS, info.acked)
        return b"".join([self._head, self._middle, *arrays, info.unknown])


def encode(info: PositionInfo, form: Form) -> bytes:
    """Byte for byte what Pulsar writes for this state. Raises ValueError as `Writing`."""
    return Writing(info, form).join()


def encoded_bytes(info: PositionInfo, form: Form) -> int:
    """`len(encode(info, form))`, without building it. Raises as `encode`."""
    return Writing(info, form).size()


def decode(data: bytes) -> PositionInfo:
    """The state. Raises PulsarFormatError (damage) and TooNewError (acks in a field this release
    does not know).
    """
    return decode_with_notes(data)[0]


def decode_with_notes(data: bytes) -> tuple[PositionInfo, tuple[str, ...]]:
    """The state, and what was odd but harmless about its bytes, for people. Raises as `decode`."""
    reader = AcksReader(data, POSITION_INFO, RANGES, BATCHES, LONG_ARRAYS)
    ledger, entry, _, properties, _, _, unknown = reader.rest.values()
    at = acks.checked_mark_delete(ledger, entry)
    if any(field[:2] == (IDLE_SINCE, Kind.LEN) for field in fields(unknown, 0, len(unknown))):
        reader.newer.append("a part of a state (field 7, cursorStateChunk)")
    found = reader.finish(at)
    info = PositionInfo(
        at,
        found.acked,
        found.batches,
        dict(properties),
        found.crossing,
        found.form,
        unknown,
    )
    return info, tuple(reader.notes)
