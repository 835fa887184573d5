"""Starts, kills and restarts the real thing on this machine: ZooKeeper, bookies, the gateway and Pulsar brokers, for demos and tests."""

from cursorkeeper_clients.stack.cluster import LocalCluster
from cursorkeeper_clients.stack.errors import StackError
from cursorkeeper_clients.stack.jar import check_java, find_jar
from cursorkeeper_clients.stack.java_process import JavaProcess
from cursorkeeper_clients.stack.pulsar import PulsarBroker, PulsarCluster
from cursorkeeper_clients.stack.standalone import Standalone

__all__ = ["JavaProcess", "LocalCluster", "PulsarBroker", "PulsarCluster", "StackError", "Standalone", "check_java", "find_jar"]
