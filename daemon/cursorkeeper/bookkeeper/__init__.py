"""Client of the ledger gateway: real BookKeeper ledgers for Python. `port` is what it does, `fake`
does the same in memory.
"""

from cursorkeeper.bookkeeper.errors import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    NoSuchLedger,
    Outcome,
)
from cursorkeeper.bookkeeper.port import (
    TO_LAST_CONFIRMED,
    Digest,
    GatewayInfo,
    LedgerEnd,
    LedgerInfo,
    LedgerSpec,
    LedgerState,
    LedgerStore,
    ReadChunk,
    SeenEnd,
)
from cursorkeeper.compiled import prefer

prefer(__name__, __path__)

__all__ = [
    "TO_LAST_CONFIRMED",
    "Digest",
    "GatewayError",
    "GatewayFenced",
    "GatewayInfo",
    "GatewayRefused",
    "GatewayRetry",
    "GatewayRoll",
    "LedgerEnd",
    "LedgerInfo",
    "LedgerSpec",
    "LedgerState",
    "LedgerStore",
    "NoSuchLedger",
    "Outcome",
    "ReadChunk",
    "SeenEnd",
]
