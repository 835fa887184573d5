"""ZooKeeper for CursorKeeper: a port, the client that speaks to real servers, and a verified
fake.
"""

from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.settings import ZooKeeperSettings

__all__ = ["ZooKeeper", "ZooKeeperClient", "ZooKeeperSettings"]
