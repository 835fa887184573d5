"""Whether an entry is the continuation of the one before: the question that a raw PIP-381 slice
poses.

A slice carries no mark of its own and can begin with any byte, so now and then one reads like a
whole state (it may begin with the content of a long array, `08 ledger 10 word`). It is told from a
state by what stands before it: a slice goes on exactly where the earlier slices were cut, inside of
a field. Only uncompressed states can be told so; compressed slices do not read like anything.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.wire import CutOffError, Kind, read_varint

_Message = dict[int, "_Message | None"]
"""Tag of each field that Pulsar writes -> the message in it (None: a number, or bytes)."""

_POSITION: Final[_Message] = {0x08: None, 0x10: None}
_RANGE: Final[_Message] = {0x0A: _POSITION, 0x12: _POSITION}
_PROPERTY: Final[_Message] = {0x0A: None, 0x10: None}
_BATCH: Final[_Message] = {0x0A: _POSITION, 0x10: None}
_LONGS: Final[_Message] = {0x08: None, 0x10: None}
_STATE: Final[_Message] = {
    0x08: None,
    0x10: None,
    0x1A: _RANGE,
    0x22: _PROPERTY,
    0x2A: _BATCH,
    0x32: _LONGS,
}
_REPEATING: Final = (_LONGS, _BATCH)
"""Their field 2 is there once per word; every other nested field once."""
_FIRST_UNKNOWN_TAG: Final = 7 << 3


def is_beginning(data: bytes, boundary: int) -> bool:
    """Whether `data` is a state as Pulsar writes it, or the beginning of one, going through
    `boundary` inside of a field. Fields before that one are not looked into.
    """
    pos = last = 0
    crossed = False
    while pos < len(data):
        try:
            tag, start = read_varint(data, pos, len(data))
            if (
                tag < last
                or (tag == last and tag in _POSITION)
                or (tag < _FIRST_UNKNOWN_TAG and tag not in _STATE)
            ):
                return False
            if pos == 0 and tag != 0x08:
                return False
            length, body = read_varint(data, start, len(data))
        except CutOffError:
            return crossed or pos < boundary
        except PulsarFormatError:
            return False
        last = tag
        if tag & 7 == Kind.VARINT:
            end = body
        elif tag & 7 == Kind.LEN:
            end = body + length
        else:
            return False
        if end > boundary:
            if pos == boundary and not crossed:
                # the slices before end with a field: what follows begins with one of its own
                return False
            crossed = True
            message = _STATE.get(tag)
            if (
                message is not None
                and (pos < boundary or end > len(data))
                and not _fits(data, body, end, message)
            ):
                return False
        pos = end
    return crossed


def _fits(data: bytes, pos: int, end: int, message: _Message) -> bool:
    """Whether the bytes from `pos` on are such a message, as far as there are bytes. `end` may lie
    beyond them.
    """
    stop, last = min(end, len(data)), 0
    while pos < stop:
        try:
            tag, body = read_varint(data, pos, stop)
            if (
                tag not in message
                or tag < last
                or (
                    tag == last
                    and not (tag == 0x10 and any(message is each for each in _REPEATING))
                )
            ):
                return False
            length, body = read_varint(data, body, stop)
        except CutOffError:
            return end > stop
        except PulsarFormatError:
            return False
        last = tag
        pos = body
        if tag & 7 == Kind.LEN:
            pos += length
            inner = message[tag]
            if pos > end or (inner is not None and not _fits(data, body, pos, inner)):
                return False
    return True
