"""Serves who migrates, assesses or tabulates many cursors: which of them there are in a Pulsar
cluster's metadata store, and here, never what they hold.

Only reads. The tree is walked with a bounded number of requests at once; held in memory is one list
of children for each level of the path (tenants, namespaces, topics of one namespace, subscriptions
of `TOPICS_AHEAD` topics). Cursors come in the order of their paths. What is not a cursor of a
persistent topic is left out and told through `skipped`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper

TOPICS_AHEAD: Final = 16
"""Topics whose subscriptions are asked for at once."""

_PARTITION: Final = "-partition-"


@dataclass(frozen=True, slots=True)
class PulsarPorts:
    """A Pulsar cluster: its metadata store, and its ledgers (through a gateway client that knows
    their password).
    """

    zookeeper: ZooKeeper
    ledgers: LedgerStore


class PulsarCursorRef(NamedTuple):
    """One subscription of one persistent topic. `topic` is the full name,
    persistent://tenant/namespace/topic.
    """

    topic: str
    subscription: str

    @property
    def topic_path(self) -> str:
        """The topic znode: the layout."""
        return names.topic_path(self.topic)

    @property
    def path(self) -> str:
        return names.cursor_path(self.topic, self.subscription)

    @property
    def name(self) -> CursorName:
        """The same cursor's name here. Raises RefusedError if it cannot be kept."""
        return CursorName.checked(self.topic, self.subscription)

    def __str__(self) -> str:
        return f"{self.topic}|{self.subscription}"


class SkippedPath(NamedTuple):
    """A znode where a cursor was looked for, and why there is none."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cursors. Everything that is not given is not asked for; make one with the class
    methods.
    """

    tenant: str = ""
    namespace: str = ""
    """tenant/namespace."""
    topic: str = ""
    subscription: str = ""

    def takes(self, managed: str, subscription: str) -> bool:
        """Whether a cursor of the managed ledger `tenant/namespace/persistent/topic` is asked
        for.
        """
        if self.subscription not in ("", subscription):
            return False
        if self.topic:
            return _is_of(managed, names.managed_ledger_name(self.topic))
        if self.namespace:
            return managed.startswith(f"{self.namespace}/{names.DOMAIN}/")
        return not self.tenant or managed.startswith(f"{self.tenant}/")

    @classmethod
    def everything(cls) -> Selection:
        return cls()

    @classmethod
    def of_tenant(cls, tenant: str) -> Selection:
        """Raises ValueError."""
        if not tenant or "/" in tenant:
            raise ValueError(f"{tenant!r} is not a tenant's name")
        return cls(tenant=tenant)

    @classmethod
    def of_namespace(cls, namespace: str) -> Selection:
        """`tenant/namespace` (or tenant/cluster/namespace). Raises ValueError."""
        if len(namespace.split("/")) not in (2, 3) or not all(namespace.split("/")):
            raise ValueError(f"{namespace!r} is not tenant/namespace")
        return cls(namespace=namespace)

    @classmethod
    def of_topic(cls, topic: str, subscription: str = "") -> Selection:
        """A topic (with all partitions, if it is partitioned), of it one subscription or all.
        Raises ValueError.
        """
        names.topic_path(topic)
        return cls(topic=topic, subscription=subscription)

    def __str__(self) -> str:
        if self.topic:
            return f"{self.topic}|{self.subscription}" if self.subscription else self.topic
        if self.namespace:
            return f"namespace {self.namespace}"
        return f"tenant {self.tenant}" if self.tenant else "all cursors"


def nobody(_skipped: SkippedPath) -> None:
    """Does not want to know."""


def every_topic(_path: str) -> bool:
    return True


async def iter_cursors(
    zookeeper: ZooKeeper,
    selection: Selection,
    *,
    skipped: Callable[[SkippedPath], None] = nobody,
    patience: Patience | None = None,
    only: Callable[[str], bool] = every_topic,
) -> AsyncIterator[PulsarCursorRef]:
    """Every cursor that was there when its topic's children were read. `only` is asked of each
    topic's path before these are read. Raises MigrationError (AWAY; NOT_FOUND: no cluster there).
    """
    walk = _Walk(zookeeper, selection, skipped, patience or Patience(), only)
    async for found in walk.cursors():
        yield found


async def iter_topic_paths(
    zookeeper: ZooKeeper, selection: Selection, *, patience: Patience | None = None
) -> AsyncIterator[str]:
    """The znode of every chosen topic, in order, without a look at its cursors. Raises
    MigrationError as `iter_cursors`.
    """
    async for path in _Walk(zookeeper, selection, nobody, patience or Patience()).topic_paths():
        yield path


