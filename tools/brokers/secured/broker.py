"""Whole brokers on a secured cluster: TLS for everybody, signed tokens for clients, and the plugin
with TLS and a token of its own. Serves the demo, and stories of such brokers.

Owns: their lines of broker.conf beside the cluster's. Does not own: the process
(`tools.brokers.cluster`).
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from cursorkeeper.demo.stack import QUICK
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.secured.cluster import NAME
from tools.brokers.secured.system import TOKEN_OF_CLIENT, System
from tools.brokers.sessions import end_session_of

CLIENT_ROLE = "client"


def cluster_of(system: System, folder: Path, version: str) -> PulsarCluster:
    """With Pulsar's metadata, made by its own tool. Blocks."""
    secured = system.cluster
    made = PulsarCluster(
        folder,
        f"{NAME}:{secured.secure}",
        version=version,
        java_options=[*QUICK, *secured.dialling],
    )
    made.set_up()
    # of here on a broker finds all of it in its broker.conf, but for the JAAS file
    made.java_options = [*QUICK, secured.log_in]
    return made


def plugin_link(system: System) -> dict[str, str]:
    """Lines of broker.conf, beside the daemon's address: how the plugin proves itself to it."""
    return {
        "cursorKeeperTlsEnabled": "true",
        "cursorKeeperTokenFile": system.token_file("broker"),
    }


class SecuredBroker(PulsarBroker):
    """Its ports speak TLS only, and want a token. `conf`, `extra_class_path`: as of any broker."""

    def __init__(
        self,
        cluster: PulsarCluster,
        system: System,
        name: str = "broker",
        *,
        conf: Mapping[str, str],
        extra_class_path: Sequence[Path] = (),
    ) -> None:
        super().__init__(cluster, name, extra_class_path=extra_class_path)
        self._system = system
        self.conf = {
            **system.broker_conf(),
            **conf,
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
