"""Serves who gives the nodes of a deployment another ACL: which nodes are its own, what each has,
and what it gets.

Owns the walk and the counts. Does not own ids or when a list is as it should be
(`zookeeper.acl`), nor any word on a screen. Nothing here touches data or versions of footers: a
list has a version of its own, and each write is a compare-and-set on it. Invariants: a node's own
list is set before its children are asked for; at most `AT_ONCE` requests are on their way; a walk
that was cut off is gone on with by another one, which finds what is done as it should be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import READ_BATCH, FooterStore, Stored, batched
from cursorkeeper.zookeeper import acl as access
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.acl import Acl, User
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Stat

AT_ONCE: Final = 200
TRIES_MAX: Final = 10
"""Of one request, where somebody else is quicker or ZooKeeper does not answer."""
PAUSE_S: Final = 1.0
SHOWN_MAX: Final = 100
"""Nodes that are named; all of them are counted."""
RECORDS: Final = ("imports", "exports")
"""What lies beside a root: the records of the pipeline's runs."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every node is to have. `user`: who asks, if it is somebody."""

    acl: Acl
    user: User | None


@dataclass
class Counts:
    """What a walk has found, and done."""

    nodes: int = 0
    already: int = 0
    changed: int = 0
    """Given another list; of a look: what would be."""
    refused: int = 0
    gone: int = 0
    """Deleted while they were looked at."""
    unseen: int = 0
    """Nodes whose children ZooKeeper does not name to this user."""
    refused_nodes: list[tuple[str, str]] = field(default_factory=list)
    """Path, and whose it is."""
    lose: Counter[str] = field(default_factory=Counter)
    """Who may touch nodes, and may not any more: of how many."""

    def as_json(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "alreadySo": self.already,
            "changed": self.changed,
            "refused": self.refused,
            "gone": self.gone,
            "unseen": self.unseen,
            "refusedNodes": [{"path": path, "owner": who} for path, who in self.refused_nodes],
            "loseAccess": dict(self.lose),
        }


async def places(zookeeper: ZooKeeper, root: str) -> list[str]:
    """Where trees of this deployment begin. The node above the root comes first if all that is in
    it is ours, and no other one: it is not ours alone then. Raises ZooKeeperError.
    """
    above, _, name = root.rpartition("/")
    if not above:
        return [root]
    try:
        beside = set(await zookeeper.children(above))
    except zk.AccessDenied:
        return [root]
    ours = [f"{above}/{one}" for one in RECORDS if one in beside]
    return [above] if beside <= {name, *RECORDS} else [root, *ours]


