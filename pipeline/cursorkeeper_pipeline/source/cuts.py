"""Where a large cursor is cut, so that a task holds a piece of it at a time: at the beginnings of
segments of its newest snapshot.

Owns how many pieces there are, and their boundaries. Read for it, by the task that reads the cursor
and at its pace: the snapshot's end record, the leading segments and one segment for each boundary,
together no more than `READ_BYTES_MAX` or a `READ_SHARE`th of the snapshot; where that is more
pieces than a snapshot has segments, all of them, and boundaries lie inside. Segments ascend in
position, so those between two boundaries hold all that lies between them. Pieces have about equal
numbers of segments, which are about equal in entries and neither in bytes nor in rows. Invariants:
the windows lie side by side and cover everything; what cannot be cut (damage, a ledger that is gone
or whose bookies are, no snapshot) is read whole, and whoever reads it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from cursorkeeper.bookkeeper.errors import GatewayRefused, NoSuchLedger
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import bitmaps
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import EntryAddress, Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.values import Segment, Slice, SnapshotEnd
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.format import record
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.state_size import state_bytes

READ_BYTES_MAX: Final = 4 << 20
READ_SHARE: Final = 3
"""Of one snapshot for its boundaries, see the module."""
LEADING_MAX: Final = 64
"""So many segments may pass before the first slice: each of them is read by every task of the
cursor.
"""


class Unsplittable(Exception):
    """A cursor whose state has no place to cut it at."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A cursor, or its piece `number` of `parts`, cut at a footer of this generation. Of another
    one (after a reset) it is a piece of nothing.
    """

    name: CursorName
    number: int = 0
    parts: int = 1
    window: StateWindow = WHOLE
    generation: int = 0


class Splitter:
    def __init__(self, ledgers: LedgerStore, options: Options) -> None:
        self._ledgers, self._options = ledgers, options

    async def units(self, found: Found) -> list[Unit]:
        """The cursor in pieces of about `splitBytes`, in order of position, if it can be cut."""
        name, footer = found.name, found.footer
        if not isinstance(footer, Footer):
            return [Unit(name)]
        windows = await self.windows(name, footer, pieces_wanted(footer, self._options))
        return [
            Unit(name, number, len(windows), window, footer.generation)
            for number, window in enumerate(windows)
        ]

    async def windows(self, name: CursorName, footer: Footer, pieces: int) -> list[StateWindow]:
        """In order of position, about `pieces` of them; one, the whole, if it is not to be cut."""
        for base in bases_of(footer) if pieces > 1 else ():
            if isinstance(base, SnapshotBase):
                try:
                    return await self._of(name, base, pieces)
                except (Unsplittable, DamageError, NoSuchLedger, GatewayRefused):
                    continue  # of an open cursor the newest end may not be visible yet
                except MigrationError as e:
                    if e.kind is not Kind.AWAY:
                        raise
                    break  # whoever reads it says so
        return [WHOLE]

    async def _of(self, name: CursorName, base: SnapshotBase, pieces: int) -> list[StateWindow]:
        end = await self._body(name, base.ledger, base.last_entry)
        if not isinstance(end, SnapshotEnd):
            raise Unsplittable
        entries = end.segment_entries
        leading = await self._leading(name, base.ledger, entries)
        places, inside = cuts(base, len(entries) - leading, pieces)
        starts: list[Start] = []
        for place in places:
            segment = await self._body(name, base.ledger, entries[leading + place])
            if isinstance(segment, Segment) and segment.slices:
                starts += starts_in(segment, leading + place, inside)
        return windows_between(
            base, entries, leading, [start for start in starts if start.at > (leading, 0)]
        )

    async def _leading(self, name: CursorName, ledger: int, entries: Sequence[int]) -> int:
        """Which segment is the first with slices: up to it, mark-delete, properties and layout may
        come.
        """
        for at, entry in enumerate(entries[:LEADING_MAX]):
            segment = await self._body(name, ledger, entry)
            if isinstance(segment, Segment) and segment.slices:
                return at
        raise Unsplittable

    async def _body(self, name: CursorName, ledger: int, entry: int) -> object:
        async def read() -> bytes:
            async for chunk in self._ledgers.read(ledger, entry, entry):
                if chunk.payloads:
                    return chunk.payloads[0]
            raise Unsplittable

        return record.decode(
            await self._options.patience.repeat(str(name), read), name.record_hash
        ).body


class Start(NamedTuple):
    """Where a window begins. `at`: which segment (its place among all of them), and how many
    entries of it lie before.
    """

    at: tuple[int, int]
    position: Position


def bases_of(footer: Footer) -> Sequence[object]:
    """The footer's bases, the newest first."""
    return [footer.base] if footer.previous is None else [footer.base, footer.previous.base]


def pieces_wanted(footer: Footer, options: Options) -> int:
    """In how many pieces it should be read: one, or so many that each takes about `splitBytes` of
    memory. Pure.
    """
    can_be_cut = any(isinstance(base, SnapshotBase) for base in bases_of(footer))
    return max(1, -(-state_bytes(footer) // options.split_bytes)) if can_be_cut else 1


def cuts(base: SnapshotBase, segments: int, pieces: int) -> tuple[Sequence[int], int]:
    """Before which segments of a snapshot it is cut (0: the first that has slices), and in how many
    each of those is.
    """
    affordable = (
        max(READ_BYTES_MAX, base.length // READ_SHARE) * base.num_parts // max(1, base.length)
    )
    parts = min(pieces, 1 + affordable)
    inside = -(-parts // segments)
    return (
        (range(segments), inside)
        if inside > 1
        else (sorted({segments * part // parts for part in range(parts)}), 1)
    )


def starts_in(segment: Segment, place: int, pieces: int) -> list[Start]:
    """The beginnings of at most `pieces` windows of about equal numbers of entries, the first near
    where its first slice begins.
    """
    entries = sum(one.last - one.first + 1 for one in segment.slices)
    wanted = sorted({entries * piece // pieces for piece in range(pieces)})
    found, before = dict[Position, Start](), 0
    for one in segment.slices:
        size = one.last - one.first + 1
        for at in wanted:
            if (
                before <= at < before + size
                and (entry := _acked_from(one, one.first + at - before)) is not None
            ):
                position = Position(one.ledger, entry)
                found[position] = Start((place, before + entry - one.first), position)
        before += size
    return list(found.values())


def _acked_from(one: Slice, entry: int) -> int | None:
    """The first acked entry of a slice from this one on, or this one if it is the first of its data
    ledger; None: there is none.
    """
    if entry == 0:
        return 0
    marked = bitmaps.between(one.bitmap, entry, one.last)
    acked = marked.flip(entry, one.last + 1) if one.holes else marked
    return acked.min() if acked else None


def windows_between(
    base: SnapshotBase, entries: Sequence[int], leading: int, starts: Sequence[Start]
) -> list[StateWindow]:
    """From the first entry on and from each start; one more than there are starts. `entries`: the
    segments', `leading`: the place of the first that has slices.
    """
    snapshot = EntryAddress(base.ledger, base.last_entry)
    bounds = [Start((leading, 0), FIRST), *starts, Start((len(entries), 0), FIRST)]
    if not starts:
        return [WHOLE]
    found = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        upto = end.at[0] + (end.at[1] > 0)  # a segment that is cut is read on both sides
        segments = frozenset([*entries[: leading + 1], *entries[start.at[0] : upto]])
        found.append(
            StateWindow(
                start.position, end.position if number < len(starts) else None, snapshot, segments
            )
        )
    return found
