"""A ZooKeeper in memory, with the same API as the client and knobs to misbehave.

Owns the operations, and the server that hands out sessions. Does not own what a session goes
through (`fake_session`), the tree (`fake_tree`) or the ensemble (`fake_server`). Runs on any
asyncio loop, one with virtual time included: nothing but the loop's clock and timers, no threads,
all chance from the random source passed in.

    server = FakeZooKeeperServer(random.Random(1))
    zk, other = server.session(), server.session(chroot="/x")
    zk.faults.next("set", Late(0.5))          # or .chance("set", 0.01,
    UnknownDone(disconnect_s=0.2))
    zk.disconnect(for_s=3), zk.expire(), zk.lag(), zk.stall(2), zk.follow_old_leader(for_s=3),
    server.stop(), server.start()

Invariant: `port.ZooKeeper`, checked by the same contract suite as the client.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.acl import Acl
from cursorkeeper.zookeeper.ensure import ensure_path
from cursorkeeper.zookeeper.errors import ZooKeeperError, show_paths
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import (
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SetData,
    Stat,
    Version,
    WatchCallback,
)
from daemon.tests.fakes.zookeeper.faults import Faults
from daemon.tests.fakes.zookeeper.server import FakeServer
from daemon.tests.fakes.zookeeper.session import FakeSession


class FakeZooKeeperServer(FakeServer):
    """An ensemble. `stop()` and `start()` it, open sessions on it, look at `tree`."""

    def __init__(self, random_source: random.Random) -> None:
        super().__init__(random_source)
        self.faults = Faults(random_source)
        """Of every session that is not given its own."""

    def session(
        self,
        chroot: str = "/",
        *,
        settings: ZooKeeperSettings | None = None,
        faults: Faults | None = None,
    ) -> FakeZooKeeper:
        """A client of this ensemble, not started. `chroot` is used when no settings are given."""
        return FakeZooKeeper(
            self, settings or ZooKeeperSettings(chroot=chroot), faults or self.faults
        )


class FakeZooKeeper(FakeSession):
    """One session on a `FakeZooKeeperServer`; satisfies `port.ZooKeeper`."""

    async def get(self, path: str, *, watch: WatchCallback | None = None) -> Node:
        inside = self._chroot.inside(path)

        def at_server(_: int) -> Node:
            self.server.check_readable([inside])
            node = self._read_from().get(inside)
            self._watch(inside, watch, node.stat.mzxid)
            return node

        return await self._request("get", path, at_server)

    async def exists(self, path: str) -> Stat | None:
        inside = self._chroot.inside(path)
        return await self._request("exists", path, lambda _: self._read_from().stat(inside))

    async def children(self, path: str) -> list[str]:
        inside = self._chroot.inside(path)
        return await self._request("children", path, lambda _: self._read_from().children(inside))

    async def sync(self, path: str) -> None:
        self._chroot.inside(path)
        await self._request("sync", path, lambda _: self.catch_up())

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        await self._one("create", path, Create(self._chroot.inside(path), data, ephemeral))

    async def set(self, path: str, data: bytes, version: Version) -> int:
        result = await self._one("set", path, SetData(self._chroot.inside(path), data, version))
        assert result is not None
        return result

    async def delete(self, path: str, version: Version) -> None:
        await self._one("delete", path, Delete(self._chroot.inside(path), version))

    async def acl(self, path: str) -> tuple[Acl, Stat]:
        inside = self._chroot.inside(path)
        return await self._request("acl", path, lambda _: self._read_from().acl(inside))

    async def set_acl(self, path: str, acl: Acl, version: Version) -> Stat:
        inside = self._chroot.inside(path)
        self._check_size(codec.set_acl(inside, acl, version))

        def at_server(session_id: int) -> Stat:
            return self._write(session_id, lambda tree, _: tree.set_acl(inside, acl, version))

        return await self._request("set_acl", path, at_server)

    async def _one(self, operation: str, path: str, op: Op) -> OpResult:
        self._check_size(codec.write(op))

        def at_server(session_id: int) -> OpResult:
            return self._write(session_id, lambda tree, now_ms: tree.write(op, session_id, now_ms))

        return await self._request(operation, path, at_server)

    def _check_size(self, request: codec.Request[Any]) -> None:
        try:
            codec.check_size(request, self.settings.request_bytes_max)
        except ZooKeeperError as error:
            show_paths(error, self._chroot.outside)
            raise

    async def ensure_path(self, path: str) -> None:
        async def exists(inside: str) -> bool:
            return (
                await self._request("exists", path, lambda _: self._read_from().stat(inside))
                is not None
            )

        async def create(inside: str) -> object:
            return await self._one("create", path, Create(inside, b""))

        await ensure_path(self._chroot.inside(path), exists, create)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        inside = [replace(op, path=self._chroot.inside(op.path)) for op in ops]
        self._check_size(codec.multi(inside))
        if not inside:
            return []

        def at_server(session_id: int) -> list[OpResult]:
            return self._write(
                session_id, lambda tree, now_ms: tree.multi(inside, session_id, now_ms)
            )

        return await self._request("multi", ops[0].path, at_server)

    async def multi_read(
        self, paths: Sequence[str], watches: Sequence[WatchCallback | None] = ()
    ) -> list[Node | None]:
        inside = [
            (self._chroot.inside(path), watches[at] if watches else None)
            for at, path in enumerate(paths)
        ]

        def read(part: list[tuple[str, WatchCallback | None]], _: int) -> list[Node | None]:
            self.server.check_readable(path for path, _ in part)
            tree = self._read_from()
            nodes = [tree.get(path) if tree.mzxid(path) is not None else None for path, _ in part]
            for (path, watch), node in zip(part, nodes, strict=True):
                if node is not None:
                    self._watch(path, watch, node.stat.mzxid)
                elif watch is not None:
                    asyncio.get_running_loop().call_soon(watch, self._chroot.outside(path))
            return nodes

        nodes: list[Node | None] = []
        for start in range(0, len(inside), self.settings.multi_read_paths_max):
            part = inside[start : start + self.settings.multi_read_paths_max]
            nodes += await self._request("multi_read", paths[start], partial(read, part))
        return nodes
