"""What a cursor's source knows: every change that it sent, and what the cursor must be after a
given number of them.

Owns a second, slow statement of what acks mean, in plain sets. Does not own the stream (`stage`).
Uses nothing of the daemon but the values of its Python client: a release must not be its own
witness. Invariant: changes are kept in the order of their seqs, and a state is always made from the
first one on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap

from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    PartialBatch,
    Position,
)

Entry = tuple[int, int]
PROGRESS = (LayoutState.OPEN, LayoutState.CLOSED, LayoutState.TRIMMED)
"""A data ledger goes this way and never back."""


@dataclass
class State:
    """A cursor by the meaning of its acks. `partials`: (ledger, entry) -> (batch size, indexes that
    are not acked).
    """

    mark_delete: Position
    layout: dict[int, LayoutItem] = field(default_factory=dict)
    cursor_properties: dict[str, str] = field(default_factory=dict)
    mark_delete_properties: dict[str, int] = field(default_factory=dict)
    acked: dict[int, BitMap] = field(default_factory=dict)
    partials: dict[Entry, tuple[int, BitMap]] = field(default_factory=dict)
    generation: int = 1

    def ack(self, acks: Acks) -> None:
        if acks.mark_delete is not None:
            self.mark_delete = max(self.mark_delete, acks.mark_delete)
        if acks.properties is not None:
            self.mark_delete_properties = dict(acks.properties)
        for own in acks.ledgers:
            entries = self.acked.setdefault(own.ledger, BitMap())
            entries |= _entries(own)
            for partial in own.partials:
                self._partial((own.ledger, partial.entry), partial)
        self._settle()

    def _partial(self, key: Entry, partial: PartialBatch | AckedIndexes) -> None:
        size, missing = self.partials.get(key, (partial.batch_size, None))
        told = missing_of(partial)
        self.partials[key] = (
            max(size, partial.batch_size),
            told if missing is None else missing & told,
        )

    def tell_layout(self, items: Iterable[LayoutItem]) -> None:
        """A run of data ledgers; a trimmed one counts as wholly acked."""
        for item in items:
            known = self.layout.get(item.ledger)
            if known is None or PROGRESS.index(item.state) > PROGRESS.index(known.state):
                self.layout[item.ledger] = item
        self._settle()

    def reset(self, target: Position) -> None:
        """A seek: all acks are forgotten, and so are the properties of the mark-delete."""
        self.mark_delete, self.acked, self.partials, self.mark_delete_properties = (
            target,
            {},
            {},
            {},
        )
        self.generation += 1
        self._settle()

    def _settle(self) -> None:
        """Mark-delete takes the longest acked prefix; what it implies is not said again."""
        for (ledger, entry), (_, missing) in list(self.partials.items()):
            if not missing:
                self.acked.setdefault(ledger, BitMap()).add(entry)
        self.mark_delete = self._prefix()
        below, trimmed = (
            self.mark_delete.ledger,
            {i.ledger for i in self.layout.values() if i.state is LayoutState.TRIMMED},
        )
        self.layout = {ledger: item for ledger, item in self.layout.items() if ledger >= below}
        self.acked = {
            ledger: own
            for ledger, own in self.acked.items()
            if ledger >= below and ledger not in trimmed
        }
        own = self.acked.get(below)
        if own is not None and self.mark_delete.entry >= 0:
            own.remove_range(0, self.mark_delete.entry + 1)
        self.acked = {
            ledger: self.acked[ledger] for ledger in sorted(self.acked) if self.acked[ledger]
        }
        self.partials = {
            key: self.partials[key]
            for key in sorted(self.partials)
            if not self._is_acked(key, trimmed)
        }

    def _is_acked(self, key: Entry, trimmed: set[int]) -> bool:
        ledger, entry = key
        return key <= self.mark_delete or ledger in trimmed or entry in self.acked.get(ledger, ())

    def _prefix(self) -> Position:
        """The last entry of which it and everything before it are acked."""
        best = at = self.mark_delete
        while True:
            own = self.acked.get(at.ledger, BitMap())
            entry = at.entry
            while entry + 1 in own:
                entry += 1
            if entry > at.entry:
                best = at = Position(at.ledger, entry)
            item = self.layout.get(at.ledger)
            later = [ledger for ledger in self.layout if ledger > at.ledger]
            ended = item is not None and (
                item.state is LayoutState.TRIMMED
                or (item.state is LayoutState.CLOSED and at.entry >= item.entries - 1)
            )
            if not ended or not later:
                return best
            at = Position(min(later), -1)


class Truth:
    """Of one cursor over all its owners. `sizes` and `layout`: whether the form that is written
    keeps batch sizes and the layout.
    """

    def __init__(
        self, start: Position, layout: Sequence[LayoutItem], properties: Mapping[str, str]
    ) -> None:
        self._start, self._layout, self._properties = start, tuple(layout), dict(properties)
        self._changes: list[tuple[int, Callable[[State], None]]] = []
        self._seq_base = 0
        self.keeps_sizes = self.keeps_layout = True

    def sent(self, seq: int, change: Callable[[State], None]) -> None:
        """One more message, with the seq of its handle."""
        self._changes.append((self._seq_base + seq, change))

    def next_owner(self, last_seq: int) -> None:
        """From now on seqs are those of another handle, which begins at 1 again."""
        self._seq_base += last_seq

    def upto(self, seq: int | None) -> State:
        """After everything up to a seq of the handle of now; None: after all that was sent."""
        state = State(self._start, {}, dict(self._properties))
        state.tell_layout(self._layout)
        for number, change in self._changes:
            if seq is None or number <= self._seq_base + seq:
                change(state)
        return state

    def described(self, state: State) -> dict[str, Any]:
        """As it is recorded: what the form can say of it."""
        return {
            "generation": state.generation,
            "markDelete": list(state.mark_delete),
            "acked": {str(ledger): ranges(entries) for ledger, entries in state.acked.items()},
            "partials": [
                [*key, size if self.keeps_sizes else 0, ranges(missing)]
                for key, (size, missing) in state.partials.items()
            ],
            "markDeleteProperties": dict(sorted(state.mark_delete_properties.items())),
            "cursorProperties": dict(sorted(state.cursor_properties.items())),
            "layout": [[i.ledger, i.state.name, i.entries] for i in sorted(state.layout.values())]
            if self.keeps_layout
            else [],
        }


def missing_of(partial: PartialBatch | AckedIndexes) -> BitMap:
    """The indexes that a partial ack leaves un-acked."""
    if isinstance(partial, PartialBatch):
        return BitMap(partial.missing)
    missing = BitMap(range(partial.batch_size))
    for first, last in partial.acked:
        missing.remove_range(first, last + 1)
    return missing


def ranges(entries: BitMap) -> list[int | list[int]]:
    """Each run as [first, last], one of a single entry as that entry."""
    found: list[list[int]] = []
    for entry in entries:
        if found and found[-1][1] == entry - 1:
            found[-1][1] = entry
        else:
            found.append([entry, entry])
    return [first if first == last else [first, last] for first, last in found]


def set_of(told: list[int | list[int]]) -> BitMap:
    found = BitMap()
    for run in told:
        first, last = (run, run) if isinstance(run, int) else run
        found.add_range(first, last + 1)
    return found


def _entries(own: LedgerAcks) -> BitMap:
    found = BitMap(list(map(int, own.entries))) | (own.roaring or BitMap())
    pairs = list(map(int, own.ranges))
    for first, last in zip(pairs[::2], pairs[1::2], strict=True):
        found.add_range(first, last + 1)
    return found
