"""Starts, kills and restarts the real thing on this machine: ZooKeeper, bookies and the gateway, for demo and tests."""

from cursorkeeper_clients.stack.cluster import LocalCluster
from cursorkeeper_clients.stack.java_process import JavaProcess, StackError, find_jar
from cursorkeeper_clients.stack.standalone import Standalone

__all__ = ["JavaProcess", "LocalCluster", "StackError", "Standalone", "find_jar"]
