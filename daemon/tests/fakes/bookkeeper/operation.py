"""What is asked of the fake, so that a test says what is to fail."""

from __future__ import annotations

from enum import StrEnum

from cursorkeeper.bookkeeper.errors import GatewayError, from_status


class Operation(StrEnum):
    CREATE = "create"
    APPEND = "append"
    READ = "read"
    FENCE = "fence"
    CLOSE = "close"
    DELETE = "delete"
    METADATA = "metadata"
    LIST = "list"
    DESCRIBE = "describe"


def connection_lost(operation: Operation, *, ledger: int = -1) -> GatewayError:
    """The connection broke before the answer came."""
    return from_status("UNAVAILABLE", ledger=ledger, of_append=operation is Operation.APPEND)
