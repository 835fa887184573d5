"""The real ZooKeeper of these tests: one Java process on 127.0.0.1, with short ticks.

Owns its arguments; the process itself is `stack.JavaProcess`, which fails loudly when the jar is
missing.
"""

from __future__ import annotations

from pathlib import Path

from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port

TICK_MS = 200
"""Sessions live between 2 and 120 ticks."""


class ServerProcess(JavaProcess):
    """A ZooKeeper that can be killed, started again with its data, and frozen."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        arguments = [
            "--data-dir",
            str(folder / "data"),
            "--port",
            str(self.port),
            "--tick-ms",
            str(TICK_MS),
        ]
        super().__init__("zookeeper", arguments, folder / "log", heap_mib=256)
