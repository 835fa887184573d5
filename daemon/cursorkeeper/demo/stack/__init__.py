"""Starts, kills and restarts the real thing on this machine: ZooKeeper, bookies, the gateway and
Pulsar brokers, for demos and tests.
"""

from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.jar import check_java, find_jar
from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.pulsar import PulsarBroker, PulsarCluster
from cursorkeeper.demo.stack.standalone import Standalone

__all__ = [
    "JavaProcess",
    "PulsarBroker",
    "PulsarCluster",
    "StackError",
    "Standalone",
    "check_java",
    "find_jar",
]
