"""Fixtures: a real server (one per run), a client of it behind a proxy, and the two worlds of the contract suite."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio
from cursorkeeper_clients.zookeeper import ZooKeeper, ZooKeeperClient, ZooKeeperSettings
from cursorkeeper_clients.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer

from clients.tests.zookeeper.proxy import FaultProxy
from clients.tests.zookeeper.server_process import ServerProcess

SETTINGS = ZooKeeperSettings(session_timeout_ms=2_000, start_timeout_s=10, request_timeout_s=8, back_off_max_ms=500)

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server for the whole run; a test that stops it starts it again."""
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    server = ServerProcess(folder)
    server.start()
    yield server
    server.stop()


class World(Protocol):
    """What the contract suite needs of an ensemble, real or fake."""

    async def client(self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS) -> ZooKeeper:
        """A started client, in the test's own part of the tree."""
        ...

    def break_connection(self, client: ZooKeeper) -> None:
        """The client loses its connection and finds another one soon."""
        ...

    async def expire(self, client: ZooKeeper) -> None:
        """The ensemble forgets the client's session; the client is told when it connects again, soon."""
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
    """Clients of the real server, each through a proxy of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._root = f"/test-{next(_roots)}"
        self._clients: list[tuple[ZooKeeperClient, FaultProxy]] = []

    async def proxied(self, chroot: str = "", settings: ZooKeeperSettings = SETTINGS) -> tuple[ZooKeeperClient, FaultProxy]:
        """A started client and the proxy it goes through."""
        proxy = FaultProxy(self._server.port)
        await proxy.listen()
        own = replace(settings, servers=(("127.0.0.1", proxy.port),), chroot=self._root + chroot)
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
        """Somebody with the session's id and password closes it: the quickest real end of a session."""
        proxy = self.proxy_of(client)
        welcome = proxy.links[-1].frames_from_server[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        hello = bytes(4) + bytes(8) + welcome[4:8] + welcome[8:16] + welcome[16:36] + b"\0"
        close = bytes([0, 0, 0, 1]) + (-11).to_bytes(4, "big", signed=True)
        for frame in (hello, close):
            writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.read()
        writer.close()
        proxy.cut()

    async def close(self) -> None:
        for client, _ in self._clients:
            await client.close()
        for _, proxy in self._clients:
            await proxy.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.jvm)])
def _server(request: pytest.FixtureRequest) -> ServerProcess | None:
    server: ServerProcess | None = request.getfixturevalue("zookeeper_server") if request.param == "real" else None
    return server


@pytest_asyncio.fixture
async def world(_server: ServerProcess | None) -> AsyncIterator[World]:
    """The contract suite's ensemble: each test runs in both."""
    made: FakeWorld | RealWorld = FakeWorld() if _server is None else RealWorld(_server)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def real(zookeeper_server: ServerProcess) -> AsyncIterator[RealWorld]:
    """The real ensemble, for the fault tests."""
    made = RealWorld(zookeeper_server)
    yield made
    await made.close()
