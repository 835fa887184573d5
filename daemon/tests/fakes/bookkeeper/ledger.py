"""One ledger as the bookies and the metadata hold it. Pure: no loop, no clock; chance is passed in.

Owns: entries, what is acknowledged, fencing, the end. Does not own: write handles, time, failures
on the way. Invariants, those of real BookKeeper: an entry is acknowledged only if the ledger was
not fenced when it was stored; the end that recovery decides is never below the last acknowledged
entry, and the un-acknowledged tail behind it is kept up to any point; a closed ledger never
changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum

from cursorkeeper.bookkeeper.errors import GatewayError, GatewayRefused, GatewayRetry, Outcome
from cursorkeeper.bookkeeper.port import LedgerEnd, LedgerInfo, LedgerSpec, LedgerState


class Damage(StrEnum):
    """How a stored entry is spoilt for a test."""

    FLIP = "flip"  # one byte is wrong and the checksum of BookKeeper does not notice
    TRUNCATE = "truncate"  # the second half is gone, unnoticed
    DIGEST = "digest"  # every copy is corrupt: reading is REFUSED
    GONE = "gone"  # no bookie has it: reading asks for a retry, for ever


class FakeLedger:
    """`entries` may reach beyond `acked` (the tail); after CLOSED they end at `last_entry`."""

    def __init__(
        self, ledger: int, spec: LedgerSpec, custom_metadata: Mapping[str, bytes], created_ms: int
    ) -> None:
        self.ledger, self.spec, self.created_ms = ledger, spec, created_ms
        self.custom_metadata = dict(custom_metadata)
        self.entries: list[bytes] = []
        # the last add confirmed that travelled with each entry
        self.confirmed_when_sent: list[int] = []
        self.acked = -1
        self.state = LedgerState.OPEN
        self.damage: dict[int, Damage] = {}

    @property
    def fenced(self) -> bool:
        """Whether bookies refuse ordinary adds."""
        return self.state is not LedgerState.OPEN

    @property
    def end(self) -> LedgerEnd:
        """Last entry and length, as a closed ledger has them."""
        return LedgerEnd(len(self.entries) - 1, sum(map(len, self.entries)))

    @property
    def visible_end(self) -> int:
        """What a reader without recovery may read up to: on an open ledger at most the last entry
        but one.
        """
        if self.state is LedgerState.CLOSED:
            return len(self.entries) - 1
        return self.confirmed_when_sent[-1] if self.entries else -1

    def store(self, payload: bytes) -> int:
        """An ordinary add reaches the bookies; returns its entry id. Not acknowledged yet."""
        assert not self.fenced, "bookies refuse adds to a fenced ledger"
        self.entries.append(payload)
        self.confirmed_when_sent.append(self.acked)
        return len(self.entries) - 1

    def ack(self, entry: int) -> None:
        """The ack quorum has it: from now on it is never lost."""
        assert entry < len(self.entries), (
            f"entry {entry} was cut off by recovery and cannot be acknowledged"
        )
        self.acked = max(self.acked, entry)

    def begin_recovery(self) -> None:
        """Fence: no ordinary add is taken any more. The end is not decided yet."""
        if self.state is LedgerState.OPEN:
            self.state = LedgerState.IN_RECOVERY

    def recover(self, rng: random.Random) -> LedgerEnd:
        """Fence, decide the end, close; on a closed ledger only tell the end."""
        if self.state is not LedgerState.CLOSED:
            self.begin_recovery()
            self.close_at(rng.randint(self.acked, len(self.entries) - 1))
        return self.end

    def close_at(self, last_entry: int) -> None:
        """Fix the end. What is behind it is gone."""
        assert last_entry >= self.acked, (
            f"closing ledger {self.ledger} at {last_entry} would lose the acknowledged entry "
            f"{self.acked}"
        )
        del self.entries[last_entry + 1 :]
        del self.confirmed_when_sent[last_entry + 1 :]
        self.state = LedgerState.CLOSED

    def payload(self, entry: int) -> bytes:
        """One stored entry as a reader gets it, damage included."""
        match self.damage.get(entry):
            case Damage.FLIP:
                stored = self.entries[entry]
                at = len(stored) // 2
                return (
                    stored[:at] + bytes([stored[at] ^ 0xFF]) + stored[at + 1 :]
                    if stored
                    else b"\xff"
                )
            case Damage.TRUNCATE:
                return self.entries[entry][: len(self.entries[entry]) // 2]
            case Damage.DIGEST:
                raise self._damaged(GatewayRefused, "DIGEST_MISMATCH", -5)
            case Damage.GONE:
                raise self._damaged(GatewayRetry, "READ_FAILED", -1)
            case None:
                return self.entries[entry]

    def info(self) -> LedgerInfo:
        spec, closed = self.spec, self.state is LedgerState.CLOSED
        last, length = self.end if closed else LedgerEnd(-1, 0)
        return LedgerInfo(
            self.ledger,
            spec.ensemble,
            spec.write_quorum,
            spec.ack_quorum,
            spec.digest,
            self.state,
            last,
            length,
            self.created_ms,
            dict(self.custom_metadata),
        )

    def _damaged(self, kind: type[GatewayError], reason: str, code: int) -> GatewayError:
        return kind(
            reason,
            Outcome.NOT_DONE,
            ledger=self.ledger,
            bookkeeper_code=code,
            message="damaged on purpose by the fake",
        )
