"""Acknowledgement state of Apache Pulsar subscriptions, kept by CursorKeeper: the client for Python
programs.

    async with Client("127.0.0.1:7650") as client:
        async with client.cursor("persistent://public/default/orders", "billing") as cursor:
            await cursor.ack(ledger, entry)
            await cursor.durable()

What is listed here is public; everything else may change.
"""

from cursorkeeper_client.ack_stream.connection import SourceServer
from cursorkeeper_client.client import Client
from cursorkeeper_client.cursor import Cursor
from cursorkeeper_client.errors import (
    AcksTooLarge,
    AnswerTimeout,
    ConnectionLost,
    ConnectionRefused,
    Contradiction,
    CursorClosed,
    CursorDamaged,
    CursorDeposed,
    CursorKeeperError,
    CursorRefused,
    Fenced,
    HeldElsewhere,
    KeeperBusy,
    NoSuchCursor,
    NotAllowed,
    TooLarge,
    WrongMessage,
)
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.store import CursorInfo, CursorStore
from cursorkeeper_client.tls import TlsError, TlsFiles
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
    "AckedIndexes",
    "Acks",
    "AcksTooLarge",
    "AnswerTimeout",
    "Client",
    "ClientSettings",
    "ConnectionLost",
    "ConnectionRefused",
    "Contradiction",
    "Cursor",
    "CursorClosed",
    "CursorDamaged",
    "CursorDeposed",
    "CursorInfo",
    "CursorKeeperError",
    "CursorRefused",
    "CursorState",
    "CursorStore",
    "Fenced",
    "HeldElsewhere",
    "KeeperBusy",
    "LayoutItem",
    "LayoutState",
    "LedgerAcks",
    "NoSuchCursor",
    "NotAllowed",
    "PartialBatch",
    "Position",
    "SourceServer",
    "TlsError",
    "TlsFiles",
    "TooLarge",
    "WrongMessage",
]
