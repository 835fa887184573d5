"""Serves whoever must see what is committed by now, and not what one server knows of it."""

from __future__ import annotations

from cursorkeeper.zookeeper.errors import NoNode
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Node


async def read_synced(zookeeper: ZooKeeper, path: str) -> Node | None:
    """The node behind a sync; None: there is none. Raises ZooKeeperError."""
    await zookeeper.sync(path)
    try:
        return await zookeeper.get(path)
    except NoNode:
        return None
