"""Two brokers over one ZooKeeper and its bookies: one as Pulsar ships it, one with the plugin; and
the client that loads both.

Owns: the order of the start and the end, the settings, the CPU seconds of each process. Does not
own: what is measured (`cost`). Each broker is a Pulsar cluster of its own, below a path of its own
in ZooKeeper, so that neither has the other's topics. The gateway is a process of its own, so that
its CPU is seen; the one that the stack brings has nothing to do. JVMs compile as far as they can.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorkeeper.demo.processes import DaemonProcess, LineProcess
from cursorkeeper.demo.stack import BOTH_COMPILERS, JavaProcess, Standalone
from cursorkeeper.demo.stack.ports import free_port
from tools.brokers.cluster import PulsarBroker, PulsarCluster, class_path
from tools.brokers.play import find_plugin, plugin_conf

LOAD = Path(__file__).resolve().parents[2] / "java/brokers/traffic/Load.java"
ANSWER_MAX_S = 200.0
BROKER_HEAP_MIB = 768
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process since its start."""
    return _seconds(Path(f"/proc/{pid}/stat"))


def compiler_seconds(pid: int) -> float:
    """Those of a JVM's compilers, of the threads that it has now."""
    threads = [
        each.parent
        for each in Path(f"/proc/{pid}/task").glob("*/comm")
        if "Compiler" in each.read_text()
    ]
    return sum(_seconds(each / "stat") for each in threads)


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Load:
    """`java/brokers/traffic/Load.java`, one process for both brokers."""

    def __init__(self, version: str, folder: Path) -> None:
        self._version, self._classes = version, folder / "load"
        path = os.pathsep.join([str(self._classes), class_path(version)])
        self._process = LineProcess(
            "load",
            ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, LOAD.stem],
            folder / "load.log",
        )

    async def start(self) -> None:
        compiler = [
            "java",
            "-m",
            "jdk.compiler/com.sun.tools.javac.Main",
            "-proc:none",
            "-d",
            str(self._classes),
        ]
        compiling = await asyncio.create_subprocess_exec(
            *compiler, "-cp", class_path(self._version), str(LOAD)
        )
        if await compiling.wait() != 0:
            raise RuntimeError(f"{LOAD} does not compile")
        await self._process.start()

    def tell(self, verb: str, words: Mapping[str, object]) -> None:
        self._process.tell(" ".join([verb, *(f"{name}={value}" for name, value in words.items())]))

    async def line(self) -> dict[str, Any]:
        """The next line of an answer. Raises RuntimeError if it could not be done."""
        said = await self._process.line(ANSWER_MAX_S)
        if "error" in said:
            raise RuntimeError(f"{said['error']}\n{self._process.tail()}")
        return said

    async def kill(self) -> None:
        await self._process.kill()


@dataclass
class Field:
    stack: Standalone
    gateway: JavaProcess
    daemon: DaemonProcess
    stock: PulsarBroker
    plugin: PulsarBroker
    load: Load

    def cpu(self, broker: PulsarBroker) -> dict[str, float]:
        """CPU seconds so far, by part; `stack` is ZooKeeper and the bookies."""
        parts = {
            "broker": broker.pid,
            "daemon": self.daemon.pid,
            "gateway": self.gateway.pid,
            "stack": self.stack.pid,
        }
        return {name: cpu_seconds(pid) for name, pid in parts.items()}


@asynccontextmanager
async def field(version: str) -> AsyncIterator[Field]:
    """Raises StackError if something does not start."""
    plugin = find_plugin(version)
    if plugin is None:
        raise RuntimeError(
            "the plugin's jar is missing. What to do: `make broker-classes plugin-jar`"
        )
    with tempfile.TemporaryDirectory(prefix="cursorkeeper-bench-") as name:
        folder = Path(name)
        plugin = Path(shutil.copy(plugin, folder))  # one may build meanwhile
        load, clusters, gateway = Load(version, folder), [], None
        stack = Standalone(folder / "stack", bookies=2, heap_mib=768, java_options=BOTH_COMPILERS)
        daemon: DaemonProcess | None = None
        try:
            await asyncio.gather(asyncio.to_thread(stack.start), load.start())
            port = free_port()
            arguments = ["--port", str(port), "--metadata-service-uri", stack.metadata_service_uri]
            gateway = JavaProcess("gateway", arguments, folder / "gateway.log", heap_mib=192)
            daemon = DaemonProcess(folder, f"127.0.0.1:{port}", stack.zookeeper)
            await asyncio.to_thread(gateway.start)
            await daemon.start()
            settings = {"stock": {}, "plugin": plugin_conf(version, daemon.address)}
            brokers = []
            for kind, own in settings.items():
                cluster = PulsarCluster(
                    folder / kind, f"{stack.zookeeper}/{kind}", version=version, name=kind
                )
                clusters.append(cluster)
                await asyncio.to_thread(cluster.set_up)
                conf = {
                    "bookkeeperMetadataServiceUri": f"zk+hierarchical://{stack.zookeeper}/ledgers",
                    **own,
                }
                path = [plugin] if own else []
                brokers.append(
                    PulsarBroker(
                        cluster, kind, conf=conf, extra_class_path=path, heap_mib=BROKER_HEAP_MIB
                    )
                )
            await asyncio.gather(*(asyncio.to_thread(each.start) for each in brokers))
            yield Field(stack, gateway, daemon, brokers[0], brokers[1], load)
        finally:
            await load.kill()
            for cluster in clusters:
                await asyncio.to_thread(cluster.kill)
            if daemon is not None:
                await daemon.kill()
            if gateway is not None:
                await asyncio.to_thread(gateway.kill)
            await asyncio.to_thread(stack.kill)
