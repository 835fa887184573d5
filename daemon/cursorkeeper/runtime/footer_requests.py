"""Reads and compare-and-sets of footers, many in one request.

A request of writes is a transaction: if one of them fails, nothing is done. That one has its
answer, which is as final as that of a write by itself: the others do not touch its node, and a
failure goes through the leader's log, too. The others are sent again. A request that was not
answered is unknown for each of them: whoever asked decides it (ARCHITECTURE rule 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper.core.shape import frozen
from cursorkeeper.runtime.checks import ABSENT
from cursorkeeper.runtime.shared_requests import Asked, SharedRequests
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Create, Node, SetData, WatchCallback


@frozen
class Read:
    path: str
    watch: WatchCallback | None
    size_bytes: int = 0


class FooterReads(SharedRequests[Read, Node | None]):
    async def read(self, path: str, watch: WatchCallback | None) -> Node | None:
        """The node; None: there is none. Raises ZooKeeperError."""
        return await self._ask(Read(path, watch))

    async def _decide(self, group: Sequence[Asked[Read, Node | None]]) -> None:
        wishes = [asked.wish for asked in group]
        nodes: Sequence[Node | None]
        if len(group) == 1:
            try:
                nodes = [await self._zk.get(wishes[0].path, watch=wishes[0].watch)]
            except zk_errors.NoNode:
                nodes = [None]
        else:
            nodes = await self._zk.multi_read([w.path for w in wishes], [w.watch for w in wishes])
        for asked, node in zip(group, nodes, strict=True):
            asked.tell(node)


@frozen
class Write:
    """`expected`: the version that it replaces, or `ABSENT`."""

    path: str
    data: bytes
    expected: int

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def bucket(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def op(self) -> Create | SetData:
        if self.expected == ABSENT:
            return Create(self.path, self.data)
        return SetData(self.path, self.data, self.expected)


class FooterWrites(SharedRequests[Write, int]):
    def __init__(self, zookeeper: ZooKeeper) -> None:
        super().__init__(zookeeper)
        self._buckets: set[str] = set()
        """Those that were there when we looked."""

    async def write(self, path: str, data: bytes, expected: int) -> int:
        """The version that this write made. Raises ZooKeeperError: BadVersion and NodeExists are
        final, as is NoNode of a node that was there.
        """
        return await self._ask(Write(path, data, expected))

    async def _decide(self, group: Sequence[Asked[Write, int]]) -> None:
        if len(group) == 1:
            group[0].tell(await self._one(group[0].wish))
            return
        await self._make_buckets(
            {a.wish.bucket for a in group if a.wish.expected == ABSENT} - self._buckets
        )
        try:
            versions = await self._zk.multi([asked.wish.op for asked in group])
        except zk_errors.MultiFailed as failed:
            at = failed.culprit_index
            if isinstance(failed.culprit, zk_errors.NoNode):
                self._buckets.discard(group[at].wish.bucket)
            group[at].fail(failed.culprit)
            self._again([*group[:at], *group[at + 1 :]])
            return
        for asked, version in zip(group, versions, strict=True):
            asked.tell(0 if version is None else version)

    async def _one(self, write: Write) -> int:
        if write.expected != ABSENT:
            return await self._zk.set(write.path, write.data, write.expected)
        try:
            await self._zk.create(write.path, write.data)
        except zk_errors.NoNode:
            await self._zk.ensure_path(write.bucket)
            await self._zk.create(write.path, write.data)
        return 0

    async def _make_buckets(self, unknown: set[str]) -> None:
        if not unknown:
            return
        paths = sorted(unknown)
        nodes = await self._zk.multi_read(paths)
        missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
        try:
            await self._zk.multi([Create(path, b"") for path in missing])
        except zk_errors.MultiFailed:  # somebody else makes them, too, or their parent is missing
            for path in missing:
                await self._zk.ensure_path(path)
        self._buckets |= unknown
