"""A cluster whose ZooKeeper and bookies want certificates and users, as separate processes, and
what an operator has for a broker of it: broker.conf, the file of ZooKeeper's client, a JAAS file.

Serves the demo, and the tests of gateways, daemons and whole brokers on secured systems.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cursorkeeper.demo.certificates import CLIENT, SERVER, Authority
from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client.tls import TlsFiles

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
NAME = "localhost"
"""ZooKeeper's client looks up the name of an address that it is given."""
ZOOKEEPER = """
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
ssl.keyStore.location={both}
ssl.keyStore.type=PEM
ssl.trustStore.location={trust}
ssl.trustStore.type=PEM
ssl.clientAuth=need
"""
BOOKIE = """
zkEnableSecurity=true
tlsProvider=JDK
tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory
tlsClientAuthentication=true
tlsKeyStoreType=PEM
tlsKeyStore={key}
tlsCertificatePath={certificate}
tlsTrustStoreType=PEM
tlsTrustStore={trust}
bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory
saslJaasClientAllowedIds=broker
"""
LEDGERS_USER, CURSORS_USER = "sasl:keeper:secret", "sasl:cursors:secret too"
"""At ZooKeeper: bookies, brokers and gateways, who share the metadata of ledgers, and daemons."""
LOGINS = """
Server {{ {digest} user_keeper="secret" user_cursors="secret too"; }};
Client {{ {digest} username="keeper" password="{zookeeper}"; }};
Bookie {{ {digest} user_broker="secret"; }};
BookKeeper {{ {digest} username="broker" password="{bookies}"; }};
"""


def both(files: TlsFiles) -> str:
    """Key and certificate in one file, as ZooKeeper takes them."""
    made = Path(files.key).with_suffix(".both")
    made.write_bytes(Path(files.key).read_bytes() + Path(files.certificate).read_bytes())
    return str(made)


def lines(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


class Secured:
    """The servers, and what an operator has for a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.server = self.authority.issue("server", NAME, uses=(SERVER,))
        self.bookie = self.authority.issue("bookie")
        self.broker = self.authority.issue("broker", uses=(CLIENT,))
        self.other = Authority(folder / "other", "other").issue("broker", uses=(CLIENT,))
        self.plain, self.secure = free_port(), free_port()
        self.jaas = self.written("servers.jaas", self.logins())
        conf = ZOOKEEPER.format(
            port=self.secure, both=both(self.server), trust=self.server.trust_certs
        )
        self.zookeeper = self._process(
            "zookeeper",
            "zookeeper",
            *("--data-dir", str(folder / "zookeeper"), "--port", str(self.plain)),
            *("--zookeeper-conf", self.written("zoo.cfg", conf)),
            java=(self.log_in,),
        )
        self.dialling = [
            self.log_in,
            *(f"-D{key}={value}" for key, value in self.zookeeper_client(self.bookie).items()),
        ]
        uri = f"zk+null://{NAME}:{self.secure}/ledgers"
        bookies = self.written(
            "bookie.conf",
            BOOKIE.format(
                key=self.bookie.key,
                certificate=self.bookie.certificate,
                trust=self.bookie.trust_certs,
            ),
        )
        self.init = self._process(
            "init-cluster",
            "init-cluster",
            *("--metadata-service-uri", uri.replace("null", "hierarchical")),
            *("--bookie-conf", bookies),
            java=self.dialling,
        )
        self.bookies = [
            self._process(
                f"bookie-{number}",
                "bookie",
                *("--data-dir", str(folder / f"bookie-{number}"), "--port", str(free_port())),
                *("--metadata-service-uri", uri, "--bookie-conf", bookies),
                java=self.dialling,
            )
            for number in range(3)
        ]

    @property
    def log_in(self) -> str:
        return f"-Djava.security.auth.login.config={self.jaas}"

    @staticmethod
    def logins(*, zookeeper: str = "secret", bookies: str = "secret") -> str:
        return LOGINS.format(digest=DIGEST, zookeeper=zookeeper, bookies=bookies)

    def written(self, name: str, text: str) -> str:
        file = self.folder / name
        file.touch(0o600)
        file.write_text(text)
        return str(file)

    def zookeeper_client(self, files: TlsFiles) -> dict[str, str]:
        """As a broker has it in the file of metadataStoreConfigPath."""
        return {
            "zookeeper.client.secure": "true",
            "zookeeper.clientCnxnSocket": NETTY,
            "zookeeper.ssl.keyStore.location": both(files),
            "zookeeper.ssl.keyStore.type": "PEM",
            "zookeeper.ssl.trustStore.location": files.trust_certs,
            "zookeeper.ssl.trustStore.type": "PEM",
            # without it ZooKeeper's client has no DIGEST-MD5
            "zookeeper.fips-mode": "false",
        }

    def broker_conf(self) -> dict[str, str]:
        return {
            "metadataStoreUrl": f"zk:{NAME}:{self.secure}",
            "metadataStoreConfigPath": self.written(
                "zookeeper-client.conf", lines(self.zookeeper_client(self.broker))
            ),
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFilePath": self.broker.key,
            "bookkeeperTLSCertificateFilePath": self.broker.certificate,
            "bookkeeperTLSTrustCertsFilePath": self.broker.trust_certs,
            "bookkeeperClientAuthenticationPlugin": (
                "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
            ),
            "bookkeeperClientAuthenticationParametersName": "saslJaasClientSectionName",
            "bookkeeperClientAuthenticationParameters": "BookKeeper",
            "bookkeeper_zkEnableSecurity": "true",
        }

    def _process(self, name: str, command: str, *arguments: str, java: object = ()) -> JavaProcess:
        assert isinstance(java, (tuple, list))
        return JavaProcess(
            command, arguments, self.folder / f"{name}.log", heap_mib=128, java_options=java
        )

    def gateway(self, name: str, *arguments: str, java: tuple[str, ...] = ()) -> JavaProcess:
        return self._process(name, "gateway", *arguments, "--warm-up-entries", "30", java=java)

    def start(self) -> None:
        self.zookeeper.start()
        self.init.start()
        self.init.stop()
        with ThreadPoolExecutor(len(self.bookies)) as threads:
            list(threads.map(JavaProcess.start, self.bookies))

    def stop(self) -> None:
        for process in (*self.bookies, self.init, self.zookeeper):
            process.kill()
