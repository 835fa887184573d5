"""Real producers and consumers as processes: `java/brokers/traffic/Traffic.java`, by the Pulsar
client of the broker's own version.

Owns: the command line and the shapes of the last lines. Does not own: which messages are acked,
which the Java source says in one place.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from cursorkeeper.demo.processes import LineProcess
from cursorkeeper.demo.stack import QUICK
from cursorkeeper.demo.stack.errors import StackError
from tools.brokers.cluster import class_path

T = TypeVar("T")
SOURCE = Path(__file__).resolve().parents[2] / "java/brokers/traffic/Traffic.java"
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
    for itself. `client`: settings of Pulsar's client by its names, for a broker that wants TLS or
    a login. `every_second`: of the messages one is acked and one is not, in turns.
    """

    version: str
    service_url: str
    name: str
    messages: int
    log: Path
    classes: Path | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    every_second: bool = False

    def process(self, command: str) -> LineProcess:
        """Not started yet. It ends when this process does."""
        paths, main = [class_path(self.version)], str(SOURCE)
        if self.classes is not None:
            paths, main = [str(self.classes), *paths], SOURCE.stem
        java = [
            "java",
            f"-Xmx{HEAP_MIB}m",
            "-XX:+UseSerialGC",
            *QUICK,
            f"-Dtraffic.every-second={str(self.every_second).lower()}",
            *(f"-Dpulsar.client.{name}={value}" for name, value in self.client.items()),
            "-cp",
            os.pathsep.join(paths),
        ]
        arguments = [command, self.service_url, self.name, SUBSCRIPTION, str(self.messages)]
        return LineProcess(command, [*java, main, *arguments], self.log)


def compiled(version: str, folder: Path) -> Path:
    """The folder, with Traffic's classes. Raises StackError. Blocks."""
    compiler = ["java", *QUICK, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none"]
    done = subprocess.run(
        [*compiler, "-d", str(folder), "-cp", class_path(version), str(SOURCE)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"{SOURCE} does not compile\n{done.stdout[-2000:]}")
    return folder


async def last_line(process: LineProcess, shape: type[T], progress: Callable[[int], None]) -> T:
    """Follows a process to its last line. Raises StackError if it ends before, or says nothing
    for long.
    """
    while not (line := await process.line(SILENCE_MAX_S)).get("done"):
        progress(int(line["count"]))
    progress(int(line["count"]))
    return msgspec.convert(line, shape)
