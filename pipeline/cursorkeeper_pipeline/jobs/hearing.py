"""What a compaction hears of its one cursor: how it ends, and every thing that moves on the way.

Owns what counts as progress: entries that were read or written, a ledger that was recovered, created or closed, a word of the keeper.
Waiting is none, nor is a call that failed. Invariant: whoever waits for `Told.changed` wakes at each of these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from cursorkeeper.bookkeeper.port import TO_LAST_CONFIRMED, LedgerEnd, LedgerSpec, LedgerStore, ReadChunk
from cursorkeeper.core.snapshotting import TAKEN
from cursorkeeper.migration.listener import ImportListener, QuietTelemetry


class Told(ImportListener):
    """What the keeper says of this one cursor; a listener and a telemetry at once."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.snapshots = "", 0

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        self.code = code
        super().on_refused(code, message, remedy)

    def took_snapshot(self) -> None:
        """One that was asked for is committed."""
        self.snapshots += 1
        self.changed.set()

    def moved(self) -> None:
        self.changed.set()


class Hearing(QuietTelemetry):
    """Passes on the one event that is waited for, and each record that was written."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        self._told.moved()

    def log(self, event: str, **fields: Any) -> None:
        if event == TAKEN:
            self._told.took_snapshot()


def heard(ledgers: LedgerStore, told: Told) -> LedgerStore:
    """The same store, of which `told` hears what it answers. Appends are the keeper's telemetry's."""
    return cast(LedgerStore, _Heard(ledgers, told))


class _Heard:
    """Everything else is the store's own."""

    def __init__(self, ledgers: LedgerStore, told: Told) -> None:
        self._ledgers, self._told = ledgers, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledgers, name)

    async def read(
        self, ledger: int, first: int, last: int = TO_LAST_CONFIRMED, *, max_bytes: int = 0, unconfirmed: bool = False
    ) -> AsyncIterator[ReadChunk]:
        async for chunk in self._ledgers.read(ledger, first, last, max_bytes=max_bytes, unconfirmed=unconfirmed):
            if chunk.payloads:
                self._told.moved()
            yield chunk

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        ledger = await self._ledgers.create(spec, custom_metadata)
        self._told.moved()
        return ledger

    async def fence(self, ledger: int) -> LedgerEnd:
        end = await self._ledgers.fence(ledger)
        self._told.moved()
        return end

    async def close_ledger(self, ledger: int) -> LedgerEnd:
        end = await self._ledgers.close_ledger(ledger)
        self._told.moved()
        return end
