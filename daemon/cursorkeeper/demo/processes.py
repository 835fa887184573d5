"""The daemon as a process, and any other one whose output is JSON lines: started, waited for,
killed with SIGKILL, never left behind. For the demo and for tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.ports import free_port

READY_MAX_S = 180.0
SCRAPE_MAX_S = 30.0
STREAM_LIMIT_BYTES = 1 << 20


class LineProcess:
    """A process whose standard output is JSON lines."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name, self.log, self._command = name, log, list(command)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """It was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; does not wait for it to be ready."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=STREAM_LIMIT_BYTES,
            )

    async def line(self, limit_s: float = READY_MAX_S) -> dict[str, Any]:
        """The next JSON line of its output. Raises StackError if it ends or says nothing in
        time.
        """
        assert self._process is not None and self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._process.stdout.readline()
        except TimeoutError as e:
            raise StackError(f"{self.name} said nothing for {limit_s:.0f} s\n{self.tail()}") from e
        if not raw:
            code = await self._process.wait()
            raise StackError(f"{self.name} ended with status {code}\n{self.tail()}")
        found: dict[str, Any] = json.loads(raw)
        return found

    def tell(self, line: str) -> None:
        """One line on its standard input; nothing if it has ended."""
        if self._process is not None and self._process.stdin is not None and self.running:
            self._process.stdin.write(line.encode() + b"\n")

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL, 60)

    async def stop(self, limit_s: float = 120.0) -> None:
        """SIGTERM, then SIGKILL if it takes longer."""
        await self._end(signal.SIGTERM, limit_s)

    async def _end(self, number: signal.Signals, limit_s: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(limit_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def tail(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-2000:]
        return ""


class DaemonProcess(LineProcess):
    """`cursorkeeper run` on a fixed port, so that a source finds it again after a kill.

    `program`: what the next start runs, this distribution's command line unless somebody names
    another one.
    """

    def __init__(
        self, folder: Path, gateway: str, zookeeper: str, extra: Sequence[str] = ()
    ) -> None:
        self.program: Sequence[str] = (sys.executable, "-m", "cursorkeeper.cli.main")
        self._fixed = [
            "--gateway",
            gateway,
            "--zookeeper",
            zookeeper,
            "--name",
            "demo",
            "--parent-pid",
            str(os.getpid()),
            *extra,
        ]
        self.address = self.metrics = ""
        super().__init__("daemon", [], folder / "daemon.log")
        self._choose_ports()

    def _choose_ports(self) -> None:
        self.address, self.metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    async def restart_elsewhere(self) -> None:
        """After a kill: a new process at another address, as a new owner would be."""
        self._choose_ports()
        await self.start()

    async def launch(self) -> None:
        """Starts it; does not wait for it to be ready."""
        self._command = [
            *self.program,
            "run",
            "--listen",
            self.address,
            "--metrics-listen",
            self.metrics,
            *self._fixed,
        ]
        await super().start()

    async def start(self) -> None:
        """Returns when it is ready."""
        await self.launch()
        await self.line()

    async def scrape(self) -> dict[str, float]:
        """Its metrics by name and labels; empty while it is down."""
        return await asyncio.to_thread(scrape, self.metrics, SCRAPE_MAX_S)


def scrape(address: str, limit_s: float = 2.0) -> dict[str, float]:
    """The metrics page at host:port, by name and labels; empty while there is none, or none within
    the limit.
    """
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=limit_s) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line and line[0] != "#":
            key, _, value = line.rpartition(" ")
            found[key] = float(value)
    return found
