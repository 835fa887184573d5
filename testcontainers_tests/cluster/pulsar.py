"""A whole Pulsar broker in a secured cluster of containers: it speaks TLS only, wants a token of
every client, and has the plugin; and clients of Pulsar's own that prove themselves to it.

Owns: their command lines, and the broker's lines of broker.conf. Does not own: certificates, users
and identities (`secrets`), which messages are acked (`java/brokers/traffic/Traffic.java`). Pulsar's
classes are this machine's, as Maven has resolved them (`make broker-classes`): every node sees them
at `/jars`.
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from daemon.tests.pulsar_plugin.one_topic import CONF
from testcontainers_tests.cluster.conditions import LIMIT_S, Hopeless, until
from testcontainers_tests.cluster.images import PLUGIN, ROOT, build, once_a_run
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import QUICK_JVM, STREAM_PORT
from testcontainers_tests.cluster.secrets import PULSAR, Secrets
from testcontainers_tests.cluster.stack import ContainerStack
from tools.brokers.cluster import LEAN, LOG4J, OPENS, class_path
from tools.brokers.play import plugin_conf
from tools.brokers.secured.system import TOKEN_OF_CLIENT
from tools.brokers.traffic import SOURCE, SUBSCRIPTION, compiled

T = TypeVar("T")
VERSION = "5.0.0-M1"
"""Its receipts mean durable by themselves."""
JARS, PLUGIN_INSIDE = "/jars", "/plugin/plugin.jar"
SERVICE_PORT, WEB_PORT = 6651, 8443
SESSION_MS = 6_000
"""Of the broker at ZooKeeper: after that its successor is let in."""
STARTS_MAX = 4
"""A broker that meets its predecessor's session ends its start; its supervisor begins again."""
ANSWER_MAX_S = 10
TOPIC = "persistent://public/default/containers"


