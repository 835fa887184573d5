"""The topic's data ledgers as far as the source told: which there are, in which order, how many
entries each has.

It is what lets mark-delete cross from one ledger into the next. A run is consecutive, so two
overlapping runs must agree on every ledger of the overlap; a run that does not touch what is known
could hide a ledger in the gap, and crossing such a gap would skip messages: it is refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem, LayoutState


class LayoutContradiction(ValueError):
    """What is wrong with a run; the state is untouched. The message is for people."""


class Layout:
    """Known ledgers, ascending. Ledgers below mark-delete are forgotten by `drop_below`."""

    __slots__ = ("_ids", "_items")

    def __init__(self, items: Iterable[LayoutItem] = ()) -> None:
        self._items: dict[int, LayoutItem] = {i.ledger: i for i in sorted(items)}
        self._ids: list[int] = list(self._items)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[LayoutItem]:
        return (self._items[i] for i in self._ids)

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._items

    def get(self, ledger: int) -> LayoutItem | None:
        return self._items.get(ledger)

    @property
    def first(self) -> int | None:
        return self._ids[0] if self._ids else None

    @property
    def last(self) -> int | None:
        return self._ids[-1] if self._ids else None

    def successor(self, ledger: int) -> int | None:
        """The ledger after a *known* one; None if it is unknown or the last."""
        if ledger not in self._items:
            return None
        at = bisect_right(self._ids, ledger)
        return self._ids[at] if at < len(self._ids) else None

    def is_trimmed(self, ledger: int) -> bool:
        """The topic dropped it: wholly acked."""
        item = self._items.get(ledger)
        return item is not None and item.state is LayoutState.TRIMMED

    def is_complete(self, position: Position) -> bool:
        """No entry of the position's ledger lies above it."""
        item = self._items.get(position.ledger)
        if item is None or item.state is LayoutState.OPEN:
            return False
        return item.state is LayoutState.TRIMMED or position.entry >= item.entries - 1

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
        mine = self._ids[bisect_left(self._ids, low) : bisect_right(self._ids, high)]
        theirs = ids[bisect_left(ids, low) : bisect_right(ids, high)]
        if mine != theirs:
            odd = sorted(set(mine) ^ set(theirs))[0]
            raise LayoutContradiction(f"ledger {odd} is in one run and not in the other")
        for item in run:
            known = self._items.get(item.ledger)
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
        added = False
        for item in run:
            tidy = (
                item if item.state is LayoutState.CLOSED else LayoutItem(item.ledger, item.state, 0)
            )
            known = self._items.get(item.ledger)
            if not tidy.is_ahead_of(known):
                continue
            added = added or known is None
            self._items[item.ledger] = tidy
            changed.append(tidy)
        if added:
            self._ids = sorted(self._items)
        return tuple(changed)

    def drop_below(self, ledger: int) -> None:
        """Forgets ledgers that mark-delete has left behind."""
        at = bisect_left(self._ids, ledger)
        if at == 0:
            return
        for old in self._ids[:at]:
            del self._items[old]
        del self._ids[:at]

    def items_from(self, ledger: int) -> tuple[LayoutItem, ...]:
        """Known items from a ledger on."""
        return tuple(self._items[i] for i in self._ids[bisect_left(self._ids, ledger) :])
