"""Records described in JSON, as `golden.json` and docs/reference/data-format.md do: sets are lists
of [first, last].
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap

from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    OpenRecord,
    Partial,
    PartialKey,
    Record,
    RecordBody,
    Segment,
    Slice,
    SnapshotEnd,
    Stamp,
)

Json = dict[str, Any]


def record_of(told: Json) -> Record:
    """The record that a description tells."""
    name = CursorName(told["topic"], told["subscription"])
    return Record(
        name.record_hash,
        told["epoch"],
        told["generation"],
        told["sequence"],
        body_of(told["kind"], told["body"], name),
    )


def body_of(kind: str, told: Json, name: CursorName) -> RecordBody:
    if kind == "open":
        return OpenRecord(name.canonical, told["epoch"], told["generation"], told["writer"])
    head = (
        Position(*told["markDelete"]) if "markDelete" in told else None,
        MarkDeleteProperties(*stamped(told["markDeleteProperties"]))
        if "markDeleteProperties" in told
        else None,
        CursorProperties(*stamped(told["cursorProperties"]))
        if "cursorProperties" in told
        else None,
    )
    if kind == "snapshot end":
        assert head[0] is not None
        ids = (told["snapshotId"], told["epoch"], told["generation"], tuple(told["segments"]))
        return SnapshotEnd(*ids, head[0], head[1], head[2], told["length"], told["crc32c"])
    layout = tuple(
        LayoutItem(ledger, LayoutState[state], entries)
        for ledger, state, entries in told.get("layout", [])
    )
    partials = {
        PartialKey(ledger, entry): Partial(size, set_of(missing))
        for ledger, entry, size, missing in told.get("partials", [])
    }
    if kind == "delta":
        return Delta(
            *head, layout, {int(k): set_of(v) for k, v in told.get("acks", {}).items()}, partials
        )
    assert kind == "snapshot segment"
    slices = tuple(
        Slice(*ends, form == "holes", set_of(members)) for *ends, form, members in told["slices"]
    )
    return Segment(*head, layout, partials, slices)


def stamped(told: Json) -> tuple[Stamp, Json]:
    return Stamp(*told["stamp"]), told["values"]


def set_of(ranges: list[list[int]]) -> BitMap:
    out = BitMap()
    for first, last in ranges:
        out.add_range(first, last + 1)
    return out