class Walk:
    """Over every node of a deployment. `dry_run`: only a look."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        wanted: Wanted,
        progress: Progress,
        *,
        dry_run: bool,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._zk, self._wanted, self._progress = zookeeper, wanted, progress
        self._dry_run, self._pause_s = dry_run, pause_s
        self.counts = Counts()

    async def over(self, root: str) -> Counts:
        """All nodes. Raises ProblemError (ZooKeeper does not answer), ZooKeeperError."""
        todo = await self._sure(lambda: places(self._zk, root))
        self._progress.grow(len(todo))
        while todo:
            part, todo = todo[-AT_ONCE:], todo[:-AT_ONCE]
            looked = await asyncio.gather(*map(self._one, part), return_exceptions=True)
            for one in looked:
                if isinstance(one, BaseException):
                    raise one
            below = [path for one in looked if isinstance(one, list) for path in one]
            self._progress.grow(len(below))
            todo += below
        return self.counts

    async def _one(self, path: str) -> list[str]:
        """The node's children."""
        counts = self.counts
        counts.nodes += 1
        try:
            stat = await self._set(path)
        except zk.NoNode:
            counts.nodes -= 1
            counts.gone += 1
            stat = None
        self._progress.advance()
        if stat is None or not stat.children_count:
            return []
        try:
            return [f"{path}/{name}" for name in await self._sure(lambda: self._zk.children(path))]
        except zk.NoNode:
            return []
        except zk.AccessDenied:
            counts.unseen += 1
            return []

    async def _set(self, path: str) -> Stat | None:
        """None: there is no such node any more. Raises NoNode, ProblemError, ZooKeeperError."""
        wanted, tried = self._wanted, False
        for _ in range(TRIES_MAX):
            try:
                found, stat = await self._sure(lambda: self._zk.acl(path))
            except zk.AccessDenied:
                return await self._refused(path, "not told by ZooKeeper")
            if access.is_as(found, wanted.acl, wanted.user):
                self._count_done(is_ours=tried)
                return stat
            owners = ", ".join(dict.fromkeys(one.who for one in found))
            if self._dry_run:
                if access.may_change(found, wanted.user) is False:
                    return await self._refused(path, owners)
                self._count_change(found)
                return stat
            try:
                tried = True
                await self._zk.set_acl(path, wanted.acl, stat.aversion)
                self._count_change(found)
                return stat
            except zk.AccessDenied:
                return await self._refused(path, owners)
            except zk.BadVersion:
                continue  # somebody else, or an earlier try of this one: look again
            except zk.Disconnected:
                await asyncio.sleep(self._pause_s)
        raise self._away(f"{path} could not be given its ACL in {TRIES_MAX} tries")

    def _count_done(self, *, is_ours: bool) -> None:
        if is_ours:
            self.counts.changed += 1
        else:
            self.counts.already += 1

    def _count_change(self, found: Acl) -> None:
        counts, wanted = self.counts, self._wanted
        counts.changed += 1
        if wanted.acl == access.OPEN:
            return
        stay = {wanted.user, *((one.scheme, one.id) for one in wanted.acl)}
        counts.lose.update({one.who for one in found if (one.scheme, one.id) not in stay})

    async def _refused(self, path: str, owner: str) -> Stat | None:
        self.counts.refused += 1
        if len(self.counts.refused_nodes) < SHOWN_MAX:
            self.counts.refused_nodes.append((path, owner))
        try:
            return await self._sure(lambda: self._zk.exists(path))
        except zk.AccessDenied:  # some releases of ZooKeeper do not even say that it is there
            self.counts.unseen += 1
            return None

    async def _sure(self, call: Callable[[], Awaitable[T]]) -> T:
        """A read, again while ZooKeeper does not answer. Raises ProblemError, ZooKeeperError."""
        for again in range(TRIES_MAX):
            try:
                return await call()
            except zk.Disconnected as e:
                if again == TRIES_MAX - 1:
                    raise self._away(str(e)) from e
                await asyncio.sleep(self._pause_s)
        raise AssertionError("the last try returns or raises")

    def _away(self, what: str) -> ProblemError:
        done = "" if self._dry_run else f"; {self.counts.changed:,} nodes have been changed"
        return ProblemError(
            f"ZooKeeper: {what}{done}", "run it again: it goes on with what is left", Kind.AWAY
        )


async def open_at(zookeeper: ZooKeeper, footers: FooterStore, root: str) -> Counter[str]:
    """Which daemons have how many cursors open, as far as this user may read. Raises
    ZooKeeperError.
    """
    found = Counter[str]()
    async for names in batched(_readable_names(zookeeper, root), READ_BATCH):
        for one in await _readable(footers, names):
            if one.readable and one.readable.state is FooterState.OPEN:
                found["/".join(one.readable.writer.split("/")[:2])] += 1
    return found


async def _readable_names(zookeeper: ZooKeeper, root: str) -> AsyncIterator[CursorName]:
    for bucket in await zookeeper.children(root):
        try:
            nodes = await zookeeper.children(f"{root}/{bucket}")
        except (zk.NoNode, zk.AccessDenied):
            continue
        for node in nodes:
            with suppress(ValueError):
                yield CursorName.from_znode(node)


async def _readable(footers: FooterStore, names: list[CursorName]) -> list[Stored]:
    """One footer that may not be read keeps ZooKeeper from giving any of a request: then halves."""
    try:
        return await footers.read_stored(names)
    except zk.AccessDenied:
        if len(names) == 1:
            return []
        middle = len(names) // 2
        return [
            *await _readable(footers, names[:middle]),
            *await _readable(footers, names[middle:]),
        ]
