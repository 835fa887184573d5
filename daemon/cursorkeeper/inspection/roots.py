"""Whether the root that a command was told is one, for whoever reads cursors: in the wrong place
nothing is ever wrong.

Owns when "there is no cursor" cannot be believed. A daemon makes its root and the root's deployment
id before it does anything else, so a root that does not exist is a mistyped one or a lost one. So
is one without an id, unless cursors are seen below it. Writes nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cursorkeeper import connections
from cursorkeeper.core.names import ROOT
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import DEPLOYMENT
from cursorkeeper.settings import Systems
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper

LOST = (
    "correct the root, or the chroot behind the ZooKeeper addresses. If both are right somebody "
    "removed it: restore the root, with its "
    "data, from ZooKeeper's backup, and start no daemon and delete no ledger before"
)
NEW = "If no daemon has ever run on it, start one: it gives the root its id"
LOOKED_AT_MAX, DEPTH_MAX, CHILDREN_MAX = 300, 4, 1_000
"""Bounds of the search for other roots: nodes, levels, and children of a node that is looked
into.
"""
SHOWN_MAX = 5
START_TIMEOUT_S = 3.0
"""Of the second connection: the first one has just shown that ZooKeeper answers."""
_BUCKET = re.compile("[0-9a-f]{3}")


@dataclass(frozen=True, slots=True)
class Root:
    """What is at a path. `has_cursors`: at least one bucket of cursors is below it."""

    exists: bool
    has_id: bool = False
    has_cursors: bool = False


async def look_at(zookeeper: ZooKeeper, path: str) -> Root:
    """Reads what is committed. Raises ZooKeeperError."""
    await zookeeper.sync(path)
    try:
        if DEPLOYMENT.fullmatch((await zookeeper.get(path)).data):
            return Root(exists=True, has_id=True)
        return Root(
            exists=True, has_cursors=any(map(_BUCKET.fullmatch, await zookeeper.children(path)))
        )
    except zk.NoNode:
        return Root(exists=False)


async def check_root(zookeeper: ZooKeeper, systems: Systems, *, needs_id: bool = False) -> None:
    """`needs_id`: also where cursors are seen, because whose the ledgers are is asked. Raises
    ProblemError, ZooKeeperError.
    """
    root = await look_at(zookeeper, systems.root)
    if root.has_id or (root.has_cursors and not needs_id):
        return
    said = "has no deployment id: no daemon has made it" if root.exists else "does not exist"
    raise ProblemError(
        f"{systems.where} {said}, so nothing can be said of its cursors. "
        f"{await nearby(zookeeper, systems)}",
        f"{LOST}. {NEW}" if root.exists else LOST,
        Kind.USAGE,
    )


async def told_if_new(zookeeper: ZooKeeper, systems: Systems) -> str:
    """What whoever makes cursors, which may well be the first, should know of a root that is new;
    empty if it is not. Raises ZooKeeperError.
    """
    if (await look_at(zookeeper, systems.root)).has_id:
        return ""
    new = f"{systems.where} is new: daemons find the cursors only with the same root and chroot"
    return f"{new}. {await nearby(zookeeper, systems)}"


async def nearby(zookeeper: ZooKeeper, systems: Systems) -> str:
    """A sentence on the roots that are there, as they would be given to a command."""
    hosts, _, _ = systems.zookeeper.partition("/")
    try:
        async with _whole(zookeeper, systems) as whole:
            found = [as_flags(path, hosts, systems.root) for path in await roots_in(whole)]
    except (zk.ZooKeeperError, ProblemError) as e:
        return f"Other roots could not be looked for: {e}"
    return (
        f"Roots that are there: {'; '.join(found)}"
        if found
        else f"No other root was found at {hosts}"
    )


@asynccontextmanager
async def _whole(zookeeper: ZooKeeper, systems: Systems) -> AsyncIterator[ZooKeeper]:
    """All of the ensemble: the same session, unless it is shut in by a chroot."""
    hosts, slash, _ = systems.zookeeper.partition("/")
    if not slash:
        yield zookeeper
        return
    async with connections.zookeeper(
        dataclasses.replace(systems, zookeeper=hosts), START_TIMEOUT_S
    ) as whole:
        yield whole


async def roots_in(zookeeper: ZooKeeper) -> list[str]:
    """Paths that have a deployment id, the topmost first; not all in a large tree. Raises
    ZooKeeperError.
    """
    found: list[str] = []
    todo: deque[tuple[str, int]] = deque([("", 0)])
    for _ in range(LOOKED_AT_MAX):
        if not todo or len(found) == SHOWN_MAX:
            break
        path, depth = todo.popleft()
        try:
            node = await zookeeper.get(path or "/")
            if DEPLOYMENT.fullmatch(node.data):
                found.append(path or "/")
            elif depth < DEPTH_MAX and 0 < node.stat.children_count <= CHILDREN_MAX:
                todo.extend(
                    (f"{path}/{child}", depth + 1)
                    for child in await zookeeper.children(path or "/")
                )
        except zk.NoNode:
            continue
    return found


def as_flags(path: str, hosts: str, root: str) -> str:
    """A root as a command is given it: a chroot before the wanted root or the usual one, else a
    root of its own.
    """
    for usual in (root, ROOT):
        if path.endswith(usual):
            return f"--zookeeper {hosts}{path.removesuffix(usual)} --root {usual}"
    return f"--zookeeper {hosts} --root {path}"
