"""How large a cursor's state is, as its footer knows it: what is stored, and what a reader holds in
memory. Pure.

Owns the estimates that limits of memory are made of. Stored bytes say little of the others: acks in
a regular pattern (every second entry) compress to nothing and are as many bits as any. Invariants:
of the moment the footer was written, and not less than what a state of these counts holds; a footer
without counts is as large as what it stores.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.footer import Footer, InlineBase, PulsarBase, SnapshotBase
from cursorkeeper.core.snapshot_plan import inline_bytes_max

PARTIAL_BYTES: Final = 256
"""Memory of one partly acked batch."""


def base_bytes(footer: Footer) -> int:
    base = footer.base
    if isinstance(base, SnapshotBase):
        return base.length
    if isinstance(base, InlineBase):
        return inline_bytes_max(base.state)
    return len(base.info) if isinstance(base, PulsarBase) else 0


def stored_bytes(footer: Footer) -> int:
    """About: the base, and the deltas of the moment the footer was written."""
    return base_bytes(footer) + footer.stats.delta_bytes


def held_bytes(stored: int, span: int, holes: int, partial_batches: int) -> int:
    """In memory, about: what is stored, or what that is unpacked. As bitmaps it is a bit for each
    entry of the span, or two bytes for each hole where these are few; and its batches.
    """
    return max(stored, min(span // 8, 2 * holes) + PARTIAL_BYTES * partial_batches)


def state_bytes(footer: Footer) -> int:
    """`held_bytes` of a footer."""
    stats = footer.stats
    return held_bytes(stored_bytes(footer), stats.span, stats.holes, stats.partial_batches)
