"""A real ZooKeeper that speaks TLS and knows users."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from cursorkeeper.demo.certificates import CLIENT, SERVER, Authority
from cursorkeeper.demo.stack.jar import find_jar
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper_client.tls import TlsFiles

NAME = "zookeeper.example.com"
USER = ("digest", b"keeper:secret")
CONF = """
dataDir={folder}/data
clientPort={plain}
secureClientPort={secure}
admin.enableServer=false
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/both.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={trust}
ssl.trustStore.type=PEM
ssl.clientAuth=need
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
"""
LOGIN = """
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
    user_keeper="se\\"cret" user_broker="x";
};
"""


class Secured:
    """One server, with a port for TLS and one without."""

    def __init__(self, folder: Path) -> None:
        self.authority = authority = Authority(folder / "authority")
        server = authority.issue("zookeeper", NAME, uses=(SERVER,))
        (folder / "both.pem").write_bytes(
            Path(server.key).read_bytes() + Path(server.certificate).read_bytes()
        )
        self.files = authority.issue("daemon", uses=(CLIENT,))
        self.neighbour = authority.issue("neighbour", uses=(CLIENT,))
        other = Authority(folder / "other", "other").issue("daemon", uses=(CLIENT,))
        self.stranger = TlsFiles(other.certificate, other.key, self.files.trust_certs)
        self.unbelieving = TlsFiles(self.files.certificate, self.files.key, other.trust_certs)
        self.plain, self.secure = free_port(), free_port()
        conf = folder / "zoo.cfg"
        conf.write_text(
            CONF.format(
                folder=folder, plain=self.plain, secure=self.secure, trust=self.files.trust_certs
            )
        )
        jaas = folder / "jaas.conf"
        jaas.write_text(LOGIN)
        self.log = folder / "zookeeper.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx128m", "-cp", str(find_jar())),
                    f"-Djava.security.auth.login.config={jaas}",
                    *("org.apache.zookeeper.server.ZooKeeperServerMain", str(conf)),
                ],
                stdout=log,
                stderr=log,
            )

    def settings(self, **more: Any) -> ZooKeeperSettings:
        return ZooKeeperSettings(
            **{
                "servers": (("127.0.0.1", self.secure),),
                "tls": self.files,
                "tls_server_name": NAME,
                "start_timeout_s": 60.0,
                **more,
            }
        )

    def __enter__(self) -> Secured:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
