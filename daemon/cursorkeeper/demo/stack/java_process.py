"""One process of the gateway jar.

Owns: its command line, the ready line with its limit. Does not own: its life (`process`), what the
commands mean (`standalone`, `cluster`), where the jar is (`jar`). Invariant: no process outlives
this one: it watches its parent's id.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from cursorkeeper.demo.stack.jar import find_jar
from cursorkeeper.demo.stack.process import ServerProcess


class JavaProcess(ServerProcess):
    """A command of the jar. `ready` is its ready line; empty before `start`."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        log: Path,
        *,
        heap_mib: int = 192,
        start_max_s: float = 180.0,
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(command, log, start_max_s)
        self._arguments, self._heap_mib = list(arguments), heap_mib
        self._java_options = list(java_options)

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                "java",
                f"-Xmx{self._heap_mib}m",
                "-XX:+UseSerialGC",
                f"-Djava.io.tmpdir={self.temp.absolute()}",
                *self._java_options,
                "-jar",
                str(find_jar()),
                self.name,
                *self._arguments,
                "--parent-pid",
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> Mapping[str, object]:
        assert process.stdout
        out, line = process.stdout.fileno(), b""
        deadline = time.monotonic() + self._start_max_s
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._failed(f"was not ready within {self._start_max_s:.0f} s")
            if select.select([out], [], [], left_s)[0]:
                got = os.read(out, 4096)
                if not got:
                    process.wait(10)
                    raise self._failed(
                        f"ended with status {process.returncode} before it was ready"
                    )
                line += got
        with contextlib.suppress(ValueError):
            ready = json.loads(line)
            if isinstance(ready, dict) and ready.get("ready") == self.name:
                return ready
        raise self._failed(f"printed {line!r} instead of its ready line")
