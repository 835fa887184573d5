"""What a failed ledger operation means to its caller, in one typed table.

Owns: one exception per reaction (retry, roll, fenced, refused), the outcome (not done or unknown),
and the translation of everything foreign: the gateway's `Failure`, a gRPC status, a lost
connection, a deadline. Does not own: what the caller then does. Invariant: an outcome is NOT_DONE
only where that is certain; everything else is UNKNOWN and nobody guesses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Outcome(StrEnum):
    """Whether the operation may have happened."""

    NOT_DONE = "NOT_DONE"  # it certainly did not happen
    UNKNOWN = "UNKNOWN"  # it may have happened, or happen still


class GatewayError(Exception):
    """Base of what a `LedgerStore` raises. `reason` is an upper-case word, `remedy` says what to do
    next.

    `said` is all of it but the remedy. `bookkeeper_code` is 0 if BookKeeper did not speak; `ledger`
    is -1 if none is concerned.
    """

    default_remedy = ""

    def __init__(
        self,
        reason: str,
        outcome: Outcome,
        *,
        ledger: int = -1,
        bookkeeper_code: int = 0,
        message: str = "",
    ) -> None:
        self.reason, self.outcome, self.ledger = reason, outcome, ledger
        self.bookkeeper_code, self.message = bookkeeper_code, message
        self.remedy = REMEDIES.get(reason, self.default_remedy)
        where = f"ledger {ledger}: " if ledger >= 0 else ""
        code = f" (BookKeeper {bookkeeper_code})" if bookkeeper_code else ""
        self.said = f"{where}{reason}, {outcome}{code}{': ' + message if message else ''}"
        super().__init__(f"{self.said}. What to do: {self.remedy}")

    @property
    def is_handle_lost(self) -> bool:
        """Of an append: nothing is wrong with the ledger, but the gateway that had its handle, or
        the stream that it came on, has ended.
        """
        return self.reason in _HANDLE_LOST

    def of(self, ledger: int, outcome: Outcome | None = None) -> Self:
        """The same of this ledger, and with this outcome."""
        return type(self)(
            self.reason,
            outcome or self.outcome,
            ledger=ledger,
            bookkeeper_code=self.bookkeeper_code,
            message=self.message,
        )


class GatewayRetry(GatewayError):
    """The same call may succeed later."""

    default_remedy = "repeat the call after a pause"


class GatewayRoll(GatewayError):
    """Leave this ledger: recover it, continue in a new one."""

    default_remedy = "fence the ledger, read its end, continue in a new one"


class GatewayFenced(GatewayError):
    """Somebody recovered the ledger; that alone does not prove a new owner (BookKeeper's
    auto-recovery fences too).
    """

    default_remedy = "read the footer: same epoch means roll, a higher one means stop"


class GatewayRefused(GatewayError):
    """Repeating it cannot help: the request, its size or its rights are wrong, or the data is
    damaged.
    """

    default_remedy = "do not repeat it; see the message"


class NoSuchLedger(GatewayRefused):
    """The ledger does not exist (any more)."""


_HANDLE_LOST = frozenset({"CONNECTION_LOST", "STREAM_ENDED", "NO_HANDLE"})
NO_SUCH_LEDGER_REASON = "NO_SUCH_LEDGER"
# -7 is one bookie's word, not the metadata's: a read that may be repeated
NO_SUCH_LEDGER_CODES = frozenset({-25})

REMEDIES = {
    "WINDOW_FULL": "wait for an append to be answered",
    "CONNECTION_LOST": "the gateway went away or restarted; write handles did not survive it",
    "NOT_CONNECTED": "start the gateway, or name another address",
    "TIMEOUT": "BookKeeper or the gateway was too slow; look at both before raising the limit",
    "NOT_ENOUGH_BOOKIES": "fewer bookies can be written to than the ensemble needs; start some, "
    "or use a smaller ensemble",
    "UNEXPECTED_ENTRY_ID": "the client's numbering and the gateway's differ: fence the ledger "
    "and read its end",
    "NO_HANDLE": "the write handle is in another gateway process, on another stream, or was "
    "closed: fence the ledger",
    "ENTRY_TOO_LARGE": "cut the record smaller; describe() tells the limit",
    "NO_SUCH_LEDGER": "the ledger was deleted: read the footer again, it may name other ledgers",
    "CLIENT_CLOSED": "this client was closed; open a new one",
    "READERS_MAY_NOT": "this connection has the role reader; writing, fencing and deleting need "
    "the role writer",
    "ROLE_OFF": "the gateway does not have this role; `gateway --help` says which flag switches "
    "it on",
    "BAD_TOKEN": "name the file with the role's token: gateway_token_file",
    "NO_CREDENTIALS": "name a file with a token, gateway_token_file, or a certificate of this "
    "machine's own",
    "TOKEN_EXPIRED": "write a new token into the file that gateway_token_file names: it is read "
    "again",
    "UNKNOWN_CERTIFICATE": "add the certificate's subject to the gateway's identities file",
    "ROLE_NOT_HELD": "the gateway's identities file gives this caller other roles",
    "OTHER_TOPIC": "the gateway's identities file gives this caller other topics",
    "QUOTA": "wait until what this identity has open has ended, or raise its quota in the "
    "gateway's identities file",
    "MIGRATORS_ONLY": "Pulsar's cursor ledgers are written with the role migrator; the gateway "
    "has it with --migrator-token-file",
    "NOT_OURS": "ask for ledgers of cursors only: messages, schemas and what others wrote are "
    "never given out",
    "OTHER_DEPLOYMENT": "use the daemon and the root of that deployment: the data of the root "
    "node in ZooKeeper is its id",
}

BY_REACTION: dict[str, type[GatewayError]] = {
    "RETRY": GatewayRetry,
    "ROLL": GatewayRoll,
    "FENCED": GatewayFenced,
    "REFUSED": GatewayRefused,
}

# gRPC status code -> (reason, reaction; None: the answer was lost, outcome). A status comes without
# a `Failure` only if the gateway did not answer by itself: the transport, a proxy or a limit spoke.
# Every code has a row.
BY_STATUS: dict[str, tuple[str, type[GatewayError] | None, Outcome]] = {
    status: (reason, None, Outcome.UNKNOWN)
    for status, reason in {
        # the peer ended a stream that should have gone on
        "OK": "STREAM_ENDED",
        "CANCELLED": "CONNECTION_LOST",
        "UNAVAILABLE": "CONNECTION_LOST",
        "DEADLINE_EXCEEDED": "TIMEOUT",
        "ABORTED": "ABORTED",
        "UNKNOWN": "GATEWAY_FAILED",
        "INTERNAL": "GATEWAY_FAILED",
        "DATA_LOSS": "GATEWAY_FAILED",
    }.items()
} | {
    status: (status, GatewayRefused, Outcome.NOT_DONE)
    for status in (
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
    )
}
# the reply may be what was too large
BY_STATUS["RESOURCE_EXHAUSTED"] = ("MESSAGE_TOO_LARGE", GatewayRefused, Outcome.UNKNOWN)


def from_status(
    status: str, *, ledger: int = -1, message: str = "", of_append: bool = False
) -> GatewayError:
    """A gRPC status that carried no `Failure`; UNAVAILABLE, if the connection broke before the
    answer came. For an append the stream is gone, so NOT_DONE is never certain.
    """
    reason, kind, outcome = BY_STATUS.get(status, BY_STATUS["UNKNOWN"])
    # After a lost answer an append is never repeated: only recovery tells whether the entry is
    # there. All else may be; a repeated create may leave an empty orphan ledger, found by its
    # custom metadata.
    if of_append:
        kind, outcome = kind or GatewayRoll, Outcome.UNKNOWN
    kind = kind or GatewayRetry
    return kind(reason, outcome, ledger=ledger, message=message)


def afterwards(ledger: int, died_of: GatewayError | None) -> GatewayError:
    """What an append gets after an earlier one ended its ledger for writing: nothing was even
    tried.
    """
    kind: type[GatewayError] = GatewayFenced if isinstance(died_of, GatewayFenced) else GatewayRoll
    reason, code = (died_of.reason, died_of.bookkeeper_code) if died_of else ("HANDLE_CLOSED", -11)
    return kind(
        reason,
        Outcome.NOT_DONE,
        ledger=ledger,
        bookkeeper_code=code,
        message="an earlier append failed",
    )
