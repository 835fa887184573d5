"""Protobuf's wire format: messages read and written by their declared fields. Columns of varints
are in `varints`; which messages there are is in `messages`.

Owns what every message here shares: numbers are plain varints (no zigzag; a negative one takes ten
bytes), a known field of another wire type is damage (protobuf would take it for unknown, and lose
it), and so is a required or single field that is there twice: Pulsar never writes that, and a slice
of a longer state can look like it. Groups do not occur and are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from cursorkeeper.core.shape import frozen
from cursorkeeper.format.pulsar.errors import PulsarFormatError

VARINT_BYTES_MAX: Final = 10
U64_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class CutOffError(PulsarFormatError):
    """The bytes end in the middle of a field."""


class Kind(IntEnum):
    VARINT = 0
    FIXED64 = 1
    LEN = 2
    FIXED32 = 5


class Field(NamedTuple):
    """One field of a message: `data[at:end]` is all of it, `data[start:end]` what follows its tag
    (and its length, for LEN). `value` is the unsigned number of a VARINT, else 0.
    """

    number: int
    kind: int
    value: int
    at: int
    start: int
    end: int


@frozen
class Known:
    """A field of a message: an int64, a word (64 bits, without sign), a text or a message. It must
    be there once, unless it may be there often (`is_many`) or not at all (`is_optional`). Words may
    be packed. A text that is there twice is the last of them.
    """

    name: str
    of: Literal["int64", "word", "text"] | Message = "int64"
    is_many: bool = False
    is_optional: bool = False
    kind: Kind = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        is_number = self.of in ("int64", "word")
        object.__setattr__(self, "kind", Kind.VARINT if is_number else Kind.LEN)


@frozen
class Message:
    """Its fields by their numbers, in the order in which Pulsar writes them, and what is made of
    their values in that order. With `keeps`, the bytes of unknown fields are the last value, as
    they are; else an unknown field is what only a newer reader understands.
    """

    name: str
    make: Callable[..., Any]
    fields: Mapping[int, Known]
    keeps: bool = False


def read_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """The unsigned number at `pos` and the place after it. A longer form than needed is legal, more
    than 64 bits are not.
    """
    if pos < end and data[pos] < 0x80:
        return data[pos], pos + 1
    value = shift = 0
    for at in range(pos, min(end, pos + VARINT_BYTES_MAX)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > U64_MASK:
                raise PulsarFormatError(f"byte {pos}: a varint of more than 64 bits")
            return value, at + 1
        shift += 7
    if end - pos >= VARINT_BYTES_MAX:
        raise PulsarFormatError(f"byte {pos}: a varint of more than {VARINT_BYTES_MAX} bytes")
    raise CutOffError(f"byte {pos}: a varint is cut off at byte {end}")


def append_varint(out: bytearray, number: int) -> None:
    """Of an int64 or a uint64; a negative number takes ten bytes."""
    if number < 0:
        number &= U64_MASK
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def signed(value: int) -> int:
    """The int64 of an unsigned varint."""
    return value - (1 << 64) if value & _SIGN else value


# ---- reading


def read_field(data: bytes, pos: int, end: int) -> Field:
    """The field at `pos`; the next one is at its `end`. Raises PulsarFormatError."""
    tag, start = read_varint(data, pos, end)
    number, kind, value = tag >> 3, tag & 7, 0
    if not 0 < number < 1 << 29:
        raise PulsarFormatError(f"byte {pos}: field number {number}")
    if kind == Kind.VARINT:
        value, stop = read_varint(data, start, end)
    elif kind == Kind.LEN:
        length, start = read_varint(data, start, end)
        stop = start + length
    elif kind == Kind.FIXED64:
        stop = start + 8
    elif kind == Kind.FIXED32:
        stop = start + 4
    else:
        raise PulsarFormatError(f"byte {pos}: wire type {kind}")
    if stop > end:
        raise CutOffError(
            f"byte {pos}: field {number} is cut off, {stop - end} of its bytes are missing"
        )
    return Field(number, kind, value, pos, start, stop)


def expect(field: Field, kind: Kind, name: str) -> Field:
    """The field, if it has the wire type it must have."""
    if field.kind != kind:
        raise PulsarFormatError(
            f"byte {field.at}: {name} has wire type {field.kind}, not {kind.value}"
        )
    return field


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """Every field of a message, in order. Raises PulsarFormatError."""
    while start < end:
        field = read_field(data, start, end)
        start = field.end
        yield field


def read(data: bytes, start: int, end: int, message: Message, newer: list[str]) -> Any:
    """What the message is made to. `newer` takes what only a newer reader understands. Raises
    PulsarFormatError.
    """
    reader = Reader(data, message, newer)
    for field in fields(data, start, end):
        reader.take(field)
    return message.make(*reader.values())


class Reader:
    """Takes the fields of one message, in any order."""

    def __init__(self, data: bytes, message: Message, newer: list[str]) -> None:
        self._data, self._message, self._newer = data, message, newer
        self._found: dict[int, Any] = {}
        self._unknown = bytearray()

    def take(self, field: Field) -> None:
        """One more field. Raises PulsarFormatError."""
        number, known, found = field.number, self._message.fields.get(field.number), self._found
        if known is None:
            if self._message.keeps:
                self._unknown += self._data[field.at : field.end]
            else:
                self._newer.append(f"field {number} in {self._message.name}")
        elif known.of == "word" and field.kind == Kind.LEN:
            found.setdefault(number, []).extend(self._packed(field))
        else:
            expect(field, known.kind, known.name)
            value = self._value(field, known)
            if known.is_many:
                found.setdefault(number, []).append(value)
            elif number in found and known.of != "text":
                raise PulsarFormatError(
                    f"byte {field.at}: {self._message.name}.{known.name} is there twice"
                )
            else:
                found[number] = value

    def _value(self, field: Field, known: Known) -> Any:
        if known.of == "int64":
            return signed(field.value)
        if known.of == "word":
            return field.value
        if isinstance(known.of, Message):
            return read(self._data, field.start, field.end, known.of, self._newer)
        try:
            return self._data[field.start : field.end].decode()
        except UnicodeDecodeError:
            raise PulsarFormatError(f"byte {field.start}: {known.name} is not UTF-8") from None

    def _packed(self, field: Field) -> Iterator[int]:
        at = field.start
        while at < field.end:
            word, at = read_varint(self._data, at, field.end)
            yield word

    def values(self) -> list[Any]:
        """Of all fields, in their order; None: it is not there. Raises PulsarFormatError where one
        must be.
        """
        found = []
        for number, known in self._message.fields.items():
            value = self._found.get(number)
            if value is None and known.is_many:
                value = []
            if value is None and not known.is_optional:
                raise PulsarFormatError(f"{self._message.name}.{known.name} is missing")
            found.append(value)
        return [*found, bytes(self._unknown)] if self._message.keeps else found


# ---- writing


def write(message: Message, values: Iterable[Any]) -> bytearray:
    """The message with these values of its first fields, in their order; None: without that field.
    The bytes of unknown fields may follow. Raises ValueError: a number beyond int64.
    """
    out, left = bytearray(), iter(values)
    for (number, known), value in zip(message.fields.items(), left, strict=False):
        if value is None:
            continue
        of, tag = known.of, number << 3 | known.kind
        for each in value if known.is_many else (value,):
            out.append(tag)
            if of == "int64" and not -_SIGN <= each < _SIGN:
                raise ValueError(f"{message.name}.{known.name} = {each} is no int64")
            if of == "int64" or of == "word":
                append_varint(out, each)
                continue
            content = write(of, each) if isinstance(of, Message) else each.encode()
            append_varint(out, len(content))
            out += content
    for unknown in left:
        out += unknown
    return out
