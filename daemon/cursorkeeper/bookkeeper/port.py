"""What this project asks of BookKeeper ledgers: the port that the real client and the fake both
implement.

Owns: the `LedgerStore` protocol and the values in its signatures. Does not own: how calls travel
(`client`, `append_stream`), what failures are (`errors`), or what the bytes of an entry mean.
Invariants: every method raises `GatewayError` subclasses and nothing else on purpose; every wait
ends within a limit; an append that was acknowledged is never lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

# `read(last=...)`: up to the last add confirmed that a reader may see.
TO_LAST_CONFIRMED = -1


class Digest(IntEnum):
    """The checksum BookKeeper keeps with each entry. The numbers are those of the protocol."""

    CRC32 = 1
    MAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(IntEnum):
    """What a ledger's metadata says. The numbers are those of the protocol."""

    UNKNOWN = 0
    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class LedgerSpec:
    """How a ledger is written: bookies per ledger >= copies of an entry >= copies awaited before
    the ack.

    `password` must be the same for every later read, fence and append; BookKeeper stores it in
    clear.
    """

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest: Digest = Digest.CRC32C
    password: bytes = b""

    def __post_init__(self) -> None:
        if not self.ensemble >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                f"ensemble {self.ensemble} >= write quorum {self.write_quorum} >= ack quorum "
                f"{self.ack_quorum} >= 1 does not hold"
            )


class LedgerEnd(NamedTuple):
    """The end of a closed ledger. `last_entry` -1 = empty; `length` is for display, it may count a
    discarded tail entry.
    """

    last_entry: int
    length: int


class FencedEnd(NamedTuple):
    """As `LedgerEnd`. `entries`: all of them, or none: who asked for them and got none reads."""

    last_entry: int
    length: int
    entries: tuple[bytes, ...] = ()


class SeenEnd(NamedTuple):
    """Where a ledger ends for a reader. `last_add_confirmed` -1 = nothing is seen; it is the last
    entry if the ledger is closed.
    """

    closed: bool
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Consecutive entries from `first_entry`. `closed`: the ledger was closed when the read began,
    and `last_add_confirmed` is its last entry; else it is what a reader may see now, and only an
    unconfirmed read gives entries above it. `stopped_by`: in its last chunk, why such a read could
    not find out where the entries end.
    """

    first_entry: int
    payloads: tuple[bytes, ...]
    last_add_confirmed: int
    closed: bool
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """A ledger's metadata. `last_entry` and `length` count only if CLOSED (-1 and 0 otherwise)."""

    ledger: int
    ensemble: int
    write_quorum: int
    ack_quorum: int
    digest: Digest
    state: LedgerState
    last_entry: int
    length: int
    created_ms: int
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayInfo:
    """What the gateway is. `instance` is new in every process; write handles do not survive a
    change of it.
    """

    instance: str
    version: str
    bookkeeper_version: str
    entry_bytes_max: int
    message_bytes_max: int
    writable_bookies: int
    metadata_service_uri: str
    roles: tuple[str, ...] = ()
    """The roles that the gateway knows, by name."""
    role: str = ""
    """The role of this client, as the gateway understood it."""
    message_entries_max: int = 0
    """Entries of one append message; 0: it does not say."""
    message_ledgers_max: int = 0


class LedgerStore(Protocol):
    """Ledgers, from one client of one gateway. All methods belong to one event loop.

    The password of a ledger is that of this store's settings, so that recovery needs no memory of
    each ledger.
    """

    async def start(self) -> None:
        """Connect and learn the limits. Raises `GatewayRetry` if the gateway does not answer in
        time.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection; unanswered appends fail. Ledgers stay as they are.
        Idempotent.
        """
        ...

    def act_for(self, deployment: str) -> None:
        """From now on `fence`, `close_ledger`, `delete` and, if nothing was appended yet, `append`
        are for this deployment: of ours, only ledgers whose custom metadata names it are written,
        ended and deleted. Before, only those that name none. A ledger of another one is
        `GatewayRefused`, or to an append one without a handle.
        """
        ...

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        """A new ledger with a write handle here. UNKNOWN may leave an orphan: found by its
        metadata, and empty.
        """
        ...

    def append(self, ledger: int, entry: int, payload: bytes) -> asyncio.Future[None]:
        """Queue one entry; never blocks. Raises `GatewayRetry` WINDOW_FULL at once: what
        is queued plus unanswered over all ledgers is bounded, in entries and in bytes.

        The futures of a ledger complete in entry order. After a failure, that entry and all later
        ones of the ledger have failed too. ROLL and FENCED end the ledger for writing, and so does
        any failure that took several appends along; a lone append that was refused leaves the
        ledger as it was, waiting for that entry again.
        """
        ...

    def read(
        self,
        ledger: int,
        first: int,
        last: int = TO_LAST_CONFIRMED,
        *,
        max_bytes: int = 0,
        unconfirmed: bool = False,
    ) -> AsyncIterator[ReadChunk]:
        """Entries first..last in order, without recovery. Chunks hold at most `max_bytes` (0:
        default) or one entry.

        At least one chunk comes, possibly without payloads, so that the last add confirmed is
        always told. A range that reaches beyond it ends there without an error: who must have all
        of it counts.

        `unconfirmed`: of an open ledger also what lies beyond the last add confirmed, as long as
        the bookies have it (up to 4,096 entries). A recovery may keep or discard such an entry. A
        failure there ends the read, see `stopped_by`.
        """
        ...

    async def fence(self, ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        """Recovery open: stops every writer, decides the last entry, closes. Repeating it gives the
        same end. With its entries, if they have at most so many bytes and can be had at once.
        """
        ...

    async def close_ledger(self, ledger: int) -> LedgerEnd:
        """Close a ledger held here after what is in flight. Not held here: `GatewayRoll` NOT_DONE
        (fence it).
        """
        ...

    async def delete(self, ledger: int) -> None:
        """Delete; already gone is success. A writer at another gateway is not stopped by it."""
        ...

    async def metadata(self, ledger: int) -> LedgerInfo:
        """The ledger's metadata. `NoSuchLedger` if there is none."""
        ...

    async def end_of(self, ledger: int) -> SeenEnd:
        """Where it ends, without recovery; also of the ledgers of a Pulsar topic's messages, of
        which nothing else is told. `NoSuchLedger` if there is none.
        """
        ...

    def list(self, custom_metadata: Mapping[str, bytes]) -> AsyncIterator[LedgerInfo]:
        """Ledgers whose custom metadata holds every given pair, in no order."""
        ...

    async def describe(self) -> GatewayInfo:
        """What the gateway is and accepts, now."""
        ...
