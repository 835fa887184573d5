"""A whole broker on a secured cluster: TLS for everybody, signed tokens for clients, and the plugin
with TLS and a token of its own. Serves the story of such a broker.

Owns: its lines of broker.conf beside the cluster's. Does not own: the process (`tools.brokers`).
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from pathlib import Path

from cursorkeeper.demo.stack import QUICK
from daemon.tests.pulsar_plugin.jar import JAR, LINES
from daemon.tests.pulsar_plugin.one_topic import CONF
from daemon.tests.pulsar_plugin.sessions import end_session_of
from daemon.tests.secured.cluster import NAME
from daemon.tests.secured.system import TOKEN_OF_CLIENT, System
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.play import plugin_conf

VERSION = LINES["5.0"]
CLIENT_ROLE = "client"


def cluster_of(system: System, folder: Path) -> PulsarCluster:
    """With Pulsar's metadata, made by its own tool. Blocks."""
    secured = system.cluster
    made = PulsarCluster(
        folder,
        f"{NAME}:{secured.secure}",
        version=VERSION,
        java_options=[*QUICK, *secured.dialling],
    )
    made.set_up()
    # of here on a broker finds all of it in its broker.conf, but for the JAAS file
    made.java_options = [*QUICK, secured.log_in]
    return made


class SecuredBroker(PulsarBroker):
    """Its ports speak TLS only, and want a token."""

    def __init__(self, cluster: PulsarCluster, system: System) -> None:
        super().__init__(cluster, extra_class_path=[JAR])
        self._system = system
        self.conf = {
            **system.broker_conf(),
            **CONF,
            **plugin_conf(VERSION, system.address),
            "cursorKeeperTlsEnabled": "true",
            "cursorKeeperTokenFile": system.token_file("broker"),
            # BookKeeper's own client of ZooKeeper would not read metadataStoreConfigPath
            "bookkeeperMetadataServiceUri": "",
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": str(self._service_port),
            "webServicePortTls": str(self._web_port),
            "metadataStoreSessionTimeoutMillis": "40000",
        }
        self._context = ssl.create_default_context(cafile=system.source.trust_certs)

    @property
    def service_url(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self._service_port}"

    @property
    def admin_url(self) -> str:
        return f"https://127.0.0.1:{self._web_port}"

    def get(self, path: str, max_s: float = 60.0) -> bytes:
        return self.ask("GET", path, max_s=max_s)

    def ask(self, method: str, path: str, body: object = None, max_s: float = 60.0) -> bytes:
        """One call of the web service, by its super user. Raises OSError."""
        asked = urllib.request.Request(
            self.admin_url + path,
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self._system.token('admin')}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(asked, timeout=max_s, context=self._context) as answer:
            found: bytes = answer.read()
        return found

    def admit(self, namespace: str, role: str) -> None:
        """The role may produce and consume there."""
        path = f"/admin/v2/namespaces/{namespace}/permissions/{role}"
        self.ask("POST", path, ["produce", "consume"])

    def kill(self) -> None:
        """With the end of its session, as ZooKeeper would end it some seconds later."""
        was_running = self.running
        super().kill()
        if was_running:
            end_session_of(
                f"127.0.0.1:{self._system.cluster.plain}",
                f"/loadbalance/brokers/127.0.0.1:{self._web_port}",
            )


def client_conf(system: System, role: str = CLIENT_ROLE) -> dict[str, str]:
    """Of a client of Pulsar's that may connect as the role."""
    return {
        "tlsTrustCertsFilePath": system.source.trust_certs,
        "authPluginClassName": TOKEN_OF_CLIENT,
        "authParams": f"file://{system.token_file(role)}",
    }
