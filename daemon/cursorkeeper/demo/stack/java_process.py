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

QUICK = ("-XX:TieredStopAtLevel=1",)
"""For processes that live for minutes: the quick compiler alone, which halves the CPU time of a
start.
"""
BOTH_COMPILERS = ("-XX:TieredStopAtLevel=4",)
"""For what runs for long, benchmarks of it too: faster when it has been running for a while."""


def class_archive(jar: Path) -> Path:
    """Where a checkout may keep the classes of a start, ready to be mapped; `tools.class_archive`
    makes it. A Java that cannot use it, or another jar, loads its classes itself.
    """
    return jar.with_suffix(".jsa")


def _beginning(jar: Path) -> list[str]:
    archive = class_archive(jar)
    # what Java has to say of an archive that does not fit would go where the ready line goes
    mapped = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    return [*QUICK, *(mapped if archive.is_file() else [])]


class JavaProcess(ServerProcess):
    """A command of the jar. `ready` is its ready line; empty before `start`. `java_options` count
    more than what it does by itself.
    """

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
        jar = find_jar()
        return subprocess.Popen(
            [
                "java",
                *_beginning(jar),
                f"-Xmx{self._heap_mib}m",
                "-XX:+UseSerialGC",
                f"-Djava.io.tmpdir={self.temp.absolute()}",
                *self._java_options,
                "-jar",
                str(jar),
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
