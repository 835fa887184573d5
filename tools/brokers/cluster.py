"""Real Pulsar brokers beside the embedded stack, from the class paths that `make broker-classes`
resolves.

For the demo, and for every test that needs a broker. Owns: the cluster's metadata, broker.conf,
ports, the wait until a broker is healthy. Does not own: the processes' life (`process`), ZooKeeper
and the bookies (`standalone`, `cluster`). Invariants: a broker keeps its ports, its settings and
its log over restarts; it listens on 127.0.0.1 only; no setting says anything about cursors that the
caller did not say; every process ends with this one, however this one ends. Calls block; from
asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.request
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.demo.stack.process import ServerProcess

VERSIONS = ("4.0.7", "4.2.4", "5.0.0-M1")
"""Those of `java/brokers/`."""
DEFAULT_VERSION = "4.2.4"
CLASS_PATHS_IN_REPOSITORY = Path(".build/brokers")
STOP_MAX_S = 60.0
_ERROR = re.compile(r"^\d{4}-\S+ ERROR .*(?:\n(?!\d{4}-).*)*", re.MULTILINE)
_MET_PREDECESSOR = "MetadataStoreException$"
"""In what Pulsar logs then: NotFound, BadVersion or LockBusy."""
_ERRORS_LOOK_BYTES, _ERRORS_MAX = 16 << 20, 8_000
_POLL_S, _HEALTH_MAX_S, _ANSWER_MAX_S = 0.2, 10.0, 60.0
LEAN = {
    "functionsWorkerEnabled": "false",
    "webSocketServiceEnabled": "false",
    "loadBalancerEnabled": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "managedLedgerCacheSizeMB": "64",
}
"""What a small broker does without. Nothing about cursors."""
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
LOG4J = """\
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_SPAWNER = ThreadPoolExecutor(1, "pulsar-spawner")
"""Linux ties a child to the thread that made it, not to the process: this one lasts as long as the
process.
"""


def class_path(version: str = DEFAULT_VERSION, here: Path = Path(__file__)) -> str:
    """Of a whole broker, as `java -cp` takes it. `here`: the place of this file. Raises
    StackError.
    """
    listed = here.resolve().parents[2] / CLASS_PATHS_IN_REPOSITORY / f"{version}.classpath"
    if version not in VERSIONS:
        raise StackError(
            f"Pulsar {version} is none of those that java/brokers has: {', '.join(VERSIONS)}"
        )
    if not listed.is_file():
        raise StackError(f"{listed} is missing. What to do: `make broker-classes`, in a checkout")
    return listed.read_text().strip()


def spawn_tied(command: Sequence[str], log: BinaryIO, folder: Path) -> subprocess.Popen[bytes]:
    """A child that is killed when this process ends, also by SIGKILL. Its output goes to the
    log.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise StackError(
            "there is no `setpriv` on PATH, which ends brokers with their tests. What to do: "
            "install util-linux"
        )
    return _SPAWNER.submit(
        lambda: subprocess.Popen(
            [setpriv, "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
        )
    ).result()


class _PulsarProcess(ServerProcess):
    """A main class of Pulsar's, with the class path of a version behind `extra_class_path`."""

    def __init__(
        self,
        name: str,
        cluster: PulsarCluster,
        version: str,
        *,
        extra_class_path: Sequence[Path] = (),
        heap_mib: int,
        start_max_s: float,
    ) -> None:
        super().__init__(name, cluster.folder / f"{name}.log", start_max_s)
        self.cluster, self.folder, self.version = cluster, cluster.folder, version
        self._heap_mib, self._extra_class_path = heap_mib, list(extra_class_path)

    def _java(self, main: str, arguments: Sequence[str]) -> list[str]:
        classes = os.pathsep.join([*map(str, self._extra_class_path), class_path(self.version)])
        settings = self.folder / "log4j2.properties"
        settings.write_text(LOG4J)
        return [
            "java",
            f"-Xmx{self._heap_mib}m",
            f"-XX:MaxDirectMemorySize={self._heap_mib}m",
            "-XX:+UseSerialGC",
            *self.cluster.java_options,
            f"-Djava.io.tmpdir={self.temp.absolute()}",
            f"-Dlog4j.configurationFile={settings.absolute()}",
            "-Djava.net.preferIPv4Stack=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            *(word for package in OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
            "-cp",
            classes,
            main,
            *arguments,
        ]

    def _check_alive(self, process: subprocess.Popen[bytes], since: float) -> None:
        if process.poll() is not None:
            errors = self._errors()
            raise self._failed(
                f"ended with status {process.returncode} before it was ready"
                + (f", after these errors:\n{errors}\n" if errors else "")
            )
        if time.monotonic() - since > self._start_max_s:
            raise self._failed(f"was not ready within {self._start_max_s:.0f} s")

    def _errors(self) -> str:
        """What this start logged as errors, with their stack traces: the end of the log is of its
        way down, which is longer.
        """
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read(_ERRORS_LOOK_BYTES).decode(errors="replace")
        return "\n".join(_ERROR.findall(text))[:_ERRORS_MAX]


