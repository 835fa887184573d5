"""A message of acks says the same however it is written: columns that are taken as bytes, and what
protobuf reads of the same message.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.batch import AckBatch
from cursorkeeper.core.entries import as_entries, as_set
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.positions import Position
from cursorkeeper.format import leb
from cursorkeeper.stream import codec, plain_acks
from cursorkeeper.stream.wire import source_message
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import ack_batch, source_message_of

U32_MAX, U64_MAX = (1 << 32) - 1, (1 << 64) - 1
ENTRIES = st.lists(st.integers(0, 300) | st.integers(0, U32_MAX), max_size=20)
LEDGERS = st.sampled_from([0, 1, 127, 128, 1 << 40, U64_MAX])
NUMBERS = st.sampled_from([0, 1, 127, 128, U32_MAX])
PLAIN = st.builds(
    lambda at, entries: pb.LedgerAcks(ledger_id=at, entries=entries), LEDGERS, ENTRIES
)


def more(at: int, entries: list[int], kind: str) -> pb.LedgerAcks:
    acks = pb.LedgerAcks(ledger_id=at, entries=entries)
    if kind == "ranges":
        acks.ranges.extend([1, 3])
    elif kind == "partial":
        acks.partial.add(entry=7, ack_set=[5])
    else:
        acks.roaring = BitMap([1, 9]).serialize()
    return acks


PARTS = st.lists(
    PLAIN | st.builds(more, LEDGERS, ENTRIES, st.sampled_from(["ranges", "partial", "roaring"])),
    max_size=5,
)
MESSAGES = st.builds(
    lambda handle, seq, ledgers, mark_delete, properties: pb.AckBatch(
        handle=handle,
        seq=seq,
        generation=1,
        ledgers=ledgers,
        mark_delete=pb.Position(ledger=mark_delete, entry=-1) if mark_delete is not None else None,
        properties=pb.MarkDeleteProperties(values={"a": 1}) if properties else None,
    ),
    NUMBERS,
    NUMBERS,
    PARTS,
    st.none() | LEDGERS,
    st.booleans(),
)


def read(data: bytes) -> AckBatch:
    return codec.batch_of(codec.sent_acks(data), data)


def by_protobuf(data: bytes) -> AckBatch:
    """The same message with something that nobody knows: so it is read by protobuf's own class."""
    return read(data + field(15, b"new"))


def paid(batch: AckBatch) -> tuple[object, ...]:
    """What it costs, and what of partly acked batches `told` leaves out."""
    return (
        batch.acks,
        batch.parts,
        batch.generation,
        [
            (entry, partial.batch_size, list(partial.missing))
            for part in batch.ledgers
            for entry, partial in part.partials
        ],
    )


def plainly(message: pb.AckBatch) -> tuple[object, ...]:
    """What it says, by protobuf's own class."""
    return (
        message.seq,
        [
            (
                part.ledger_id,
                sorted(set(part.entries)),
                list(part.ranges),
                [entry.entry for entry in part.partial],
                part.roaring,
            )
            for part in message.ledgers
        ],
        message.mark_delete if message.HasField("mark_delete") else None,
        dict(message.properties.values) if message.HasField("properties") else None,
    )


def told(batch: AckBatch) -> tuple[object, ...]:
    position = batch.mark_delete
    return (
        batch.seq,
        [
            (
                part.ledger,
                list(as_set(as_entries(part.entries))),
                [] if part.ranges is None else part.ranges.tolist(),
                [entry for entry, _ in part.partials],
                part.bitmap.serialize() if part.bitmap is not None else b"",
            )
            for part in batch.ledgers
        ],
        pb.Position(ledger=position.ledger, entry=position.entry) if position else None,
        batch.properties,
    )


@given(MESSAGES)
def test_it_says_what_protobuf_reads_of_it(message: pb.AckBatch) -> None:
    data = message.SerializeToString()
    batch = read(data)
    assert told(batch) == plainly(message)
    assert batch.size_bytes == len(data), "what its source pays"
    assert paid(batch) == paid(by_protobuf(data))


@given(st.lists(PLAIN.filter(pb.LedgerAcks.ByteSize), max_size=5), st.none() | LEDGERS)
def test_what_clients_write_is_read_without_protobuf(
    ledgers: list[pb.LedgerAcks], mark_delete: int | None
) -> None:
    """Its messages and those of the Python client have their fields in different orders."""
    position = pb.Position(ledger=mark_delete, entry=-1) if mark_delete is not None else None
    message = pb.AckBatch(handle=1, seq=2, generation=3, ledgers=ledgers, mark_delete=position)
    body = pb.AckBatch(ledgers=ledgers, mark_delete=position).SerializeToString()
    for data in (
        message.SerializeToString(),
        source_message(source_message_of(ack_batch(1, 2, 3, body))).ack_batch,
    ):
        sent = plain_acks.read(data)
        assert sent is not None
        assert (sent.handle, sent.seq, sent.generation) == (1, 2, 3)


