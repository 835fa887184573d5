"""Reading no faster than asked: bookies serve live traffic too.

Owns the pace of one task: bytes read over the time since its first read stay below `rate x time + BURST_S x rate`. Waits between chunks, so
the bound is met to a chunk. Everything but `read` is the store's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, cast

from cursorkeeper_clients.bookkeeper.port import TO_LAST_CONFIRMED, LedgerStore, ReadChunk

MIB: Final = 1 << 20
BURST_S: Final = 0.25
"""What was not read for so long may be read at once: small ledgers need no pauses."""


def paced(ledgers: LedgerStore, mib_s: float) -> LedgerStore:
    """The same store; 0: as fast as it goes."""
    return cast(LedgerStore, Paced(ledgers, mib_s * MIB)) if mib_s else ledgers


class Paced:
    """See the module. `bytes_s` is above 0."""

    def __init__(self, ledgers: LedgerStore, bytes_s: float) -> None:
        self._ledgers, self._bytes_s = ledgers, bytes_s
        self._free_at_s = 0.0
        """When what was read so far has been paid for, in the loop's time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledgers, name)

    async def read(
        self, ledger: int, first: int, last: int = TO_LAST_CONFIRMED, *, max_bytes: int = 0, unconfirmed: bool = False
    ) -> AsyncIterator[ReadChunk]:
        """As the store's."""
        async for chunk in self._ledgers.read(ledger, first, last, max_bytes=max_bytes, unconfirmed=unconfirmed):
            await self._pay(sum(map(len, chunk.payloads)))
            yield chunk

    async def _pay(self, read_bytes: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at_s = max(self._free_at_s, now - BURST_S) + read_bytes / self._bytes_s
        if self._free_at_s > now:
            await asyncio.sleep(self._free_at_s - now)
