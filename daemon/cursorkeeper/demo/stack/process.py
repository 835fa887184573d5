"""One child process that serves: started, waited for, stopped, killed.

Owns: the log file, the folder of temporary files, the limit of a start, the end of the process.
Does not own: the command line and what "ready" means, which each kind says of itself
(`java_process`, `pulsar`). Invariants: signals go to the id of a child of ours that was not waited
for yet, so never to somebody else's process; an exit handler kills what is left; temporary files
are in a folder beside the log, emptied at every start: BookKeeper unpacks native libraries there,
and a killed JVM leaves them. Calls block; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from cursorkeeper.demo.stack.errors import StackError

_TAIL_BYTES = 4096


class ServerProcess(ABC):
    """See the module. `ready` is what the start found out; empty before. A context manager: starts,
    and stops at the end.
    """

    def __init__(self, name: str, log: Path, start_max_s: float) -> None:
        self.name, self.log = name, log
        self.temp = log.with_suffix(".tmp")
        self.ready: Mapping[str, object] = {}
        self._start_max_s = start_max_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @abstractmethod
    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        """The process, in a session of its own: a Ctrl-C in the terminal is for us; we stop our
        children in order.
        """

    @abstractmethod
    def _wait_ready(self, process: subprocess.Popen[bytes]) -> Mapping[str, object]:
        """Returns when it serves. Raises `self._failed(...)` when it ends, or is not ready within
        `start_max_s`.
        """

    @property
    def pid(self) -> int:
        """Raises `StackError` if the process does not run."""
        if self._process is None:
            raise StackError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Mapping[str, object]:
        """Start it and wait until it is ready, at most `start_max_s`."""
        if self.running:
            raise StackError(f"{self.name} is running already, pid {self.pid}")
        shutil.rmtree(self.temp, ignore_errors=True)
        self.temp.mkdir(parents=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = self._spawn(log)
        atexit.register(self.kill)
        try:
            self.ready = self._wait_ready(self._process)
        except BaseException:
            self.kill()
            raise
        return self.ready

    def stop(self, max_s: float = 15.0) -> None:
        """SIGTERM, then SIGKILL if it takes longer. Nothing to do if it is not running."""
        self._end(signal.SIGTERM, max_s)

    def kill(self) -> None:
        """SIGKILL, and wait. Nothing to do if it is not running."""
        self._end(signal.SIGKILL, 10.0)

    def restart(self) -> Mapping[str, object]:
        """SIGKILL if it runs, then start with the same arguments."""
        self.kill()
        return self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log_tail(self) -> str:
        """The end of what this start wrote."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""

    def _failed(self, what: str) -> StackError:
        return StackError(
            f"{self.name} {what}. Its log {self.log} ends with:\n{self.log_tail() or '(nothing)'}"
        )

    def _end(self, number: signal.Signals, max_s: float) -> None:
        process, self._process = self._process, None
        atexit.unregister(self.kill)
        if process is None:
            return
        try:
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(max_s)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)
        finally:
            if process.stdout:
                process.stdout.close()
