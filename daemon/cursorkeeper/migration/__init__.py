"""From Pulsar's own cursors to ours and back: finding them, reading them without disturbing a
broker, planning, writing.
"""

from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_cursors,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.pulsar_cursor import Freshness, PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor

__all__ = [
    "Freshness",
    "Kind",
    "MigrationError",
    "PulsarCursor",
    "PulsarCursorRef",
    "PulsarPorts",
    "Selection",
    "SkippedPath",
    "iter_cursors",
    "read_cursor",
]
