"""Which task reads which cursor's state: tasks of about equal cost, planned from footers alone.

Owns the cost of a cursor, the number of tasks and the packing. Invariants: every chosen cursor is in exactly one part; a part holds names
and no states; planning is linear in the number of cursors but for one sort.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, InlineBase, PulsarBase, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.snapshot_plan import inline_bytes_max

from cursorkeeper_pipeline.source.options import TASKS_MAX, Options
from cursorkeeper_pipeline.source.shards import Found, is_tombstone
from cursorkeeper_pipeline.source.table import Part

CURSOR_BYTES: Final = 8 << 10
"""What a cursor costs before its first byte is read, in bytes that could be read meanwhile."""
LEDGER_BYTES: Final = 32 << 10
"""The same for a ledger."""
TASKS_MIN: Final = 4
"""Of a plan that nobody gave a number: enough for the slots of a small cluster."""


class Item(NamedTuple):
    """One cursor to read. `ledger`: where its reading begins, 0 if in no ledger. Names as text: a pickled plan should be small."""

    topic: str
    subscription: str
    cost_bytes: int
    stored_bytes: int
    ledger: int

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
    footer = found.footer
    stored, ledgers = stored_bytes(footer), len(footer.chain)
    first = footer.chain[0].ledger if footer.chain else 0
    return Item(found.name.topic, found.name.subscription, CURSOR_BYTES + LEDGER_BYTES * ledgers + stored, stored, first)


def stored_bytes(footer: Footer) -> int:
    """About, as the footer knows it: its base, and the deltas of the moment it was written."""
    base = footer.base
    if isinstance(base, SnapshotBase):
        return base.length + footer.stats.delta_bytes
    if isinstance(base, InlineBase):
        return inline_bytes_max(base.state) + footer.stats.delta_bytes
    return (len(base.info) if isinstance(base, PulsarBase) else 0) + footer.stats.delta_bytes


def plan(items: Iterable[Item], options: Options) -> list[StatesPart]:
    """Empty if there is nothing to read."""
    everything = list(items)
    wanted = options.tasks or max(TASKS_MIN, -(-sum(one.cost_bytes for one in everything) // options.task_bytes))
    return [StatesPart(tuple(part)) for part in packed(everything, min(wanted, TASKS_MAX))]


def packed(items: Sequence[Item], tasks: int) -> list[list[Item]]:
    """At most `tasks` parts, none empty: the dearest first, each to the part that has least. Inside a part by ledger."""
    parts: list[list[Item]] = [[] for _ in range(min(tasks, len(items)))]
    loads = [(0, at) for at in range(len(parts))]
    for one in sorted(items, key=lambda i: (-i.cost_bytes, i.ledger, i.topic, i.subscription)):
        load, at = loads[0]
        parts[at].append(one)
        heapq.heapreplace(loads, (load + one.cost_bytes, at))
    return [sorted(part, key=lambda i: i.ledger) for part in parts]
