"""Real producers and consumers as processes: `java/brokers/traffic/Traffic.java`, by the Pulsar
client of the broker's own version.

Owns: the command line and the shapes of the last lines. Does not own: which messages are acked,
which the Java source says in one place.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from cursorkeeper.demo.processes import LineProcess, ProcessFailed
from cursorkeeper.demo.stack.pulsar import QUICK, class_path

T = TypeVar("T")
SOURCE = Path(__file__).resolve().parents[4] / "java/brokers/traffic/Traffic.java"
SUBSCRIPTION = "demo"
SILENCE_MAX_S = 90.0
HEAP_MIB = 256


@dataclass(frozen=True, slots=True)
class Produced:
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Consumed:
    """`acked`: messages whose ack was confirmed by a receipt; times from the ack's call to its
    receipt.
    """

    acked: int
    seconds: float
    receipt_ms_p50: float
    receipt_ms_p99: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Messages, not deliveries. `confirmed_again`: delivered although their ack was confirmed."""

    confirmed_again: int
    unacked: int
    unacked_not_delivered: int


@dataclass(frozen=True, slots=True)
class Topic:
    """What the traffic goes to: `messages` are all that are sent, `log` takes what its process
    says.

    `classes`: a folder in which `compiled` has put Traffic's; without it, each process compiles it
    for itself.
    """

    version: str
    service_url: str
    name: str
    messages: int
    log: Path
    classes: Path | None = None

    def process(self, command: str) -> LineProcess:
        """Not started yet. It ends when this process does."""
        java = ["java", f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", *QUICK, "-cp"]
        if self.classes is None:
            java += [class_path(self.version), str(SOURCE)]
        else:
            java += [os.pathsep.join([str(self.classes), class_path(self.version)]), SOURCE.stem]
        return LineProcess(
            command,
            [*java, command, self.service_url, self.name, SUBSCRIPTION, str(self.messages)],
            self.log,
        )


async def compiled(version: str, folder: Path) -> Path:
    """The folder, with Traffic's classes. Raises ProcessFailed."""
    command = [
        "java",
        *QUICK,
        "-m",
        "jdk.compiler/com.sun.tools.javac.Main",
        "-proc:none",
        "-d",
        str(folder),
    ]
    compiler = await asyncio.create_subprocess_exec(
        *command, "-cp", class_path(version), str(SOURCE), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    try:
        async with asyncio.timeout(SILENCE_MAX_S):
            said, _ = await compiler.communicate()
    except TimeoutError as e:
        raise ProcessFailed(f"{SOURCE} was not compiled within {SILENCE_MAX_S:.0f} s") from e
    finally:
        if compiler.returncode is None:
            compiler.kill()
            await compiler.wait()
    if compiler.returncode != 0:
        raise ProcessFailed(f"{SOURCE} does not compile\n{said.decode(errors='replace')[-2000:]}")
    return folder


async def last_line(process: LineProcess, shape: type[T], progress: Callable[[int], None]) -> T:
    """Follows a process to its last line. Raises ProcessFailed if it ends before, or says nothing
    for long.
    """
    while not (line := await process.line(SILENCE_MAX_S)).get("done"):
        progress(int(line["count"]))
    progress(int(line["count"]))
    return msgspec.convert(line, shape)