@dataclass(frozen=True, slots=True)
class _Walk:
    zookeeper: ZooKeeper
    selection: Selection
    skipped: Callable[[SkippedPath], None]
    patience: Patience
    only: Callable[[str], bool] = every_topic

    async def cursors(self) -> AsyncIterator[PulsarCursorRef]:
        waiting: deque[tuple[str, asyncio.Task[list[str] | None]]] = deque()
        try:
            async for path in self.topic_paths():
                if not self.only(path):
                    continue
                waiting.append((path, asyncio.create_task(self._children(path))))
                if len(waiting) >= TOPICS_AHEAD:
                    for found in self._of_topic(waiting[0][0], await waiting[0][1]):
                        yield found
                    waiting.popleft()
            while waiting:
                for found in self._of_topic(waiting[0][0], await waiting[0][1]):
                    yield found
                waiting.popleft()
        finally:
            for _, task in waiting:
                task.cancel()

    def _of_topic(self, path: str, children: Sequence[str] | None) -> list[PulsarCursorRef]:
        found = []
        for child in children or ():
            try:
                topic, subscription = names.cursor_of_path(f"{path}/{child}")
            except ValueError as e:
                self.skipped(SkippedPath(f"{path}/{child}", f"not a cursor's name: {e}"))
                continue
            if self.selection.subscription in ("", subscription):
                found.append(PulsarCursorRef(topic, subscription))
        return found

    # ---- topics

    async def topic_paths(self) -> AsyncIterator[str]:
        chosen = self.selection
        if chosen.topic:
            namespace, _, local = names.topic_path(chosen.topic).rpartition("/")
            async for path in self._in_domain(namespace, local):
                yield path
        elif chosen.namespace:
            async for path in self._in_namespace(f"{names.ROOT}/{chosen.namespace}"):
                yield path
        else:
            tenants = [chosen.tenant] if chosen.tenant else await self._children(names.ROOT)
            if tenants is None:
                remedy = (
                    "check --pulsar-zookeeper and its chroot: Pulsar's metadata store must "
                    "hold this node"
                )
                raise MigrationError(
                    Kind.NOT_FOUND,
                    "the Pulsar cluster",
                    names.ROOT,
                    "there is no such node",
                    remedy,
                )
            for tenant in tenants:
                for namespace in await self._children(f"{names.ROOT}/{tenant}") or ():
                    async for path in self._in_namespace(f"{names.ROOT}/{tenant}/{namespace}"):
                        yield path

    async def _in_namespace(self, path: str) -> AsyncIterator[str]:
        for domain in await self._children(path) or ():
            if domain == names.DOMAIN:
                async for topic in self._in_domain(f"{path}/{domain}"):
                    yield topic
                continue
            # the first naming scheme has one level more: tenant/cluster/namespace
            below = await self._children(f"{path}/{domain}") or ()
            if path.count("/") == 3 and names.DOMAIN in below:
                async for topic in self._in_domain(f"{path}/{domain}/{names.DOMAIN}"):
                    yield topic
            else:
                self.skipped(
                    SkippedPath(
                        f"{path}/{domain}",
                        f"{domain!r} is not {names.DOMAIN}: its topics have no cursors of this "
                        f"kind",
                    )
                )

    async def _in_domain(self, path: str, local: str = "") -> AsyncIterator[str]:
        for child in await self._children(path) or ():
            if local and not _is_of(child, local):
                continue
            try:
                names.topic_of_path(f"{path}/{child}")
            except ValueError as e:
                self.skipped(SkippedPath(f"{path}/{child}", f"not a topic's name: {e}"))
                continue
            yield f"{path}/{child}"

    async def _children(self, path: str) -> list[str] | None:
        try:
            return await self.patience.repeat(
                str(self.selection), lambda: self.zookeeper.children(path)
            )
        except zk.NoNode:
            return None


async def iter_ours(
    footers: FooterStore, selection: Selection, *, skipped: Callable[[SkippedPath], None]
) -> AsyncIterator[PulsarCursorRef]:
    """Every cursor of the selection that is not deleted here and that Pulsar can have, as Pulsar
    names it. Raises ZooKeeperError.
    """

    def is_chosen(name: CursorName) -> bool:
        try:
            return selection.takes(names.managed_ledger_name(name.topic), name.subscription)
        except ValueError as e:
            if selection == Selection.everything():
                skipped(SkippedPath(name.display, f"Pulsar cannot have it: {e}"))
            return False

    if selection.topic and selection.subscription:
        alone = CursorName(selection.topic, selection.subscription)
        if await footers.living([alone]):
            yield PulsarCursorRef(alone.topic, alone.subscription)
            return
    async for found in footers.batches(is_chosen):
        for name, _, _ in await footers.living(found):
            yield PulsarCursorRef(name.topic, name.subscription)


def _is_of(topic: str, wanted: str) -> bool:
    """Whether it is the wanted topic, or a partition of it."""
    base, dash, number = topic.rpartition(_PARTITION)
    return topic == wanted or (bool(dash) and base == wanted and number.isdecimal())
