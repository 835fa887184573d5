"""Producers and consumers on whole brokers, and the ledger that judges a story:
`java/brokers/traffic/Clients.java`, told what to do

Owns: the command line and the words. Does not own: which deliveries are wrong, which the Java
source says in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cursorkeeper.demo.processes import LineProcess
from tools.brokers.cluster import class_path

SOURCE = Path(__file__).resolve().parents[3] / "java/brokers/traffic/Clients.java"
ANSWER_MAX_S = 150.0
HEAP_MIB = 256
NEWER = {"4.0.7": "4.2.4"}
"""Of a broker whose own client lacks what the source needs: the version of a client that it serves
as well.
"""


class Clients:
    """One process; it ends when this one does. A verb's answer is a dictionary; what could not be
    done is an AssertionError.
    """

    def __init__(self, version: str, log: Path) -> None:
        java = [
            "java",
            f"-Xmx{HEAP_MIB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path(NEWER.get(version, version)),
        ]
        self._process = LineProcess("clients", [*java, str(SOURCE)], log)

    async def start(self) -> None:
        await self._process.start()

    async def kill(self) -> None:
        await self._process.kill()

    async def do(self, verb: str, **words: object) -> Mapping[str, Any]:
        line = " ".join([verb, *(f"{name}={value}" for name, value in words.items())])
        self._process.tell(line)
        said = await self._process.line(ANSWER_MAX_S)
        assert "error" not in said, f"{line}: {said['error']}\n{self._process.tail()}"
        return said

    async def settled(
        self, topic: str, sub: str = "sub", *, opens: int | None = None, **words: object
    ) -> Mapping[str, Any]:
        """The verdict of a subscription since the last mark: nothing confirmed came again, and
        every un-acked message came.
        """
        said = await self.do("settle", topic=topic, sub=sub, **words)
        assert said["again"] == 0 and said["missing"] == 0 and said["asked"] == 0, (
            f"{topic} {sub}: {said}"
        )
        if opens is not None:
            assert said["open"] == opens, f"{topic} {sub}: {said}"
        return said