def field(at: int, body: bytes) -> bytes:
    """Its number and its length are LEB128, as everything in a record."""
    out = bytearray()
    leb.append(out, at << 3 | 2)
    leb.append(out, len(body))
    return bytes(out + body)


HEAD = b"\x08\x01\x10\x02\x30\x01"  # handle 1, seq 2, generation 1
LEDGER = b"\x08\x05"
PACKED = field(2, struct.pack("<3I", 9, 4, 7))
WRITINGS: dict[str, bytes] = {
    "as every library writes it": HEAD + field(4, LEDGER + PACKED),
    "fields in another order": field(4, PACKED + LEDGER) + HEAD,
    "entries in two pieces": HEAD
    + field(4, LEDGER + field(2, struct.pack("<2I", 9, 4)) + field(2, struct.pack("<I", 7))),
    "entries that are not packed": HEAD
    + field(4, LEDGER + b"".join(b"\x15" + struct.pack("<I", entry) for entry in (9, 4, 7))),
    "some packed, some not": HEAD
    + field(4, LEDGER + b"\x15" + struct.pack("<I", 9) + field(2, struct.pack("<2I", 4, 7))),
    "a piece that is empty": HEAD + field(4, LEDGER + field(2, b"") + PACKED),
    "the ledger twice": HEAD + field(4, b"\x08\x06" + LEDGER + PACKED),
    "a number with more bytes than it needs": HEAD + field(4, b"\x08\x85\x00" + PACKED),
    "a zero that is written": b"\x10\x00" + HEAD + field(4, LEDGER + PACKED),
    "a field of a later version": HEAD + field(4, LEDGER + PACKED + field(15, b"new")),
    "one beside the ledgers": HEAD + field(4, LEDGER + PACKED) + field(15, b"new"),
}


@pytest.mark.parametrize("writing", WRITINGS)
def test_other_writings_of_the_same_are_read_too(writing: str) -> None:
    data = WRITINGS[writing]
    message = pb.AckBatch.FromString(data)
    assert told(read(data)) == plainly(message)
    assert list(as_set(as_entries(read(data).ledgers[0].entries))) == [4, 7, 9]
    assert read(data).size_bytes == message.ByteSize()
    assert paid(read(data)) == paid(by_protobuf(data))


def test_whose_it_is_is_known_before_it_is_taken_apart() -> None:
    """Half a batch index, and a property that is no text."""
    for inside in (field(4, field(3, field(4, b"\x08"))), field(5, field(1, field(1, b"\xff")))):
        sent = codec.sent_acks(HEAD + inside)
        assert (sent.handle, sent.seq, sent.generation) == (1, 2, 1)
        with pytest.raises(DecodeError):
            codec.batch_of(sent, HEAD + inside)


BROKEN: dict[str, Callable[[], bytes]] = {
    "a number is cut off": lambda: HEAD + field(4, LEDGER + field(2, b"\x01\x00\x00")),
    "two and a half numbers": lambda: HEAD + field(4, LEDGER + field(2, bytes(10))),
    "a property that is no text": lambda: (
        HEAD + field(5, field(1, field(1, b"\xff") + b"\x10\x02"))
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_column_is_no_message(what: str) -> None:
    data = BROKEN[what]()
    for take in (read, pb.AckBatch.FromString):
        with pytest.raises(DecodeError):
            take(data)


@given(st.lists(PLAIN, max_size=3), st.randoms(use_true_random=False))
def test_any_bytes_are_refused_or_say_what_protobuf_reads(
    ledgers: list[pb.LedgerAcks], rng: random.Random
) -> None:
    """One byte of a message is another one."""
    data = bytearray(
        pb.AckBatch(handle=1, seq=2, generation=1, ledgers=ledgers).SerializeToString()
    )
    data[rng.randrange(len(data))] = rng.randrange(256)
    plain: pb.AckBatch | None
    try:
        plain = pb.AckBatch.FromString(bytes(data))
    except DecodeError:
        plain = None
    try:
        batch = read(bytes(data))
    except DecodeError:
        assert plain is None
    except RefusedError as error:
        assert plain is not None
        with pytest.raises(RefusedError) as too:
            by_protobuf(bytes(data))
        assert too.value.message == error.message
    else:
        assert plain is not None and told(batch) == plainly(plain)
        assert paid(batch) == paid(by_protobuf(bytes(data)))


def test_mark_delete_beside_plain_acks() -> None:
    message = pb.AckBatch(
        seq=2,
        generation=1,
        mark_delete=pb.Position(ledger=5, entry=3),
        ledgers=[pb.LedgerAcks(ledger_id=5, entries=range(200))],
    )
    batch = read(message.SerializeToString())
    assert batch.mark_delete == Position(5, 3)
    assert (batch.acks, batch.ledgers[0].entries) == (201, BitMap(range(200)))
