"""A ZooKeeper that speaks TLS and knows users: nobody else's nodes, and who it does not hear."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.connections import zookeeper_settings
from cursorkeeper.core.setting import SettingsError
from cursorkeeper.demo.stack.jar import find_jar
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied, ConnectionLost, ZooKeeperError
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import Create, SetData
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.support.certificates import CLIENT, SERVER, Authority

pytestmark = pytest.mark.jvm
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
        authority = Authority(folder / "authority")
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


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


async def test_what_is_made_is_its_makers(secured: Secured) -> None:
    mine = ZooKeeperClient(secured.settings(authentication=USER, is_creator_only=True))
    await mine.start()
    await mine.ensure_path("/keeper/cursors")
    await mine.create("/keeper/cursors/one", b"1")
    await mine.multi([Create("/keeper/cursors/two", b"2"), SetData("/keeper/cursors/one", b"3", 0)])
    # ZooKeeper takes a certificate for a user, too
    for same in (
        secured.settings(),
        secured.settings(tls=secured.neighbour, authentication=USER),
        ZooKeeperSettings(servers=(("127.0.0.1", secured.plain),), authentication=USER),
    ):
        again = ZooKeeperClient(same)
        await again.start()
        assert (await again.get("/keeper/cursors/one")).data == b"3"
        await again.close()
    for other in (
        secured.settings(tls=secured.neighbour),
        secured.settings(tls=secured.neighbour, authentication=("digest", b"keeper:wrong")),
        ZooKeeperSettings(servers=(("127.0.0.1", secured.plain),)),
    ):
        client = ZooKeeperClient(other)
        await client.start()
        for name in ("one", "two"):
            with pytest.raises(AccessDenied):
                await client.get(f"/keeper/cursors/{name}")
        with pytest.raises(AccessDenied):
            await client.create("/keeper/cursors/three", b"")
        await client.close()
    await mine.close()


LOGGED_IN = ("sasl", b'keeper:se"cret')


async def test_a_login_is_a_user(secured: Secured) -> None:
    """Over the plain port, where no certificate is a user, too."""
    plain = {"servers": (("127.0.0.1", secured.plain),), "tls": None, "tls_server_name": ""}
    mine = ZooKeeperClient(
        secured.settings(**plain, authentication=LOGGED_IN, is_creator_only=True)
    )
    await mine.start()
    await mine.ensure_path("/logged-in")
    await mine.create("/logged-in/one", b"1")
    for authentication, may in (
        (LOGGED_IN, True),
        (("sasl", b"broker:x"), False),
        (("digest", b'keeper:se"cret'), False),
        (None, False),
    ):
        client = ZooKeeperClient(secured.settings(**plain, authentication=authentication))
        await client.start()
        if may:
            assert (await client.get("/logged-in/one")).data == b"1"
        else:
            with pytest.raises(AccessDenied):
                await client.get("/logged-in/one")
        await client.close()
    for wrong in (b"keeper:wrong", b"nobody:x", b"keeper:"):
        client = ZooKeeperClient(
            secured.settings(**plain, authentication=("sasl", wrong), start_timeout_s=3.0)
        )
        with pytest.raises(ZooKeeperError, match="zookeeper_auth_file") as refused:
            await client.start()
        assert "correct the user and password" in refused.value.remedy
        await client.close()
    await mine.close()


@pytest.mark.parametrize("user", [USER, LOGGED_IN])
async def test_a_session_goes_on_over_a_new_connection_as_the_same_user(
    secured: Secured, user: tuple[str, bytes]
) -> None:
    root = f"/again-{user[0]}"
    client = ZooKeeperClient(secured.settings(authentication=user, is_creator_only=True))
    await client.start()
    await client.ensure_path(root)
    session = client.session_id
    assert client._connection is not None
    client._connection._writer.transport.abort()
    with contextlib.suppress(ConnectionLost):
        await client.exists(root)
    await client.create(f"{root}/one", b"1")
    assert client.session_id == session
    assert (await client.get(f"{root}/one")).data == b"1"
    await client.close()


@pytest.mark.parametrize(
    ("what", "more"),
    [
        (
            "closed the connection|connection reset|refuses this client's certificate",
            {"tls": "stranger"},
        ),
        ("certificate is not believed: .*issuer", {"tls": "unbelieving"}),
        ("certificate is not believed: .*(mismatch|match)", {"tls_server_name": "other.org"}),
        ("does it expect TLS|connection reset|no answer", {"tls": ""}),
        ("no TLS with it|does it speak TLS", {"servers": "plain"}),
    ],
)
async def test_who_does_not_fit_is_told_why(
    secured: Secured, what: str, more: dict[str, str]
) -> None:
    ready = ZooKeeperClient(secured.settings())
    await ready.start()
    await ready.close()
    changed: dict[str, Any] = dict(more)
    if "tls" in more:
        changed["tls"] = getattr(secured, more["tls"]) if more["tls"] else None
    if "servers" in more:
        changed["servers"] = (("127.0.0.1", secured.plain),)
    client = ZooKeeperClient(secured.settings(**changed, start_timeout_s=3.0))
    began_s = time.monotonic()
    with pytest.raises(ZooKeeperError, match=what) as refused:
        async with asyncio.timeout(60):
            await client.start()
    assert time.monotonic() - began_s < 60
    if "not believed" in str(refused.value):
        assert "tls_trust_certs_file_path" in refused.value.remedy
    await client.close()


async def test_a_user_that_is_refused_is_said(secured: Secured) -> None:
    """Of digests ZooKeeper refuses none; of what it does not know, all."""
    client = ZooKeeperClient(
        secured.settings(authentication=("unknown", b"keeper:secret"), start_timeout_s=5.0)
    )
    with pytest.raises(ZooKeeperError, match="refuses the user of zookeeper_auth_file"):
        await client.start()
        # the refusal may come behind the answer that ends the start
        for _ in range(50):
            await client.get("/")
            await asyncio.sleep(0.1)
    await client.close()


def test_the_daemons_settings_say_who_it_is(tmp_path: Path) -> None:
    file = tmp_path / "user"
    file.write_text("digest:keeper:se:cret\n")
    made = Settings.of(zookeeper_auth_file=str(file), zookeeper_acl="creator")
    found = zookeeper_settings(made.systems)
    assert found.authentication == ("digest", b"keeper:se:cret") and found.is_creator_only
    file.write_text("sasl:keeper:se:cret\n")
    found = zookeeper_settings(made.systems)
    assert found.login == ("keeper", "se:cret")
    file.write_text("keeper:secret")
    with pytest.raises(SettingsError, match="write digest:USER:PASSWORD"):
        zookeeper_settings(made.systems)
    with pytest.raises(SettingsError, match="set zookeeper_auth_file"):
        Settings.of(zookeeper_acl="creator").check()
    with pytest.raises(SettingsError, match="tls_trust_certs_file_path = '/nowhere'"):
        Settings.of(zookeeper_tls_enabled=True, tls_trust_certs_file_path="/nowhere").check()