class PulsarBroker(_PulsarProcess):
    """One broker of a cluster. `ready` has its `service_url` and `admin_url`; so have the
    properties, also before it runs.

    `version`: the cluster's, unless said. `conf`: lines of broker.conf; a change of it counts from
    the next start on. `extra_class_path`: jars before Pulsar's own.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        name: str = "broker",
        *,
        version: str = "",
        conf: Mapping[str, str] | None = None,
        extra_class_path: Sequence[Path] = (),
        heap_mib: int = 512,
    ) -> None:
        super().__init__(
            name,
            cluster,
            version or cluster.version,
            extra_class_path=extra_class_path,
            heap_mib=heap_mib,
            start_max_s=120.0,
        )
        self.conf = dict(conf or {})
        self._service_port, self._web_port = free_port(), free_port()
        cluster.brokers.append(self)

    @property
    def service_url(self) -> str:
        """What a client connects to; the same over restarts."""
        return f"pulsar://127.0.0.1:{self._service_port}"

    @property
    def admin_url(self) -> str:
        """The web service: /admin/v2/..., /metrics/."""
        return f"http://127.0.0.1:{self._web_port}"

    def get(self, path: str, max_s: float = _ANSWER_MAX_S) -> bytes:
        """One GET of the web service, e.g. /metrics/. Raises OSError."""
        with urllib.request.urlopen(self.admin_url + path, timeout=max_s) as answer:
            found: bytes = answer.read()
        return found

    def start(self) -> Mapping[str, object]:
        """As a service manager starts it: once more, if it met its predecessor.

        The session of a broker that was killed may end between the two steps in which the next one
        takes over its locks. Pulsar then gives up the start.
        """
        try:
            return super().start()
        except StackError as e:
            if _MET_PREDECESSOR not in str(e):
                raise
            warnings.warn(f"started once more: {e}", stacklevel=2)
            return super().start()

    def stop(self, max_s: float = STOP_MAX_S) -> None:
        """A clean stop: topics are unloaded, cursors closed. SIGKILL if it takes longer."""
        super().stop(max_s)

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        lines = {
            "clusterName": self.cluster.name,
            "metadataStoreUrl": f"zk:{self.cluster.zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{self.cluster.configuration}",
            "bookkeeperMetadataServiceUri": self.cluster.bookkeeper,
            "brokerServicePort": str(self._service_port),
            "webServicePort": str(self._web_port),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            **LEAN,
            **self.conf,
        }
        conf = self.folder / f"{self.name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return spawn_tied(
            self._java(
                "org.apache.pulsar.PulsarBrokerStarter", ["--broker-conf", str(conf.absolute())]
            ),
            log,
            self.folder,
        )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> Mapping[str, object]:
        began = time.monotonic()
        while not self._is_healthy():
            self._check_alive(process, began)
            time.sleep(_POLL_S)
        return {
            "service_url": self.service_url,
            "admin_url": self.admin_url,
            "seconds": time.monotonic() - began,
        }

    def _is_healthy(self) -> bool:
        try:
            return self.get("/admin/v2/brokers/health", _HEALTH_MAX_S) == b"ok"
        except (OSError, HTTPException):  # it does not listen yet, or says 500
            return False


class PulsarCluster:
    """Brokers over one ZooKeeper and its bookies. A context manager: writes the cluster's metadata,
    and stops its brokers at the end.

    `folder` holds settings and logs. A second cluster over the same ZooKeeper is not possible: its
    names would be the same. `java_options`: of every process that it starts, e.g. `QUICK`.
    `configuration`: the ZooKeeper of what clusters share, if another one.
    """

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        *,
        version: str = DEFAULT_VERSION,
        name: str = "local",
        java_options: Sequence[str] = (),
        configuration: str = "",
    ) -> None:
        self.folder, self.zookeeper, self.version, self.name = folder, zookeeper, version, name
        self.configuration = configuration or zookeeper
        self.bookkeeper = f"zk+hierarchical://{zookeeper}/ledgers"
        self.java_options = list(java_options)
        self.brokers: list[PulsarBroker] = []

    def set_up(self) -> PulsarCluster:
        """The metadata, by Pulsar's own tool, with its tenant `public` and namespace
        `public/default`. Raises StackError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with _MetadataSetUp(self):
            return self

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def __enter__(self) -> PulsarCluster:
        return self.set_up()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop() if kind is None else self.kill()


class _MetadataSetUp(_PulsarProcess):
    """Is ready when it has ended. A failure of it may leave it waiting for ever (seen with
    5.0.0-M1), which the limit ends.
    """

    def __init__(self, cluster: PulsarCluster) -> None:
        super().__init__("metadata", cluster, cluster.version, heap_mib=128, start_max_s=60.0)

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        flags = {
            "cluster": self.cluster.name,
            "metadata-store": f"zk:{self.cluster.zookeeper}",
            "configuration-metadata-store": f"zk:{self.cluster.configuration}",
            "existing-bk-metadata-service-uri": self.cluster.bookkeeper,
            # Asked for, and used only between clusters.
            "web-service-url": "http://127.0.0.1:8080",
            "broker-service-url": "pulsar://127.0.0.1:6650",
        }
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return spawn_tied(
            self._java("org.apache.pulsar.PulsarClusterMetadataSetup", words), log, self.folder
        )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> Mapping[str, object]:
        try:
            status = process.wait(self._start_max_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end within {self._start_max_s:.0f} s") from None
        if status != 0:
            raise self._failed(f"ended with status {status}")
        return {}
