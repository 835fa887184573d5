"""Protobuf's wire format, one field at a time: tags, varints, lengths. Columns of varints are in
`varints`.

Owns what every message here shares: numbers are plain varints (no zigzag; a negative one takes ten
bytes), a known field of another wire type is damage (protobuf would take it for unknown, and lose
it), and so is a required or single field that is there twice: Pulsar never writes that, and a slice
of a longer state can look like it. Groups do not occur and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

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
    number &= U64_MASK
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def varint_bytes(number: int) -> int:
    """How many bytes `append_varint` writes."""
    return max(1, ((number & U64_MASK).bit_length() + 6) // 7)


def signed(value: int) -> int:
    """The int64 of an unsigned varint."""
    return value - (1 << 64) if value & _SIGN else value


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


class Once:
    """The numbers of a message that are there at most once."""

    __slots__ = ("_message", "_values")

    def __init__(self, message: str) -> None:
        self._message = message
        self._values: dict[str, int] = {}

    def put(self, field: Field, name: str) -> None:
        """Takes an int64 field."""
        expect(field, Kind.VARINT, f"{self._message}.{name}")
        if name in self._values:
            raise PulsarFormatError(f"byte {field.at}: {self._message}.{name} is there twice")
        self._values[name] = signed(field.value)

    def get(self, name: str) -> int | None:
        """None where the field is not there."""
        return self._values.get(name)

    def required(self, name: str) -> int:
        """Raises PulsarFormatError where the field is not there."""
        value = self._values.get(name)
        if value is None:
            raise PulsarFormatError(f"{self._message}.{name} is missing")
        return value


def read_numbers(
    data: bytes, start: int, end: int, message: str, names: Mapping[int, str], newer: list[str]
) -> Once:
    """A message of nothing but numbers. `newer` takes what only a newer reader understands. Raises
    PulsarFormatError.
    """
    once = Once(message)
    for field in fields(data, start, end):
        if field.number in names:
            once.put(field, names[field.number])
        else:
            newer.append(f"field {field.number} in {message}")
    return once


def read_text(data: bytes, field: Field, name: str) -> str:
    """A string field. Raises PulsarFormatError: not UTF-8."""
    expect(field, Kind.LEN, name)
    try:
        return data[field.start : field.end].decode()
    except UnicodeDecodeError:
        raise PulsarFormatError(f"byte {field.start}: {name} is not UTF-8") from None


def append_number(out: bytearray, number: int, value: int) -> None:
    """An int64 field."""
    append_varint(out, number << 3 | Kind.VARINT)
    append_varint(out, value)


def append_bytes(out: bytearray, number: int, content: bytes | bytearray) -> None:
    """A string, bytes or message field."""
    append_varint(out, number << 3 | Kind.LEN)
    append_varint(out, len(content))
    out += content
