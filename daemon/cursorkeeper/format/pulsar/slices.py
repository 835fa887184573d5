"""Whether an entry is the continuation of the one before: the question that a raw PIP-381 slice
poses.

A slice carries no mark of its own and can begin with any byte, so now and then one reads like a
whole state (it may begin with the content of a long array, `08 ledger 10 word`). It is told from a
state by what stands before it: a slice goes on exactly where the earlier slices were cut, inside of
a field. Only uncompressed states can be told so; compressed slices do not read like anything.
"""

from __future__ import annotations

from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.messages import POSITION_INFO
from cursorkeeper.format.pulsar.wire import CutOffError, Kind, Known, Message, read_varint


def is_beginning(data: bytes, boundary: int) -> bool:
    """Whether `data` is a state as Pulsar writes it, or the beginning of one, going through
    `boundary` inside of a field. Fields before that one are not looked into.
    """
    pos = last = 0
    crossed = False
    while pos < len(data):
        try:
            tag, start = read_varint(data, pos, len(data))
            known = _known(tag, POSITION_INFO)
            if tag < last or (known is None and tag >> 3 <= max(POSITION_INFO.fields)):
                return False
            if tag == last and known is not None and not known.is_many:
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
            if (
                known is not None
                and isinstance(known.of, Message)
                and (pos < boundary or end > len(data))
                and not _fits(data, body, end, known.of)
            ):
                return False
        pos = end
    return crossed


def _known(tag: int, message: Message) -> Known | None:
    """The field with that number and wire type."""
    known = message.fields.get(tag >> 3)
    return known if known is not None and known.kind == tag & 7 else None


def _fits(data: bytes, pos: int, end: int, message: Message) -> bool:
    """Whether the bytes from `pos` on are such a message, as far as there are bytes. `end` may lie
    beyond them.
    """
    stop, last = min(end, len(data)), 0
    while pos < stop:
        try:
            tag, body = read_varint(data, pos, stop)
            known = _known(tag, message)
            if known is None or tag < last or (tag == last and not known.is_many):
                return False
            length, body = read_varint(data, body, stop)
        except CutOffError:
            return end > stop
        except PulsarFormatError:
            return False
        last = tag
        pos = body
        if known.kind is Kind.LEN:
            pos += length
            if pos > end or (
                isinstance(known.of, Message) and not _fits(data, body, pos, known.of)
            ):
                return False
    return True
