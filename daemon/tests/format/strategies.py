"""Values to encode: arbitrary ones and nasty ones. Everything here keeps the contract of
`core.values`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted
from cursorkeeper.core.footer import (
    FORMAT_NATIVE,
    FORMAT_PULSAR,
    Base,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    PulsarBase,
    SnapshotBase,
    Stats,
    Truncation,
    Written,
)
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
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
    Segment,
    Slice,
    SnapshotEnd,
    Stamp,
)
from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.format.pulsar.values import ManagedCursorInfo

U32 = st.integers(0, ENTRY_ID_MAX)
U64 = st.integers(0, (1 << 64) - 1)
LEDGERS = st.one_of(
    st.integers(0, 5), st.integers(0, 1 << 20), st.integers(LEDGER_ID_MAX - 3, LEDGER_ID_MAX)
)
TEXTS = st.text(max_size=12)


@st.composite
def bitmaps(draw: st.DrawFn, limit: int = ENTRY_ID_MAX) -> BitMap:
    """A set that is not empty, of any shape, somewhere in [0, limit]."""
    width = draw(st.sampled_from([1, 8, 9, 64, 300, 70_000, limit]))
    width = min(width, limit)
    base = draw(st.one_of(st.integers(0, limit - width), st.sampled_from([0, limit - width])))
    shape = draw(st.sampled_from(["few", "dense", "runs", "edges"]))
    if shape == "few":
        return BitMap(
            base + n for n in draw(st.sets(st.integers(0, width), min_size=1, max_size=60))
        )
    if shape == "edges":
        return BitMap([base, base + width])
    if shape == "runs":
        out = BitMap([base])
        for first in draw(st.lists(st.integers(0, width), max_size=40)):
            out.add_range(base + first, base + min(width, first + draw(st.integers(0, 40))) + 1)
        return out
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    members = np.flatnonzero(
        rng.random(min(width, 2_000) + 1) < draw(st.sampled_from([0.02, 0.4, 0.9, 1.0]))
    )
    return from_sorted((members + base).astype(np.uint32)) | BitMap([base])


POSITIONS = st.builds(
    Position, LEDGERS, st.one_of(st.integers(-1, 20), st.integers(-1, ENTRY_ID_MAX))
)
STAMPS = st.builds(Stamp, st.integers(0, 3), st.integers(0, 3))


@st.composite
def stamped_numbers(draw: st.DrawFn) -> MarkDeleteProperties:
    """Equal stamps belong to one record, so they carry equal maps."""
    stamp = draw(STAMPS)
    return MarkDeleteProperties(
        stamp, {f"k{i}é": (-1) ** i * 7 ** (stamp.epoch * i) for i in range(stamp.sequence)}
    )


@st.composite
def stamped_texts(draw: st.DrawFn) -> CursorProperties:
    """The same for texts."""
    stamp = draw(STAMPS)
    return CursorProperties(stamp, {"x" * i: "v" * stamp.epoch for i in range(stamp.sequence)})


NUMBER_MAPS = st.builds(
    MarkDeleteProperties,
    STAMPS,
    st.dictionaries(TEXTS, st.integers(-(1 << 63), (1 << 63) - 1), max_size=5),
)
TEXT_MAPS = st.builds(CursorProperties, STAMPS, st.dictionaries(TEXTS, TEXTS, max_size=5))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[LayoutItem, ...]:
    """Ascending ledgers; the entry count of a ledger follows from its id, so two of them never
    contradict.
    """
    return tuple(
        LayoutItem(ledger, state, ledger % 1000 if state is LayoutState.CLOSED else 0)
        for ledger, state in sorted(
            draw(st.dictionaries(LEDGERS, st.sampled_from(LayoutState), max_size=4)).items()
        )
    )


@st.composite
def partials(draw: st.DrawFn) -> Partial:
    """A partly acked batch."""
    missing = draw(bitmaps(limit=draw(st.sampled_from([9, 100, 70_000]))))
    return Partial(draw(st.sampled_from([0, missing.max() + 1, 100_000])), missing)


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    """A delta as the state takes them: nothing at or below its own mark-delete, no entry both acked
    and partly acked.
    """
    one = Delta(
        draw(st.none() | POSITIONS),
        draw(st.none() | stamped_numbers()),
        draw(st.none() | stamped_texts()),
        draw(layouts()),
        draw(st.dictionaries(LEDGERS, bitmaps(), max_size=4)),
        draw(
            st.dictionaries(
                st.builds(PartialKey, LEDGERS, st.integers(0, 30) | U32), partials(), max_size=3
            )
        ),
    )
    return normal(one)


def normal(delta: Delta) -> Delta:
    """The delta joined with itself: what a reader holds after it."""
    return join([delta, delta])


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    """A slice with a bitmap that may be empty."""
    first = draw(st.integers(0, 65_535)) * 65_536
    width = draw(st.sampled_from([1, 65_536]))
    bitmap = (
        draw(st.just(BitMap()) | bitmaps(limit=width - 1))
        if width > 1
        else BitMap(draw(st.sampled_from([[], [0]])))
    )
    return Slice(
        draw(LEDGERS),
        first,
        first + width - 1,
        draw(st.booleans()),
        BitMap(first + n for n in bitmap),
    )


PARTIAL_MAPS = st.dictionaries(st.builds(PartialKey, LEDGERS, U32), partials(), max_size=3)
SEGMENTS = st.builds(
    Segment,
    st.none() | POSITIONS,
    st.none() | NUMBER_MAPS,
    st.none() | TEXT_MAPS,
    layouts(),
    PARTIAL_MAPS,
    st.lists(slices(), max_size=3).map(tuple),
)
ENDS = st.builds(
    SnapshotEnd,
    U64,
    U32,
    U32,
    st.sets(st.integers(0, LEDGER_ID_MAX), min_size=1, max_size=6).map(lambda s: tuple(sorted(s))),
    POSITIONS,
    st.none() | NUMBER_MAPS,
    st.none() | TEXT_MAPS,
    U64,
    U32,
)
OPENS = st.builds(OpenRecord, TEXTS, U32, U32, TEXTS)
RECORDS = st.builds(Record, U64, U32, U32, U64, deltas() | SEGMENTS | ENDS | OPENS)

SMALL_SEGMENTS = st.builds(
    Segment, POSITIONS, st.none() | NUMBER_MAPS, slices=st.lists(slices(), max_size=1).map(tuple)
)
ID = st.integers(0, LEDGER_ID_MAX)


def _pulsar_base(
    mark_delete: Position, acked: dict[int, BitMap], properties: dict[str, int], epoch: int
) -> PulsarBase:
    above = {ledger: entries for ledger, entries in acked.items() if ledger > mark_delete.ledger}
    info = ManagedCursorInfo(-1, mark_delete, above, {}, properties, {"a": "b"})
    return PulsarBase(cursor_info.encode(info), epoch)


PULSAR_BASES = st.builds(
    _pulsar_base,
    POSITIONS,
    st.dictionaries(st.integers(0, 99), bitmaps(), max_size=2).map(
        lambda d: dict(sorted(d.items()))
    ),
    st.dictionaries(TEXTS, st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
    U32,
)
BASES: st.SearchStrategy[Base] = st.one_of(
    st.builds(EmptyBase, POSITIONS),
    PULSAR_BASES,
    st.builds(InlineBase, SMALL_SEGMENTS, U32, U32, ID),
    st.builds(SnapshotBase, ID, U32, U32, st.integers(1, (1 << 32) - 1), ID, U32),
)
FORMATS = st.sampled_from([FORMAT_NATIVE, FORMAT_PULSAR])
CHAIN_LEDGERS = st.builds(ChainLedger, ID, st.none() | st.integers(-1, (1 << 32) - 1), FORMATS)
CHAINS = st.lists(CHAIN_LEDGERS, max_size=3, unique_by=lambda item: item.ledger).map(tuple)


def _previous(base: Base, chain: tuple[ChainLedger, ...]) -> Previous:
    """The ledger of a snapshot is in its chain, and in our own form."""
    if not isinstance(base, SnapshotBase):
        return Previous(base, chain)
    return Previous(
        base, (ChainLedger(base.ledger), *(item for item in chain if item.ledger != base.ledger))
    )


PREVIOUS = st.builds(_previous, BASES, CHAINS)
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=10)
STRANGE = st.none() | st.integers() | TEXTS | st.lists(TEXTS, max_size=2)
FOOTERS = st.builds(
    Footer,
    topic=NAMES,
    subscription=NAMES,
    state=st.sampled_from(FooterState),
    epoch=U32,
    writer=TEXTS,
    write=U32,
    generation=U32,
    mark_delete=POSITIONS,
    base=BASES,
    chain=CHAINS,
    previous=st.none() | PREVIOUS,
    damaged=st.lists(st.builds(EntryAddress, ID, U32), max_size=2).map(tuple),
    stats=st.builds(Stats, ID, ID, ID, ID, ID, ID),
    cursor_properties=st.none()
    | st.builds(
        CursorProperties, st.builds(Stamp, U32, U32), st.dictionaries(TEXTS, TEXTS, max_size=5)
    ),
    truncated=st.none() | st.builds(Truncation, ID, ID, ID, TEXTS),
    written=st.none() | st.builds(Written, ID, U32, U32),
    fencing_token=st.just(0) | ID,
    extra=st.dictionaries(st.sampled_from(["later", "zebra", "ä"]), STRANGE, max_size=2),
).map(lambda made: replace(made, chain=_previous(made.base, made.chain).chain))
