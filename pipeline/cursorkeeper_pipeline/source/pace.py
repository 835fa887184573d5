"""Reading no faster than asked: bookies and ZooKeeper serve live traffic too.

Owns the pace of one task: what it has read since it began stays below `rate x time`, and every wait
is over before what was read is handed on; so tasks of one rate, one after another in a slot, stay
below that rate together, however short they are. A job's budget is divided by the tasks that run at
once (`Options.of_tasks`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, cast

from cursorkeeper.bookkeeper.port import TO_LAST_CONFIRMED, LedgerStore, ReadChunk

MIB: Final = 1 << 20


class Pace:
    """`per_s` of something, above 0; 0: as fast as it goes."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._paid_until_s: float | None = None
        """When what was read so far has been paid for, in the loop's time."""

    async def begin(self) -> None:
        """Time that passed before counts for nothing."""
        if self._paid_until_s is None:
            self._paid_until_s = asyncio.get_running_loop().time()

    async def pay(self, amount: float) -> None:
        """Waits until it is paid for. What was not read meanwhile is not saved up: no burst follows
        a pause.
        """
        if not self._per_s:
            return
        await self.begin()
        assert self._paid_until_s is not None
        now = asyncio.get_running_loop().time()
        self._paid_until_s = (
            max(self._paid_until_s, now - amount / self._per_s) + amount / self._per_s
        )
        if self._paid_until_s > now:
            await asyncio.sleep(self._paid_until_s - now)


def paced(ledgers: LedgerStore, mib_s: float) -> LedgerStore:
    """The same store; 0: as fast as it goes."""
    return cast(LedgerStore, Paced(ledgers, mib_s * MIB)) if mib_s else ledgers


class Paced:
    """What readers ask of a store, see the module. `bytes_s` is above 0."""

    def __init__(self, ledgers: LedgerStore, bytes_s: float) -> None:
        self._ledgers, self._pace = ledgers, Pace(bytes_s)
        self.metadata, self.end_of = ledgers.metadata, ledgers.end_of
        self.list, self.describe = ledgers.list, ledgers.describe

    async def read(
        self,
        ledger: int,
        first: int,
        last: int = TO_LAST_CONFIRMED,
        *,
        max_bytes: int = 0,
        unconfirmed: bool = False,
    ) -> AsyncIterator[ReadChunk]:
        await self._pace.begin()
        async for chunk in self._ledgers.read(
            ledger, first, last, max_bytes=max_bytes, unconfirmed=unconfirmed
        ):
            await self._pace.pay(sum(map(len, chunk.payloads)))
            yield chunk
