"""Footers in ZooKeeper: reads, checks, compare-and-sets, watches, listings. Answers come back as
the core's events.

Nothing is retried here: an unknown outcome is an event, and the machine repeats the same bytes
(ARCHITECTURE rule 4).

The root node's data is the deployment id: a random name of everything below this root, written once
by compare-and-set. Several roots may share one BookKeeper; the id in a ledger's custom metadata
says which of them may delete it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, TypeVar

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, RefusedError, ReplacedError, TooNewError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import ROOT, CursorName
from cursorkeeper.format import footer as codec
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.checks import ABSENT, FooterChecks
from cursorkeeper.runtime.footer_requests import FooterReads, FooterWrites
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Stat, WatchCallback

READ_BATCH = 500
DEPLOYMENT_TRIES_MAX = 8
DEPLOYMENT = re.compile(rb"[0-9a-f]{32}")
T = TypeVar("T")


class Stored(NamedTuple):
    """A footer as it lies in ZooKeeper, or why it cannot be read. None, None: there is none."""

    name: CursorName
    footer: Footer | DamageError | None
    stat: Stat | None

    @property
    def created_ms(self) -> int:
        """When its znode was made, in milliseconds since 1970 by ZooKeeper's clock; 0: never."""
        return 0 if self.stat is None else self.stat.ctime_ms

    @property
    def readable(self) -> Footer | None:
        return self.footer if isinstance(self.footer, Footer) else None


