"""Columns of acks to bytes and back.

An `AckBatch` is put together by hand from its wire format: a packed fixed32 field is a tag, a
length and the array's own bytes, and concatenated parts of a message are one message. For 10,000
entries that takes 4 us, against 420 us for filling a repeated field from a list and 640 us from an
array. Reading takes the buffer of the repeated field as it is. Owns: this encoding and its checks.
Does not own: handles, credit, the stream. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.values import U32, AckedIndexes, Acks, LedgerAcks, PartialBatch

WORD_BITS = 64
ENTRY_MAX = 0xFFFFFFFF
_NONE = np.empty(0, np.uint32)


def encode_acks(acks: Acks) -> bytes:
    """The part of a serialised `AckBatch` that does not depend on handle, seq and generation.

    ValueError if an array is no array of u32, or if `ranges` has an odd length.
    """
    head = pb.AckBatch()
    if acks.mark_delete is not None:
        head.mark_delete.ledger, head.mark_delete.entry = acks.mark_delete
    if acks.properties is not None:
        head.properties.SetInParent()
        head.properties.values.update(acks.properties)
    parts = [head.SerializeToString()]
    for ledger in acks.ledgers:
        body = _ledger(ledger)
        parts += (b"\x22", varint(len(body)), body)  # AckBatch.ledgers = 4
    return b"".join(parts)


def split(encoded: bytes, limits: pb.Hello) -> list[tuple[bytes, int]]:
    """The bytes of `encode_acks` as batches that a keeper with these limits (0: not told) takes,
    each with its parts (data ledgers and partly acked batches). Mark-delete and properties are in
    the last one.
    """
    whole = pb.AckBatch.FromString(encoded)
    counts = [
        (1, sum(map(partial_parts, part.partial)) if part.partial else 0) for part in whole.ledgers
    ]
    ledgers, partials = len(counts), sum(count for _, count in counts)
    if _fits(ledgers, limits.ack_ledgers_max) and _fits(partials, limits.ack_partials_max):
        return [(encoded, ledgers + partials)]
    batches = [pb.AckBatch()]
    ledgers = partials = 0
    for part in whole.ledgers:
        if not _fits(ledgers + 1, limits.ack_ledgers_max):
            batches.append(pb.AckBatch())
            ledgers = partials = 0
        target = batches[-1].ledgers.add()
        target.CopyFrom(part)
        del target.partial[:]
        ledgers += 1
        for partial in part.partial:
            count = partial_parts(partial)
            if partials and not _fits(partials + count, limits.ack_partials_max):
                batches.append(pb.AckBatch())
                target = batches[-1].ledgers.add(ledger_id=part.ledger_id)
                ledgers, partials = 1, 0
            target.partial.append(partial)
            partials += count
    last = batches[-1]
    if whole.HasField("mark_delete"):
        last.mark_delete.CopyFrom(whole.mark_delete)
    if whole.HasField("properties"):
        last.properties.CopyFrom(whole.properties)
    return [(each.SerializeToString(), parts_of(each)) for each in batches]


def parts_of(batch: pb.AckBatch) -> int:
    """Data ledgers and partly acked batches, as a keeper counts them."""
    return sum(1 + sum(map(partial_parts, part.partial)) for part in batch.ledgers)


def partial_parts(partial: pb.PartialAck) -> int:
    """One, and one more for every 64 ranges or 128 words."""
    return 1 + len(partial.acked) // 64 + len(partial.ack_set) // 128


def _fits(count: int, limit: int) -> bool:
    return not limit or count <= limit


def ack_batch(handle: int, seq: int, generation: int, encoded: bytes) -> bytes:
    """A serialised `AckBatch`. Its length is what it costs of the credit."""
    return pb.AckBatch(handle=handle, seq=seq, generation=generation).SerializeToString() + encoded


def source_message_of(batch: bytes) -> bytes:
    """A serialised `SourceMessage` that holds a serialised `AckBatch`."""
    return b"\x1a" + varint(len(batch)) + batch  # SourceMessage.ack_batch = 3


def ack_set_of(missing: BitMap, batch_size: int = 0) -> list[int]:
    """Pulsar's words: bit 1 = still un-acked. Enough words for the highest missing index; bits
    beyond are acked.
    """
    bits = np.zeros(
        (max(missing.max() // WORD_BITS + 1 if missing else 0, 1)) * WORD_BITS, dtype=np.uint8
    )
    bits[np.array(missing, dtype=np.int64)] = 1
    words: list[int] = np.packbits(bits, bitorder="little").view("<u8").tolist()
    return words


def missing_of(ack_set: Sequence[int]) -> BitMap:
    """The set bits of an ack set of 64-bit words: the batch indexes that are not acked."""
    words = np.array(ack_set, dtype="<u8")
    return BitMap(
        np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).astype(np.uint32)
    )


def _ledger(acks: LedgerAcks) -> bytes:
    # ledger_id = 1. As protobuf would write it, without defaults, so that both sides count the same
    # bytes of credit.
    parts = [b"\x08", varint(acks.ledger)] if acks.ledger else []
    entries = checked_column(acks.entries, "entries")
    ranges = checked_column(acks.ranges, "ranges")
    if ranges.size % 2:
        raise ValueError(
            f"ranges of ledger {acks.ledger} has {ranges.size} numbers; it is first, last, "
            f"first, last, ..."
        )
    for tag, column in ((b"\x12", entries), (b"\x1a", ranges)):  # entries = 2, ranges = 3
        if column.size:
            parts += (tag, varint(column.nbytes), column.tobytes())
    for partial in acks.partials:
        body = _partial(partial)
        parts += (b"\x22", varint(len(body)), body)  # partial = 4
    if acks.roaring is not None:
        body = acks.roaring.serialize()
        parts += (b"\x2a", varint(len(body)), body)  # roaring = 5
    return b"".join(parts)


def _partial(partial: PartialBatch | AckedIndexes) -> bytes:
    if isinstance(partial, AckedIndexes):
        ranges = [pb.IntRange(first=first, last=last) for first, last in partial.acked]
        return pb.PartialAck(
            entry=partial.entry, batch_size=partial.batch_size, acked=ranges
        ).SerializeToString()
    return pb.PartialAck(
        entry=partial.entry, batch_size=partial.batch_size, ack_set=ack_set_of(partial.missing)
    ).SerializeToString()


def checked_column(column: U32 | Sequence[int], name: str) -> U32:
    if isinstance(column, tuple) and not column:
        return _NONE
    array = np.asarray(column)
    if array.size == 0:
        return _NONE
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} is {array.ndim}-dimensional {array.dtype}; a flat array of integers is wanted"
        )
    if array.dtype != np.uint32 and (int(array.min()) < 0 or int(array.max()) > ENTRY_MAX):
        raise ValueError(
            f"{name} reaches from {array.min()} to {array.max()}; entry ids are 0 to {ENTRY_MAX}"
        )
    little = array.astype("<u4", copy=False)
    return little if sys.byteorder == "little" else little.view(np.uint32)


def varint(number: int) -> bytes:
    """A length or a number as protobuf writes it."""
    if number < 0x80:
        return number.to_bytes()
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
