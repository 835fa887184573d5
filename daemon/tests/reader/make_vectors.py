"""Makes `testdata/format/vectors.json`: small cursors, each for one rule of
docs/reference/data-format.md, with what it must be read as.

What is expected is written here by hand, from the page; the rest of the state is filled in by the
daemon's reading and looked over when the file changes. `python -m daemon.tests.reader.make_vectors`
writes the file anew; vectors that are there already do not change without a change of the page.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c
from pyroaring import BitMap

from cursorkeeper.core.checksums import combined
from cursorkeeper.core.footer import (
    Base,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    SnapshotBase,
)
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
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec, compress
from cursorkeeper.format.record import Kind
from daemon.tests.format.reference import coded, leb
from daemon.tests.reader.cases import Case, Json, Stored, daemon_reading

VECTORS = Path(__file__).parents[3] / "testdata" / "format" / "vectors.json"
NAME = CursorName("persistent://public/default/orders", "billing")
EPOCH, GENERATION = 7, 2
PLAIN = record.EncodeSettings(codec=Codec.NONE)
WITH_SETS = replace(PLAIN, record_version=record.SEGMENT_VERSION)
Entry = bytes | None
DAMAGED: Json = {"refused": "damaged"}
TOO_NEW: Json = {"refused": "too new"}
TOO_LARGE: Json = {"refused": "too large"}


def rec(
    body: RecordBody, epoch: int = EPOCH, generation: int = GENERATION, name: CursorName = NAME
) -> bytes:
    return record.encode(Record(name.record_hash, epoch, generation, 1, body), PLAIN)


def raw(
    kind: Kind, body: bytes, *, version: int = 1, flags: int = 0, length: int | None = None
) -> bytes:
    """A record with a right checksum, whatever is in it."""
    size = len(body) if length is None else length
    head = record.HEADER.pack(
        b"CK", version, kind, flags, NAME.record_hash, EPOCH, GENERATION, 1, size, 0
    )
    return head[:36] + struct.pack("<I", crc32c(head + body)) + body


OPEN = rec(OpenRecord(NAME.canonical, EPOCH, GENERATION, "host/1/ab"))


def closed(ledger: int, entries: int) -> LayoutItem:
    return LayoutItem(ledger, LayoutState.CLOSED, entries)


def opened(ledger: int) -> LayoutItem:
    return LayoutItem(ledger, LayoutState.OPEN, 0)


def trimmed(ledger: int) -> LayoutItem:
    return LayoutItem(ledger, LayoutState.TRIMMED, 0)


def acks(**ledgers: Sequence[int]) -> Delta:
    """`acks(l5=[1, 2])`: entries 1 and 2 of ledger 5."""
    return Delta(acks={int(name[1:]): BitMap(entries) for name, entries in ledgers.items()})


def laid(*items: LayoutItem) -> Delta:
    return Delta(layout=items)


def to(ledger: int, entry: int) -> Delta:
    return Delta(mark_delete=Position(ledger, entry))


def batch(ledger: int, entry: int, size: int, *missing: int) -> Delta:
    return Delta(partials={PartialKey(ledger, entry): Partial(size, BitMap(missing))})


def numbers(epoch: int, sequence: int, **values: int) -> Delta:
    return Delta(mark_delete_properties=MarkDeleteProperties(Stamp(epoch, sequence), values))


def part(
    ledger: int,
    first: int,
    last: int,
    *,
    acked: Sequence[int] = (),
    holes: Sequence[int] | None = None,
) -> Slice:
    return Slice(ledger, first, last, holes is not None, BitMap(acked if holes is None else holes))


@dataclass
class Cursor:
    """A stored cursor that is being put together."""

    base: Base = field(default_factory=lambda: EmptyBase(Position(5, -1)))
    chain: list[ChainLedger] = field(default_factory=list)
    ledgers: dict[int, Stored] = field(default_factory=dict)
    previous: Previous | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    settings: record.EncodeSettings = PLAIN

    def ledger(
        self,
        *entries: Entry,
        last: int | None = None,
        is_open: bool = False,
        name: int | None = None,
    ) -> Cursor:
        """One more in the chain."""
        ledger = name or 100 + len(self.ledgers)
        self.ledgers[ledger] = Stored(entries)
        self.chain.append(
            ChainLedger(ledger, None if is_open else len(entries) - 1 if last is None else last)
        )
        return self

    def snapshot(
        self,
        *entries: Entry,
        listed: Sequence[int],
        at: int,
        end: Delta | None = None,
        crcs: Sequence[int] = (),
    ) -> Cursor:
        """A ledger whose entry `at` becomes the end record of those `listed`; None stands where it
        goes.
        """
        whole = list(entries)
        checks = crcs or [record.peek(whole[x] or b"").crc32c for x in listed]
        length = sum(len(whole[x] or b"") for x in listed)
        body = SnapshotEnd(
            1,
            EPOCH,
            GENERATION,
            tuple(listed),
            (end and end.mark_delete) or Position(5, -1),
            None,
            None,
            length,
            combined(checks),
        )
        whole[at] = rec(body)
        self.ledger(*whole)
        crc = record.peek(whole[at] or b"").crc32c
        self.base = SnapshotBase(self.chain[-1].ledger, listed[0], at, len(listed), length, crc)
        return self

    def before(self, other: Cursor) -> Cursor:
        """Falls back to `other`; what it names and this does not is among the ledgers."""
        self.previous = Previous(other.base, tuple(other.chain))
        self.ledgers = {**other.ledgers, **self.ledgers}
        return self

    def spoilt(self, ledger: int, at: int, entry: Entry = None) -> Cursor:
        own = self.ledgers[ledger].entries
        self.ledgers[ledger] = Stored((*own[:at], entry, *own[at + 1 :]))
        return self

    def footer(self, **changes: Any) -> Cursor:
        self.changes |= changes
        return self

    @property
    def case(self) -> Case:
        values: dict[str, Any] = {
            "state": FooterState.OPEN,
            "epoch": EPOCH,
            "writer": "host/1/ab",
            "write": 3,
            "generation": GENERATION,
            "mark_delete": Position(5, -1),
            "base": self.base,
            "chain": tuple(self.chain),
            "previous": self.previous,
        }
        footer = Footer(NAME.topic, NAME.subscription, **{**values, **self.changes})
        return Case(NAME, footer_bytes.encode(footer, self.settings), dict(self.ledgers))


Vector = tuple[str, Case, Json]


def of(
    *deltas: Delta | Entry, base: Base | None = None, settings: record.EncodeSettings = PLAIN
) -> Case:
    """One ledger of these."""
    cursor = Cursor(settings=settings).ledger(
        OPEN, *(rec(d) if isinstance(d, Delta) else d for d in deltas)
    )
    cursor.base = base or cursor.base
    return cursor.case


def state(mark_delete: list[int], **others: Any) -> Json:
    return {"markDelete": mark_delete, **others}


def mark_deletes() -> list[Vector]:
    two = laid(closed(5, 3), opened(6))
    return [
        ("nothing but the base", Cursor().case, state([5, -1], acked={}, highWaters={})),
        (
            "mark-delete takes the acked prefix after the joins",
            of(acks(l5=[0, 2]), acks(l5=[1, 4])),
            state([5, 2], acked={"5": [[4, 4]]}),
        ),
        (
            "mark-delete crosses a closed ledger to an acked entry 0",
            of(acks(l5=[0, 1, 2], l6=[0, 1]), two),
            state([6, 1], layout=[[6, "open", 0]]),
        ),
        (
            "it stays where entry 0 of the next ledger is not acked",
            of(acks(l5=[0, 1, 2], l6=[1]), two),
            state([5, 2], acked={"6": [[1, 1]]}),
        ),
        (
            "it does not cross an open ledger",
            of(acks(l5=[0, 1, 2], l6=[0]), laid(opened(5), opened(6))),
            state([5, 2]),
        ),
        (
            "it does not cross where the ledger is not in the layout",
            of(acks(l5=[0, 1, 2], l6=[0]), laid(opened(6))),
            state([5, 2]),
        ),
        (
            "it crosses empty and trimmed ledgers on its way",
            of(acks(l5=[0], l9=[0]), laid(closed(5, 1), closed(6, 0), trimmed(7), opened(9))),
            state([9, 0]),
        ),
        (
            "it does not rest behind ledgers that it could cross",
            of(acks(l5=[0], l9=[1]), laid(closed(5, 1), closed(6, 0), opened(9))),
            state([5, 0]),
        ),
        (
            "acks beyond the end of a closed ledger count",
            of(acks(l5=[0, 1, 2, 3, 4]), two),
            state([5, 4]),
        ),
        (
            "a mark-delete is believed beyond the end of its ledger",
            of(to(5, 9), acks(l6=[0]), two),
            state([6, 0]),
        ),
        (
            "a mark-delete before the first entry is later than one in the ledger before",
            of(to(6, -1), acks(l5=[4], l6=[1])),
            state([6, -1]),
        ),
        (
            "the footer's mark-delete joins",
            Cursor().ledger(OPEN, rec(to(5, 1))).footer(mark_delete=Position(5, 3)).case,
            state([5, 3]),
        ),
    ]


def layouts() -> list[Vector]:
    return [
        (
            "of two lengths of a closed ledger the longer counts",
            of(laid(closed(5, 4), opened(6)), laid(closed(5, 3)), acks(l5=[0, 1, 2], l6=[0])),
            state([5, 2]),
        ),
        (
            "the same, the shorter first",
            of(laid(closed(5, 3)), laid(closed(5, 4), opened(6)), acks(l5=[0, 1, 2], l6=[0])),
            state([5, 2]),
        ),
        (
            "closed after trimmed is trimmed",
            of(laid(trimmed(5), opened(6)), laid(closed(5, 9)), acks(l6=[0])),
            state([6, 0]),
        ),
        (
            "layout below mark-delete is forgotten",
            of(laid(closed(3, 1), closed(4, 2), closed(5, 9), opened(6))),
            state([5, -1], layout=[[5, "closed", 9], [6, "open", 0]]),
        ),
        (
            "acks of a trimmed ledger are forgotten, those before",
            of(acks(l6=[1]), laid(trimmed(6))),
            state([5, -1], acked={}, highWaters={}),
        ),
        (
            "and those after",
            of(laid(trimmed(6)), acks(l6=[1])),
            state([5, -1], acked={}, highWaters={}),
        ),
        (
            "batches of a trimmed ledger are forgotten",
            of(batch(6, 1, 3, 0), laid(trimmed(6)), batch(6, 2, 3, 0)),
            state([5, -1], batches=[]),
        ),
        (
            "a trimmed ledger under mark-delete has its high water alone",
            of(acks(l5=[4, 7]), laid(trimmed(5)), to(5, 2), acks(l5=[9])),
            state([5, 2], acked={}, highWaters={"5": 3}),
        ),
        (
            "nothing is taken as prefix in a trimmed ledger",
            of(acks(l5=[0, 1]), laid(trimmed(5), opened(6))),
            state([5, -1]),
        ),
        (
            "acks below mark-delete are forgotten",
            of(acks(l4=[7], l5=[1]), to(5, 3)),
            state([5, 3], acked={}, highWaters={"5": 4}),
        ),
    ]


def batches() -> list[Vector]:
    return [
        (
            "missing indexes are intersected, the larger size counts",
            of(batch(5, 1, 0, 0, 1, 2), batch(5, 1, 4, 0, 2, 3), batch(5, 1, 9, 0, 2)),
            state([5, -1], batches=[[5, 1, 9, [[0, 0], [2, 2]]]]),
        ),
        (
            "an empty intersection acks the entry, and mark-delete takes it",
            of(batch(5, 0, 2, 0), batch(5, 0, 2, 1)),
            state([5, 0], batches=[]),
        ),
        (
            "an acked entry has no batch, acked after",
            of(batch(5, 1, 2, 0), acks(l5=[1])),
            state([5, -1], acked={"5": [[1, 1]]}, batches=[]),
        ),
        (
            "and acked before",
            of(acks(l5=[1]), batch(5, 1, 2, 0)),
            state([5, -1], acked={"5": [[1, 1]]}, batches=[]),
        ),
        (
            "nor has one at or below mark-delete",
            of(batch(5, 1, 2, 0), batch(4, 9, 2, 0), to(5, 1), batch(5, 0, 2, 0)),
            state([5, 1], batches=[]),
        ),
        (
            "nor one that the prefix passes",
            of(acks(l5=[0, 1, 2]), batch(5, 1, 2, 0)),
            state([5, 2], batches=[]),
        ),
        (
            "a batch raises the high water",
            of(batch(5, 7, 2, 0)),
            state([5, -1], highWaters={"5": 8}),
        ),
    ]


def stamps_and_owners() -> list[Vector]:
    text = CursorProperties
    return [
        (
            "the later stamp counts, whichever comes first",
            of(numbers(3, 9, a=1), numbers(3, 2, b=2), numbers(2, 99, c=3)),
            {"markDeleteProperties": {"stamp": [3, 9], "values": {"a": 1}}},
        ),
        (
            "an empty map clears",
            of(numbers(3, 9, a=1), numbers(3, 10)),
            {"markDeleteProperties": {"stamp": [3, 10], "values": {}}},
        ),
        (
            "of two maps of one stamp the greater counts",
            of(numbers(3, 9, a=1, b=5), numbers(3, 9, a=2)),
            {"markDeleteProperties": {"stamp": [3, 9], "values": {"a": 2}}},
        ),
        (
            "and a longer one is greater than its beginning",
            of(numbers(3, 9, a=1, b=-5), numbers(3, 9, a=1)),
            {"markDeleteProperties": {"stamp": [3, 9], "values": {"a": 1, "b": -5}}},
        ),
        (
            "the subscription's properties of the footer join by their stamp",
            Cursor()
            .ledger(OPEN, rec(Delta(cursor_properties=text(Stamp(2, 1), {"a": "new"}))))
            .footer(cursor_properties=text(Stamp(1, 9), {"a": "old"}))
            .case,
            {"cursorProperties": {"stamp": [2, 1], "values": {"a": "new"}}},
        ),
        (
            "an entry of another generation does not count",
            of(rec(acks(l5=[0]), generation=1), rec(acks(l5=[2]), generation=3), acks(l5=[1])),
            state([5, -1], acked={"5": [[1, 1]]}, highWaters={"5": 2}),
        ),
        ("earlier epochs count", of(rec(acks(l5=[0]), epoch=1)), state([5, 0])),
        ("a delta at entry 0 counts", Cursor().ledger(rec(acks(l5=[0]))).case, state([5, 0])),
        (
            "a deleted cursor has no state",
            Cursor().footer(state=FooterState.DELETED).case,
            {"state": "deleted"},
        ),
    ]


def settling() -> list[Vector]:
    return [*mark_deletes(), *layouts(), *batches(), *stamps_and_owners()]


def whole(*slices: Slice, **others: Any) -> bytes:
    return rec(Segment(slices=slices, **others))


def kept(*, ahead: Delta | None = None) -> Cursor:
    """Previous: entry 1 in a ledger of deltas. Then a ledger with entry 2 in front of the snapshot
    of 1 and 2, 3 inside, 4 behind.
    """
    first = Cursor().ledger(OPEN, rec(acks(l5=[1])))
    second = Cursor(ledgers=dict(first.ledgers))
    front = rec(ahead or acks(l5=[2]))
    second.snapshot(
        OPEN,
        front,
        whole(part(5, 0, 2, holes=[0])),
        rec(acks(l5=[3])),
        whole(part(6, 0, 9, acked=[5])),
        None,
        rec(acks(l5=[4])),
        listed=[2, 4],
        at=5,
    )
    return second.before(first)


ONE_TO_FOUR = state([5, -1], acked={"5": [[1, 4]], "6": [[5, 5]]}, fellBack=False)


def bases() -> list[Vector]:
    return [
        ("a snapshot, deltas around it, and what is in front of it", kept().case, ONE_TO_FOUR),
        (
            "a delta in front of firstEntry does not count",
            kept(ahead=acks(l5=[2, 8])).case,
            ONE_TO_FOUR,
        ),
        (
            "a hole takes nothing back, slices overlap in any order",
            Cursor()
            .snapshot(
                OPEN,
                whole(
                    part(5, 2, 6, holes=[2, 5]), part(5, 0, 4, acked=[2]), part(5, 0, 0, acked=[])
                ),
                None,
                listed=[1],
                at=2,
            )
            .case,
            state([5, -1], acked={"5": [[2, 4], [6, 6]]}),
        ),
        (
            "a slice raises the high water to its last",
            Cursor().snapshot(OPEN, whole(part(5, 0, 9, acked=[])), None, listed=[1], at=2).case,
            state([5, -1], highWaters={"5": 10}),
        ),
        (
            "segments that the end record does not list do not count",
            Cursor()
            .snapshot(
                OPEN,
                whole(part(5, 0, 9, acked=[1])),
                whole(part(5, 0, 9, acked=[2])),
                None,
                listed=[1],
                at=3,
            )
            .case,
            state([5, -1], acked={"5": [[1, 1]]}),
        ),
        (
            "nor do the bodies of those have to be right",
            Cursor()
            .snapshot(
                OPEN,
                whole(part(5, 0, 9, acked=[1])),
                raw(Kind.SEGMENT, b"\xff"),
                raw(Kind.SNAPSHOT_END, b""),
                None,
                listed=[1],
                at=4,
            )
            .case,
            state([5, -1], acked={"5": [[1, 1]]}),
        ),
        (
            "without a snapshot as base, segments do not count",
            of(whole(part(5, 0, 9, acked=[1])), acks(l5=[2])),
            state([5, -1], acked={"5": [[2, 2]]}),
        ),
        (
            "the end record's mark-delete joins",
            Cursor().snapshot(OPEN, whole(), None, listed=[1], at=2, end=to(5, 3)).case,
            state([5, 3]),
        ),
        (
            "an inline base is a segment",
            of(
                base=InlineBase(
                    Segment(Position(5, 1), slices=(part(5, 0, 3, acked=[2]),)),
                    EPOCH,
                    GENERATION,
                    1,
                )
            ),
            state([5, 2]),
        ),
        (
            "of the footer's generation",
            of(base=InlineBase(Segment(), EPOCH, GENERATION - 1, 1)),
            DAMAGED,
        ),
        (
            "and not of a later epoch",
            of(base=InlineBase(Segment(), EPOCH + 1, GENERATION, 1)),
            DAMAGED,
        ),
    ]


def fall_backs() -> list[Vector]:
    fallen = state([5, -1], acked={"5": [[1, 4]]}, fellBack=True)
    plain = rec(acks(l5=[1]))
    bare = replace(kept(), previous=None)
    twice = Cursor(ledgers={100: Stored(())})
    twice.snapshot(OPEN, whole(part(5, 0, 3, acked=[1])), None, listed=[1], at=2)
    above = Cursor(ledgers=dict(twice.ledgers))
    above.snapshot(OPEN, whole(part(5, 0, 3, acked=[1])), None, listed=[1], at=2)
    above.before(twice)
    return [
        (
            "a damaged segment: fall back, the next ledgers are read, too",
            kept().spoilt(101, 2).case,
            fallen,
        ),
        ("a damaged end record: fall back", kept().spoilt(101, 5).case, fallen),
        ("a listed entry that is a delta: fall back", kept().spoilt(101, 4, plain).case, fallen),
        (
            "a listed segment of another generation: fall back",
            kept().spoilt(101, 2, rec(Segment(), generation=1)).case,
            fallen,
        ),
        (
            "a listed segment of a later epoch: fall back",
            kept().spoilt(101, 2, rec(Segment(), epoch=EPOCH + 1)).case,
            fallen,
        ),
        (
            "segments that are not those of the checksum: fall back",
            kept().spoilt(101, 4, rec(Segment())).case,
            fallen,
        ),
        (
            "an end record that is not the one of the footer: fall back",
            kept()
            .spoilt(101, 5, rec(SnapshotEnd(2, 1, 1, (2, 4), Position(5, 9), None, None)))
            .case,
            fallen,
        ),
        (
            "the end record and a delta of another cursor in its place: fall back",
            kept().spoilt(101, 5, rec(acks(l5=[9]), name=CursorName("t", "s"))).case,
            fallen,
        ),
        ("nothing to fall back to", bare.spoilt(101, 2).case, DAMAGED),
        ("both snapshots damaged", above.spoilt(101, 1).spoilt(102, 1).case, DAMAGED),
        (
            "falling back, all listed segments may be damaged",
            kept().spoilt(101, 2).spoilt(101, 4).case,
            fallen,
        ),
        (
            "unless the end record that lists them is damaged as well",
            kept().spoilt(101, 2).spoilt(101, 5).case,
            DAMAGED,
        ),
        (
            "but for those that the footer calls damaged",
            kept().spoilt(101, 2).spoilt(101, 5).footer(damaged=(EntryAddress(101, 2),)).case,
            fallen,
        ),
        (
            "falling back needs the deltas in front of the snapshot",
            kept().spoilt(101, 1).spoilt(101, 5).case,
            DAMAGED,
        ),
        (
            "falling back needs the previous chain",
            kept().spoilt(100, 1).spoilt(101, 5).case,
            DAMAGED,
        ),
        ("which is not looked at otherwise", kept().spoilt(100, 1).case, ONE_TO_FOUR),
        ("damage in front of the snapshot is harmless", kept().spoilt(101, 1).case, ONE_TO_FOUR),
        (
            "even a record of another cursor",
            kept().spoilt(101, 1, rec(acks(l5=[9]), name=CursorName("t", "s"))).case,
            ONE_TO_FOUR,
        ),
        ("damage behind the snapshot is refused", kept().spoilt(101, 6).case, DAMAGED),
        (
            "a too new segment is no reason to fall back",
            kept().spoilt(101, 2, raw(Kind.SEGMENT, b"", version=3)).case,
            TOO_NEW,
        ),
        (
            "nor a too new end record",
            kept().spoilt(101, 5, raw(Kind.SNAPSHOT_END, b"", version=2)).case,
            TOO_NEW,
        ),
        (
            "nor may anything too new be skipped",
            kept().spoilt(101, 1, raw(Kind.DELTA, b"", version=9)).case,
            TOO_NEW,
        ),
    ]


def snapshots() -> list[Vector]:
    return [*bases(), *fall_backs()]


def damage() -> list[Vector]:
    other = CursorName("persistent://public/default/orders", "shipping")

    def whole() -> Cursor:
        return Cursor().ledger(OPEN, rec(acks(l5=[0])))

    return [
        ("a damaged entry 0 is harmless", whole().spoilt(100, 0).case, state([5, 0])),
        ("cut off, too", whole().spoilt(100, 0, OPEN[:20]).case, state([5, 0])),
        ("a wrong checksum, too", whole().spoilt(100, 0, OPEN[:-1] + b"x").case, state([5, 0])),
        (
            "an entry 0 of another cursor is refused",
            whole().spoilt(100, 0, rec(OpenRecord(other.canonical, 1, 1, "w"), name=other)).case,
            DAMAGED,
        ),
        (
            "and one of a later epoch",
            whole().spoilt(100, 0, rec(OpenRecord(NAME.canonical, 8, 2, "w"), epoch=8)).case,
            DAMAGED,
        ),
        ("and a too new one", whole().spoilt(100, 0, b"CK\x02").case, TOO_NEW),
        ("a damaged delta is refused", of(None), DAMAGED),
        ("an empty entry is damage", of(b""), DAMAGED),
        (
            "a later epoch is refused, whatever its generation",
            of(rec(acks(l5=[0]), epoch=8, generation=1)),
            DAMAGED,
        ),
        (
            "damaged entries that the footer lists are skipped",
            Cursor()
            .ledger(OPEN, None, rec(acks(l5=[0])))
            .footer(damaged=(EntryAddress(100, 1),))
            .case,
            state([5, 0]),
        ),
        (
            "listed ones that can be read count",
            Cursor().ledger(OPEN, rec(acks(l5=[0]))).footer(damaged=(EntryAddress(100, 1),)).case,
            state([5, 0]),
        ),
        (
            "a ledger shorter than lastEntry is refused",
            Cursor().ledger(OPEN, rec(acks(l5=[0])), last=2).case,
            DAMAGED,
        ),
        (
            "entries behind lastEntry are not read",
            Cursor().ledger(OPEN, rec(acks(l5=[0])), None, last=1).case,
            state([5, 0]),
        ),
        (
            "without lastEntry everything is read",
            Cursor().ledger(OPEN, rec(acks(l5=[0])), is_open=True).case,
            state([5, 0]),
        ),
        (
            "a ledger that is empty need not exist",
            replace(Cursor().ledger(), ledgers={}).case,
            state([5, -1]),
        ),
        (
            "one that is not has to",
            replace(Cursor().ledger(OPEN), ledgers={}).case,
            {"refused": "missing"},
        ),
        (
            "the body of a delta of another generation is not read",
            of(raw(Kind.DELTA, b"\xff")[:20] + b"\x01\0\0\0" + raw(Kind.DELTA, b"\xff")[24:]),
            DAMAGED,
        ),
        ("unknown kind", of(raw(9, b"")), DAMAGED),  # type: ignore[arg-type]
        ("unknown flag", of(raw(Kind.DELTA, b"\0", flags=4)), DAMAGED),
        ("codec 3", of(raw(Kind.DELTA, b"\0", flags=3)), DAMAGED),
        ("version 0", of(raw(Kind.DELTA, b"\0", version=0)), DAMAGED),
        ("reserved bytes are ignored", of(reserved(acks(l5=[0]))), state([5, 0])),
        ("a body shorter than announced", of(raw(Kind.DELTA, b"\0", length=2)), DAMAGED),
        ("a body longer than announced", of(raw(Kind.DELTA, b"\0\0", length=1)), DAMAGED),
        (
            "a body of more than 4 MiB, announced",
            of(raw(Kind.DELTA, b"\0", length=(4 << 20) + 1)),
            DAMAGED,
        ),
    ]


def reserved(delta: Delta) -> bytes:
    entry = bytearray(rec(delta))
    entry[5:8] = b"abc"
    entry[36:40] = bytes(4)
    entry[36:40] = struct.pack("<I", crc32c(bytes(entry)))
    return bytes(entry)


def joined(parts: Iterable[int | bytes]) -> bytes:
    """Bytes as they are, numbers as LEB128."""
    return b"".join(p if isinstance(p, bytes) else leb(p) for p in parts)


def delta(*parts: int | bytes) -> Case:
    return of(raw(Kind.DELTA, joined(parts)))


def acked(ledger: int, *section: int | bytes) -> Case:
    return delta(16, 1, ledger, *section)


def segment(*parts: int | bytes, version: int = 1) -> Case:
    entry = raw(Kind.SEGMENT, joined(parts), version=version)
    return Cursor().snapshot(OPEN, entry, None, listed=[1], at=2).case


def one_slice(
    bitmap: bytes,
    *,
    first: int = 0,
    last: int = 9,
    flags: int = 0,
    ledger: int = 5,
    size: int | None = None,
    version: int = 1,
) -> Case:
    return segment(
        0,
        1,
        struct.pack("<QIIBI", ledger, first, last, flags, len(bitmap) if size is None else size),
        bitmap,
        version=version,
    )


TOP = (1 << 32) - 1


def fields() -> list[Vector]:
    ledgers = (1 << 63) - 1
    return [
        ("nothing at all is a delta", delta(0), state([5, -1])),
        ("an unknown bit", delta(64), DAMAGED),
        ("bytes behind the end", delta(0, 0), DAMAGED),
        ("an empty body", delta(), DAMAGED),
        ("a number that is not minimal", delta(b"\x80\x00"), DAMAGED),
        ("the largest ledger", delta(1, ledgers, 1), state([ledgers, 0])),
        ("a ledger of 2^63", delta(1, 1 << 63, 1), DAMAGED),
        ("mark-delete at the largest entry", delta(1, 5, TOP + 1), state([5, TOP])),
        ("and beyond it", delta(1, 5, TOP + 2), DAMAGED),
        (
            "a stamp of 2^64 - 1",
            delta(2, 0, (1 << 64) - 1, (1 << 64) - 1),
            {"markDeleteProperties": {"stamp": [(1 << 64) - 1] * 2, "values": {}}},
        ),
        ("a number of 2^64", delta(2, 0, 0, b"\xff" * 9 + b"\x02"), DAMAGED),
        (
            "a property of -2^63",
            delta(2, 1, 1, 1, 1, b"k", (1 << 64) - 1),
            {"markDeleteProperties": {"stamp": [1, 1], "values": {"k": -(1 << 63)}}},
        ),
        ("keys that do not ascend", delta(4, 2, 1, 1, 1, b"b", 0, 1, b"a", 0), DAMAGED),
        ("a key twice", delta(4, 2, 1, 1, 1, b"a", 0, 1, b"a", 0), DAMAGED),
        (
            "an empty key",
            delta(4, 1, 1, 1, 0, 1, b"x"),
            {"cursorProperties": {"stamp": [1, 1], "values": {"": "x"}}},
        ),
        ("a text that is not UTF-8", delta(4, 1, 1, 1, 1, b"\xff", 0), DAMAGED),
        ("more properties than bytes", delta(4, 200, 1, 1), DAMAGED),
        ("a layout of none", delta(8, 0), DAMAGED),
        (
            "a closed ledger of 2^32 entries",
            delta(8, 1, 5, 1, TOP + 1),
            {"layout": [[5, "closed", TOP + 1]]},
        ),
        ("and of one more", delta(8, 1, 5, 1, TOP + 2), DAMAGED),
        ("an open ledger with entries", delta(8, 1, 5, 0, 1), DAMAGED),
        ("a layout state of 3", delta(8, 1, 5, 3, 0), DAMAGED),
        ("a ledger twice in the layout", delta(8, 2, 5, 0, 0, 0, 0, 0), DAMAGED),
        ("acks of none", delta(16, 0), DAMAGED),
        ("a ledger twice in the acks", delta(16, 2, 5, 0, 0, 0, 0, 0), DAMAGED),
    ]


def sets() -> list[Vector]:
    return [
        ("ledger 0, and its entry 0", acked(0, 0, 0), state([5, -1], acked={})),
        ("GAPS of one member", acked(5, 0, 0), state([5, 0])),
        (
            "GAPS with gaps",
            acked(5, 2 << 2, 1, 0, 3),
            state([5, -1], acked={"5": [[1, 2], [6, 6]]}),
        ),
        ("RUNS", acked(5, 3 << 2 | 1, 1, 2, 0, 1), state([5, -1], acked={"5": [[1, 3], [5, 6]]})),
        ("RUNS that end inside a run", acked(5, 2 << 2 | 1, 1, 2, 0), DAMAGED),
        ("empty RUNS", acked(5, 1, 1), DAMAGED),
        (
            "BITS",
            acked(5, 2 << 2 | 2, 1, b"\x05\x80"),
            state([5, -1], acked={"5": [[1, 1], [3, 3], [16, 16]]}),
        ),
        ("BITS without the first", acked(5, 1 << 2 | 2, 1, b"\x04"), DAMAGED),
        ("BITS that end in zero", acked(5, 2 << 2 | 2, 1, b"\x01\0"), DAMAGED),
        ("empty BITS", acked(5, 2, 1), DAMAGED),
        ("mode 3", acked(5, 3, 1), DAMAGED),
        ("a set that is cut off", acked(5, 2 << 2, 1, 0), DAMAGED),
        ("a set that begins at 2^32", acked(5, 0, TOP + 1), DAMAGED),
        ("GAPS beyond the last entry id", acked(5, 1 << 2, TOP, 0), DAMAGED),
        ("RUNS beyond it", acked(5, 1 << 2 | 1, TOP, 1), DAMAGED),
        ("BITS beyond it", acked(5, 1 << 2 | 2, TOP, 3), DAMAGED),
        ("a gap of 2^64 - 1", acked(5, 10 << 2, 1, (1 << 64) - 1), DAMAGED),
        (
            "more than 2^32 members in one record",
            delta(16, 2, 6, 5 << 2 | 1, 0, TOP, 1, 0, 0),
            DAMAGED,
        ),
        (
            "the last entry of each of 60 ledgers",
            delta(16, 60, *(5, 0, TOP), *(1, 0, TOP) * 59),
            state([5, -1]),
        ),
        (
            "of 70 ledgers: 358 MB of entries that are known and not acked",
            delta(16, 70, *(5, 0, TOP), *(1, 0, TOP) * 69),
            TOO_LARGE,
        ),
    ]


def partly_acked() -> list[Vector]:
    return [
        (
            "a batch of size 2^32",
            delta(32, 1, 5, 1, TOP + 1, 1, 0, 0),
            {"batches": [[5, 1, TOP + 1, [[0, 0]]]]},
        ),
        ("and of one more", delta(32, 1, 5, 1, TOP + 2, 1, 0, 0), DAMAGED),
        ("a batch whose index is its size", delta(32, 1, 5, 1, 3, 1, 0, 3), DAMAGED),
        ("a batch that announces two and misses one", delta(32, 1, 5, 1, 3, 2, 0, 0), DAMAGED),
        ("batches that do not ascend", delta(32, 2, 5, 1, 3, 1, 0, 0, 0, 1, 3, 1, 0, 0), DAMAGED),
        ("batches of none", delta(32, 0), DAMAGED),
        (
            "acks and a batch of one entry in one record",
            delta(48, 1, 5, 0, 3, 1, 5, 3, 3, 1, 0, 0),
            state([5, -1], acked={"5": [[3, 3]]}, batches=[]),
        ),
    ]


def slices() -> list[Vector]:
    good = BitMap([1, 4]).serialize()
    wide = struct.pack("<QIIBI", 5, 0, TOP, 0, len(good)) + good
    two = good[:-4] + good[-2:] + good[-4:-2]  # the same values, descending
    return [
        ("acks in a segment", segment(16, 1, 5, 0, 0, 0), DAMAGED),
        ("no slices", segment(0, 0), state([5, -1])),
        (
            "a slice",
            one_slice(good),
            state([5, -1], acked={"5": [[1, 1], [4, 4]]}, highWaters={"5": 10}),
        ),
        (
            "a slice of holes",
            one_slice(good, flags=1),
            state([5, 0], acked={"5": [[2, 3], [5, 9]]}),
        ),
        ("a slice with an empty bitmap", one_slice(BitMap().serialize(), flags=1), state([5, 9])),
        ("another flag", one_slice(good, flags=2), DAMAGED),
        ("first above last", one_slice(good, first=9, last=8), DAMAGED),
        ("a bitmap outside of its slice", one_slice(good, last=3), DAMAGED),
        ("a bitmap of no bytes", one_slice(b""), DAMAGED),
        ("a bitmap with bytes behind it", one_slice(good + b"\0"), DAMAGED),
        ("a bitmap that is cut off", one_slice(good, size=len(good) + 9), DAMAGED),
        ("a ledger of 2^63 in a slice", one_slice(good, ledger=1 << 63), DAMAGED),
        ("a bitmap whose values descend", one_slice(two), DAMAGED),
        (
            "one range of all containers four times: 196,609 count",
            segment(0, 4, wide * 4),
            state([5, -1], acked={"5": [[1, 1], [4, 4]]}, highWaters={"5": TOP + 1}),
        ),
        ("and five times: 262,145 are too many", segment(0, 5, wide * 5), DAMAGED),
        (
            "fewer slices than announced",
            segment(0, 2, struct.pack("<QIIBI", 5, 0, 9, 0, len(good)), good),
            DAMAGED,
        ),
    ]


def slices_of_sets() -> list[Vector]:
    def a_set(data: bytes, flags: int = 2, **others: int) -> Case:
        return one_slice(data, flags=flags, version=2, **others)

    def zeros(count: int) -> Case:
        """So many gaps of 0, compressed."""
        bits = (1 << count) - 1
        high = bits.to_bytes((count + 7) // 8, "little")
        entry = leb(len(high) << 1) + b"\0" + high
        body = b"\0\1" + struct.pack("<QIIBI", 5, 0, 1 << 20, 2, len(entry)) + entry
        _, packed = compress(body, Codec.ZSTD, 1)
        stored = raw(Kind.SEGMENT, packed, version=2, flags=Codec.ZSTD, length=len(body))
        return Cursor().snapshot(OPEN, stored, None, listed=[1], at=2).case

    def entries(*runs: list[int]) -> Json:
        return state([5, -1], acked={"5": list(runs)}, highWaters={"5": 10})

    good = entries([1, 1], [4, 4])
    gaps, roaring = coded([[1, 2]], [1]), BitMap([1, 4]).serialize()
    everything = coded([[0], [TOP]], [0, 31])
    wide = struct.pack("<QIIBI", 5, 0, TOP, 2, len(everything)) + everything
    apart = b"".join(
        struct.pack("<QIIBI", ledger, 0, TOP, 3, len(everything)) + everything
        for ledger in range(5, 10)
    )
    return [
        ("version 2: a slice that is a set, of gaps", a_set(gaps), good),
        *(
            (f"its gaps of order {order}", a_set(coded([[1, 2]], [order])), good)
            for order in (0, 2, 3, 31)
        ),
        ("its set as runs", a_set(coded([[1, 1], [0, 0]], [0, 0])), good),
        (
            "runs of orders that differ",
            a_set(coded([[1, 2], [1, 3]], [2, 1])),
            entries([1, 2], [6, 9]),
        ),
        (
            "the set of its holes",
            a_set(gaps, flags=3),
            state([5, 0], acked={"5": [[2, 3], [5, 9]]}),
        ),
        (
            "a set that begins behind 0",
            a_set(coded([[5, 2]], [2]), first=65_536, last=65_545),
            state([5, -1], acked={"5": [[65_541, 65_541], [65_544, 65_544]]}),
        ),
        (
            "runs that begin behind 0",
            a_set(coded([[0, 2], [0, 1]], [1, 0]), first=65_536, last=65_545),
            state([5, -1], acked={"5": [[65_536, 65_536], [65_540, 65_541]]}),
        ),
        (
            "the last entry id",
            a_set(coded([[TOP]], [31]), last=TOP),
            state([5, -1], acked={"5": [[TOP, TOP]]}, highWaters={"5": TOP + 1}),
        ),
        (
            "a gap of 32 bits that its order does not foresee",
            a_set(coded([[TOP - 1]], [0]), last=TOP),
            state([5, -1], acked={"5": [[TOP - 1, TOP - 1]]}, highWaters={"5": TOP + 1}),
        ),
        ("Roaring in version 2", one_slice(roaring, version=2), good),
        (
            "one of each",
            segment(
                0,
                2,
                struct.pack("<QIIBI", 5, 0, 9, 0, len(roaring)) + roaring,
                struct.pack("<QIIBI", 6, 0, 9, 3, 4) + coded([[3]], [2]),
                version=2,
            ),
            state([5, -1], acked={"5": [[1, 1], [4, 4]], "6": [[0, 2], [4, 9]]}),
        ),
        ("a set in version 1", one_slice(gaps, flags=2), DAMAGED),
        ("a third flag", a_set(gaps, flags=4), DAMAGED),
        ("Roaring that says it is a set", a_set(roaring), DAMAGED),
        ("a set that says it is Roaring", a_set(gaps, flags=0), DAMAGED),
        ("a set of no bytes", a_set(b""), DAMAGED),
        ("a set without numbers", a_set(b"\0\0"), DAMAGED),
        ("bytes behind a set", a_set(gaps + b"\0"), DAMAGED),
        ("low bits that are cut off", a_set(gaps[:-1]), DAMAGED),
        ("high bits that are cut off", a_set(gaps[:2]), DAMAGED),
        ("a one behind the low bits", a_set(gaps[:-1] + bytes([gaps[-1] | 0x80])), DAMAGED),
        ("high bits that end in a byte of zeros", a_set(b"\x04\0\1\0"), DAMAGED),
        ("a set that ends inside a run", a_set(b"\3\0\0\1"), DAMAGED),
        ("a gap of 33 bits", a_set(b"\2\x21\1" + bytes(5)), DAMAGED),
        ("an order of 255", a_set(b"\2\xff\1" + bytes(32)), DAMAGED),
        ("a set that ends behind its slice", a_set(coded([[1, 8]], [1])), DAMAGED),
        ("runs behind the slice", a_set(coded([[1], [9]], [0, 0])), DAMAGED),
        (
            "a set beyond the last entry id",
            a_set(coded([[0, 0]], [0]), first=TOP, last=TOP),
            DAMAGED,
        ),
        (
            "as many numbers as there may be",
            zeros(1 << 20),
            state([5, (1 << 20) - 1], highWaters={"5": (1 << 20) + 1}),
        ),
        ("and one more", zeros((1 << 20) + 1), DAMAGED),
        (
            "one range of all containers four times as sets",
            segment(0, 4, wide * 4, version=2),
            state([5, TOP]),
        ),
        ("and five times", segment(0, 5, wide * 5, version=2), DAMAGED),
        ("five whole ledgers have too many containers", segment(0, 5, apart, version=2), DAMAGED),
        ("a delta of version 2 is too new", of(raw(Kind.DELTA, b"\0", version=2)), TOO_NEW),
        (
            "an inline base of version 2",
            of(
                base=InlineBase(
                    Segment(Position(5, 1), slices=(part(5, 0, 99, holes=range(10, 90, 7)),)),
                    EPOCH,
                    GENERATION,
                    1,
                ),
                settings=WITH_SETS,
            ),
            state([5, 9]),
        ),
    ]


def bodies() -> list[Vector]:
    return [*fields(), *sets(), *partly_acked(), *slices(), *slices_of_sets()]


def footers() -> list[Vector]:
    plain = Cursor().ledger(OPEN, rec(acks(l5=[0])))

    def text(old: str, new: str, *, keep: bool = False, count: int = 1) -> Case:
        data = plain.case.footer
        changed = data.replace(old.encode(), new.encode(), count)
        assert changed != data, old
        body = changed[: changed.rindex(b',"crc32c"')]
        return replace(
            plain.case, footer=changed if keep else body + b',"crc32c":"%08x"}' % crc32c(body)
        )

    def fenced(token: int) -> Case:
        head, count, _ = plain.case.footer.replace(b'{"version":1', b'{"version":2', 1).rpartition(
            b',"crc32c"'
        )
        body = head + b',"fencingToken":%d' % token
        return replace(plain.case, footer=body + count + b':"%08x"}' % crc32c(body))

    def written(version: int, write: int = 3) -> Case:
        return text(
            '"write":3', f'"znode":{{"version":{version},"epoch":7,"write":{write}}},"write":3'
        )

    read, base = state([5, 0]), '"base":{"empty":[5,-1]}'
    snapshot = (
        '{"ledger":99,"firstEntry":1,"lastEntry":2,"numParts":1,"length":9,"crc32c":"00000000"}'
    )
    long = Cursor().snapshot(OPEN, rec(Segment()), None, listed=[1], at=2)
    assert isinstance(long.base, SnapshotBase)
    long.base = replace(long.base, length=long.base.length + 1)
    other_length = long.before(Cursor()).case
    return [
        ("a footer", plain.case, read),
        ("a wrong checksum", text('"epoch":7', '"epoch":8', keep=True), DAMAGED),
        (
            "a newer version is too new before its checksum is looked at",
            text('"version":1', '"version":3', keep=True),
            TOO_NEW,
        ),
        ("a fencing token makes version 2", fenced(812), read),
        ("the highest one", fenced((1 << 63) - 1), read),
        ("one of 2^63", fenced(1 << 63), DAMAGED),
        ("one of 0", fenced(0), DAMAGED),
        ("version 2 without one", text('"version":1', '"version":2'), DAMAGED),
        ("version 1 with one", text('"previous"', '"fencingToken":812,"previous"'), DAMAGED),
        ("version 0", text('"version":1', '"version":0'), DAMAGED),
        ("another format, too", text('"format":"native"', '"format":"newest"', keep=True), TOO_NEW),
        (
            "a format that the parts are not",
            text('"format":"native"', '"format":"pulsar"'),
            DAMAGED,
        ),
        (
            "a ledger of another format",
            text('"lastEntry":1}', '"lastEntry":1,"format":"newest"}'),
            TOO_NEW,
        ),
        (
            "unknown members are ignored",
            text('"previous"', '"later":{"a":[1.5,null]},"previous"'),
            read,
        ),
        (
            "another subscription",
            replace(plain.case, name=CursorName(NAME.topic, "other")),
            DAMAGED,
        ),
        (
            "a canonical name that is not that of the topic",
            text('"subscription":"billing"', '"subscription":"billinG"'),
            DAMAGED,
        ),
        ("an epoch that is a float", text('"epoch":7', '"epoch":7.0'), DAMAGED),
        ("an epoch with an exponent", text('"epoch":7', '"epoch":7e0'), DAMAGED),
        ("a write number of 2^63", text('"write":3', f'"write":{1 << 63}'), DAMAGED),
        ("a negative generation", text('"generation":2', '"generation":-2'), DAMAGED),
        (
            "an entry of 2^32 in a position",
            text(base, f'"base":{{"empty":[5,{1 << 32}]}}'),
            DAMAGED,
        ),
        ("a base of two kinds", text(base, '"base":{"empty":[5,-1],"inline":""}'), DAMAGED),
        ("a base of no kind", text(base, '"base":{}'), DAMAGED),
        ("an unknown base", text(base, '"base":{"later":1}'), DAMAGED),
        ("an inline base that is no record", text(base, '"base":{"inline":"AAAA"}'), DAMAGED),
        ("no chain", text('"chain"', '"chains"'), DAMAGED),
        ("no previous is null", text('"previous":null', '"later":null'), read),
        ("an unknown state", text('"state":"open"', '"state":"ajar"'), DAMAGED),
        ("statistics that are not there", text('"runs":0', '"walks":0'), DAMAGED),
        ("spaces", text('"epoch":7', ' "epoch" : 7'), read),
        ("escaped text", text('"writer":"host/1/ab"', '"writer":"h\\u00f6st"'), read),
        ("half a character", text('"writer":"host/1/ab"', '"writer":"h\\ud800st"'), DAMAGED),
        ("a member twice", text('"epoch":7', '"epoch":7,"epoch":7'), DAMAGED),
        (
            "a member twice inside of an unknown one",
            text('"epoch":7', '"epoch":7,"later":{"a":1,"a":1}'),
            DAMAGED,
        ),
        ("an epoch of 2^32", text('"epoch":7', f'"epoch":{1 << 32}'), DAMAGED),
        ("a lastEntry of 2^32", text('"lastEntry":1', f'"lastEntry":{1 << 32}'), DAMAGED),
        ("a ledger twice in the chain", text('"chain":[', '"chain":[{"ledger":100},'), DAMAGED),
        (
            "a snapshot outside of its chain",
            text(base, f'"base":{{"snapshot":{snapshot}}}'),
            DAMAGED,
        ),
        ("one in its chain whose length is not that of its end record", other_length, DAMAGED),
        (
            "the znode's version is the one that was written",
            replace(written(4), znode_version=4),
            read,
        ),
        ("and another one", replace(written(4), znode_version=5), {"refused": "replaced"}),
        ("of another write it does not count", replace(written(4, write=2), znode_version=5), read),
        ("not JSON", replace(plain.case, footer=b"{{{"), DAMAGED),
        ("nothing", replace(plain.case, footer=b""), DAMAGED),
        ("bytes behind the end", replace(plain.case, footer=plain.case.footer + b" "), DAMAGED),
    ]


def whole_states() -> list[Vector]:
    def ledger(*entries: bytes, last: int | None = None, **metadata: str) -> Case:
        told = {
            "cursor": NAME.canonical,
            "format": "pulsar",
            "epoch": "6",
            "generation": "2",
            "entry-bytes-max": "64",
            **metadata,
        }
        kept = {k.replace("codec", "pulsar/cursor-compressionType"): v for k, v in told.items()}
        cursor = Cursor(ledgers={100: Stored(entries, kept)})
        cursor.chain = [ChainLedger(100, len(entries) - 1 if last is None else last, "pulsar")]
        return cursor.case

    head, ranged, array = (
        bytes.fromhex(told) for told in ("08051001", "1a0c0a0408051002120408051004", "320408061001")
    )
    crossing, batched, number = (
        bytes.fromhex(told)
        for told in ("1a0c0a0408051002120408061000", "2a080a04080510071006", "22050a016b1007")
    )
    long = head + b"".join(
        bytes.fromhex("22050a01") + bytes([97 + n]) + b"\x10\x07" for n in range(12)
    )
    first, second = long[:64], long[64:]
    foot, huge = b'{"numParts":2,"length":%d}' % len(long), b'{"numParts":1,"length":2147483646}'
    ranges = state([5, 1], acked={"5": [[3, 4]]})
    return [
        ("a whole state", ledger(head + ranged), ranges),
        ("the newest one counts", ledger(head + array, head + ranged), ranges),
        ("long arrays", ledger(head + array), state([5, 1], acked={"6": [[0, 0]]})),
        ("ranges and long arrays: the ranges count", ledger(head + array + ranged), ranges),
        (
            "a batch, whose size is not known",
            ledger(head + batched),
            state([5, 1], batches=[[5, 7, 0, [[1, 2]]]]),
        ),
        (
            "properties have the ledger's epoch",
            ledger(head + number),
            {"markDeleteProperties": {"stamp": [6, 0], "values": {"k": 7}}},
        ),
        ("slices and their footer", ledger(first, second, foot), state([5, 1])),
        ("slices without a footer are walked over", ledger(head + ranged, first, second), ranges),
        ("but not what is behind them", ledger(first, second, b"\x08"), DAMAGED),
        ("a footer whose last slice is missing", ledger(head, first, foot), DAMAGED),
        ("a footer of another length", ledger(first, second[:-1], foot), DAMAGED),
        (
            "a footer of two gigabytes",
            ledger(head, huge, **{"entry-bytes-max": "2147483647"}),
            DAMAGED,
        ),
        ("an entry longer than a slice", ledger(long), DAMAGED),
        ("nothing but slices", ledger(first, second), DAMAGED),
        ("an empty ledger", ledger(), DAMAGED),
        ("damage is no reason for an older state", ledger(head, b"\xff"), DAMAGED),
        ("a range across ledgers", ledger(head + crossing), DAMAGED),
        (
            "one that ends before mark-delete",
            ledger(bytes.fromhex("08061005") + crossing),
            state([6, 5]),
        ),
        (
            "a newer field inside of a range",
            ledger(head + bytes.fromhex("1a0e") + ranged[2:] + bytes.fromhex("1801")),
            TOO_NEW,
        ),
        ("a newer field at the top", ledger(head + ranged + bytes.fromhex("3807")), ranges),
        ("a ledger of another generation", ledger(head, generation="1"), DAMAGED),
        ("a ledger of a later epoch", ledger(head, epoch="8"), DAMAGED),
        ("a ledger of another cursor", ledger(head, cursor="other|one"), DAMAGED),
        ("a codec that is not known", ledger(head, codec="BROTLI"), TOO_NEW),
        (
            "codec NONE: the length is there",
            ledger(bytes([0, 0, 0, 4]) + head, codec="NONE"),
            state([5, 1]),
        ),
        ("and must be right", ledger(bytes([0, 0, 0, 5]) + head, codec="NONE"), DAMAGED),
    ]


CHAPTERS = {
    "whole states": whole_states,
    "settling": settling,
    "snapshots": snapshots,
    "damage": damage,
    "bodies": bodies,
    "footers": footers,
}


def as_json(chapter: str, what: str, case: Case, expected: Json) -> Json:
    told = case.as_json()
    if case.footer:
        told["footerText"] = case.footer.decode()
        del told["footer"]
    return {"chapter": chapter, "what": what, "cursor": told, "expected": expected}


def case_of(vector: Json) -> Case:
    """Of one member of the file."""
    told = dict(vector["cursor"])
    if "footerText" in told:
        told["footer"] = told.pop("footerText").encode().hex()
    return Case.from_json(told)


def main() -> None:
    """Writes the file; refuses if the daemon reads one of them otherwise than it says here."""
    found = []
    for chapter, vectors in CHAPTERS.items():
        for what, case, expected in vectors():
            read = daemon_reading(case)
            read.pop("why", None)
            wrong = {
                key: (value, read.get(key))
                for key, value in expected.items()
                if read.get(key) != value
            }
            if wrong:
                print(f"{chapter}: {what}: expected and read: {wrong} {read}")
                continue
            found.append(as_json(chapter, what, case, read))
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text("[\n" + ",\n".join(json.dumps(one) for one in found) + "\n]\n")
    print(len(found), "vectors")


if __name__ == "__main__":
    main()
