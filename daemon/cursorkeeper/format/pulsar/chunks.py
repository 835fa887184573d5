"""PIP-381: a state as entries of a cursor ledger (one, or slices and a footer), and the way back
from the last entry.

Owns both directions. The reader does no I/O: it is a generator that asks for entries. Its rules: an
entry is never judged by itself, because a slice can hold any bytes; an older state is never given
without saying which entries were stepped over; nothing is joined or expanded beyond the caller's
limit.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Generator
from typing import Final, NamedTuple

from cursorkeeper.core.errors import TooNewError
from cursorkeeper.core.shape import frozen
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.compression import compress, expand
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.slices import is_beginning
from cursorkeeper.format.pulsar.values import Compression, PositionInfo

COMPRESSION_KEY: Final = "pulsar/cursor-compressionType"
"""Custom metadata of a cursor ledger whose entries begin with an uncompressed length. Presence
decides, not the value.
"""

MAX_ENTRY_BYTES_MIN: Final = 64
"""A footer is shorter than a full slice."""

_LENGTH: Final = struct.Struct(">i")
_FOOTER_BYTES_MAX: Final = 256
_SLICES_AT_ONCE: Final = 8
_SLICES_BEFORE_MAX: Final = 256
"""So many entries before one are looked at to find out whether it continues them."""


class ChunkFooter(NamedTuple):
    """`{"numParts":N,"length":L}`."""

    parts: int
    length_bytes: int


class ReadRange(NamedTuple):
    """What `newest_state` asks for: the bytes of entries first..last (inclusive), in order."""

    first: int
    last: int


class Skipped(NamedTuple):
    """An entry that was stepped over, and why."""

    entry: int
    reason: str


@frozen
class Found:
    """The newest state of a cursor ledger: entries first_entry..last_entry hold it (`stored_bytes`
    in all). `skipped` = the entries after it, newest first. `notes` = what was odd but harmless,
    for people.
    """

    info: PositionInfo
    first_entry: int
    last_entry: int
    skipped: tuple[Skipped, ...]
    stored_bytes: int
    notes: tuple[str, ...] = ()


def entries_of(
    raw: bytes, *, compression: Compression | None, max_entry_bytes: int, multiple: bool
) -> list[bytes]:
    """The entries of one state, in order. `compression` None: no length in front, the ledger has no
    COMPRESSION_KEY. With `multiple` off there is one entry, however long: whether it fits is the
    caller's question. Raises ValueError: slices shorter than MAX_ENTRY_BYTES_MIN, which a footer
    could be taken for.
    """
    if multiple and max_entry_bytes < MAX_ENTRY_BYTES_MIN:
        raise ValueError(
            f"entries of at most {max_entry_bytes} bytes: {MAX_ENTRY_BYTES_MIN} are needed"
        )
    buffer = raw if compression is None else _LENGTH.pack(len(raw)) + compress(raw, compression)
    if not multiple or len(buffer) < max_entry_bytes:
        return [buffer]
    parts = 1 + len(buffer) // max_entry_bytes
    slices = [buffer[n * max_entry_bytes : (n + 1) * max_entry_bytes] for n in range(parts)]
    return [*slices, b'{"numParts":%d,"length":%d}' % (parts, len(buffer))]


def parse_footer(entry: bytes) -> ChunkFooter | None:
    """The footer, if the entry has the form of one: a small JSON object with both numbers. (A slice
    can look like one: what the entries before it are decides.)
    """
    if entry[:1] != b"{" or len(entry) > _FOOTER_BYTES_MAX:
        return None
    try:
        told = json.loads(entry)
    except ValueError:
        return None
    parts, length = told.get("numParts"), told.get("length")
    if type(parts) is not int or type(length) is not int:
        return None
    return ChunkFooter(parts, length)


Reading = Generator[ReadRange, list[bytes], Found]


def newest_state(
    last_entry: int,
    *,
    compression: Compression | None,
    max_entry_bytes: int | None,
    limit_bytes: int,
) -> Reading:
    """Asks for entries, returns the newest state; raises PulsarFormatError (damage, or no state at
    all) and TooNewError.

    `max_entry_bytes`: the writer's, where the writer is known. Its entries have roles by their
    sizes alone: an entry of exactly that size is a slice, and so is the one after it; a tail of
    slices is a state whose writing was not finished, and is stepped over; anything else that is not
    a state or a matching footer is damage. It must be a writer that starts a new ledger after an
    unfinished state; for one that never makes slices pass a number larger than any entry. None: a
    foreign ledger; whatever does not parse is stepped over. Each step is in `skipped`.
    `limit_bytes` bounds a state, joined and expanded.
    """
    reader = _Reader(compression, limit_bytes)
    if max_entry_bytes is not None:
        return (yield from _known(reader, last_entry, max_entry_bytes))
    return (yield from _foreign(reader, last_entry))


class _Reader:
    def __init__(self, compression: Compression | None, limit_bytes: int) -> None:
        self.compression, self.limit_bytes = compression, limit_bytes
        self.skipped: list[Skipped] = []

    def parse(self, buffer: bytes) -> tuple[PositionInfo, tuple[str, ...]]:
        """A whole state. Raises PulsarFormatError, TooNewError."""
        if self.compression is not None:
            if len(buffer) < _LENGTH.size:
                raise PulsarFormatError("the uncompressed length is cut off")
            (size_bytes,) = _LENGTH.unpack_from(buffer)
            if not 0 <= size_bytes <= self.limit_bytes:
                raise PulsarFormatError(
                    f"an uncompressed length of {size_bytes} bytes, {self.limit_bytes} are allowed"
                )
            buffer = expand(buffer[_LENGTH.size :], self.compression, size_bytes)
        elif len(buffer) > self.limit_bytes:
            raise PulsarFormatError(
                f"a state of {len(buffer)} bytes, {self.limit_bytes} are allowed"
            )
        return position_info.decode_with_notes(buffer)

    def single(self, at: int, entry: bytes) -> Found:
        """A state of one entry."""
        info, notes = self.parse(entry)
        return Found(info, at, at, tuple(self.skipped), len(entry), notes)

    def joined(
        self, at: int, entry: bytes, footer: ChunkFooter, max_entry_bytes: int | None
    ) -> Reading:
        """The state that the footer at `at` closes."""
        parts, length = footer
        first = at - parts
        if parts < 1 or not 0 <= length <= self.limit_bytes + _LENGTH.size:
            raise PulsarFormatError(
                f"a footer of {parts} parts and {length} bytes, {self.limit_bytes} are allowed"
            )
        if first < 0:
            raise PulsarFormatError(
                f"the footer counts {parts} parts, only {at} entries are before it"
            )
        if max_entry_bytes is not None and parts != 1 + length // max_entry_bytes:
            raise PulsarFormatError(
                f"the footer says {parts} parts for {length} bytes, parts of {max_entry_bytes} "
                f"were written"
            )
        slices: list[bytes] = []
        have = 0
        for begin in range(first, at, _SLICES_AT_ONCE):
            got = yield from self.read(begin, min(at, begin + _SLICES_AT_ONCE) - 1)
            slices += got
            have += sum(map(len, got))
            if have > length:
                break
        if have != length:
            raise PulsarFormatError(
                f"the footer says {length} bytes in {parts} parts, there are "
                f"{'more' if have > length else have}"
            )
        if max_entry_bytes is not None and any(
            len(part) != max_entry_bytes for part in slices[:-1]
        ):
            raise PulsarFormatError(f"a part before the last one has not {max_entry_bytes} bytes")
        info, notes = self.parse(b"".join(slices))
        return Found(info, first, at, tuple(self.skipped), length + len(entry), notes)

    def read(self, first: int, last: int) -> Generator[ReadRange, list[bytes], list[bytes]]:
        """Entries, all of them. Raises ValueError where the caller gave another number of them."""
        entries = yield ReadRange(first, last)
        if len(entries) != last - first + 1:
            raise ValueError(f"entries {first}..{last} were asked for, {len(entries)} came")
        return entries

    def nothing(self, last_entry: int) -> PulsarFormatError:
        """The error of a ledger that holds no whole state."""
        if not self.skipped:
            return PulsarFormatError("the cursor ledger is empty")
        newest = self.skipped[0]
        return PulsarFormatError(
            f"none of the entries 0..{last_entry} ends a state; the newest, entry "
            f"{newest.entry}: {newest.reason}"
        )


def _known(reader: _Reader, last_entry: int, max_entry_bytes: int) -> Reading:
    at, held = last_entry, dict[int, bytes]()
    while at >= 0:
        if at not in held or (at > 0 and at - 1 not in held):
            first = max(0, at - 1)
            stop = at if at not in held else at - 1
            held.update(
                zip(range(first, stop + 1), (yield from reader.read(first, stop)), strict=True)
            )
        entry, before = held.pop(at), held.get(at - 1, b"")
        if len(entry) > max_entry_bytes:
            raise PulsarFormatError(
                f"entry {at} has {len(entry)} bytes, its writer makes at most {max_entry_bytes}"
            )
        footer = parse_footer(entry)
        if len(entry) == max_entry_bytes or len(before) == max_entry_bytes:
            if (
                footer is not None
                and footer.parts > 1
                and footer.parts == 1 + footer.length_bytes // max_entry_bytes
            ):
                raise PulsarFormatError(
                    f"entry {at}: a footer right after a full slice, the last slice is missing"
                )
            reader.skipped.append(
                Skipped(
                    at, "a slice without its footer: the writing of this state was not finished"
                )
            )
            at -= 1
            continue
        try:
            if footer is not None:
                return (yield from reader.joined(at, entry, footer, max_entry_bytes))
            return reader.single(at, entry)
        except (PulsarFormatError, TooNewError) as error:
            raise type(error)(f"entry {at}: {error.message}") from None
    raise reader.nothing(last_entry)


def _foreign(reader: _Reader, last_entry: int) -> Reading:
    at = last_entry
    while at >= 0:
        (entry,) = yield from reader.read(at, at)
        footer = parse_footer(entry)
        try:
            if footer is not None:
                return (yield from reader.joined(at, entry, footer, None))
            found = reader.single(at, entry)
            if at > 0 and reader.compression is None:
                yield from _check_no_slice(reader, at, entry)
            return found
        except TooNewError as error:
            raise TooNewError(f"entry {at}: {error.message}") from None
        except PulsarFormatError as error:
            reader.skipped.append(Skipped(at, error.message))
            at -= 1
    raise reader.nothing(last_entry)


def _check_no_slice(
    reader: _Reader, at: int, entry: bytes
) -> Generator[ReadRange, list[bytes], None]:
    """Raises PulsarFormatError if the entry, although it reads like a state, goes on where the
    entries before it were cut.

    Where the bytes cannot tell it is taken for a slice: an older state means messages again, a
    slice read as a state can mean messages lost.
    """
    joined, size = b"", 0
    for first in range(at - 1, max(-1, at - 1 - _SLICES_BEFORE_MAX), -1):
        (before,) = yield from reader.read(first, first)
        size = size or len(before)
        if (
            len(before) != size
            or size < len(entry)
            or size + len(joined) + len(entry) > reader.limit_bytes
        ):
            return  # slices have one size, and the last of them is not longer
        try:
            reader.parse(before)
        except (PulsarFormatError, TooNewError):
            joined = before + joined
        else:
            # a slice that is followed by one that reads like a state ends inside of a field, so it
            # does not parse
            return
        if is_beginning(joined + entry, len(joined)):
            raise PulsarFormatError(
                f"it reads like a state, but goes on where entry {at - 1} was cut: a slice "
                f"without its footer"
            )
