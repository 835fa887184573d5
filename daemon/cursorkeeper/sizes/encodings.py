"""The encodings of the table: from a state to a number of bytes.

Pulsar's own forms are measured by Pulsar's own codec (`format.pulsar`), ours by our records
(`native`). Bitmaps are the portable Roaring serialization, run-optimised. A column counts the ack
state alone: mark-delete and the layout are left out where a form can be taken apart (field 6, field
3), and are in it where it cannot (our snapshot, a whole entry).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import lz4.block

from cursorkeeper.core.limits import MIB
from cursorkeeper.format.pulsar import chunks, position_info
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo

FLUSH_ACKS = 1_000


@dataclass(frozen=True, slots=True)
class Encoding:
    """One column: its key in JSON, its head in tables, what it is."""

    key: str
    title: str
    what: str


ENCODINGS = (
    Encoding(
        "dense_bytes",
        "dense long[]",
        "Pulsar's long array as it lies in BookKeeper (PositionInfo field 6), every flush",
    ),
    Encoding(
        "dense_heap_bytes",
        "transient heap",
        "the words of that array in the broker's heap, every flush",
    ),
    Encoding(
        "ranges_bytes", "ranges", "Pulsar's list of ranges (PositionInfo field 3), every flush"
    ),
    Encoding(
        "roaring_bytes", "roaring", "one Roaring bitmap per data ledger, portable, run-optimised"
    ),
    Encoding("roaring_lz4_bytes", "roaring + LZ4", "the same in one LZ4 block"),
    Encoding(
        "pulsar_zstd_bytes",
        "long[] chunks + zstd",
        "format=pulsar: the whole entry, ZSTD, in chunks where it is over 1 MiB, every flush",
    ),
    Encoding(
        "snapshot_bytes",
        "native snapshot",
        "CursorKeeper's snapshot: all records of it, once in many flushes",
    ),
    Encoding(
        "delta_bytes",
        "native delta",
        f"CursorKeeper's flush of {FLUSH_ACKS:,} more acks, at random places",
    ),
)
"""The encodings, in the order of the table."""


def form_bytes(info: PositionInfo, form: Form) -> int:
    """Bytes of the individually acked entries in a form: field 6 or field 3 without the rest of the
    message.
    """
    bare = replace(info, acked={})
    return position_info.encoded_bytes(info, form) - position_info.encoded_bytes(bare, form)


def dense_heap_bytes(info: PositionInfo) -> int:
    """Bytes of the `long[]` of all ledgers: a word per 64 entries up to the highest acked one."""
    return sum(8 * (entries.max() // 64 + 1) for entries in info.acked.values())


def roaring_bytes(info: PositionInfo) -> tuple[int, int]:
    """(serialized bytes, of these in one LZ4 block)."""
    blob = b"".join(entries.serialize() for entries in info.acked.values())
    return len(blob), len(lz4.block.compress(blob, store_size=False))


def pulsar_zstd_bytes(info: PositionInfo) -> int:
    """What `format=pulsar` stores per flush with ZSTD and chunks: slices and footer."""
    raw = position_info.encode(info, Form.LONG_ARRAY)
    return sum(
        map(
            len,
            chunks.entries_of(
                raw, compression=Compression.ZSTD, max_entry_bytes=MIB, multiple=True
            ),
        )
    )
