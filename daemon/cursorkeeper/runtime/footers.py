"""Footers in ZooKeeper: reads, compare-and-sets, watches, listings. Answers come back as the core's events.

Nothing is retried here: an unknown outcome is an event, and the machine repeats the same bytes (COMMIT rule 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, RefusedError, TooNewError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import ROOT, CursorName
from cursorkeeper.format import footer as codec
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper_clients.zookeeper import errors as zk_errors
from cursorkeeper_clients.zookeeper.port import ZooKeeper
from cursorkeeper_clients.zookeeper.values import WatchCallback

ABSENT = -1
READ_BATCH = 500


class FooterStore:
    """The footers below one root. `encode` says how inline states are written."""

    def __init__(self, zookeeper: ZooKeeper, encode: EncodeSettings, *, root: str = ROOT, inline_max_bytes: int = 512 * 1024) -> None:
        self._zk, self._encode, self._root, self._inline_max = zookeeper, encode, root, inline_max_bytes

    async def read(self, name: CursorName, token: int, *, sync: bool, watch: WatchCallback | None = None) -> ev.Event:
        """FooterRead, FooterUnreadable or FooterReadFailed. `watch`: the same function every time, or watches pile up."""
        path = name.path(self._root)
        try:
            if sync:
                await self._zk.sync(path)
            try:
                node = await self._zk.get(path, watch=watch)
            except zk_errors.NoNode:
                return ev.FooterRead(token, None, ABSENT)
        except zk_errors.ZooKeeperError as e:
            return ev.FooterReadFailed(token, str(e))
        try:
            return ev.FooterRead(token, codec.decode(node.data, name), node.version)
        except DamageError as e:
            return ev.FooterUnreadable(token, str(e), isinstance(e, TooNewError))

    async def write(self, name: CursorName, token: int, footer: Footer, expected: int) -> ev.Event:
        """Compare-and-set, or create if `expected` is -1. NodeExists is a BadVersion: absent is a version."""
        path = name.path(self._root)
        try:
            data = codec.encode(footer, self._encode)
        except RefusedError as e:
            return ev.FooterTooLarge(token, e.message)
        try:
            if expected == ABSENT:
                await self._create(path, data)
                return ev.FooterWritten(token, 0)
            return ev.FooterWritten(token, await self._zk.set(path, data, expected))
        except (zk_errors.BadVersion, zk_errors.NodeExists):
            return ev.FooterBadVersion(token)
        except zk_errors.NoNode:
            return ev.FooterGone(token)
        except zk_errors.ValueTooLarge as e:
            return ev.FooterTooLarge(token, str(e))
        except zk_errors.ZooKeeperError as e:
            # also what was certainly not sent: repeating the same bytes is the answer to both
            return ev.FooterWriteUnknown(token, str(e))

    async def _create(self, path: str, data: bytes) -> None:
        try:
            await self._zk.create(path, data)
        except zk_errors.NoNode:
            await self._zk.ensure_path(path.rpartition("/")[0])
            await self._zk.create(path, data)

    async def names(self) -> AsyncIterator[CursorName]:
        """Every cursor that has a footer, bucket by bucket. Raises ZooKeeperError."""
        try:
            buckets = await self._zk.children(self._root)
        except zk_errors.NoNode:
            return
        for bucket in buckets:
            try:
                children = await self._zk.children(f"{self._root}/{bucket}")
            except zk_errors.NoNode:
                continue
            for child in children:
                try:
                    yield CursorName.from_znode(child)
                except ValueError:
                    continue

    async def read_many(self, names: Sequence[CursorName]) -> list[Footer | DamageError | None]:
        """Footers in bulk; None: there is none. Raises ZooKeeperError."""
        found: list[Footer | DamageError | None] = []
        for start in range(0, len(names), READ_BATCH):
            part = names[start : start + READ_BATCH]
            nodes = await self._zk.multi_read([n.path(self._root) for n in part])
            for name, node in zip(part, nodes, strict=True):
                try:
                    found.append(None if node is None else codec.decode(node.data, name))
                except DamageError as e:
                    found.append(e)
            await asyncio.sleep(0)
        return found
