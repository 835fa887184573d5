"""PIP-54 as proposed in 2020: partly acked batches as ranges of *acked* indexes, where released
Pulsar has words of un-acked ones.

    BatchDeletedIndexRange { required uint32 lowerIndex = 1; required uint32 upperIndex = 2; }
    both inclusive
    BatchDeletedIndexInfo  { required NestedPositionInfo position = 1; repeated
    BatchDeletedIndexRange batchDeletedIndexes = 2; }
    PositionInfo.batchDeletedIndexes = 5

Fields 1 to 4 of PositionInfo are the released ones, and acked entries are ranges: long arrays came
later. Nothing in the bytes says which of the two messages field 5 holds, so whoever reads must
know. Acked indexes become un-acked ones, and back, only with the size of the batch, which neither
message stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import acks, batches, position_info
from cursorkeeper.format.pulsar.acks import AcksReader
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.ranges import read_position
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.format.pulsar.wire import (
    Field,
    Kind,
    Once,
    append_bytes,
    append_number,
    expect,
    read_field,
)

BATCH_DELETED_INDEXES = 5


def encode(info: PositionInfo, batch_sizes: Mapping[PartialKey, int]) -> bytes:
    """PositionInfo with field 5 in PIP-54's shape. Raises ValueError: a batch whose size is not
    given, or smaller than an index.
    """
    plain = replace(info, batches={}, unknown=b"")
    out = bytearray(position_info.encode(plain, Form.RANGES))
    for key in sorted(info.batches):
        append_bytes(
            out,
            BATCH_DELETED_INDEXES,
            encode_element(key, complement(info.batches[key], _size(key, batch_sizes))),
        )
    return bytes(out) + info.unknown


def decode(data: bytes, batch_sizes: Mapping[PartialKey, int]) -> PositionInfo:
    """The inverse: the released form's value. An entry with every index acked is acked as a whole.
    Raises PulsarFormatError, TooNewError; ValueError: a batch whose size is not given, or is
    smaller than an acked index.
    """
    info, acked = decode_acked(data)
    missing = {key: complement(indexes, _size(key, batch_sizes)) for key, indexes in acked.items()}
    entries = dict(info.acked)
    for key, left in missing.items():
        if not left:
            entries[key.ledger] = entries.get(key.ledger, BitMap()) | BitMap([key.entry])
    kept = {key: left for key, left in missing.items() if left}
    ordered = {ledger: entries[ledger] for ledger in sorted(entries)}
    return replace(
        info, acked=ordered, batches=kept, form=Form.RANGES if ordered or info.crossing else None
    )


def decode_acked(data: bytes) -> tuple[PositionInfo, dict[PartialKey, BitMap]]:
    """The state without its batches, and per batch entry the *acked* indexes: no sizes are needed.
    Raises as `decode`.
    """
    reader = _Reader(data)
    info = position_info.read_fields(data, reader)
    acked = {
        PartialKey(*position): indexes
        for position, indexes in sorted(reader.acked.items())
        if indexes
        and position > info.mark_delete
        and position.entry not in info.acked.get(position.ledger, ())
    }
    return info, acked


class _Reader(AcksReader):
    """Field 5 is another message here."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, position_info.RANGES)
        self.acked: dict[Position, BitMap] = {}

    def take_batch(self, field: Field) -> None:
        expect(field, Kind.LEN, "batchDeletedIndexes")
        position, indexes = decode_element(self._data[field.start : field.end], self.newer)
        self.acked[position] = self.acked.get(position, BitMap()) | indexes


def encode_element(key: PartialKey, acked: BitMap) -> bytes:
    """A BatchDeletedIndexInfo: one entry and its acked indexes."""
    content = bytearray()
    batches.append_position(content, 1, key)
    for lower, upper in zip(
        *(column.tolist() for column in containers.runs_of(acked)), strict=True
    ):
        inner = bytearray()
        append_number(inner, 1, lower)
        append_number(inner, 2, upper)
        append_bytes(content, 2, inner)
    return bytes(content)


def decode_element(content: bytes, newer: list[str]) -> tuple[Position, BitMap]:
    """The inverse. Raises PulsarFormatError. `newer` takes what only a newer reader understands."""
    position: Position | None = None
    lowers: list[int] = []
    uppers: list[int] = []
    pos, end = 0, len(content)
    while pos < end:
        field = read_field(content, pos, end)
        pos = field.end
        if field.number == 1:
            expect(field, Kind.LEN, "BatchDeletedIndexInfo.position")
            position = acks.checked_entry(
                read_position(
                    content, field.start, field.end, "BatchDeletedIndexInfo.position", newer
                )
            )
        elif field.number == 2:
            lower, upper = _range(content, field, newer)
            lowers.append(lower)
            uppers.append(upper)
        else:
            newer.append(f"field {field.number} in a partly acked batch")
    if position is None:
        raise PulsarFormatError("BatchDeletedIndexInfo.position is missing")
    return position, containers.from_runs(np.array(lowers, np.int64), np.array(uppers, np.int64))


def _range(content: bytes, field: Field, newer: list[str]) -> tuple[int, int]:
    expect(field, Kind.LEN, "BatchDeletedIndexInfo.batchDeletedIndexes")
    once = Once("BatchDeletedIndexRange")
    pos = field.start
    while pos < field.end:
        inner = read_field(content, pos, field.end)
        pos = inner.end
        if inner.number in (1, 2):
            once.put(inner, "lowerIndex" if inner.number == 1 else "upperIndex")
        else:
            newer.append(f"field {inner.number} in a range of batch indexes")
    lower, upper = once.required("lowerIndex"), once.required("upperIndex")
    if not 0 <= lower <= upper < BATCH_SIZE_MAX:
        raise PulsarFormatError(
            f"batch indexes {lower}..{upper}: batches have at most {BATCH_SIZE_MAX:,} messages"
        )
    return lower, upper


def complement(indexes: BitMap, batch_size: int) -> BitMap:
    """The other indexes of a batch: acked ones of un-acked ones, and back. Raises ValueError: an
    index beyond the size.
    """
    if indexes and indexes.max() >= batch_size:
        raise ValueError(f"index {indexes.max()} of a batch of {batch_size}")
    return indexes.flip(0, batch_size)


def _size(key: PartialKey, batch_sizes: Mapping[PartialKey, int]) -> int:
    size = batch_sizes.get(key, 0)
    if not 0 < size <= BATCH_SIZE_MAX:
        raise ValueError(
            f"batch {key.ledger}:{key.entry} has no known size, and acked indexes need one"
        )
    return size
