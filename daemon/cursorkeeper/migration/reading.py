"""Reading one Pulsar cursor (stub of the signature)."""

from __future__ import annotations

from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import PulsarCursor

STATE_BYTES_MAX = 256 << 20
"""A state is never expanded beyond this."""


async def read_cursor(
    ports: PulsarPorts,
    ref: PulsarCursorRef,
    *,
    roll_back_unreadable: bool = False,
    patience: Patience | None = None,
    limit_bytes: int = STATE_BYTES_MAX,
) -> PulsarCursor:
    """The newest state that can be seen without disturbing anybody: nothing is recovered, nothing fenced.

    `roll_back_unreadable`: where the cursor ledger is gone or unreadable, do what Pulsar does, and say so: go back to the
    znode's mark-delete and lose every individual ack. Raises MigrationError.
    """
    raise NotImplementedError
