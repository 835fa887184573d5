"""The topic's data ledgers as far as the source told: which there are, in which order, how many
entries each has.

It is what lets mark-delete cross from one ledger into the next. A run is consecutive, so two
overlapping runs must agree on every ledger of the overlap; a run that does not touch what is known
could hide a ledger in the gap, and crossing such a gap would skip messages: it is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem, LayoutState


class LayoutContradiction(ValueError):
    """What is wrong with a run; the state is untouched. The message is for people."""


_OPEN: Final = -1
_TRIMMED: Final = -2
"""In the place of a number of entries."""


class Layout:
    """Known ledgers, ascending, as columns: a topic may have thousands. Ledgers below mark-delete
    are forgotten by `drop_below`.
    """

    __slots__ = ("_entries", "_ids", "_trimmed")

    def __init__(self, items: Iterable[LayoutItem] = ()) -> None:
        self._ids, self._entries = array("q"), array("q")
        self._trimmed: set[int] = set()
        """Asked for with every ledger that is acked."""
        for item in sorted(items):
            self._put(item)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[LayoutItem]:
        return self._items(0)

    def __contains__(self, ledger: int) -> bool:
        return self._row(ledger) >= 0

    def get(self, ledger: int) -> LayoutItem | None:
        at = self._row(ledger)
        return None if at < 0 else _item(ledger, self._entries[at])

    @property
    def first(self) -> int | None:
        return self._ids[0] if self._ids else None

    @property
    def last(self) -> int | None:
        return self._ids[-1] if self._ids else None

    def successor(self, ledger: int) -> int | None:
        """The ledger after a *known* one; None if it is unknown or the last."""
        at = self._row(ledger)
        return self._ids[at + 1] if 0 <= at < len(self._ids) - 1 else None

    def is_trimmed(self, ledger: int) -> bool:
        """The topic dropped it: wholly acked."""
        return ledger in self._trimmed

    def is_complete(self, position: Position) -> bool:
        """No entry of the position's ledger lies above it."""
        at = self._row(position.ledger)
        if at < 0 or self._entries[at] == _OPEN:
            return False
        return self._entries[at] == _TRIMMED or position.entry >= self._entries[at] - 1

    def normalised(self, position: Position) -> Position:
        """The same place, written as late as possible: past the end of a ledger becomes (next,
        -1).
        """
        while self.is_complete(position):
            following = self.successor(position.ledger)
            if following is None:
                break
            position = Position(following, BEFORE_FIRST)
        return position

    def check(self, run: Sequence[LayoutItem], ledgers_max: int) -> None:
        """Raises LayoutContradiction unless the run is well formed and agrees with what is
        known.
        """
        self.check_form(run, ledgers_max)
        if not run or not self._ids:
            return
        ids = [i.ledger for i in run]
        low, high = max(ids[0], self._ids[0]), min(ids[-1], self._ids[-1])
        if low > high:
            raise LayoutContradiction(
                f"the run {ids[0]}..{ids[-1]} does not touch the known ledgers "
                f"{self._ids[0]}..{self._ids[-1]}: a ledger in between would be skipped"
            )
        mine = self._ids[bisect_left(self._ids, low) : bisect_right(self._ids, high)].tolist()
        theirs = ids[bisect_left(ids, low) : bisect_right(ids, high)]
        if mine != theirs:
            odd = sorted(set(mine) ^ set(theirs))[0]
            raise LayoutContradiction(f"ledger {odd} is in one run and not in the other")
        for item in run:
            known = self.get(item.ledger)
            if (
                known
                and known.state is item.state is LayoutState.CLOSED
                and known.entries != item.entries
            ):
                raise LayoutContradiction(
                    f"ledger {item.ledger} was closed with {known.entries} entries and now has "
                    f"{item.entries}"
                )

    @staticmethod
    def check_form(run: Sequence[LayoutItem], ledgers_max: int) -> None:
        """Raises LayoutContradiction unless the run is ascending and in range, with an OPEN ledger
        only last.
        """
        if len(run) > ledgers_max:
            raise LayoutContradiction(f"{len(run)} ledgers, {ledgers_max} are allowed")
        before = -1
        for at, item in enumerate(run):
            if not 0 <= item.ledger <= LEDGER_ID_MAX:
                raise LayoutContradiction(f"ledger id {item.ledger} is out of range")
            if item.ledger <= before:
                raise LayoutContradiction(f"ledger {item.ledger} does not come after {before}")
            if item.state is LayoutState.OPEN and at != len(run) - 1:
                raise LayoutContradiction(f"ledger {item.ledger} is OPEN but not the last one")
            if not 0 <= item.entries <= ENTRY_ID_MAX + 1:
                raise LayoutContradiction(f"ledger {item.ledger} has {item.entries} entries")
            before = item.ledger

    def join(self, run: Iterable[LayoutItem]) -> tuple[LayoutItem, ...]:
        """Takes over what is new; returns the items that changed. Progress only: see
        `LayoutItem.is_ahead_of`.
        """
        changed: list[LayoutItem] = []
        for item in run:
            tidy = (
                item if item.state is LayoutState.CLOSED else LayoutItem(item.ledger, item.state, 0)
            )
            if tidy.is_ahead_of(self.get(item.ledger)):
                self._put(tidy)
                changed.append(tidy)
        return tuple(changed)

    def drop_below(self, ledger: int) -> None:
        """Forgets ledgers that mark-delete has left behind."""
        at = bisect_left(self._ids, ledger)
        if at:
            self._trimmed.difference_update(self._ids[:at])
            del self._ids[:at], self._entries[:at]

    def items_from(self, ledger: int) -> tuple[LayoutItem, ...]:
        """Known items from a ledger on."""
        return tuple(self._items(bisect_left(self._ids, ledger)))

    def _items(self, at: int) -> Iterator[LayoutItem]:
        return map(_item, self._ids[at:], self._entries[at:])

    def _row(self, ledger: int) -> int:
        """Where it is; ~ where it would be, if it is not known."""
        at = bisect_left(self._ids, ledger)
        return at if at < len(self._ids) and self._ids[at] == ledger else ~at

    def _put(self, item: LayoutItem) -> None:
        at = self._row(item.ledger)
        if at < 0:
            at = ~at
            self._ids.insert(at, item.ledger)
            self._entries.insert(at, 0)
        if item.state is LayoutState.TRIMMED:
            self._trimmed.add(item.ledger)
        self._entries[at] = (
            item.entries
            if item.state is LayoutState.CLOSED
            else _OPEN
            if item.state is LayoutState.OPEN
            else _TRIMMED
        )


def _item(ledger: int, entries: int) -> LayoutItem:
    if entries == _OPEN:
        return LayoutItem(ledger, LayoutState.OPEN, 0)
    if entries == _TRIMMED:
        return LayoutItem(ledger, LayoutState.TRIMMED, 0)
    return LayoutItem(ledger, LayoutState.CLOSED, entries)
