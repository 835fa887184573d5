"""Ours on a secured cluster: a gateway and a daemon, each by the cluster's broker.conf and with a
certificate of its own, who knows its callers. Serves the demo, and stories on such a system.

Owns: which certificate is whose, the broker.conf of a broker that speaks TLS and asks for tokens,
and what a daemon has to be told beside it. Does not own: ZooKeeper and the bookies (`cluster`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import jwt

from cursorkeeper.demo.certificates import CLIENT
from cursorkeeper.demo.processes import LineProcess
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client import ClientSettings
from tools.brokers.secured.cluster import CURSORS_USER, Secured, lines

TENANT = "persistent://public/"
TOKENS = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
TOKEN_OF_CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
TOOL_MAX_S = 120
PROGRAM = (sys.executable, "-m", "cursorkeeper.cli.main")


class System:
    """`conf` is the broker.conf of every broker, gateway, daemon and tool; `settings` are the
    daemon's beside it.
    """

    def __init__(self, cluster: Secured, settings: Mapping[str, object] | None = None) -> None:
        self.cluster, self._settings = cluster, dict(settings or {})
        issue = cluster.authority.issue
        self.gateway_files, self.daemon_files = issue("gateway"), issue("daemon")
        self.source = issue("source", uses=(CLIENT,))
        self.stranger = issue("stranger", uses=(CLIENT,))
        key = cluster.folder / "secret.key"
        self._key = os.urandom(32)
        key.touch(0o600)
        key.write_bytes(self._key)
        self.secrets = {
            "tokenSecretKey": f"file://{key}",
            "brokerClientAuthenticationParameters": f"file://{self.token_file('admin')}",
        }
        self.conf = cluster.written("pulsar.conf", lines(self.broker_conf()))
        self._gateway_port, self._port = free_port(), free_port()
        self.metrics = f"127.0.0.1:{free_port()}"
        self.config = cluster.written("daemon.toml", toml(self.daemon_settings()))
        self.gateway = cluster.gateway(
            "gateway",
            *("--broker-conf", self.conf, "--port", str(self._gateway_port)),
            *("--tls-certificate-file-path", self.gateway_files.certificate),
            *("--tls-key-file-path", self.gateway_files.key),
            *("--tls-trust-certs-file-path", self.gateway_files.trust_certs),
            "--tls-require-trusted-client-cert-on-connect",
            *("--identities-file", cluster.written("gateway.json", self._gateways_callers())),
            *("--audit-log-file", str(cluster.folder / "gateway-audit.log")),
            java=(cluster.log_in,),
        )
        self.daemon = LineProcess(
            "daemon",
            [*PROGRAM, "run", *self.here, "--parent-pid", str(os.getpid())],
            cluster.folder / "daemon.log",
        )

    @property
    def gateway_address(self) -> str:
        return f"127.0.0.1:{self._gateway_port}"

    @property
    def address(self) -> str:
        """Of the daemon; the same over restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def here(self) -> list[str]:
        """How a daemon and every tool are told where everything is."""
        return ["--broker-conf", self.conf, "--config", self.config]

    def token(self, subject: str) -> str:
        """As Pulsar signs it."""
        return jwt.encode({"sub": subject}, self._key, "HS256")

    def token_file(self, subject: str) -> str:
        return self.cluster.written(f"{subject}.token", self.token(subject))

    def broker_conf(self) -> dict[str, str]:
        """The cluster's, with the broker's own certificate, and tokens for its clients."""
        own = self.cluster.authority.issue("broker")
        return {
            **self.cluster.broker_conf(),
            # TLS with bookies is of the third version of their protocol only
            "bookkeeperUseV2WireProtocol": "false",
            "tlsCertificateFilePath": own.certificate,
            "tlsKeyFilePath": own.key,
            "tlsTrustCertsFilePath": own.trust_certs,
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": TOKENS,
            "superUserRoles": "admin",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": own.trust_certs,
            "brokerClientAuthenticationPlugin": TOKEN_OF_CLIENT,
            **self.secrets,
            **{
                f"managedLedgerDefault{name}": "2"
                for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")
            },
        }

    def daemon_settings(self) -> dict[str, object]:
        """What broker.conf does not say."""
        files = self.daemon_files
        return {
            "name": "secured",
            "listen": self.address,
            "metrics_listen": self.metrics,
            "gateway": self.gateway_address,
            "gateway_tls_enabled": True,
            "tls_enabled": True,
            "tls_certificate_file_path": files.certificate,
            "tls_key_file_path": files.key,
            "tls_require_trusted_client_cert_on_connect": True,
            "identities_file": self.cluster.written("daemon.json", self._daemons_callers()),
            "audit_log_file": str(self.cluster.folder / "daemon-audit.log"),
            "zookeeper_auth_file": self.cluster.written("user", f"{CURSORS_USER}\n"),
            "zookeeper_acl": "creator",
            **self._settings,
        }

    @staticmethod
    def _gateways_callers() -> str:
        """The daemon's certificate is its tools', too. Operators have tokens of Pulsar's."""
        roles = ["reader", "writer", "migrator"]
        daemons = {"name": "daemons", "certificates": ["CN=daemon"], "roles": roles}
        operators = {"name": "operators", "token_subjects": ["operator"], "roles": ["reader"]}
        both = [{**one, "topics": [TENANT], "deployments": ["*"]} for one in (daemons, operators)]
        return json.dumps({"identities": both})

    @staticmethod
    def _daemons_callers() -> str:
        sources = {"name": "sources", "roles": ["source"], "certificates": ["CN=source"]}
        brokers = {"name": "brokers", "roles": ["source"], "token_subjects": ["broker"]}
        return json.dumps(
            {"identities": [{**one, "topics": [TENANT]} for one in (sources, brokers)]}
        )

    def client_settings(self) -> ClientSettings:
        return ClientSettings(name="secured", tls=self.source)

    def start(self) -> None:
        self.gateway.start()

    def stop(self) -> None:
        self.gateway.kill()

    async def start_daemon(self) -> None:
        """Returns when it is ready."""
        await self.daemon.start()
        await self.daemon.line()

    def tool(
        self, *arguments: str, here: list[str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A command of the program; its exit code is for the caller to judge."""
        command, *more = arguments
        return subprocess.run(
            [*PROGRAM, command, *(self.here if here is None else here), *more],
            capture_output=True,
            text=True,
            timeout=TOOL_MAX_S,
            check=False,
            input=stdin,
            env={**os.environ, "COLUMNS": "200"},
        )


def toml(values: Mapping[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
