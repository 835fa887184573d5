"""ZooKeeper for CursorKeeper: a port, the client that speaks to real servers, and a verified fake."""

from cursorkeeper_clients.zookeeper.client import ZooKeeperClient
from cursorkeeper_clients.zookeeper.port import ZooKeeper
from cursorkeeper_clients.zookeeper.settings import ZooKeeperSettings

__all__ = ["ZooKeeper", "ZooKeeperClient", "ZooKeeperSettings"]
