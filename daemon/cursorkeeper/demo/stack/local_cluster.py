"""The parts side by side: a ZooKeeper, bookies and gateways, each a process that may be killed on
its own.

Owns: the order of the start, ports, data folders. Does not own: the processes (`java_process`).
Invariants: a part keeps its port and its folder over restarts; stopping goes in the reverse order
of starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port


class LocalCluster:
    """`zookeeper`, `bookies` and `gateways` are processes: kill, freeze, start them as the story
    goes.

    A context manager: starts all of it, and stops it at the end.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bookies: int = 3,
        gateways: int = 1,
        session_ms: int = 4_000,
        start_max_s: float = 180.0,
        heap_mib: int = 128,
        java_options: Sequence[str] = (),
    ) -> None:
        self.data_dir, self._start_max_s = data_dir, start_max_s
        self._java_options = java_options
        self._heap_mib = heap_mib
        """What ZooKeeper, each bookie and each gateway may take."""
        self._session = ["--zookeeper-timeout-ms", str(session_ms)]
        port = free_port()
        self.zookeeper_address = f"127.0.0.1:{port}"
        self.metadata_service_uri = f"zk+hierarchical://{self.zookeeper_address}/ledgers"
        self.zookeeper = self._process(
            "zookeeper",
            "zookeeper",
            ["--data-dir", str(data_dir / "zookeeper"), "--port", str(port)],
            heap_mib,
        )
        self._init = self._process(
            "init-cluster",
            "init-cluster",
            ["--metadata-service-uri", self.metadata_service_uri],
            64,
        )
        self.bookies = [self._bookie(number + 1) for number in range(bookies)]
        self._ports = [free_port() for _ in range(gateways)]
        self.gateways = [self._gateway(number) for number in range(gateways)]

    @property
    def gateway(self) -> str:
        """host:port of the first gateway."""
        return self.gateway_address(0)

    def gateway_address(self, number: int) -> str:
        """host:port of one gateway; the same over restarts."""
        return f"127.0.0.1:{self._ports[number]}"

    def start(self) -> LocalCluster:
        """Returns when every part is ready; stops what was started if one is not."""
        try:
            self.zookeeper.start()
            self._init.start()
            self._init.stop()
            for alike in (self.bookies, self.gateways):
                with ThreadPoolExecutor(max(len(alike), 1)) as threads:
                    list(threads.map(JavaProcess.start, alike))
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """SIGTERM to each, gateways first."""
        for process in self._in_reverse():
            process.stop()

    def kill(self) -> None:
        for process in self._in_reverse():
            process.kill()

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _in_reverse(self) -> list[JavaProcess]:
        return [*self.gateways, *self.bookies, self._init, self.zookeeper]

    def _bookie(self, number: int) -> JavaProcess:
        name = f"bookie-{number}"
        where = ["--data-dir", str(self.data_dir / name), "--port", str(free_port())]
        return self._process(
            name,
            "bookie",
            [*where, "--metadata-service-uri", self.metadata_service_uri, *self._session],
            self._heap_mib,
        )

    def _gateway(self, number: int) -> JavaProcess:
        arguments = [
            "--port",
            str(self._ports[number]),
            "--metadata-service-uri",
            self.metadata_service_uri,
            *self._session,
        ]
        return self._process(f"gateway-{number + 1}", "gateway", arguments, self._heap_mib)

    def _process(self, name: str, command: str, arguments: list[str], heap_mib: int) -> JavaProcess:
        log = self.data_dir / f"{name}.log"
        return JavaProcess(
            command,
            arguments,
            log,
            heap_mib=heap_mib,
            start_max_s=self._start_max_s,
            java_options=self._java_options,
        )