async def batched(items: AsyncIterator[T], size: int) -> AsyncIterator[list[T]]:
    """So many at once, and last what is left."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class FooterStore:
    """The footers below one root. `encode` says how inline states are written; `new_deployment`
    makes 32 hex digits: two deployments must not meet, so their chance comes from the system and
    not from a seed.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        encode: EncodeSettings,
        *,
        root: str = ROOT,
        new_deployment: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._zk, self._encode, self._root = zookeeper, encode, root
        self.checks = FooterChecks(zookeeper)
        self._reads, self._writes = FooterReads(zookeeper), FooterWrites(zookeeper)
        self._new_deployment, self._deployment = new_deployment, ""

    def path(self, name: CursorName) -> str:
        """The znode that holds this cursor's footer."""
        return name.path(self._root)

    async def deployment(self) -> str:
        """The id of this root, made if it has none. Raises ZooKeeperError."""
        for _ in range(DEPLOYMENT_TRIES_MAX):
            known = await self.known_deployment()
            if known is not None:
                return known
            await self._zk.ensure_path(self._root)
            node = await self._zk.get(self._root)
            if DEPLOYMENT.fullmatch(node.data):
                continue
            made = self._new_deployment()
            try:
                await self._zk.set(self._root, made.encode(), node.version)
            except (zk_errors.BadVersion, zk_errors.NoNode, zk_errors.OutcomeUnknown):
                # what the root says now counts, whoever wrote it; a write that is late meets a new
                # version
                continue
            self._deployment = made
            return made
        raise zk_errors.NotSent(
            f"the deployment id was not decided in {DEPLOYMENT_TRIES_MAX} tries", path=self._root
        )

    async def known_deployment(self) -> str | None:
        """The id of this root, None if it has none yet. Writes nothing. Raises ZooKeeperError."""
        if self._deployment:
            return self._deployment
        await self._zk.sync(self._root)
        try:
            data = (await self._zk.get(self._root)).data
        except zk_errors.NoNode:
            return None
        if not DEPLOYMENT.fullmatch(data):
            # empty, or what a person or another client's default put there: not an id, so it names
            # nobody
            return None
        self._deployment = data.decode()
        return self._deployment

    async def read(
        self, name: CursorName, token: int, *, sync: bool, watch: WatchCallback | None = None
    ) -> ev.Event:
        """FooterRead, FooterUnreadable or FooterReadFailed. `watch`: the same function every time,
        or watches pile up.
        """
        path = self.path(name)
        try:
            if sync:
                await self._zk.sync(path)
            node = await self._reads.read(path, watch)
        except zk_errors.ZooKeeperError as e:
            return ev.FooterReadFailed(token, str(e))
        if node is None:
            return ev.FooterRead(token, None, ABSENT)
        try:
            return ev.FooterRead(token, codec.decode(node.data, name, node.version), node.version)
        except DamageError as e:
            return ev.FooterUnreadable(
                token, str(e), isinstance(e, TooNewError), isinstance(e, ReplacedError)
            )

    def encoded(self, footer: Footer) -> bytes:
        """The bytes that `write` would send."""
        return codec.encode(footer, self._encode)

    async def write(self, name: CursorName, token: int, footer: Footer, expected: int) -> ev.Event:
        """Compare-and-set, or create if `expected` is -1. NodeExists is a BadVersion: absent is a
        version.
        """
        path = self.path(name)
        try:
            data = codec.encode(footer, self._encode)
        except RefusedError as e:
            return ev.FooterTooLarge(token, e.message)
        try:
            return ev.FooterWritten(token, await self._writes.write(path, data, expected))
        except (zk_errors.BadVersion, zk_errors.NodeExists):
            return ev.FooterBadVersion(token)
        except zk_errors.NoNode as e:
            # a create that misses its parent even now: somebody removes nodes while we make them;
            # try again
            return (
                ev.FooterWriteUnknown(token, str(e)) if expected == ABSENT else ev.FooterGone(token)
            )
        except zk_errors.ValueTooLarge as e:
            return ev.FooterTooLarge(token, str(e))
        except zk_errors.ZooKeeperError as e:
            # also what was certainly not sent: repeating the same bytes is the answer to both
            return ev.FooterWriteUnknown(token, str(e))

    async def check(self, name: CursorName, token: int, version: int) -> ev.Event:
        """FooterChecked, FooterCheckFailed or FooterCheckUnknown: a proof, where a read is none."""
        try:
            is_same = await self.checks.check(self.path(name), version)
        except zk_errors.ZooKeeperError as e:
            return ev.FooterCheckUnknown(token, str(e))
        return ev.FooterChecked(token) if is_same else ev.FooterCheckFailed(token)

    async def names(self, *, pause_s: float = 0.0) -> AsyncIterator[CursorName]:
        """Every cursor that has a footer, bucket by bucket, with a pause behind each. Raises
        ZooKeeperError.
        """
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
            if pause_s:
                await asyncio.sleep(pause_s)

    def batches(
        self,
        wanted: Callable[[CursorName], bool] = lambda _name: True,
        size: int = READ_BATCH,
        *,
        pause_s: float = 0.0,
    ) -> AsyncIterator[list[CursorName]]:
        """Those of `names` that are wanted, so many at once. Raises ZooKeeperError."""
        return batched((name async for name in self.names(pause_s=pause_s) if wanted(name)), size)

    async def living(self, names: Sequence[CursorName]) -> list[Stored]:
        """Those that are not deleted; one whose footer cannot be read is one of them. Raises
        ZooKeeperError.
        """
        return [
            stored
            for stored in await self.read_stored(names)
            if stored.footer is not None
            and not (stored.readable and stored.readable.state is FooterState.DELETED)
        ]

    async def sync(self) -> None:
        """What is read from now on is no older than this. Raises ZooKeeperError."""
        await self._zk.sync(self._root)

    async def stats(self, names: Sequence[CursorName]) -> list[Stat | None]:
        """What ZooKeeper says of their znodes; None: there is none. Raises ZooKeeperError."""
        nodes = await self._zk.multi_read([self.path(name) for name in names])
        return [None if node is None else node.stat for node in nodes]

    async def read_stored(self, names: Sequence[CursorName]) -> list[Stored]:
        """Footers in bulk, with what ZooKeeper says of their znodes. Raises ZooKeeperError."""
        found: list[Stored] = []
        for start in range(0, len(names), READ_BATCH):
            part = names[start : start + READ_BATCH]
            nodes = await self._zk.multi_read([n.path(self._root) for n in part])
            for name, node in zip(part, nodes, strict=True):
                if node is None:
                    found.append(Stored(name, None, None))
                    continue
                try:
                    footer: Footer | DamageError = codec.decode(node.data, name, node.version)
                except DamageError as e:
                    footer = e
                found.append(Stored(name, footer, node.stat))
        return found
