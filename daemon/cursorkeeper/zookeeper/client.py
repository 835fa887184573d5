"""The client for real servers: `port.ZooKeeper` on a `Session`.

Owns the operations: chroot, size check, and which request and watch each of them is. Does not own
bytes or the session. Invariant: every error that leaves here has the caller's path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from cursorkeeper.zookeeper import codec, ensure, rearm
from cursorkeeper.zookeeper.acl import Acl
from cursorkeeper.zookeeper.errors import ZooKeeperError, show_paths
from cursorkeeper.zookeeper.session import Session
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

T = TypeVar("T")


class ZooKeeperClient(Session):
    """See `port.ZooKeeper` for what each method promises."""

    @property
    def _acl(self) -> bytes:
        return codec.acl_bytes(self.settings.acl)

    # --- nodes ------------------------------------------------------------------------------------

    async def get(self, path: str, *, watch: WatchCallback | None = None) -> Node:
        inside = self._chroot.inside(path)

        def answered(_: Node) -> None:
            if watch is not None:
                self.watches.add(inside, watch)

        return await self._send(codec.get(inside, watch is not None), answered)

    async def exists(self, path: str) -> Stat | None:
        return await self._send(codec.exists(self._chroot.inside(path)))

    async def children(self, path: str) -> list[str]:
        return await self._send(codec.children(self._chroot.inside(path)))

    async def sync(self, path: str) -> None:
        await self._send(codec.sync(self._chroot.inside(path)))

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        await self._send(codec.write(Create(self._chroot.inside(path), data, ephemeral), self._acl))

    async def set(self, path: str, data: bytes, version: Version) -> int:
        done = await self._send(codec.write(SetData(self._chroot.inside(path), data, version)))
        assert done is not None
        return done

    async def delete(self, path: str, version: Version) -> None:
        await self._send(codec.write(Delete(self._chroot.inside(path), version)))

    async def acl(self, path: str) -> tuple[Acl, Stat]:
        return await self._send(codec.get_acl(self._chroot.inside(path)))

    async def set_acl(self, path: str, acl: Acl, version: Version) -> Stat:
        return await self._send(codec.set_acl(self._chroot.inside(path), acl, version))

    async def ensure_path(self, path: str) -> None:
        async def exists(inside: str) -> bool:
            return await self._send(codec.exists(inside)) is not None

        async def create(inside: str) -> object:
            return await self._send(codec.write(Create(inside, b""), self._acl))

        await ensure.ensure_path(self._chroot.inside(path), exists, create)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        inside = [replace(op, path=self._chroot.inside(op.path)) for op in ops]
        return await self._send(codec.multi(inside, self._acl)) if inside else []

    async def multi_read(
        self, paths: Sequence[str], watches: Sequence[WatchCallback | None] = ()
    ) -> list[Node | None]:
        inside = [self._chroot.inside(path) for path in paths]
        nodes: list[Node | None] = []
        paths_max = self.settings.multi_read_paths_max
        while len(nodes) < len(inside):
            part = self._multi_read_part(inside, len(nodes), paths_max)
            await self._watch(part, watches[len(nodes) :])
            answer = await self._send(codec.multi_read(part))
            nodes += answer
            mean_bytes = max(
                1, sum(len(node.data) for node in answer if node is not None) // len(answer)
            )
            paths_max = max(
                1,
                min(
                    self.settings.multi_read_paths_max,
                    self.settings.multi_read_reply_bytes // mean_bytes,
                ),
            )
        return nodes

    # --- pieces -----------------------------------------------------------------------------------

    async def _watch(self, paths: list[str], watches: Sequence[WatchCallback | None]) -> None:
        """Before they are read: nothing that happens after the read is missed."""
        watched = [(p, w) for p, w in zip(paths, watches, strict=False) if w is not None]
        for path, watch in watched:
            # before it is asked for: what has changed since our last answer fires at once
            self.watches.add(path, watch)
        most = self.settings.set_watches_bytes_max
        for request in rearm.requests((p for p, _ in watched), self._last_zxid, most):
            await self._send(request)

    def _multi_read_part(self, paths: list[str], start: int, paths_max: int) -> list[str]:
        """The next paths that fit into one request, at least one."""
        request_bytes = codec.multi_read([]).size_bytes
        end = start
        while end < min(len(paths), start + paths_max):
            request_bytes += codec.multi_read_path_bytes(paths[end])
            if end > start and request_bytes > self.settings.request_bytes_max:
                break
            end += 1
        return paths[start:end]

    async def _send(
        self,
        request: codec.Request[T],
        answered: Callable[[T], None] | None = None,
    ) -> T:
        try:
            codec.check_size(request, self.settings.request_bytes_max)
            return await self.request(request, answered)
        except ZooKeeperError as error:
            show_paths(error, self._chroot.outside)
            raise
