"""The acknowledgement state of one cursor, in memory.

Per data ledger: `holes` (a bitmap) and `high_water`; acked = [0, high_water) minus holes. Partly
acked batches beside it. Invariants, where mark-delete is (L, e): ledgers below L have no entry here
and are wholly acked; in L there is no hole at or below e; a ledger above L without an entry has no
acks; every partial lies in a hole below its ledger's high water.

`apply` is the only way in for acks and returns what was new: that is the delta. `join_*` is the way
in for recovered
records: the same joins, nothing returned. Nothing here validates: `intake_check` did, or the
record's checksum. But a right
checksum says nothing about what acks ask for: `join_*` raise OverBudgetError before they take more
memory than `budget` allows, and the state is then good for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import takewhile

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps, containers
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.budget import (
    ACK_BYTES,
    DEFAULT,
    LAYOUT_BYTES,
    LEDGER_BYTES,
    PARTIAL_BYTES,
    StateBudget,
    growth_bytes,
    mixed_bytes,
)
from cursorkeeper.core.entries import Entries, Sent, as_entries, as_set, last_of, union, united
from cursorkeeper.core.errors import OverBudgetError
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.ledger_acks import LedgerAcks, LedgerTable
from cursorkeeper.core.positions import BEFORE_FIRST, FIRST, Position
from cursorkeeper.core.shape import component
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Segment,
    Slice,
    above,
    newer,
)

_PIECE_ENTRIES = 1 << 26
"""Acks are joined in pieces of so many entries where the budget may not suffice: a piece takes 8
MiB at most.
"""
_OWN_MAX = 64
"""Ledgers that live acks, and whoever looks first at a state that was read, find as objects: those
that were touched last.
"""


@component
class AckState:
    mark_delete: Position = FIRST
    layout: Layout = field(default_factory=Layout)
    budget: StateBudget = DEFAULT
    ledgers: LedgerTable = field(default_factory=LedgerTable)
    partials: dict[int, dict[int, Partial]] = field(default_factory=dict)
    mark_delete_properties: MarkDeleteProperties | None = None
    cursor_properties: CursorProperties | None = None
    _partial_count: int = 0
    _partial_entries: dict[int, BitMap] = field(default_factory=dict)
    """Ledger -> the entries in `partials`: which of many batches a set of acks completes is asked
    for every set.
    """

    def __post_init__(self) -> None:
        if self.mark_delete.entry >= 0:
            acks = self.ledgers.own(self.mark_delete.ledger)
            acks.ack_through(self.mark_delete.entry)
            self.ledgers.count(acks)

    # ---- memory

    @property
    def memory_bytes(self) -> int:
        """What the state takes, about."""
        return (
            self.ledgers.memory_bytes
            + self._partial_count * PARTIAL_BYTES
            + len(self.layout) * LAYOUT_BYTES
        )

    def _forget_partials(self, ledger: int) -> None:
        gone = self.partials.pop(ledger, None)
        if gone:
            self._partial_count -= len(gone)
            del self._partial_entries[ledger]

    def _make_room(self, more: int) -> None:
        """Raises OverBudgetError if a recovered record would take the state over its budget by so
        many bytes.
        """
        if self.memory_bytes + more > self.budget.bytes_max:
            raise OverBudgetError(
                f"the state would take {self.memory_bytes + more:,} bytes of memory, "
                f"{self.budget.bytes_max:,} are allowed: "
                "raise state_bytes_max if the cursor really spans so many entries"
            )

    def _growth(self, high_waters: Iterable[tuple[int, int]]) -> int:
        """What it takes to reach these (ledger, high water)."""
        more = 0
        for ledger, high_water in high_waters:
            more += growth_bytes(self.ledgers.high_water(ledger), high_water) + (
                0 if ledger in self.ledgers else LEDGER_BYTES
            )
        return more

    # ---- questions

    def is_acked(self, ledger: int, entry: int) -> bool:
        """Whether an entry is acked, by whatever means."""
        if Position(ledger, entry) <= self.mark_delete or self.layout.is_trimmed(ledger):
            return True
        acks = self.ledgers.get(ledger)
        return acks is not None and acks.is_acked(entry)

    def partial(self, ledger: int, entry: int) -> Partial | None:
        """What is missing of a partly acked batch."""
        return self.partials.get(ledger, {}).get(entry)

    def acked_of(self, ledger: int) -> BitMap:
        """All acked entries of a ledger at or above the mark-delete ledger; for tests and
        exports.
        """
        acks = self.ledgers.get(ledger)
        if acks is None:
            return BitMap()
        out = bitmaps.span(0, acks.high_water - 1)
        out -= acks.holes
        return out

    @property
    def hole_count(self) -> int:
        """Un-acked entries below the high water of their ledgers."""
        return self.ledgers.hole_count

    @property
    def span(self) -> int:
        """Entries between mark-delete and the high waters: what a snapshot has to describe."""
        below = min(self.mark_delete.entry + 1, self.ledgers.high_water(self.mark_delete.ledger))
        return self.ledgers.entry_count - below

    @property
    def partial_count(self) -> int:
        return self._partial_count

    def iter_partials(self) -> Iterator[tuple[PartialKey, Partial]]:
        """In ascending order of ledger and entry."""
        for ledger in sorted(self.partials):
            for entry in sorted(self.partials[ledger]):
                yield PartialKey(ledger, entry), self.partials[ledger][entry]

    # ---- acks

    def apply(self, batches: Sequence[AckBatch]) -> Delta:
        """Takes checked batches in; returns what they changed (without properties, which carry a
        stamp).
        """
        before = self.mark_delete
        target = max((b.mark_delete for b in batches if b.mark_delete is not None), default=before)
        self._move_mark_delete(target)
        columns: dict[int, list[LedgerColumns]] = {}
        for batch in batches:
            for part in batch.ledgers:
                parts = columns.get(part.ledger)
                if parts is None:
                    columns[part.ledger] = [part]
                else:
                    parts.append(part)
        acks: dict[int, Entries] = {}
        partials: dict[PartialKey, Partial] = {}
        for ledger in sorted(columns):
            if ledger < self.mark_delete.ledger or self.layout.is_trimmed(ledger):
                continue
            self._apply_ledger(ledger, columns[ledger], acks, partials)
        self._advance()
        self.ledgers.pack(_OWN_MAX)
        return self._trimmed_delta(before, acks, partials)

    def _apply_ledger(
        self,
        ledger: int,
        parts: list[LedgerColumns],
        acks: dict[int, Entries],
        partials: dict[PartialKey, Partial],
    ) -> None:
        new = _entries_of(parts)
        if any(part.partials for part in parts):
            completed = self._apply_partials(ledger, parts, partials)
            if completed:
                new = union([new, completed])
        if not new:
            return
        mine = self.ledgers.own(ledger)
        fresh = mine.ack(new)
        self.ledgers.count(mine)
        if not fresh:
            return
        acks[ledger] = fresh
        if ledger in self.partials:
            for entry in self._drop_partials(ledger, fresh):
                partials.pop(PartialKey(ledger, entry), None)

    def _apply_partials(
        self, ledger: int, parts: list[LedgerColumns], changed: dict[PartialKey, Partial]
    ) -> BitMap:
        """Returns the entries of which nothing is missing any more."""
        completed = BitMap()
        for part in parts:
            for entry, partial in part.partials:
                joined = None if entry in completed else self._news(ledger, entry, partial)
                if joined is None:
                    continue
                if joined.missing:
                    self._put_partial(ledger, entry, joined)
                    changed[PartialKey(ledger, entry)] = joined
                else:
                    completed.add(entry)
                    changed.pop(PartialKey(ledger, entry), None)
        return completed

    def _news(self, ledger: int, entry: int, partial: Partial) -> Partial | None:
        """The batch with what is known of it; None: this says nothing new."""
        if self.is_acked(ledger, entry):
            return None
        known = self.partial(ledger, entry)
        joined = partial if known is None else known.joined(partial)
        return None if joined == known else joined

    def _trimmed_delta(
        self, before: Position, acks: dict[int, Entries], partials: dict[PartialKey, Partial]
    ) -> Delta:
        """What mark-delete implies is not written twice."""
        moved = self.mark_delete != before
        if moved:
            acks = above(self.mark_delete, acks)
            partials = {k: p for k, p in partials.items() if Position(*k) > self.mark_delete}
        return Delta(mark_delete=self.mark_delete if moved else None, acks=acks, partials=partials)

    def set_mark_delete_properties(self, properties: MarkDeleteProperties | None) -> None:
        """Those of the newest stamp."""
        self.mark_delete_properties = properties

    def set_cursor_properties(self, properties: CursorProperties | None) -> None:
        """Those of the newest stamp."""
        self.cursor_properties = properties

    # ---- layout

    def acked_beyond(self, item: LayoutItem) -> int:
        """How many entries at or beyond the count of a closed ledger are acked, if it is news: no
        such entries exist.
        """
        acks = self.ledgers.get(item.ledger)
        if (
            item.state is not LayoutState.CLOSED
            or acks is None
            or not item.is_ahead_of(self.layout.get(item.ledger))
        ):
            return 0
        holes = acks.holes
        above = len(holes) - (holes.rank(item.entries - 1) if item.entries else 0)
        return max(0, acks.high_water - item.entries) - above

    def apply_layout(self, run: Iterable[LayoutItem]) -> Delta:
        """Takes a checked run in; mark-delete may cross into it."""
        before = self.mark_delete
        changed = self._join_layout(run)
        self._advance()
        return Delta(
            mark_delete=self.mark_delete if self.mark_delete != before else None, layout=changed
        )

    def _join_layout(self, run: Iterable[LayoutItem]) -> tuple[LayoutItem, ...]:
        changed = self.layout.join(i for i in run if i.ledger >= self.mark_delete.ledger)
        for item in changed:
            if item.state is LayoutState.TRIMMED:
                # wholly acked: nothing is kept of it but what mark-delete says, whether the acks
                # came before or come after
                self._forget_partials(item.ledger)
                if item.ledger in self.ledgers:
                    del self.ledgers[item.ledger]
                if item.ledger == self.mark_delete.ledger and self.mark_delete.entry >= 0:
                    mine = self.ledgers.own(item.ledger)
                    mine.ack_through(self.mark_delete.entry)
                    self.ledgers.count(mine)
        return changed

    # ---- recovered records

    def join_delta(self, delta: Delta) -> None:
        """Joins a recovered delta. Any order and any number of times gives the same state, after
        `settle`.
        """
        self._join_common(delta)
        counted = [
            (ledger, entries) for ledger, entries in delta.acks.items() if self._counts(ledger)
        ]
        self._make_room(
            self._growth((ledger, last_of(entries) + 1) for ledger, entries in counted if entries)
        )
        for ledger, entries in counted:
            self._join_acks(ledger, entries)
        self._join_partials(delta.partials.items())

    def join_segment(self, segment: Segment) -> None:
        """Joins a recovered part of a snapshot."""
        self._join_common(segment)
        for part in segment.slices:
            if self._counts(part.ledger):
                self._join_slice(part)
        self._join_partials(segment.partials.items())

    def settle(self) -> None:
        """After the last join: mark-delete takes the contiguous prefix, as the writer's own did."""
        self._advance()
        self.ledgers.pack(_OWN_MAX)

    def _join_common(self, part: Delta | Segment) -> None:
        if part.layout:
            self._join_layout(part.layout)
            if len(self.layout) > self.budget.layout_ledgers_max:
                raise OverBudgetError(
                    f"the layout would have {len(self.layout):,} ledgers, "
                    f"{self.budget.layout_ledgers_max:,} are allowed: "
                    "raise layout_ledgers_max if the topic really has so many"
                )
            self._make_room(0)
        if part.mark_delete is not None:
            self._move_mark_delete(max(self.mark_delete, part.mark_delete))
        self.mark_delete_properties = newer(
            self.mark_delete_properties, part.mark_delete_properties
        )
        self.cursor_properties = newer(self.cursor_properties, part.cursor_properties)

    def _counts(self, ledger: int) -> bool:
        """Whether acks of this ledger still say something."""
        return ledger >= self.mark_delete.ledger and not self.layout.is_trimmed(ledger)

    def _join_acks(self, ledger: int, entries: Entries) -> None:
        mine = self.ledgers.own(ledger)
        high_water = max(mine.high_water, last_of(entries) + 1) if entries else mine.high_water
        for piece in self._pieces(mine, high_water, entries):
            self._ack(ledger, mine, piece)

    def _pieces(self, acks: LedgerAcks, high_water: int, entries: Entries) -> Iterable[Entries]:
        """The entries at once, or in pieces where acking them at once may exceed the budget."""
        worst = min(ACK_BYTES * len(entries), mixed_bytes(high_water) - acks.counted_bytes)
        return (
            bitmaps.pieces(as_set(entries), _PIECE_ENTRIES)
            if self.memory_bytes + worst > self.budget.bytes_max
            else (entries,)
        )

    def _ack(self, ledger: int, acks: LedgerAcks, entries: Entries) -> None:
        fresh = acks.ack(entries)
        self._count_compact(acks)
        if fresh:
            self._drop_partials(ledger, fresh)

    def _count_compact(self, acks: LedgerAcks) -> None:
        """After acks were joined to a ledger. Raises OverBudgetError if the state does not fit
        however it is kept.
        """
        self.ledgers.count(acks)
        if self.memory_bytes > self.budget.bytes_max:
            acks.holes.run_optimize()
            self.ledgers.count(acks)
            self._make_room(0)

    def _join_slice(self, part: Slice) -> None:
        """Costs what the slice and the holes that are known of its range take, however long the
        range is; where a budget may not suffice for that at once, piece by piece.
        """
        # up to a slice of holes, or up to the end of a slice of acks, what is not known becomes
        # holes
        self._make_room(
            self._growth([(part.ledger, part.first if part.holes else part.last + 1)])
            + part.bitmap.__sizeof__()
        )
        acks = self.ledgers.own(part.ledger)
        acks.grow(part.first if part.holes else part.last + 1)
        if not part.holes:
            self._join_acks(part.ledger, part.bitmap)
            return
        top = acks.high_water
        holes = bitmaps.between(acks.holes, part.first, part.last)
        for piece in self._pieces(acks, top, holes):
            self._ack(part.ledger, acks, as_set(piece) - part.bitmap)
        if part.last >= top:
            acks.extend(bitmaps.between(part.bitmap, top, part.last), part.last + 1)
            self._count_compact(acks)

    def _join_partials(self, items: Iterable[tuple[PartialKey, Partial]]) -> None:
        for (ledger, entry), partial in items:
            joined = self._news(ledger, entry, partial)
            if joined is None:
                continue
            if joined.missing:
                self._make_room(
                    self._growth([(ledger, entry + 1)])
                    + PARTIAL_BYTES
                    + joined.missing.__sizeof__()
                )
                self._put_partial(ledger, entry, joined)
            else:
                self._join_acks(ledger, BitMap([entry]))

    # ---- shared moves

    def _put_partial(self, ledger: int, entry: int, partial: Partial) -> None:
        acks = self.ledgers.own(ledger)
        if entry >= acks.high_water:
            acks.grow(entry + 1)
            self.ledgers.count(acks)
        mine = self.partials.setdefault(ledger, {})
        if entry not in mine:
            self._partial_count += 1
            self._partial_entries.setdefault(ledger, BitMap()).add(entry)
        mine[entry] = partial

    def _drop_partials(self, ledger: int, acked: Entries) -> list[int]:
        if ledger not in self.partials:
            return []
        acked_set = as_set(acked)
        gone = list(self._partial_entries[ledger] & acked_set)
        mine = self.partials[ledger]
        for entry in gone:
            del mine[entry]
        self._partial_count -= len(gone)
        self._partial_entries[ledger] -= acked_set
        if not mine:
            self._forget_partials(ledger)
        return gone

    def _move_mark_delete(self, to: Position) -> None:
        if to <= self.mark_delete:
            return
        if to.ledger > self.mark_delete.ledger:
            for ledger in takewhile(lambda ledger: ledger < to.ledger, self.ledgers):
                del self.ledgers[ledger]
            for ledger in [x for x in self.partials if x < to.ledger]:
                self._forget_partials(ledger)
        if to.entry >= 0:
            acks = self.ledgers.own(to.ledger)
            acks.ack_through(to.entry)
            self.ledgers.count(acks)
            if to.ledger in self.partials:
                self._drop_partials(
                    to.ledger, bitmaps.between(self._partial_entries[to.ledger], 0, to.entry)
                )
        self.mark_delete = to
        self.layout.drop_below(to.ledger)

    def _advance(self) -> None:
        """Mark-delete takes the longest acked prefix; it crosses only where the layout names the
        next ledger.
        """
        at = best = self.mark_delete
        while True:
            acks = self.ledgers.get(at.ledger)
            if acks is not None:
                prefix = acks.first_unacked() - 1
                if prefix > at.entry:
                    at = Position(at.ledger, prefix)
                    best = at
            if not self.layout.is_complete(at):
                break
            following = self.layout.successor(at.ledger)
            if following is None:
                break
            at = Position(following, BEFORE_FIRST)
        self._move_mark_delete(best)


def _entries_of(parts: list[LedgerColumns]) -> Entries:
    """The union, which may be the set of a part: it must not be changed."""
    first = parts[0]
    if len(parts) == 1 and first.bitmap is None and first.ranges is None:
        return as_entries(first.entries)
    sets: list[Sent] = [part.entries for part in parts]
    sets += [part.bitmap for part in parts if part.bitmap is not None]
    ranges = [part.ranges for part in parts if part.ranges is not None]
    if ranges:
        pairs = np.concatenate(ranges).astype(np.int64)
        sets.append(containers.from_runs(pairs[0::2], pairs[1::2]))
    return united(sets)
