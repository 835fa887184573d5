"""What Pulsar's metadata store says of a cursor of ours: whether Pulsar has it. Only reads, for the
search for orphans.

A name may be spelt in more than one way: persistent://tenant/namespace/topic, or
tenant/namespace/persistent/topic as a broker's managed ledger is called; and Pulsar encodes names
of topics and subscriptions in paths, so that a source may know them as they are encoded. A cursor
is there if any spelling is. Only ZooKeeper is known: a cluster that was moved off ZooKeeper
(PIP-454) leaves its old nodes there, and a flag that says so.
"""

from __future__ import annotations

import json
from itertools import product

from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.orphans.fleet import Why
from cursorkeeper.runtime.checks import ABSENT, FooterChecks
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.paths import check_path
from cursorkeeper.zookeeper.port import ZooKeeper

MOVING = "/pulsar/migration-coordinator/migration"
"""Pulsar's flag of a move to another metadata store, as JSON with a phase."""
STAYS = ("NOT_STARTED", "FAILED")
"""Phases in which ZooKeeper is still the store."""


def topic_paths(topic: str) -> list[str]:
    """Where the topic's znode may be, the usual place first. Raises ValueError for what is no
    persistent topic.
    """
    if _is_managed_ledger(topic):
        return _legal(f"{names.ROOT}/{topic}")
    usual = names.topic_path(topic)
    local = topic.removeprefix(f"{names.DOMAIN}://").split("/", 3)[-1]
    return _legal(usual, *([] if "/" in local else [f"{usual.rpartition('/')[0]}/{local}"]))


def cursor_paths(name: CursorName) -> list[str]:
    """Where the cursor's znode may be, the usual place first. Raises ValueError for what is no
    cursor of a persistent topic.
    """
    encoded = names.encode_name(name.subscription)
    spelt = [encoded] if "/" in name.subscription else [encoded, name.subscription]
    return _legal(*(f"{topic}/{child}" for topic, child in product(topic_paths(name.topic), spelt)))


def _is_managed_ledger(topic: str) -> bool:
    """Whether it is what a broker calls a topic's managed ledger,
    `tenant/namespace/persistent/topic`, as it is in paths.
    """
    parts = topic.split("/")
    return len(parts) in (4, 5) and all(parts) and parts[-2] == names.DOMAIN


def _legal(*paths: str) -> list[str]:
    found = []
    for path in dict.fromkeys(paths):
        try:
            check_path(path)
        except ValueError:
            continue
        found.append(path)
    if not found:
        raise ValueError(f"ZooKeeper takes none of {paths}")
    return found


class PulsarStore:
    """See the module. All methods raise ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zk, self._checks = zookeeper, FooterChecks(zookeeper)

    async def start(self) -> None:
        """Connects, or waits for the connection."""
        await self._zk.start()

    async def sync(self) -> None:
        """What is read from now on is no older than this."""
        await self._zk.sync("/")

    async def trouble(self) -> str:
        """Why this cannot be the store of a Pulsar cluster in use; empty: it can."""
        try:
            if not await self._zk.children(names.ROOT):
                return f"{names.ROOT} has no children"
        except zk.NoNode:
            return f"there is no {names.ROOT}"
        try:
            phase = _phase((await self._zk.get(MOVING)).data)
        except zk.NoNode:
            return ""
        return (
            ""
            if phase in STAYS
            else f"the cluster was moved to another metadata store, or is being moved: {MOVING} "
            f"says {phase}"
        )

    async def gone(self, name: CursorName) -> Why | None:
        """What this server does not show; None: the cursor is there. It may lag: see
        `is_proved_gone`. Raises ValueError, too.
        """
        for path in cursor_paths(name):
            if await self._zk.exists(path) is not None:
                return None
        for path in topic_paths(name.topic):
            if await self._zk.exists(path) is not None:
                return Why.SUBSCRIPTION
        return Why.TOPIC

    async def is_proved_gone(self, name: CursorName) -> bool:
        """Whether the quorum says, after this call, that the cursor is not there: no server that
        lags can.
        """
        for path in cursor_paths(name):
            if not await self._checks.check(path, ABSENT):
                return False
        return True


def _phase(data: bytes) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        return "what is no JSON"
    return str(found.get("phase")) if isinstance(found, dict) else "no phase"
