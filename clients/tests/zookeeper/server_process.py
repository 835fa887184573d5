"""A real ZooKeeper for tests: one Java process on 127.0.0.1.

Owns the process and its data folder. Invariants: it is ended by its id; it ends by itself when this process goes (--parent-pid); what
cannot start fails the test with the server's own words, it is never skipped.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import threading
from pathlib import Path

TICK_MS = 200
"""Sessions live between 2 and 120 ticks."""

_REPO = Path(__file__).resolve().parents[3]
_READY_LIMIT_S = 60.0


def jar() -> Path:
    """The gateway's jar. Raises FileNotFoundError, with what to do."""
    path = Path(os.environ.get("CURSORKEEPER_GATEWAY_JAR", _REPO / "java/gateway/target/cursorkeeper-gateway.jar"))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build the gateway, or leave these tests out with -m 'not jvm'")
    return path


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A ZooKeeper that can be stopped, started again with its data, and frozen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(jar()), "zookeeper"]
        command += ["--data-dir", str(self.folder / "data"), "--port", str(self.port)]
        command += ["--tick-ms", str(TICK_MS), "--parent-pid", str(os.getpid())]
        log = self.folder / "log"
        with log.open("a") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read_lines, args=(self._process, lines), daemon=True).start()
        try:
            line = lines.get(timeout=_READY_LIMIT_S)
        except queue.Empty:
            line = ""
        if '"ready"' not in line:
            self.stop()
            raise AssertionError(f"ZooKeeper is not ready: {line!r}\n{log.read_text()[-3000:]}")

    @staticmethod
    def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def stop(self) -> None:
        """End it, without a farewell to its clients."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
