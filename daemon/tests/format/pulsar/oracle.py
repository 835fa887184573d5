"""Pulsar's messages read and written by protobuf's own library, and states as plain sets: slow, and
obviously right.

The descriptors are typed in from the field tables; nothing of the codec under test is used. A state
is a `Plain`: sets of numbers, no bitmaps, no words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "message": 11,
}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}

_MESSAGES = {
    "NestedPositionInfo": ["required int64 ledgerId 1", "required int64 entryId 2"],
    "MessageRange": [
        "required NestedPositionInfo lowerEndpoint 1",
        "required NestedPositionInfo upperEndpoint 2",
    ],
    "LongProperty": ["required string name 1", "required int64 value 2"],
    "StringProperty": ["required string name 1", "required string value 2"],
    "KeyValue": ["required string key 1", "required string value 2"],
    "LongListMap": ["required int64 key 1", "repeated int64 values 2"],
    "PackedLongListMap": ["required int64 key 1", "repeated int64 values 2 packed"],
    "BatchedEntryDeletionIndexInfo": [
        "required NestedPositionInfo position 1",
        "repeated int64 deleteSet 2",
    ],
    "PositionInfo": [
        "required int64 ledgerId 1",
        "required int64 entryId 2",
        "repeated MessageRange individualDeletedMessages 3",
        "repeated LongProperty properties 4",
        "repeated BatchedEntryDeletionIndexInfo batchedEntryDeletionIndexInfo 5",
        "repeated LongListMap individualDeletedMessageRanges 6",
    ],
    "ManagedCursorInfo": [
        "required int64 cursorsLedgerId 1",
        "optional int64 markDeleteLedgerId 2",
        "optional int64 markDeleteEntryId 3",
        "repeated MessageRange individualDeletedMessages 4",
        "repeated LongProperty properties 5",
        "optional int64 lastActive 6",
        "repeated BatchedEntryDeletionIndexInfo batchedEntryDeletionIndexInfo 7",
        "repeated StringProperty cursorProperties 8",
    ],
    "OffloadContext": [
        "optional int64 uidMsb 1",
        "optional int64 uidLsb 2",
        "optional string anything 5",
    ],
    "LedgerInfo": [
        "required int64 ledgerId 1",
        "optional int64 entries 2",
        "optional int64 size 3",
        "optional int64 timestamp 4",
        "optional OffloadContext offloadContext 5",
        "repeated KeyValue properties 6",
    ],
    "ManagedLedgerInfo": [
        "repeated LedgerInfo ledgerInfo 1",
        "optional NestedPositionInfo terminatedPosition 2",
        "repeated KeyValue properties 3",
    ],
    "BatchDeletedIndexRange": ["required uint32 lowerIndex 1", "required uint32 upperIndex 2"],
    "BatchDeletedIndexInfo": [
        "required NestedPositionInfo position 1",
        "repeated BatchDeletedIndexRange batchDeletedIndexes 2",
    ],
    "Pip54PositionInfo": [
        "required int64 ledgerId 1",
        "required int64 entryId 2",
        "repeated MessageRange individualDeletedMessages 3",
        "repeated LongProperty properties 4",
        "repeated BatchDeletedIndexInfo batchDeletedIndexes 5",
    ],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="oracle.proto", package="oracle", syntax="proto2"
    )
    for name, lines in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for line in lines:
            label, kind, field_name, number, *options = line.split()
            made = message.field.add(name=field_name, number=int(number), label=_LABELS[label])
            if kind in _TYPES:
                made.type = _TYPES[kind]
            else:
                made.type, made.type_name = _TYPES["message"], f".oracle.{kind}"
            if label == "repeated" and kind == "int64":
                made.options.packed = options == ["packed"]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oracle.{name}"))
        for name in _MESSAGES
    }


MESSAGES = _classes()


@dataclass
class Plain:
    """A state as sets. `batches`: un-acked indexes."""

    mark_delete: tuple[int, int]
    acked: dict[int, set[int]] = field(default_factory=dict)
    batches: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)

    def message(self, form: str) -> Any:
        """The PositionInfo that Pulsar would build; `form` is `ranges` or `longArray`."""
        out = MESSAGES["PositionInfo"](ledgerId=self.mark_delete[0], entryId=self.mark_delete[1])
        if form == "ranges":
            add_ranges(out, self.acked)
        add_properties(out, self.properties)
        add_batches(out, self.batches)
        if form != "ranges":
            for ledger in sorted(self.acked):
                out.individualDeletedMessageRanges.add(key=ledger, values=words(self.acked[ledger]))
        return out


def words(bits: set[int]) -> list[int]:
    """As Java's `BitSet.toLongArray`, signed."""
    out = [0] * (max(bits) // 64 + 1)
    for bit in bits:
        out[bit // 64] += 1 << bit % 64
    return [word - (1 << 64) if word >> 63 else word for word in out]


def bits_of(values: Any) -> set[int]:
    """The inverse."""
    return {64 * at + bit for at, word in enumerate(values) for bit in range(64) if word >> bit & 1}


def add_ranges(out: Any, acked: dict[int, set[int]]) -> None:
    """(lower, upper], ascending, none touching the next."""
    for ledger in sorted(acked):
        for entry in sorted(acked[ledger]):
            if entry - 1 not in acked[ledger]:
                made = out.individualDeletedMessages.add()
                made.lowerEndpoint.ledgerId = made.upperEndpoint.ledgerId = ledger
                made.lowerEndpoint.entryId = entry - 1
                last = entry
                while last + 1 in acked[ledger]:
                    last += 1
                made.upperEndpoint.entryId = last


def add_properties(out: Any, properties: dict[str, int]) -> None:
    """In the map's order."""
    for name, value in properties.items():
        out.properties.add(name=name, value=value)


def add_batches(out: Any, batches: dict[tuple[int, int], set[int]]) -> None:
    """Ascending."""
    for ledger, entry in sorted(batches):
        made = out.batchedEntryDeletionIndexInfo.add(deleteSet=words(batches[ledger, entry]))
        made.position.ledgerId, made.position.entryId = ledger, entry


def plain(data: bytes, kind: str = "PositionInfo") -> Plain:
    """What the bytes say, by protobuf and by the rule that ranges win; ranges of one ledger
    only.
    """
    got = MESSAGES[kind].FromString(data)
    acked: dict[int, set[int]] = {}
    for made in got.individualDeletedMessages:
        acked.setdefault(made.lowerEndpoint.ledgerId, set()).update(
            range(made.lowerEndpoint.entryId + 1, made.upperEndpoint.entryId + 1)
        )
    if not got.individualDeletedMessages and kind == "PositionInfo":
        for made in got.individualDeletedMessageRanges:
            acked.setdefault(made.key, set()).update(bits_of(made.values))
    batches = {
        (made.position.ledgerId, made.position.entryId): bits_of(made.deleteSet)
        for made in got.batchedEntryDeletionIndexInfo
    }
    at = (
        (got.ledgerId, got.entryId)
        if kind == "PositionInfo"
        else (got.markDeleteLedgerId, got.markDeleteEntryId)
    )
    return Plain(at, acked, batches, {made.name: made.value for made in got.properties})


def field_edges(data: bytes) -> set[int]:
    """Where the top-level fields of a sound message end."""
    edges, pos = set(), 0
    while pos < len(data):
        tag, pos = _varint(data, pos)
        number, pos = _varint(data, pos)
        pos += {0: 0, 2: number}[tag & 7]
        edges.add(pos)
    return edges


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[pos] & 0x7F) << shift
        shift += 7
        pos += 1
        if data[pos - 1] < 0x80:
            return value, pos
