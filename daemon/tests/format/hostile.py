"""Bytes with right checksums that ask for far more than they are: every vector by its name, as
stored records of one cursor.

Run as a program with the names of vectors: reads and joins each as a recovery does, under a budget
of `STATE_BYTES_MAX`, and prints per vector what became of it and by how much the process has grown.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator

import numpy as np
from google_crc32c import value as crc32c
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted
from cursorkeeper.core.budget import StateBudget
from cursorkeeper.core.errors import DamageError, OverBudgetError
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.state import AckState
from cursorkeeper.format import leb, record, replay, snapshot
from cursorkeeper.format.codec import Codec, compress
from cursorkeeper.format.golomb import NUMBERS_MAX
from cursorkeeper.format.record import (
    BODY_BYTES_MAX,
    CRC_AT,
    HEADER,
    MAGIC,
    SEGMENT_VERSION,
    VERSION,
    Kind,
)
from daemon.tests.format.reference import coded

CURSOR_HASH = 0x1122334455667788
STATE_BYTES_MAX = 48 << 20
LAST = (1 << 32) - 1
GAPS, RUNS, BITS = range(3)


def number(*values: int) -> bytes:
    out = bytearray()
    for value in values:
        leb.append(out, value)
    return bytes(out)


def section(mode: int, first: int, body: bytes = b"") -> bytes:
    return number(len(body) << 2 | mode, first) + body


def stored(kind: Kind, body: bytes, version: int = VERSION) -> bytes:
    """A record of any body, compressed as far as it goes, with its checksum right."""
    assert len(body) <= BODY_BYTES_MAX
    codec, packed = compress(body, Codec.ZSTD, 1)
    head = HEADER.pack(MAGIC, version, kind, codec, CURSOR_HASH, 1, 1, 1, len(body), 0)
    return head[:CRC_AT] + crc32c(head + packed).to_bytes(4, "little") + packed


def acks(*ledgers: bytes) -> bytes:
    """A delta of sections that already have their ledger gaps."""
    return stored(Kind.DELTA, number(16, len(ledgers)) + b"".join(ledgers))


def slices(*parts: tuple[int, int, int, bool, BitMap]) -> bytes:
    body = bytearray(number(0, len(parts)))
    for ledger, first, last, holes, bitmap in parts:
        raw = bitmap.serialize()
        body += (
            ledger.to_bytes(8, "little") + first.to_bytes(4, "little") + last.to_bytes(4, "little")
        )
        body += bytes([holes]) + len(raw).to_bytes(4, "little") + raw
    return stored(Kind.SEGMENT, bytes(body))


def slices_of_sets(*parts: tuple[int, int, int, bool, bytes]) -> bytes:
    """The same with sets in place of bitmaps."""
    body = bytearray(number(0, len(parts)))
    for ledger, first, last, holes, raw in parts:
        body += (
            ledger.to_bytes(8, "little") + first.to_bytes(4, "little") + last.to_bytes(4, "little")
        )
        body += bytes([2 | holes]) + len(raw).to_bytes(4, "little") + raw
    return stored(Kind.SEGMENT, bytes(body), SEGMENT_VERSION)


def zeros(count: int, columns: int = 1) -> bytes:
    """A set of so many numbers, a multiple of 8, that are all 0, in as few bytes as there can
    be.
    """
    return number(count // 8 << 1 | columns - 1) + bytes(columns) + b"\xff" * (count // 8)


def alike(gap: int, count: int) -> bytes:
    """A set of so many gaps."""
    return coded([[gap] * count], [gap.bit_length()])


EVERYTHING = coded([[0], [LAST]], [0, 31])


def every(count: int, ledger: int = 0) -> Iterator[int]:
    return iter(range(ledger, ledger + count))


BIG = BODY_BYTES_MAX - 64
MANY = 1_390_000
VECTORS: dict[str, Callable[[], list[bytes]]] = {
    "bits of four mebibytes, all set": lambda: [acks(number(1) + section(BITS, 7, b"\xff" * BIG))],
    "bits of four mebibytes, two set": lambda: [
        acks(number(1) + section(BITS, 7, b"\x01" + bytes(BIG - 2) + b"\x80"))
    ],
    "bits of many small sets": lambda: [
        acks(*(number(1) + section(BITS, 0, b"\xff" * 2_000) for _ in range(2_080)))
    ],
    "gaps of one byte": lambda: [acks(number(1) + section(GAPS, 0, bytes(BIG)))],
    "gaps of a container": lambda: [acks(number(1) + section(GAPS, 0, number(65_535) * 65_000))],
    "gaps of a container in many ledgers": lambda: [
        acks(*(number(1) + section(GAPS, 0, number(65_535) * 65_000) for _ in range(21)))
    ],
    "acks that make bits of runs": lambda: [
        acks(number(1) + section(GAPS, 0, number(2_000) * 2_000_000))
    ],
    "runs of one": lambda: [acks(number(1) + section(RUNS, 0, bytes(BIG | 1)))],
    "one run of everything": lambda: [acks(number(1) + section(RUNS, 0, number(LAST)))],
    "long runs": lambda: [
        acks(number(1) + section(RUNS, 0, number(500) + number(500, 500) * 1_040_000))
    ],
    "one ack in each of very many ledgers": lambda: [acks(*[number(1) + section(GAPS, 0)] * MANY)],
    "one ack in each of many ledgers": lambda: [acks(*[number(1) + section(GAPS, 0)] * 200_000)],
    "the last entry of 200 ledgers": lambda: [acks(*[number(1) + section(GAPS, LAST)] * 200)],
    "the last entry of one ledger in each of 3,000 records": lambda: [
        acks(number(ledger) + section(GAPS, LAST)) for ledger in range(1, 3_001)
    ],
    "layout of very many ledgers": lambda: [
        stored(Kind.DELTA, number(8, MANY) + number(1, 2, 0) * MANY)
    ],
    "layout of ever more ledgers": lambda: [
        stored(
            Kind.DELTA,
            number(8, 300_000) + number(1 + at * 300_000, 2, 0) + number(1, 2, 0) * 299_999,
        )
        for at in range(5)
    ],
    "partly acked batches": lambda: [
        stored(Kind.DELTA, number(32, 599_000) + number(1, 0, 0, 1, 0, 0) * 599_000)
    ],
    "a partly acked batch that misses everything": lambda: [
        stored(
            Kind.DELTA,
            number(32, 300) + (number(1, 0, 0, 1 << 32) + section(RUNS, 0, number(LAST))) * 300,
        )
    ],
    "a partly acked batch at the last entry": lambda: [
        stored(Kind.DELTA, number(32, 300) + (number(1, LAST, 2, 1) + section(GAPS, 0)) * 300)
    ],
    "slices of a whole ledger, again and again": lambda: [
        slices(*[(1, 0, LAST, True, BitMap([0, LAST]))] * 70_000)
    ],
    "slices of whole ledgers, nothing acked": lambda: [
        slices(*((ledger, 0, LAST, False, BitMap()) for ledger in every(70_000)))
    ],
    "slices of whole ledgers, all acked": lambda: (
        [slices(*((ledger, 0, LAST, True, BitMap()) for ledger in every(70_000)))] * 2
    ),
    "slices at the last entry": lambda: [
        slices(*((ledger, LAST, LAST, True, BitMap([LAST])) for ledger in every(1_000)))
    ],
    "a slice that cuts runs of holes": lambda: [
        slices(
            (1, 0, LAST, False, BitMap()),
            (1, 0, LAST, True, from_sorted(np.arange(0, 50_000 << 16, 2_000, np.uint32))),
        )
    ],
    "a slice of acks that cuts runs of holes": lambda: [
        slices((1, 0, LAST, False, from_sorted(np.arange(0, 50_000 << 16, 2_000, np.uint32))))
    ],
    "slices that are sets of everything, again and again": lambda: [
        slices_of_sets(*[(1, 0, LAST, False, EVERYTHING)] * 120_000)
    ],
    "slices that are sets of everything, in many ledgers": lambda: [
        slices_of_sets(
            *((ledger, 0, LAST, bool(ledger % 2), EVERYTHING) for ledger in every(120_000))
        )
    ],
    "slices that are sets of an entry, in many ledgers": lambda: [
        slices_of_sets(
            *((ledger, 0, LAST, False, coded([[LAST]], [31])) for ledger in every(120_000))
        )
    ],
    "slices that are sets of two in whole ledgers": lambda: [
        slices_of_sets(
            *((ledger, 0, LAST, True, coded([[0, LAST - 1]], [31])) for ledger in every(120_000))
        )
    ],
    "slices that are sets of everything, one by one": lambda: [
        slices_of_sets(*[(1, 0, LAST, True, EVERYTHING)] * 3)
    ],
    "a slice that is all the numbers of a set": lambda: [
        slices_of_sets((1, 0, LAST, False, zeros(NUMBERS_MAX)))
    ],
    "slices that are all the numbers of a set": lambda: [
        slices_of_sets(
            *(
                (1, at << 20, (at + 1 << 20) - 1, True, zeros(NUMBERS_MAX, 1 + at % 2))
                for at in range(31)
            )
        )
    ],
    "a slice that is more numbers than a set has": lambda: [
        slices_of_sets((1, 0, LAST, False, zeros(8 * (BIG - 40) & ~7)))
    ],
    "a slice of zeros without a one": lambda: [
        slices_of_sets(
            (1, 0, LAST, False, number(BIG - 40 << 1) + b"\x00" + bytes(BIG - 41) + b"\x80")
        )
    ],
    "a slice that is gaps of a container": lambda: [
        slices_of_sets((1, 0, LAST, True, alike(65_535, 65_000)))
    ],
    "slices that are gaps of a container, in many ledgers": lambda: [
        slices_of_sets(*((at, 0, LAST, False, alike(65_535, 65_000)) for at in every(21)))
    ],
    "a slice that makes bits of runs": lambda: [
        slices_of_sets((1, 0, LAST, False, alike(2_000, 1_000_000)))
    ],
    "a slice that is runs of one": lambda: [
        slices_of_sets((1, 0, LAST, True, zeros(NUMBERS_MAX, 2)))
    ],
    "slices that are sets of an entry, again and again": lambda: [
        slices_of_sets(*[(1, 0, 9, False, coded([[3]], [0]))] * 150_000)
    ],
    "an end record of very many segments": lambda: [
        stored(
            Kind.SNAPSHOT_END,
            bytes(28) + number(4_000_000) + number(1) * 4_000_000 + number(1, 1, 1),
        )
    ],
    "four mebibytes for one record, thousands of times": lambda: (
        [acks(number(1) + section(BITS, 7, b"\xff" * BIG))] * 100
    ),
}


def outcome(records: list[bytes]) -> str:
    """As a recovery reads them."""
    state = AckState(budget=StateBudget(STATE_BYTES_MAX, 500_000))
    try:
        for _, part in replay.batches(records, 5_000):
            split = replay.split_bodies(part, CURSOR_HASH)
            for header, body in split:
                if header.kind is Kind.SNAPSHOT_END:
                    snapshot.decode_end(body)
                elif header.kind is Kind.SEGMENT:
                    state.join_segment(snapshot.decode_segment(body, header.version))
            deltas = [body for header, body in split if header.kind is Kind.DELTA]
            for merge in (replay.merge_deltas, replay.merge_many):
                state.join_delta(merge(deltas))
        state.settle()
    except OverBudgetError as error:
        assert "state_bytes_max" in str(error) or "layout_ledgers_max" in str(error), error
        return "over budget"
    except DamageError:
        return "damage"
    return "joined"


def main() -> None:
    for name in sys.argv[1:]:
        records = VECTORS[name]()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = outcome(records)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{name}|{sum(map(len, records[:1]))}|{told}|{grown}", flush=True)


assert record.HEADER.size == RECORD_HEADER_BYTES
if __name__ == "__main__":
    main()