class Pulsar:
    """What the nodes of one version have in common."""

    def __init__(self, stack: ContainerStack) -> None:
        assert stack.secrets is not None
        self.stack, self.secrets = stack, stack.secrets
        with once_a_run("image-java") as is_done:
            tag = "cursorkeeper-java:test"
            self.image = tag if is_done else build(tag, ROOT, "java/Dockerfile", "java")
        paths = class_path(VERSION).split(os.pathsep)
        here = os.path.commonpath(paths)
        self._jars = [f"{JARS}/{os.path.relpath(path, here)}" for path in paths]
        self._log4j = self.secrets.written("log4j2.properties", LOG4J)
        traffic = compiled(VERSION, self.secrets.folder / "traffic")
        self._traffic = self.secrets.inside(traffic)
        self.volumes = {
            **self.secrets.volumes,
            here: {"bind": JARS, "mode": "ro"},
            str(PLUGIN): {"bind": PLUGIN_INSIDE, "mode": "ro"},
        }
        self.broker = BrokerNode(self)
        stack.others.append(self.broker)

    def java(self, *words: str, heap_mib: int, classes: Sequence[str] = ()) -> list[str]:
        """A command line: options, the main class, its arguments."""
        return [
            *("java", f"-Xmx{heap_mib}m", f"-XX:MaxDirectMemorySize={heap_mib}m"),
            *("-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
            f"-Dlog4j.configurationFile={self._log4j}",
            *(word for package in OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
            *("-cp", os.pathsep.join([*classes, *self._jars])),
            *words,
        ]

    def node(
        self, name: str, command: Sequence[str], java: Sequence[str] = (), **more: object
    ) -> Node:
        """One that is started from the JDK's image, as nobody of note."""
        return Node(name, self.image, command, self.stack.network, **self.as_nobody(java, **more))

    def as_nobody(self, java: Sequence[str] = (), **more: object) -> dict[str, object]:
        options = " ".join((QUICK_JVM["JAVA_TOOL_OPTIONS"], *java))
        return {
            "env": {"JAVA_TOOL_OPTIONS": options},
            "volumes": self.volumes,
            "user": "10001:10001",
            # native libraries are unpacked there
            "tmpfs": {"/tmp": "mode=1777,exec"},
            "memory": "1200m",
            "working_dir": "/tmp",
            **more,
        }

    async def set_up(self) -> None:
        """The cluster's metadata, by Pulsar's own tool; then the broker is healthy."""
        stack = self.stack
        flags = {
            "cluster": "containers",
            "metadata-store": f"zk:{stack.zookeeper_address}",
            "configuration-metadata-store": f"zk:{stack.zookeeper_address}",
            "existing-bk-metadata-service-uri": stack.uri,
            # asked for, and used only between clusters
            "web-service-url": "http://127.0.0.1:8080",
            "broker-service-url": "pulsar://127.0.0.1:6650",
        }
        main = "org.apache.pulsar.PulsarClusterMetadataSetup"
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        tool = self.node(
            "pulsar-metadata",
            self.java(main, *words, heap_mib=128),
            self.secrets.of_pulsars_tools(),
        )
        try:
            tool.start()
            assert tool.docker.wait(timeout=LIMIT_S)["StatusCode"] == 0, tool.log_tail()
        finally:
            tool.remove()
        self.broker.start()
        await self.broker.ready()

    async def traffic(self, command: str, messages: int, shape: type[T]) -> T:
        """Runs a client to its end; the last line that it says, as a `shape`."""
        client = self.client(command, messages)
        try:
            client.start()
            return await self.last_line(client, shape)
        finally:
            client.remove()

    def client(self, command: str, messages: int) -> Node:
        """A client of Pulsar's own, not started; one that consumes stays connected when it has said
        all.
        """
        arguments = [command, self.broker.url, TOPIC, SUBSCRIPTION, str(messages)]
        settings = {
            "tlsTrustCertsFilePath": self.secrets.inside(self.secrets.nobody.trust_certs),
            "authPluginClassName": TOKEN_OF_CLIENT,
            "authParams": f"file://{self.secrets.token_file('admin')}",
        }
        java = [f"-Dpulsar.client.{name}={value}" for name, value in settings.items()]
        main = self.java(SOURCE.stem, *arguments, heap_mib=256, classes=[self._traffic])
        every_second = "-Dtraffic.every-second=true"
        return self.node(f"pulsar-{command}", main, [every_second, *java], stdin_open=True)

    async def last_line(self, client: Node, shape: type[T]) -> T:
        """What it says when it is done; Pulsar's client may say more behind that."""

        def look() -> Mapping[str, object] | None:
            has_ended = client.status != "running"
            if lines := client.json_lines("done"):
                return lines[-1]
            if has_ended:
                raise Hopeless(f"{client.name} ended\n{client.log_tail()}")
            return None

        try:
            return msgspec.convert(await until(look, f"{client.name} is done"), shape)
        except AssertionError as e:
            e.add_note(client.log_tail())
            raise


class BrokerNode(Node):
    """The broker, with the plugin; its daemon is the stack's first."""

    def __init__(self, pulsar: Pulsar) -> None:
        secrets, stack = pulsar.secrets, pulsar.stack
        conf = {
            **secrets.of_broker(stack.zookeeper_address),
            "clusterName": "containers",
            "configurationMetadataStoreUrl": f"zk:{stack.zookeeper_address}",
            "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": str(SERVICE_PORT),
            "webServicePortTls": str(WEB_PORT),
            "bindAddress": "0.0.0.0",
            "advertisedAddress": PULSAR,
            **LEAN,
            **CONF,
            **plugin_conf(VERSION, f"{stack.daemon.name}:{STREAM_PORT}"),
            "cursorKeeperTlsEnabled": "true",
        }
        text = "".join(f"{key}={value}\n" for key, value in conf.items())
        main = "org.apache.pulsar.PulsarBrokerStarter"
        file = secrets.written("pulsar.conf", text)
        command = pulsar.java(main, "--broker-conf", file, heap_mib=400, classes=[PLUGIN_INSIDE])
        super().__init__(
            PULSAR,
            pulsar.image,
            command,
            stack.network,
            ports=[WEB_PORT],
            **pulsar.as_nobody(secrets.of_pulsars_login()),  # type: ignore[arg-type]
        )
        self.url = f"pulsar+ssl://{PULSAR}:{SERVICE_PORT}"
        self._secrets: Secrets = secrets
        self._context = ssl.create_default_context(cafile=secrets.nobody.trust_certs)
        self._context.check_hostname = False

    def ask(self, path: str) -> bytes:
        """One GET of the web service, by its super user. Raises OSError."""
        asked = urllib.request.Request(f"https://{self.address(WEB_PORT)}{path}")
        asked.add_header("Authorization", f"Bearer {self._secrets.token('admin')}")
        with urllib.request.urlopen(asked, timeout=ANSWER_MAX_S, context=self._context) as answer:
            found: bytes = answer.read()
        return found

    def is_refused(self) -> bool:
        """Whether it refuses who has no token."""
        where = f"https://{self.address(WEB_PORT)}/admin/v2/tenants"
        try:
            urllib.request.urlopen(where, timeout=ANSWER_MAX_S, context=self._context).close()
        except urllib.error.HTTPError as e:
            return e.code == 401
        return False

    async def ready(self, limit_s: float = LIMIT_S) -> Mapping[str, Any]:
        """It serves; started again, as a supervisor does, while its predecessor's session lasts."""
        starts = 1

        def look() -> bool:
            nonlocal starts
            if self.status == "exited":
                if starts == STARTS_MAX:
                    raise Hopeless(f"{self.name} does not start\n{self.log_tail()}")
                starts += 1
                self.start_again()
            return self.ask("/admin/v2/brokers/health") == b"ok"

        await until(look, f"{self.name} is healthy", limit_s)
        return {}
