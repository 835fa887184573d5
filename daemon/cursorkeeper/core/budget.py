"""What a state takes in memory, and how much of that one cursor may have.

Owns the arithmetic and the default. An entry far above the others costs what lies between them,
because un-acked entries are
remembered: 65,536 of them are a container, some 78 bytes when all are alike and about 8 KiB when
they are mixed. So a few
bytes can ask for gigabytes, and whoever joins acks (live, in replay, from a snapshot, a footer or
an import) asks here before it makes room for them. The numbers are measured ones, rounded up.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.limits import LAYOUT_LEDGERS_MAX, STATE_BYTES_MAX
from cursorkeeper.core.shape import frozen

CONTAINER_BYTES: Final = 64
"""Of one container beside its serialized form: its place in the bitmap, its head, what the
allocator adds.
"""
RUN_CONTAINER_BYTES: Final = CONTAINER_BYTES + 14
"""Memory of a container whose entries are all un-acked."""
LEDGER_BYTES: Final = 400
"""Of a data ledger: its bitmap, its object, its place in the table."""
PARTIAL_BYTES: Final = 600
"""Memory of one partly acked batch."""
LAYOUT_BYTES: Final = 200
"""Of a data ledger in the layout: its item, its places in the table and in the order."""
ACK_BYTES: Final = 256
"""The most that one more ack adds: a container of runs becomes one of bits, of 8 KiB, when 32 are
cut out of it at once.
"""
READING_QUARTERS: Final = 5
"""A reader takes five quarters of what a writer accepts: the same state may take more or less in
another order of its joins, and what was accepted must be read.
"""


@frozen
class StateBudget:
    """What one cursor's state may take when it is read."""

    bytes_max: int = STATE_BYTES_MAX * READING_QUARTERS // 4
    layout_ledgers_max: int = LAYOUT_LEDGERS_MAX * READING_QUARTERS // 4

    @classmethod
    def reading(cls, state_bytes_max: int, layout_ledgers_max: int) -> StateBudget:
        """The budget of a reader with these settings."""
        return cls(
            state_bytes_max * READING_QUARTERS // 4, layout_ledgers_max * READING_QUARTERS // 4
        )


DEFAULT: Final = StateBudget()


def containers_below(high_water: int) -> int:
    """Containers that hold the entries below it."""
    return (high_water + 0xFFFF) >> 16


def growth_bytes(before: int, after: int) -> int:
    """What it takes to remember the entries between two high waters as un-acked."""
    return (
        (containers_below(after) - containers_below(before)) * RUN_CONTAINER_BYTES
        if after > before
        else 0
    )


def mixed_bytes(high_water: int) -> int:
    """The most that the entries of a ledger below it can take, whatever is acked of them."""
    return LEDGER_BYTES + containers_below(high_water) * (CONTAINER_BYTES + 8 + 8_192)
