"""Which task reads which cursor's state: tasks of about equal cost, planned from footers; large cursors in several pieces.

Owns the cost of a cursor and of its pieces, and how many pieces are wanted. Does not own the sizes that a footer knows (`state_size`),
where a cursor is cut (`splitting`, which for large ones reads a part of their snapshots) nor the packing (`planning`).
Invariants: every chosen cursor, or every piece of it, is in exactly one part; a part holds names and no states; planning is linear in the
number of cursors but for one sort. Cost is what is read, what that is in memory, and the rows that it becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.window import StateWindow

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.planning import bin_pack, task_count
from cursorkeeper_pipeline.source.shards import Found, is_tombstone
from cursorkeeper_pipeline.source.state_size import base_bytes, described_bytes, row_bytes, state_bytes
from cursorkeeper_pipeline.source.table import Part

CURSOR_BYTES: Final = 8 << 10
"""What a cursor costs before its first byte is read, in bytes that could be read meanwhile."""
LEDGER_BYTES: Final = 32 << 10
"""The same for a ledger."""
TASKS_MIN: Final = 4
"""Of a plan that nobody gave a number: enough for the slots of a small cluster."""
PIECES_A_TASK: Final = 5
"""A piece of a fifth of a task is small enough for tasks of about equal cost, see `planning`."""
IN_MEMORY: Final = 4
"""x `splitBytes` of states are worked on at once."""


class Piece(NamedTuple):
    """One of `parts` that a cursor is read in. Of another generation (after a reset) it is a piece of nothing."""

    part_no: int
    parts: int
    generation: int
    window: StateWindow


class Item(NamedTuple):
    """One cursor to read, or a piece of one. `state_bytes`: in memory, about. `ledger`: where its reading begins, 0 if in no ledger.
    Names as text: a pickled plan should be small."""

    topic: str
    subscription: str
    cost_bytes: int
    state_bytes: int
    ledger: int
    piece: Piece | None = None

    @property
    def name(self) -> CursorName:
        """Whose it is."""
        return CursorName(self.topic, self.subscription)


@dataclass(frozen=True, slots=True)
class StatesPart(Part):
    """What one task reads, by ledger."""

    items: tuple[Item, ...]


class Share(NamedTuple):
    """A window, and how much of the state is in it; the shares of a cursor's windows are 1 together."""

    window: StateWindow
    of_state: float


def item_of(found: Found, table: str) -> Item | None:
    """The work that a footer stands for; None: it is a tombstone. A footer that cannot be read is work too: its row says so."""
    if is_tombstone(found):
        return None
    if isinstance(found.footer, DamageError):
        return Item(found.name.topic, found.name.subscription, CURSOR_BYTES, 0, 0)
    footer = found.footer
    size = state_bytes(footer)
    return _item(found.name, footer, size + row_bytes(footer.stats, table), size, None)


def is_large(found: Found, options: Options) -> bool:
    """Whether it is worth a look at where it may be cut."""
    footer = found.footer
    if not isinstance(footer, Footer) or is_tombstone(found) or not isinstance(footer.base, SnapshotBase):
        return False
    return state_bytes(footer) + row_bytes(footer.stats, options.table) > options.split_bytes


def bases_of(footer: Footer) -> Sequence[object]:
    """The newest first."""
    return [footer.base] if footer.previous is None else [footer.base, footer.previous.base]


def piece_bytes(costs: Iterable[int], options: Options) -> int:
    """What a piece may cost, of a plan of cursors (uncut) of these costs: `splitBytes`, or as much more as even tasks allow."""
    total = sum(costs)
    return max(options.split_bytes, total // (PIECES_A_TASK * _tasks(total, options)))


def pieces_wanted(footer: Footer, options: Options, each_bytes: int) -> int:
    """In how many pieces it should be read: each of a cost of `each_bytes` or less, and of a state that fits beside no other."""
    size = state_bytes(footer)
    return max(1, -(-(size + row_bytes(footer.stats, options.table)) // each_bytes), -(-size // (IN_MEMORY * options.split_bytes)))


def pieces_of(found: Found, table: str, shares: Sequence[Share]) -> list[Item]:
    """The work in windows, which each read their share of the snapshot and all deltas."""
    whole, footer = item_of(found, table), found.footer
    if len(shares) < 2 or whole is None or not isinstance(footer, Footer):
        return [] if whole is None else [whole]
    size, rows, deltas = max(base_bytes(footer), described_bytes(footer.stats)), row_bytes(footer.stats, table), footer.stats.delta_bytes
    return [
        _item(
            found.name, footer, int((size + rows) * share) + deltas, int(size * share) + deltas // len(shares),
            Piece(number, len(shares), footer.generation, window),
        )
        for number, (window, share) in enumerate(shares)
    ]  # fmt: skip


def _item(name: CursorName, footer: Footer, work: int, held: int, piece: Piece | None) -> Item:
    first = footer.chain[0].ledger if footer.chain else 0
    return Item(name.topic, name.subscription, CURSOR_BYTES + LEDGER_BYTES * len(footer.chain) + work, held, first, piece)


def _tasks(cost: int, options: Options) -> int:
    return max(task_count(options.tasks, cost, options.task_bytes), 0 if options.tasks else TASKS_MIN)


def plan(items: Sequence[Item], options: Options) -> list[StatesPart]:
    """Empty if there is nothing to read."""
    costs = [one.cost_bytes for one in items]
    packed = bin_pack(costs, _tasks(sum(costs), options))
    return [StatesPart(tuple(sorted((items[at] for at in places), key=_order))) for places in packed]


def _order(one: Item) -> tuple[int, int, str, str]:
    return one.ledger, one.piece.part_no if one.piece else 0, one.topic, one.subscription
