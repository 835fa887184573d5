"""The worlds in which the contract of `LedgerStore` is checked: the fake, and a real BookKeeper (in
one JVM, or in containers).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper


class World(Protocol):
    """A BookKeeper with one gateway that may be killed."""

    async def client(self, role: str = "writer", *, window_entries: int = 4096) -> LedgerStore:
        """A further client of the same gateway process, started."""
        ...

    async def restart_gateway(self) -> None:
        """kill -9, and a new process at the same address."""
        ...


class FakeWorld:
    """In memory, with small delays so that things overlap."""

    def __init__(self, seed: int) -> None:
        self.bookkeeper = FakeBookKeeper(random.Random(seed))
        self.bookkeeper.faults.delay_max_s = self.bookkeeper.faults.ack_delay_max_s = 0.001
        self.process = self.bookkeeper.gateway().process

    async def client(self, role: str = "writer", *, window_entries: int = 4096) -> LedgerStore:
        made = self.bookkeeper.gateway(role=role, entries_max=window_entries)
        self.bookkeeper.processes.remove(made.process)
        made.process = self.process
        await made.start()
        return made

    async def restart_gateway(self) -> None:
        self.process.kill()
        self.process.start()


class RealWorld:
    """A gateway at host:port `address`, which `restart` kills and starts again there. Shared by all
    tests, so ledgers of other tests are there too.
    """

    def __init__(self, address: str, restart: Callable[[], Awaitable[object]]) -> None:
        self._address, self._restart = address, restart
        self.clients: list[GatewayClient] = []

    async def client(self, role: str = "writer", *, window_entries: int = 4096) -> LedgerStore:
        settings = GatewayClientSettings(
            address=self._address, role=role, append_window_entries_max=window_entries
        )
        made = GatewayClient(settings, random.Random(1))
        self.clients.append(made)
        await made.start()
        return made

    async def restart_gateway(self) -> None:
        await self._restart()

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
