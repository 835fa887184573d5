"""PIP-381: a state as entries of a cursor ledger (one, or slices and a footer), and the way back from the last entry."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from cursorkeeper.format.pulsar.compression import compress
from cursorkeeper.format.pulsar.values import Compression, PositionInfo

COMPRESSION_KEY: Final = "pulsar/cursor-compressionType"
"""Custom metadata of a cursor ledger whose entries begin with an uncompressed length. Presence decides, not the value."""

_LENGTH: Final = struct.Struct(">i")
_FOOTER: Final = re.compile(rb'\{"numParts":(\d{1,10}),"length":(\d{1,10})\}')


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


@dataclass(frozen=True, slots=True)
class Found:
    """The newest state of a cursor ledger: entries first_entry..last_entry hold it (`stored_bytes` in all). `skipped` = the
    entries after it, newest first. `notes` = what was odd but harmless, for people."""

    info: PositionInfo
    first_entry: int
    last_entry: int
    skipped: tuple[Skipped, ...]
    stored_bytes: int
    notes: tuple[str, ...] = ()


def entries_of(raw: bytes, *, compression: Compression | None, max_entry_bytes: int, multiple: bool) -> list[bytes]:
    """The entries of one state, in order. `compression` None: no length in front, the ledger has no COMPRESSION_KEY. With
    `multiple` off there is one entry, however long: whether it fits is the caller's question."""
    buffer = raw if compression is None else _LENGTH.pack(len(raw)) + compress(raw, compression)
    if not multiple or len(buffer) < max_entry_bytes:
        return [buffer]
    parts = 1 + len(buffer) // max_entry_bytes
    slices = [buffer[n * max_entry_bytes : (n + 1) * max_entry_bytes] for n in range(parts)]
    return [*slices, b'{"numParts":%d,"length":%d}' % (parts, len(buffer))]


def parse_footer(entry: bytes) -> ChunkFooter | None:
    """The footer, if the entry has the form of one."""
    found = _FOOTER.fullmatch(entry)
    return ChunkFooter(int(found[1]), int(found[2])) if found else None


def newest_state(
    last_entry: int, *, compression: Compression | None, max_entry_bytes: int | None, limit_bytes: int
) -> Generator[ReadRange, list[bytes], Found]:
    """Asks for entries, returns the newest state; raises PulsarFormatError (damage, or no state at all) and TooNewError.

    `max_entry_bytes`: the writer's, where the writer is known (an entry that is neither slice nor state is then damage). None:
    a foreign ledger; entries that do not parse are stepped over and reported. `limit_bytes` bounds a joined and an expanded state.
    """
    yield ReadRange(last_entry, last_entry)
    raise NotImplementedError
