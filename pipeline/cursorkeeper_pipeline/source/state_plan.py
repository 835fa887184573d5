"""Which task reads which cursor's state: tasks of about equal cost, planned from footers alone; large cursors in several pieces.

Owns the cost of a cursor and of its pieces. Does not own where a cursor is cut (`splitting`) nor the packing (`planning`).
Invariants: every chosen cursor, or every piece of it, is in exactly one part; a part holds names and no states; planning is linear in the
number of cursors but for one sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, InlineBase, PulsarBase, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.snapshot_plan import inline_bytes_max
from cursorkeeper.core.window import WHOLE, StateWindow

from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.planning import bin_pack, task_count
from cursorkeeper_pipeline.source.shards import Found, is_tombstone
from cursorkeeper_pipeline.source.table import Part

CURSOR_BYTES: Final = 8 << 10
"""What a cursor costs before its first byte is read, in bytes that could be read meanwhile."""
LEDGER_BYTES: Final = 32 << 10
"""The same for a ledger."""
TASKS_MIN: Final = 4
"""Of a plan that nobody gave a number: enough for the slots of a small cluster."""


class Piece(NamedTuple):
    """One of `parts` that a cursor is read in. Of another generation (after a reset) it is a piece of nothing."""

    part_no: int
    parts: int
    generation: int
    window: StateWindow


class Item(NamedTuple):
    """One cursor to read, or a piece of one. `ledger`: where its reading begins, 0 if in no ledger. Names as text: a pickled plan should be
    small."""

    topic: str
    subscription: str
    cost_bytes: int
    stored_bytes: int
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


def item_of(found: Found) -> Item | None:
    """The work that a footer stands for; None: it is a tombstone. A footer that cannot be read is work too: its row says so."""
    if is_tombstone(found):
        return None
    if isinstance(found.footer, DamageError):
        return Item(found.name.topic, found.name.subscription, CURSOR_BYTES, 0, 0)
    return _item(found.name, found.footer, stored_bytes(found.footer), None)


def is_large(found: Found, options: Options) -> bool:
    """Whether it is worth a look at where it may be cut."""
    footer = found.footer
    return isinstance(footer, Footer) and isinstance(footer.base, SnapshotBase) and footer.base.length > options.split_bytes


def pieces_of(name: CursorName, footer: Footer, windows: Sequence[StateWindow]) -> list[Item]:
    """The work in windows, which each read their share of the snapshot and all deltas."""
    if list(windows) == [WHOLE] or not isinstance(footer.base, SnapshotBase):
        return [_item(name, footer, stored_bytes(footer), None)]
    shares = [len(window.segments) for window in windows]
    return [
        _item(
            name, footer, footer.base.length * share // sum(shares) + footer.stats.delta_bytes,
            Piece(number, len(windows), footer.generation, window),
        )
        for number, (share, window) in enumerate(zip(shares, windows, strict=True))
    ]  # fmt: skip


def _item(name: CursorName, footer: Footer, stored: int, piece: Piece | None) -> Item:
    first = footer.chain[0].ledger if footer.chain else 0
    return Item(name.topic, name.subscription, CURSOR_BYTES + LEDGER_BYTES * len(footer.chain) + stored, stored, first, piece)


def stored_bytes(footer: Footer) -> int:
    """About, as the footer knows it: its base, and the deltas of the moment it was written."""
    base = footer.base
    if isinstance(base, SnapshotBase):
        return base.length + footer.stats.delta_bytes
    if isinstance(base, InlineBase):
        return inline_bytes_max(base.state) + footer.stats.delta_bytes
    return (len(base.info) if isinstance(base, PulsarBase) else 0) + footer.stats.delta_bytes


def plan(items: Sequence[Item], options: Options) -> list[StatesPart]:
    """Empty if there is nothing to read."""
    costs = [one.cost_bytes for one in items]
    tasks = max(task_count(options.tasks, sum(costs), options.task_bytes), 0 if options.tasks else TASKS_MIN)
    return [StatesPart(tuple(sorted((items[at] for at in places), key=_order))) for places in bin_pack(costs, tasks)]


def _order(one: Item) -> tuple[int, int, str, str]:
    return one.ledger, one.piece.part_no if one.piece else 0, one.topic, one.subscription
