"""A real Spark standalone cluster, and a Spark Connect server on it: each part a process of its
own, on loopback hosts only.

One master, workers on 127.0.0.2 and 127.0.0.3 with one slot each: a speculative copy never goes to
the host that runs the task already, and a local master never speculates. Owns: the processes, their
ports, and everything they write (below the folder given). Does not own: what is run there.
Invariants: every wait has a limit; nothing is signalled but the process groups that were begun
here; no part outlives the context manager; the addresses are not reachable from outside.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from cursorkeeper.demo.stack.ports import free_port
from pipeline.tests.spark_jvm import QUICK_JVM
from pipeline.tests.warm_workers import warm_python

HOME, REPOSITORY = Path(pyspark.__file__).parent, Path(__file__).parents[2]
MASTER_HOST, WORKER_HOSTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
DAEMON_MEMORY, EXECUTOR_MEMORY, DRIVER_MEMORY = "160m", "512m", "640m"
START_MAX_S, STOP_MAX_S, POLL_S = 120.0, 60.0, 0.05
_TAIL_BYTES = 4096
SPECULATING: Mapping[str, str] = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}
"""A second attempt as soon as half of the tasks have ended and one takes longer than they did."""


class ClusterError(Exception):
    """A part did not start: which, why, and the end of its log."""


class Part:
    """One process with children of its own, in a process group of its own."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self._command = list(command)
        self.environment: dict[str, str] = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> None:
        """Does not wait."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def wait_until(self, is_ready: Callable[[], bool], what: str) -> None:
        """Raises ClusterError if it takes too long or the process ends."""
        deadline = time.monotonic() + START_MAX_S
        while not is_ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else f"is not {what} within {START_MAX_S:.0f} s"
                raise ClusterError(
                    f"{self.name} {why}. Its log {self.log} ends with:\n{self.tail()}"
                )
            time.sleep(POLL_S)

    def tail(self) -> str:
        """The end of its log."""
        return (
            self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
            if self.log.exists()
            else "(nothing)"
        )

    def stop(self) -> None:
        """SIGTERM to it, which ends its executors too; SIGKILL to what is left of its group."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_MAX_S)
        finally:
            with suppress(ProcessLookupError):  # the group is given up only when nobody is in it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_MAX_S)


class SparkCluster:
    """See the module. A context manager: returns when both workers are registered; `connect()`
    starts a Connect server on it.
    """

    def __init__(self, folder: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        port, self._ui = free_port(), free_port()
        self.master = f"spark://{MASTER_HOST}:{port}"
        folder.mkdir(parents=True)
        # not in a folder of settings: that would be on the class path
        log = folder / "log4j2.properties"
        log.write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = "
            "stderr\nappender.stderr.type = Console\n"
            "appender.stderr.name = stderr\nappender.stderr.target = "
            "SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
            "appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex\n"
        )
        python = warm_python(folder)
        self._jvm = f"{QUICK_JVM} -Dlog4j2.configurationFile={log}"
        self._base = {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": self._jvm,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYTHONPATH": str(REPOSITORY),
            **(environment or {}),
        }
        place = ["--host", MASTER_HOST, "--port", str(port), "--webui-port", str(self._ui)]
        self._master = self._part(
            "master", MASTER_HOST, "org.apache.spark.deploy.master.Master", *place
        )
        # its port is the same everywhere
        self._master.environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"
        self.workers = [self._worker(host) for host in WORKER_HOSTS]
        self._drivers: list[Part] = []

    def __enter__(self) -> Self:
        try:
            self._master.start()
            for worker in self.workers:
                worker.start()  # they try again until the master is there
            self._master.wait_until(
                lambda: self.alive_workers() == len(self.workers), "leading two workers"
            )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Drivers first."""
        for driver in self._drivers:
            driver.stop()
        with ThreadPoolExecutor(len(self.workers)) as threads:
            list(threads.map(Part.stop, self.workers))
        self._master.stop()

    def alive_workers(self) -> int:
        """As the master counts them; 0 while it does not answer."""
        return int(self._status().get("aliveworkers", 0))

    def connect(self, conf: Mapping[str, str] | None = None) -> str:
        """Starts a Spark Connect server whose driver runs its jobs on the workers; its address,
        sc://host:port.
        """
        port = free_port()
        given = {
            **self.driver_conf(),
            "spark.connect.grpc.binding.address": MASTER_HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.extraJavaOptions": f"{self._jvm} -Dderby.system.home={self.folder}",
            **(conf or {}),
        }
        flags = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
        command = [
            str(HOME / "bin" / "spark-submit"),
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
        ]
        named = [*command, "--master", self.master, "--name", "connect", *flags]
        # a server is a daemon to spark-submit, which then asks SPARK_DAEMON_MEMORY for the driver's
        # heap
        environment = {
            **self._base,
            "SPARK_LOCAL_IP": MASTER_HOST,
            "SPARK_DAEMON_MEMORY": DRIVER_MEMORY,
        }
        server = Part(f"connect-{len(self._drivers)}", named, self.folder, environment)
        self._drivers.append(server)
        server.start()
        server.wait_until(
            lambda: _listens(port) and b"Spark Connect server started" in server.log.read_bytes(),
            "listening",
        )
        return f"sc://{MASTER_HOST}:{port}"

    def driver_conf(self) -> dict[str, str]:
        """What every driver on this cluster needs: one small executor on each host, and no job
        before both are there.
        """
        return {
            "spark.driver.host": MASTER_HOST,
            "spark.driver.bindAddress": MASTER_HOST,
            "spark.cores.max": str(len(WORKER_HOSTS)),
            "spark.executor.cores": "1",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.extraJavaOptions": self._jvm,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }

    def _worker(self, host: str) -> Part:
        place = [
            "--host",
            host,
            "--port",
            "0",
            "--webui-port",
            "0",
            "--cores",
            "1",
            "--memory",
            EXECUTOR_MEMORY,
        ]
        return self._part(
            f"worker-{host}",
            host,
            "org.apache.spark.deploy.worker.Worker",
            *place,
            "-d",
            str(self.folder / host),
            self.master,
        )

    def _part(self, name: str, host: str, kind: str, *arguments: str) -> Part:
        command = [str(HOME / "bin" / "spark-class"), kind, *arguments]
        return Part(name, command, self.folder, {**self._base, "SPARK_LOCAL_IP": host})

    def _status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(
                f"http://{MASTER_HOST}:{self._ui}/json/", timeout=60
            ) as answer:
                status = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ValueError, ConnectionError):
            return {}
        return dict(status)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((MASTER_HOST, port)) == 0
