"""The body of a delta record: what changed, in an order that does not matter.

Owns the sections of acks (`leb(ledger gap)` and one section each, ledgers strictly ascending).
Invariants: encoding changes nothing; the body is consumed exactly; a body claims at most
`EXPANSION_MAX` acks in at most `RECORD_CONTAINERS_MAX` containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap

from cursorkeeper.core.entries import Entries
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.sizes import EXPANSION_MAX, set_containers_max
from cursorkeeper.core.values import Delta, Partial, PartialKey
from cursorkeeper.format import leb, sections
from cursorkeeper.format.fields import (
    Containers,
    Field,
    Head,
    append_head,
    append_partials,
    check_end,
    read_ledger,
    read_partials,
    read_present,
)

ALLOWED: Final = 63


def encode(delta: Delta) -> bytes:
    """The uncompressed body. Raises ValueError for a value that breaks the contract of
    `core.values`.
    """
    out = bytearray()
    more = 0
    if delta.acks:
        more |= Field.ACKS
    if delta.partials:
        more |= Field.PARTIALS
    append_head(out, more, delta, delta.layout)
    if delta.acks:
        _append_acks(out, delta.acks)
    if delta.partials:
        append_partials(out, delta.partials)
    return bytes(out)


def decode(body: bytes) -> Delta:
    """The inverse of `encode`. Raises DamageError."""
    head = Head(body, 0, ALLOWED)
    pos, room, containers = head.pos, EXPANSION_MAX, Containers()
    acks: dict[int, BitMap] = {}
    partials: dict[PartialKey, Partial] = {}
    if head.bits & Field.ACKS:
        acks, pos = _read_acks(body, pos, room, containers)
        room -= sum(map(len, acks.values()))
    if head.bits & Field.PARTIALS:
        partials, pos = read_partials(body, pos, room, containers)
    check_end(body, pos)
    return Delta(*head.common, acks, partials)


def _append_acks(out: bytearray, acks: Mapping[int, Entries]) -> None:
    few: list[int] = []  # what comes next, as numbers of a byte each
    leb.put(few, len(acks))
    previous = 0
    for ledger in sorted(acks):
        leb.put(few, ledger - previous)
        entries = acks[ledger]
        if entries and isinstance(entries, tuple):
            sections.put(few, entries)
        else:
            out += bytes(few)
            few.clear()
            sections.append(out, entries)
        previous = ledger
    out += bytes(few)


def _read_acks(
    data: bytes, pos: int, room: int, containers: Containers
) -> tuple[dict[int, BitMap], int]:
    count, pos = read_present(data, pos, "ack sections")
    acks: dict[int, BitMap] = {}
    ledger = 0
    for index in range(count):
        previous = ledger
        ledger, pos = read_ledger(data, pos, previous)
        if index and ledger == previous:
            raise DamageError("ledgers of ack sections do not ascend")
        acks[ledger], pos = sections.read(data, pos, room)
        room -= len(acks[ledger])
        containers.take(set_containers_max(acks[ledger]))
    return acks, pos
