"""The ack stream for sources written in Python: dial the daemon or be dialled, open cursors, send
acks, hear what is durable.
"""

from cursorkeeper_client.ack_stream.connection import SourceConnection, SourceServer
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.client import ResumingSource
from cursorkeeper_client.cursor import ResumingCursor
from cursorkeeper_client.errors import (
    AcksTooLarge,
    AckStreamError,
    CursorDeposed,
    CursorRefused,
    HandleClosed,
    KeeperTimeout,
    SendWindowFull,
    SessionLost,
    SessionRefused,
)
from cursorkeeper_client.settings import SourceSettings
from cursorkeeper_client.values import (
    AckedIndexes,
    Acks,
    CursorState,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    PartialBatch,
    Position,
)

__all__ = [
    "AckStreamError",
    "AckedIndexes",
    "Acks",
    "AcksTooLarge",
    "CursorDeposed",
    "CursorHandle",
    "CursorRefused",
    "CursorState",
    "HandleClosed",
    "KeeperTimeout",
    "LayoutItem",
    "LayoutState",
    "LedgerAcks",
    "PartialBatch",
    "Position",
    "ResumingCursor",
    "ResumingSource",
    "SendWindowFull",
    "SessionLost",
    "SessionRefused",
    "SourceConnection",
    "SourceServer",
    "SourceSession",
    "SourceSettings",
]
