"""What a secured cluster is made of: an authority, certificates, users and their passwords, and the
file of identities.

Owns: the files, in a folder of this machine that every node sees at `/secrets`, and what each kind
of node is told of them. Does not own: nodes (`nodes`), who is started when (`stack`). Invariants: a
node has a certificate of its own, with its name; what is rewritten while nodes run is replaced at
once, never half written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.x509 import ObjectIdentifier
from testcontainers.core.network import Network

from cursorkeeper.demo.certificates import CLIENT, SERVER, Authority
from cursorkeeper_client.tls import TlsFiles
from testcontainers_tests.cluster.node import Node
from tools.brokers.secured.cluster import BOOKIE, ZOOKEEPER
from tools.brokers.secured.system import TOKEN_OF_CLIENT, TOKENS

INSIDE = "/secrets"
SECURE_PORT = 2281
"""Of ZooKeeper, for TLS; its other port is for its own container only."""
TOPICS = "persistent://containers/"
"""What sources here may ack."""
PULSAR = "pulsar"
"""The broker's name, which its certificate has."""
LEDGERS_USER, CURSORS_USER = "keeper", "cursors"
"""At ZooKeeper: bookies and gateways, who share the metadata of ledgers, and daemons."""
REFRESH_S = 1
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
SERVERS_LOGINS = f"""
Server {{ {DIGEST} user_{LEDGERS_USER}="secret" user_{CURSORS_USER}="secret too"; }};
Client {{ {DIGEST} username="{LEDGERS_USER}" password="secret"; }};
Bookie {{ {DIGEST} user_broker="secret"; }};
"""
BROKERS_LOGINS = """
Client {{ {digest} username="{user}" password="{zookeeper}"; }};
BookKeeper {{ {digest} username="broker" password="{bookies}"; }};
"""
ON_ITS_OWN = "clientPortAddress=127.0.0.1\n"
"""The plain port is for who is inside of the container."""


@dataclass(frozen=True)
class Credentials:
    """What a node of a secured cluster has beside its own command."""

    arguments: tuple[str, ...] = ()
    java: tuple[str, ...] = ()
    volumes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


OPEN = Credentials()
"""Of a cluster that asks for nothing."""


