"""Reading many records at once: check them all, then join their deltas in few passes.

Owns the batching. Deltas join in any order, so a reader collects the bodies of a ledger and merges
them together, which is ten times faster than one by one when records are small. Invariant: the
result is that of decoding and joining one by one, and so is the damage found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.join import join
from cursorkeeper.core.values import Delta
from cursorkeeper.format import columns, delta, few, record
from cursorkeeper.format.record import RecordHeader

CHUNK_BYTES: Final = columns.BODIES_BYTES_MAX
"""Body bytes read in one pass. A larger body is read alone."""
BATCH_BYTES: Final = 2 << 20
"""Bytes of expanded bodies that are read and joined together. Bounds what records take before a
state's budget is asked.
"""

PlaceOf = Callable[[int], str]


def split_bodies(
    entries: Sequence[bytes], cursor_hash: int | None, place_of: PlaceOf = "record {}".format
) -> list[tuple[RecordHeader, bytes]]:
    """`record.split_body` of many entries. `place_of(i)` names entry i when it is damaged.

    Raises TooNewError, DamageError with the place of the first bad entry.
    """
    found: list[tuple[RecordHeader, bytes]] = []
    for index, entry in enumerate(entries):
        try:
            found.append(record.split_body(entry, cursor_hash))
        except DamageError as error:
            raise error.at(place_of(index)) from None
    return found


def batches(entries: Sequence[bytes], records_max: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Index of the first, and entries, of parts of at most `records_max` records and `BATCH_BYTES`
    of announced bodies, or of one.
    """
    begin = size = 0
    for index, entry in enumerate(entries):
        announced = min(record.announced_bytes(entry), record.BODY_BYTES_MAX)
        if index > begin and (size + announced > BATCH_BYTES or index - begin >= records_max):
            yield begin, entries[begin:index]
            begin, size = index, 0
        size += announced
    if begin < len(entries):
        yield begin, entries[begin:]


def merge_deltas(bodies: Sequence[bytes], place_of: PlaceOf = "delta body {}".format) -> Delta:
    """The join of uncompressed delta bodies, in any order. `place_of(i)` names body i when it is
    damaged.

    Raises DamageError.
    """
    if sum(map(len, bodies)) > few.BYTES_MAX:
        return merge_many(bodies, place_of)
    try:
        return few.read(bodies)
    except columns.Unusual:
        return merge_one_by_one(bodies, place_of)


def merge_one_by_one(bodies: Sequence[bytes], place_of: PlaceOf = "delta body {}".format) -> Delta:
    return join([_decode_one(body, index, place_of) for index, body in enumerate(bodies)])


def merge_many(bodies: Sequence[bytes], place_of: PlaceOf = "delta body {}".format) -> Delta:
    """The same in few passes, which take long where there is little to read."""
    acks: dict[int, BitMap] = {}
    others: list[Delta] = []
    for begin, chunk in _chunks(bodies):
        try:
            read = columns.read(chunk)
        except columns.Unusual:
            others += [
                _decode_one(body, begin + index, place_of) for index, body in enumerate(chunk)
            ]
            continue
        for ledger, entries in read.acks.items():
            if ledger in acks:
                acks[ledger] |= entries
            else:
                acks[ledger] = entries
        others += read.deltas
        others += [_decode_one(chunk[index], begin + index, place_of) for index in read.rest]
    return join([Delta(acks={ledger: acks[ledger] for ledger in sorted(acks)}), *others])


def _decode_one(body: bytes, index: int, place_of: PlaceOf) -> Delta:
    try:
        return delta.decode(body)
    except DamageError as error:
        raise error.at(place_of(index)) from None


def _chunks(bodies: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    begin = size = 0
    for index, body in enumerate(bodies):
        if size and size + len(body) > CHUNK_BYTES:
            yield begin, bodies[begin:index]
            begin, size = index, 0
        size += len(body)
    if begin < len(bodies):
        yield begin, bodies[begin:]
