"""The worlds in which the contract of `port.ZooKeeper` is checked: the fake, and real servers
behind a proxy that does harm.

Owns: clients of either, each test's in a part of the tree of its own. Does not own: the servers.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from cursorkeeper.zookeeper import ZooKeeper, ZooKeeperClient, ZooKeeperSettings
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.zookeeper.proxy import FaultProxy

SETTINGS = ZooKeeperSettings(
    session_timeout_ms=24_000, start_timeout_s=60, request_timeout_s=60, back_off_max_ms=500
)
"""The longest session that the tests' server gives: a machine that stands still for some seconds
ends no connection and no session.
"""

_roots = itertools.count(1)


class World(Protocol):
    """What the contract suite needs of an ensemble, real or fake."""

    async def client(self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS) -> ZooKeeper:
        """A started client, in the test's own part of the tree."""
        ...

    def break_connection(self, client: ZooKeeper) -> None:
        """The client loses its connection and finds another one soon."""
        ...

    async def expire(self, client: ZooKeeper) -> None:
        """The ensemble forgets the client's session; the client is told when it connects again,
        soon.
        """
        ...


class FakeWorld:
    """Fake sessions on one fake server."""

    def __init__(self) -> None:
        self.server = FakeZooKeeperServer(random.Random(1))
        self._clients: list[FakeZooKeeper] = []

    async def client(self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS) -> ZooKeeper:
        client = self.server.session(settings=replace(settings, chroot="/test" + chroot))
        self._clients.append(client)
        await client.start()
        await client.ensure_path("/")
        return client

    def break_connection(self, client: ZooKeeper) -> None:
        assert isinstance(client, FakeZooKeeper)
        client.disconnect()

    async def expire(self, client: ZooKeeper) -> None:
        assert isinstance(client, FakeZooKeeper)
        client.expire()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


class RealWorld:
    """Clients of real servers on 127.0.0.1, each through a proxy of its own that goes to another
    member at every connection.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = tuple(ports)
        self._root = f"/test-{next(_roots)}"
        self._clients: list[tuple[ZooKeeperClient, FaultProxy]] = []

    async def proxied(
        self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS, servers: int = 1
    ) -> tuple[ZooKeeperClient, FaultProxy]:
        """A started client and the proxy it goes through, which is all of its `servers`."""
        at = len(self._clients) % len(self._ports)
        proxy = FaultProxy(*self._ports[at:], *self._ports[:at])
        await proxy.listen()
        own = replace(
            settings, servers=(("127.0.0.1", proxy.port),) * servers, chroot=self._root + chroot
        )
        client = ZooKeeperClient(own, random_source=random.Random(1))
        self._clients.append((client, proxy))
        await client.start()
        await client.ensure_path("/")
        return client, proxy

    async def client(self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS) -> ZooKeeper:
        return (await self.proxied(chroot, settings))[0]

    def proxy_of(self, client: ZooKeeper) -> FaultProxy:
        return next(proxy for known, proxy in self._clients if known is client)

    def break_connection(self, client: ZooKeeper) -> None:
        self.proxy_of(client).cut()

    async def expire(self, client: ZooKeeper) -> None:
        """Somebody with the session's id and password closes it: the quickest real end of a
        session.
        """
        link = self.proxy_of(client).links[-1]
        welcome = link.frames_from_server[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[0])
        hello = bytes(4) + bytes(8) + welcome[4:8] + welcome[8:16] + welcome[16:36] + b"\0"
        close = bytes([0, 0, 0, 1]) + (-11).to_bytes(4, "big", signed=True)
        for frame in (hello, close):
            writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.read()
        writer.close()
        link.cut()  # and no later one: the client may have noticed already

    async def close(self) -> None:
        for client, _ in self._clients:
            await client.close()
        for _, proxy in self._clients:
            await proxy.close()
