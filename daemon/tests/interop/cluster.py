"""Our own side of the cluster: cursor znodes and ledgers through our clients, and our reader of
Pulsar's cursors.

Owns nothing that is tested. Topics are full names (`persistent://...`) here and managed-ledger
names for the harness.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import cursor_info, names
from cursorkeeper.format.pulsar.values import ManagedCursorInfo
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings

LIMIT_BYTES = 64 << 20
BUSY_MAX_S = 120


@dataclass(frozen=True)
class Cluster:
    """Clients of one stack."""

    ports: PulsarPorts

    async def put_cursor(self, topic: str, subscription: str, value: bytes) -> None:
        """The cursor znode, as Pulsar would find it. The topic's znode exists."""
        await self.ports.zookeeper.create(names.cursor_path(topic, subscription), value)

    async def put_pointer(self, topic: str, subscription: str, info: ManagedCursorInfo) -> None:
        """The same, raw."""
        await self.put_cursor(topic, subscription, cursor_info.encode(info))

    async def znode(self, topic: str, subscription: str) -> bytes:
        """The cursor znode's value."""
        return (await self.ports.zookeeper.get(names.cursor_path(topic, subscription))).data

    async def read(self, topic: str, subscription: str) -> PulsarCursor:
        """Our reader: no recovery, no fence, no write. A bookie that was too busy to tell the
        newest entries is asked again.
        """
        end = time.monotonic() + BUSY_MAX_S
        while True:
            read = await read_cursor(self.ports, PulsarCursorRef(topic, subscription))
            if not read.freshness.stopped_by or time.monotonic() > end:
                return read
            await asyncio.sleep(0.1)


@asynccontextmanager
async def connected(stack: Standalone) -> AsyncIterator[Cluster]:
    """Both clients, for one event loop."""
    host, port = stack.zookeeper.rsplit(":", 1)
    zookeeper = ZooKeeperClient(ZooKeeperSettings(servers=((host, int(port)),)))
    ledgers = GatewayClient(GatewayClientSettings(address=stack.gateway, role="reader"))
    try:
        await zookeeper.start()
        await ledgers.start()
        yield Cluster(PulsarPorts(zookeeper, ledgers))
    finally:
        await ledgers.close()
        await zookeeper.close()
