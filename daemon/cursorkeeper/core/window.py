"""A part of a cursor's state: a range of positions, for readers that share a large cursor between
them.

Owns which entries of a record lie in a window, and what of a snapshot need not be read for it. A
window is joined as the whole is, by the same joins of clipped records, so the holes of all windows
together are those of the whole. Two rules make that exact. Of the ledger in which a window ends it
must be known whether the state goes on behind the end: then every entry up to it is described
(acked or a hole), and `_reach` sees to it. And what is no entry (mark-delete, properties, layout)
is not clipped: every window has all of it. Mark-delete may come out lower than that of the whole
(its last steps may lie in another window), which changes no hole.

A window of a snapshot that was planned segment by segment begins and ends where slices begin:
`segments` are then all that it needs. The slice before one that begins inside a ledger ends right
in front of it (or mark-delete has passed it), so it reaches the end by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.entries import Entries, as_set, last_of
from cursorkeeper.core.footer import EntryAddress, SnapshotBase
from cursorkeeper.core.positions import ENTRY_ID_MAX, FIRST, Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Segment, Slice


class Span(NamedTuple):
    """Entries first..last (inclusive) of one ledger."""

    first: int
    last: int


EVERY = Span(0, ENTRY_ID_MAX)


@frozen
class StateWindow:
    """Entries at positions first <= p < end; `end` None: to the last. The default is the whole
    state.
    """

    first: Position = FIRST
    end: Position | None = None
    snapshot: EntryAddress | None = None
    """The end record of the snapshot that `segments` are of. Of any other snapshot every segment is
    read.
    """
    segments: frozenset[int] = frozenset()
    """Entry ids: those of the leading segments (mark-delete, layout), and those whose slices lie
    inside.
    """

    @property
    def is_whole(self) -> bool:
        return self.first == FIRST and self.end is None

    def span(self, ledger: int) -> Span | None:
        """Which entries of a ledger lie inside; None: none can."""
        if ledger < self.first.ledger:
            return None
        low = max(0, self.first.entry) if ledger == self.first.ledger else 0
        if self.end is None or ledger < self.end.ledger:
            return Span(low, ENTRY_ID_MAX)
        return (
            Span(low, self.end.entry - 1)
            if ledger == self.end.ledger and self.end.entry > low
            else None
        )

    # ---- reading

    def is_planned_on(self, base: SnapshotBase) -> bool:
        """Whether `segments` are of this snapshot."""
        return self.snapshot == (base.ledger, base.last_entry)

    def wanted(self, base: SnapshotBase, listed: Iterable[int]) -> list[int]:
        """The segments to read, of those that the end record lists."""
        return (
            [e for e in listed if e in self.segments] if self.is_planned_on(base) else list(listed)
        )

    def ranges(
        self, base: SnapshotBase | None, listed: Sequence[int], last_entry: int
    ) -> Iterator[Span]:
        """The entries to read of a ledger: all of it; of the one that holds the planned snapshot
        not what stands in front of that (the snapshot holds it too), and no segments of other
        windows.
        """
        if base is None or not self.is_planned_on(base):
            yield Span(0, last_entry)
            return
        at = base.first_entry
        for other in sorted(set(listed) - self.segments):
            if other > at:
                yield Span(at, other - 1)
            at = max(at, other + 1)
        if at <= last_entry:
            yield Span(at, last_entry)

    # ---- joining

    def join_delta(self, state: AckState, delta: Delta) -> None:
        """What of a delta lies inside, joined to the state."""
        if self.is_whole:
            state.join_delta(delta)
            return
        acks = {}
        for ledger, entries in delta.acks.items():
            if (inside := self._clip(ledger, entries)) is not None:
                acks[ledger] = inside
        partials = {key: p for key, p in delta.partials.items() if self._has(Position(*key))}
        state.join_delta(replace(delta, acks=acks, partials=partials))
        tops = [(ledger, last_of(entries)) for ledger, entries in delta.acks.items() if entries]
        self._reach(state, [*tops, *delta.partials])

    def join_segment(self, state: AckState, segment: Segment) -> None:
        """What of a segment lies inside, joined to the state."""
        if self.is_whole:
            state.join_segment(segment)
            return
        slices = [inside for one in segment.slices if (inside := self._slice(one)) is not None]
        partials = {key: p for key, p in segment.partials.items() if self._has(Position(*key))}
        state.join_segment(replace(segment, slices=tuple(slices), partials=partials))
        self._reach(state, [*((s.ledger, s.last) for s in segment.slices), *segment.partials])

    def _reach(self, state: AckState, described: Iterable[tuple[int, int]]) -> None:
        if self.end is None or self.end.entry <= 0:
            return
        ledger, last = self.end.ledger, self.end.entry - 1
        if any(at == ledger and entry > last for at, entry in described):
            state.join_segment(Segment(slices=(Slice(ledger, last, last, True, BitMap([last])),)))

    def _has(self, position: Position) -> bool:
        return position >= self.first and (self.end is None or position < self.end)

    def _clip(self, ledger: int, entries: Entries) -> Entries | None:
        span = self.span(ledger)
        if span is None:
            return None
        inside = entries if span == EVERY else bitmaps.between(as_set(entries), *span)
        return inside or None

    def _slice(self, one: Slice) -> Slice | None:
        span = self.span(one.ledger)
        if span is None or one.last < span.first or one.first > span.last:
            return None
        if span.first <= one.first and one.last <= span.last:
            return one
        first, last = max(span.first, one.first), min(span.last, one.last)
        return Slice(one.ledger, first, last, one.holes, bitmaps.between(one.bitmap, first, last))


WHOLE = StateWindow()
