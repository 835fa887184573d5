"""One process of the gateway jar: started, waited for, stopped, killed, frozen.

Owns: the command line, the ready line with its limit, the log file, the end of the process. Does not own: what the
commands mean (`standalone`, `cluster`), where the jar is (`jar`).
Invariants: signals go to the id of a child of ours that was not waited for yet, so never to somebody else's process; no
process outlives this one (it watches its parent's id, and an exit handler kills what is left); temporary files are in
a folder beside the log, emptied at every start: BookKeeper unpacks native libraries there, and a killed JVM leaves them.
Calls block; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cursorkeeper_clients.stack.errors import StackError
from cursorkeeper_clients.stack.jar import find_jar

_TAIL_BYTES = 4096


class JavaProcess:
    """A command of the jar. `ready` is its ready line; empty before `start`."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        log: Path,
        *,
        jar: Path | None = None,
        heap_mib: int = 192,
        start_max_s: float = 180.0,
        java: str = "java",
    ) -> None:
        self.command, self.log = command, log
        self.temp = log.with_suffix(".tmp")
        self.ready: Mapping[str, object] = {}
        self._arguments, self._jar, self._heap_mib, self._start_max_s, self._java = list(arguments), jar, heap_mib, start_max_s, java
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Raises `StackError` if the process does not run."""
        if self._process is None:
            raise StackError(f"{self.command} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Mapping[str, object]:
        """Start it and wait for its ready line, at most `start_max_s`."""
        if self.running:
            raise StackError(f"{self.command} is running already, pid {self.pid}")
        shutil.rmtree(self.temp, ignore_errors=True)
        self.temp.mkdir(parents=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command_line(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for us; we stop our children in order
            )
        atexit.register(self.kill)
        try:
            self.ready = self._ready_line()
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

    def freeze(self) -> None:
        """SIGSTOP: it is there and does not answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> Mapping[str, object]:
        """SIGKILL if it runs, then start with the same arguments."""
        self.kill()
        return self.start()

    def log_tail(self) -> str:
        """The end of what this start wrote."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""

    def _command_line(self) -> list[str]:
        java = [self._java, f"-Xmx{self._heap_mib}m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={self.temp.absolute()}"]
        return [*java, "-jar", str(self._jar or find_jar()), self.command, *self._arguments, "--parent-pid", str(os.getpid())]

    def _ready_line(self) -> Mapping[str, object]:
        assert self._process and self._process.stdout
        out, line = self._process.stdout.fileno(), b""
        deadline = time.monotonic() + self._start_max_s
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._failed(f"was not ready within {self._start_max_s:.0f} s")
            if select.select([out], [], [], left_s)[0]:
                got = os.read(out, 4096)
                if not got:
                    self._process.wait(10)
                    raise self._failed(f"ended with status {self._process.returncode} before it was ready")
                line += got
        try:
            ready = json.loads(line)
        except ValueError:
            raise self._failed(f"printed {line!r} instead of its ready line") from None
        if not isinstance(ready, dict) or ready.get("ready") != self.command:
            raise self._failed(f"printed {line!r} instead of its ready line")
        return ready

    def _failed(self, what: str) -> StackError:
        return StackError(f"{self.command} {what}. Its log {self.log} ends with:\n{self.log_tail() or '(nothing)'}")

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:
            raise StackError(f"{self.command} is not running")
        os.kill(self.pid, number)

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