class Secrets:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        # containers run as a user of their own
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.folder = folder
        self._authority = Authority(folder)
        self._other = Authority(folder / "other", "other")
        (folder / "other").chmod(0o755)
        self._issued = dict[str, TlsFiles]()
        self.volumes = {str(folder): {"bind": INSIDE, "mode": "ro"}}
        self.source = self.client("source")
        self.stranger = self.foreign("source")
        self.nobody = TlsFiles(trust_certs=str(self._authority.trust))
        self._token_key = os.urandom(32)
        self.deployments = ["*"]
        """Whose ledgers daemons may have to do with; see `narrow`."""
        self._write_identities()
        self._servers_jaas = self.written("servers.jaas", SERVERS_LOGINS)
        self._brokers_jaas = self.written("broker.jaas", self.brokers_logins())

    async def begin(self, network: Network) -> list[Node]:
        """Starts what must be there before any node of the cluster, and says what that is."""
        return []

    # --- files ---

    def issued(self, name: str, *uses: ObjectIdentifier) -> TlsFiles:
        """A certificate of the cluster's authority; of one name there is one. `uses`: serving and
        dialling, if not said.
        """
        if name not in self._issued:
            self._issued[name] = self._authority.issue(name, uses=uses or (SERVER, CLIENT))
        return self._issued[name]

    def client(self, name: str) -> TlsFiles:
        """Of somebody who only dials, unless it is a node's."""
        return self.issued(name, CLIENT)

    def foreign(self, name: str) -> TlsFiles:
        """The same name, of the other authority; believes the cluster's."""
        files = self._other.issue(name, uses=(CLIENT,))
        return TlsFiles(files.certificate, files.key, str(self._authority.trust))

    def inside(self, file: str | Path) -> str:
        """Where nodes see it."""
        return f"{INSIDE}/{Path(file).relative_to(self.folder)}" if file else ""

    def written(self, name: str, text: str) -> str:
        """A file of that content, as nodes see it."""
        new = self.folder / f"{name}.new"
        new.write_text(text)
        new.rename(self.folder / name)
        return self.inside(self.folder / name)

    def narrow(self, deployment: str) -> None:
        """From now on daemons have to do with this deployment's ledgers only."""
        self.deployments = [deployment]
        self._write_identities()

    def _write_identities(self) -> None:
        def identity(name: str, role: str, *certificates: str, **more: Any) -> dict[str, Any]:
            subjects = [f"CN={of}" for of in certificates or (name,)]
            return {"name": name, "roles": [role], "certificates": subjects, **more}

        elsewhere = "persistent://neighbour/"
        entries = [
            identity("source", "source", topics=[TOPICS]),
            identity("daemons", "writer", "daemon-1", "daemon-2", deployments=self.deployments),
            identity("brokers", "source", PULSAR, topics=["persistent://public/"]),
            identity("jobs", "reader", topics=[TOPICS], deployments=["*"]),
            identity("neighbour", "source", topics=[elsewhere]),
            identity("other-daemon", "writer", topics=[elsewhere], deployments=["another"]),
        ]
        self.identities = self.written("identities.json", json.dumps({"identities": entries}))

    def _both(self, files: TlsFiles) -> str:
        """Key and certificate in one file, as ZooKeeper takes them."""
        name = f"{Path(files.key).stem}-{Path(files.key).parent.name}.both"
        return self.written(name, Path(files.key).read_text() + Path(files.certificate).read_text())

    @staticmethod
    def brokers_logins(*, zookeeper: str = "secret", bookies: str = "secret") -> str:
        """A broker's JAAS file, with these passwords."""
        return BROKERS_LOGINS.format(
            digest=DIGEST, user=LEDGERS_USER, zookeeper=zookeeper, bookies=bookies
        )

    def zookeeper_client(self, files: TlsFiles) -> dict[str, str]:
        """Settings of ZooKeeper's own client."""
        return {
            "zookeeper.client.secure": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keyStore.location": self._both(files),
            "zookeeper.ssl.keyStore.type": "PEM",
            "zookeeper.ssl.trustStore.location": self.inside(files.trust_certs),
            "zookeeper.ssl.trustStore.type": "PEM",
            # without it ZooKeeper's client has no DIGEST-MD5
            "zookeeper.fips-mode": "false",
        }

    # --- what each kind of node is told ---

    def of_zookeeper(self, name: str) -> Credentials:
        server = self.issued(name, SERVER)
        conf = (ON_ITS_OWN + ZOOKEEPER).format(
            port=SECURE_PORT, both=self._both(server), trust=self.inside(server.trust_certs)
        )
        arguments = ("--zookeeper-conf", self.written(f"{name}.conf", conf))
        return Credentials(arguments, (self._logs_in(self._servers_jaas),), self.volumes)

    def of_bookie(self, name: str) -> Credentials:
        """Also of who prepares ZooKeeper for bookies."""
        files = self.issued(name)
        conf = BOOKIE.format(
            key=self.inside(files.key),
            certificate=self.inside(files.certificate),
            trust=self.inside(files.trust_certs),
        )
        dialling = (f"-D{key}={value}" for key, value in self.zookeeper_client(files).items())
        return Credentials(
            ("--bookie-conf", self.written(f"{name}.conf", conf)),
            (self._logs_in(self._servers_jaas), *dialling),
            self.volumes,
        )

    def of_gateway(
        self, name: str, zookeeper: str, *, jaas: str = "", **changed: str | None
    ) -> Credentials:
        """A broker's files, its own certificate and the identities. `changed`: other values of the
        `broker.conf`, None: without the key. `jaas`: another JAAS file.
        """
        files = self.issued(name)
        own = (
            *("--tls-certificate-file-path", self.inside(files.certificate)),
            *("--tls-key-file-path", self.inside(files.key)),
            *("--tls-trust-certs-file-path", self.inside(files.trust_certs)),
            "--tls-require-trusted-client-cert-on-connect",
            *("--tls-cert-refresh-check-duration-sec", str(REFRESH_S)),
            *("--identities-file", self.identities),
            *("--audit-log-file", "-"),
        )
        conf = {**self._broker_conf(name, zookeeper), **changed}
        text = _lines({key: value for key, value in conf.items() if value is not None})
        return Credentials(
            ("--broker-conf", self.written(f"{name}-broker.conf", text), *own),
            (self._logs_in(jaas or self._brokers_jaas),),
            self.volumes,
        )

    def _broker_conf(self, name: str, zookeeper: str) -> dict[str, str]:
        broker = self.client("broker")
        client = _lines(self.zookeeper_client(broker))
        return {
            "metadataStoreUrl": f"zk:{zookeeper}",
            "metadataStoreConfigPath": self.written(f"{name}-zookeeper-client.conf", client),
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFilePath": self.inside(broker.key),
            "bookkeeperTLSCertificateFilePath": self.inside(broker.certificate),
            "bookkeeperTLSTrustCertsFilePath": self.inside(broker.trust_certs),
            "bookkeeperClientAuthenticationPlugin": (
                "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
            ),
            "bookkeeperClientAuthenticationParametersName": "saslJaasClientSectionName",
            "bookkeeperClientAuthenticationParameters": "BookKeeper",
            "bookkeeper_zkEnableSecurity": "true",
        }

    def token(self, subject: str) -> str:
        """As Pulsar signs it."""
        return jwt.encode({"sub": subject}, self._token_key, "HS256")

    def token_file(self, subject: str) -> str:
        """Where nodes see it."""
        return self.written(f"{subject}.token", self.token(subject))

    def of_broker(self, zookeeper: str) -> dict[str, str]:
        """Lines of a broker that shows a certificate of its own, and wants a token of its clients.
        Its super user is `admin`.
        """
        own = self.issued(PULSAR)
        (self.folder / "token.key").write_bytes(self._token_key)
        return {
            **self._broker_conf(PULSAR, zookeeper),
            # TLS with bookies is of the third version of their protocol only
            "bookkeeperUseV2WireProtocol": "false",
            # BookKeeper's own client of ZooKeeper would not read metadataStoreConfigPath
            "bookkeeperMetadataServiceUri": "",
            "tlsCertificateFilePath": self.inside(own.certificate),
            "tlsKeyFilePath": self.inside(own.key),
            "tlsTrustCertsFilePath": self.inside(own.trust_certs),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": TOKENS,
            "tokenSecretKey": f"file://{self.inside(self.folder / 'token.key')}",
            "superUserRoles": "admin",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.inside(own.trust_certs),
            "brokerClientAuthenticationPlugin": TOKEN_OF_CLIENT,
            "brokerClientAuthenticationParameters": f"file://{self.token_file('admin')}",
        }

    def of_pulsars_login(self) -> tuple[str, ...]:
        """Options of a broker's JVM."""
        return (self._logs_in(self._brokers_jaas),)

    def of_pulsars_tools(self) -> tuple[str, ...]:
        """Of a tool that reads no broker.conf, too."""
        dialling = self.zookeeper_client(self.client("broker")).items()
        return (*self.of_pulsars_login(), *(f"-D{key}={value}" for key, value in dialling))

    @staticmethod
    def users() -> dict[str, str]:
        """What the secured forms want of a gateway and a daemon, by the names of their files."""
        return {
            "zookeeper-user-daemon": f"sasl:{CURSORS_USER}:secret too\n",
            "zookeeper-user-gateway": f"sasl:{LEDGERS_USER}:secret\n",
            "bookkeeper-user": "sasl:broker:secret\n",
        }

    def of_daemon(self, name: str, *, password: str = "secret too") -> dict[str, object]:
        """A daemon's settings."""
        files = self.issued(name)
        user = self.written(f"{name}-user", f"sasl:{CURSORS_USER}:{password}\n")
        return {
            "insecure": "false",
            "tls_enabled": "true",
            **self.files_of_daemon(files),
            # for its own health command
            "tls_server_name": name,
            "tls_require_trusted_client_cert_on_connect": "true",
            "tls_cert_refresh_check_duration_sec": REFRESH_S,
            "gateway_tls_enabled": "true",
            "identities_file": self.identities,
            "audit_log_file": "-",
            "zookeeper_tls_enabled": "true",
            "zookeeper_auth_file": user,
            "zookeeper_acl": "creator",
        }

    def files_of_daemon(self, files: TlsFiles) -> dict[str, object]:
        """The settings that name these."""
        return {
            "tls_certificate_file_path": self.inside(files.certificate),
            "tls_key_file_path": self.inside(files.key),
            "tls_trust_certs_file_path": self.inside(files.trust_certs),
        }

    def of_source(self, files: TlsFiles) -> Credentials:
        """A source that shows this certificate."""
        arguments = (
            *("--certificate", self.inside(files.certificate)),
            *("--key", self.inside(files.key)),
            *("--trust-certs", self.inside(files.trust_certs)),
        )
        return Credentials(arguments, (), self.volumes)

    @staticmethod
    def _logs_in(jaas: str) -> str:
        return f"-Djava.security.auth.login.config={jaas}"


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())
