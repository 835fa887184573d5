"""How large a cursor's state is, as its footer knows it: what is stored, what a reader holds in memory, what rows it becomes. Pure.

Owns the estimates that plans and limits of memory are made of. Stored bytes say little of the others: acks in a regular pattern (every
second entry) compress to nothing and are as many bits and rows as any. Invariants: of the moment the footer was written, and not less
than what a state of these counts holds; a footer without counts is as large as what it stores.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.footer import Footer, InlineBase, PulsarBase, SnapshotBase, Stats
from cursorkeeper.core.snapshot_plan import inline_bytes_max

ROW_BYTES: Final = 24
"""Of a row of `holes`, about: its columns but for the key, which is one and the same for many."""
PARTIAL_BYTES: Final = 256
"""Of a partly acked batch in memory."""


def base_bytes(footer: Footer) -> int:
    """What is stored below the deltas."""
    base = footer.base
    if isinstance(base, SnapshotBase):
        return base.length
    if isinstance(base, InlineBase):
        return inline_bytes_max(base.state)
    return len(base.info) if isinstance(base, PulsarBase) else 0


def stored_bytes(footer: Footer) -> int:
    """About: the base, and the deltas of the moment the footer was written."""
    return base_bytes(footer) + footer.stats.delta_bytes


def described_bytes(stats: Stats) -> int:
    """Of the state as bitmaps: a bit for each entry of the span, or two bytes for each hole where these are few; and its batches."""
    return min(stats.span // 8, 2 * stats.holes) + PARTIAL_BYTES * stats.partial_batches


def state_bytes(footer: Footer) -> int:
    """In memory, about: what is stored, or what that is unpacked."""
    return max(stored_bytes(footer), described_bytes(footer.stats))


def runs_max(stats: Stats) -> int:
    """How many runs the holes are, at most. A footer does not say it where there are many holes (`runs` 0): then no more than there are
    holes, nor than acked entries and ends of ledgers to part them."""
    return stats.runs or min(stats.holes, max(0, stats.span - stats.holes) + stats.ledgers)


def row_bytes(stats: Stats, table: str) -> int:
    """Of the rows that a state becomes in a table. One row a cursor is nothing."""
    if table == "holes":
        return ROW_BYTES * runs_max(stats)
    return ROW_BYTES * stats.partial_batches if table == "batch_partials" else 0
