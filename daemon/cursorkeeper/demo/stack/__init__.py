"""Starts, kills and restarts the real thing on this machine: ZooKeeper, bookies and the gateway,
for the demo and for tests.
"""

from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.jar import check_java, find_jar
from cursorkeeper.demo.stack.java_process import (
    BOTH_COMPILERS,
    QUICK,
    JavaProcess,
    class_archive,
)
from cursorkeeper.demo.stack.local_cluster import LocalCluster
from cursorkeeper.demo.stack.standalone import Standalone

__all__ = [
    "BOTH_COMPILERS",
    "QUICK",
    "JavaProcess",
    "LocalCluster",
    "StackError",
    "Standalone",
    "check_java",
    "class_archive",
    "find_jar",
]
