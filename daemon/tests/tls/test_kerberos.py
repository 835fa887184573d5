"""A ZooKeeper that lets in whom Kerberos knows, and nobody else, with a real key distribution
center: the daemon's client logs in, what it makes is its principal's, and who does not fit is told
why. Runs where this machine has krb5-kdc and `gssapi`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursorkeeper.connections import user_of, zookeeper_settings
from cursorkeeper.core.setting import SettingsError
from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.acl import ALL, Entry
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied, ConnectionLost, ZooKeeperError
from daemon.tests.support import kerberos_center
from daemon.tests.support.kerberos_center import REALM, Center, canonical

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(not kerberos_center.is_here(), reason=kerberos_center.WHY_NOT),
]
ZOOKEEPER = """
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
sessionRequireClientSASLAuth=true
"""
LOGIN = """
Server {{
  com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
    useTicketCache=false keyTab="{keytab}" principal="zookeeper/{host}@{realm}";
}};
"""
KEEPER = f"keeper@{REALM}"


class Realm:
    """A center, a ZooKeeper of its, and keytabs of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.center = Center(folder / "center")
        self.keys = self.center.keytab("clients", "keeper", "other")
        self.stale = self.center.keytab("stale", "renewed")
        self.center.keytab("renewed", "renewed", is_new=False)
        # a server, and not this one
        self.center.keytab("another", "another/host")
        server = self.center.keytab("server", f"zookeeper/{canonical()}")
        jaas, conf = folder / "jaas.conf", folder / "zoo.cfg"
        jaas.write_text(LOGIN.format(keytab=server, host=canonical(), realm=REALM))
        conf.write_text(ZOOKEEPER)
        self.port = free_port()
        self.zookeeper = JavaProcess(
            "zookeeper",
            [
                *("--data-dir", str(folder / "zookeeper"), "--port", str(self.port)),
                *("--zookeeper-conf", str(conf)),
            ],
            folder / "zookeeper.log",
            heap_mib=128,
            java_options=[
                f"-Djava.security.auth.login.config={jaas}",
                f"-Djava.security.krb5.conf={self.center.conf}",
            ],
        )

    def settings(self, **more: str) -> Settings:
        return Settings.of(
            **{
                "zookeeper": f"127.0.0.1:{self.port}",
                "zookeeper_sasl_principal": KEEPER,
                "zookeeper_sasl_keytab_file": self.keys,
                **more,
            }
        )

    def client(self, start_timeout_s: float = 30.0, **more: str) -> ZooKeeperClient:
        settings = self.settings(**more)
        settings.check()
        return ZooKeeperClient(zookeeper_settings(settings.systems, start_timeout_s))


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    made = Realm(tmp_path_factory.mktemp("realm"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.center.environment.items():
            patch.setenv(name, value)
        try:
            made.center.start()
            made.zookeeper.start()
            yield made
        finally:
            made.zookeeper.kill()
            made.center.stop()


async def test_a_principal_is_a_user_with_nodes_of_its_own(realm: Realm) -> None:
    mine = realm.client(zookeeper_acl="creator")
    await mine.start()
    await mine.ensure_path("/keeper/cursors")
    await mine.create("/keeper/cursors/one", b"1")
    assert (await mine.get("/keeper/cursors/one")).data == b"1"
    acl, _ = await mine.acl("/keeper/cursors/one")
    assert acl == (Entry(ALL, "sasl", KEEPER),)
    other = realm.client(zookeeper_sasl_principal=f"other@{REALM}")
    await other.start()
    with pytest.raises(AccessDenied):
        await other.get("/keeper/cursors/one")
    await other.close()
    # the session goes on over another connection, as the same user
    session = mine.session_id
    assert mine._connection is not None
    mine._connection._writer.transport.abort()
    with contextlib.suppress(ConnectionLost):
        await mine.exists("/keeper")
    await mine.create("/keeper/cursors/two", b"2")
    assert mine.session_id == session
    # by name, for another principal, too
    both = realm.client(zookeeper_acl=f"sasl:{KEEPER},sasl:other@{REALM}")
    await both.start()
    await both.create("/keeper/cursors/three", b"3")
    other = realm.client(zookeeper_sasl_principal=f"other@{REALM}")
    await other.start()
    assert (await other.get("/keeper/cursors/three")).data == b"3"
    for client in (mine, both, other):
        await client.close()


async def test_a_ticket_of_the_environment_is_enough(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.keys)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/tickets")
    client = realm.client(zookeeper_sasl_keytab_file="")
    await client.start()
    await client.close()


@pytest.mark.parametrize(
    ("words", "remedy", "more"),
    [
        ("not found in Kerberos", "create the server's", {"zookeeper_sasl_service_name": "zk"}),
        (
            "(ended|refuses) the login of 'keeper@",
            "look into the server's log",
            {"zookeeper_sasl_service_name": f"another/host@{REALM}"},
        ),
        ("holds no key of it", "klist -k", {"zookeeper_sasl_principal": f"nobody@{REALM}"}),
        ("No credentials cache|find client principal", "kinit", {"zookeeper_sasl_keytab_file": ""}),
        (
            "integrity check failed",
            "ktadd",
            {"zookeeper_sasl_principal": f"renewed@{REALM}", "zookeeper_sasl_keytab_file": "stale"},
        ),
    ],
)
async def test_who_does_not_fit_is_told_why(
    realm: Realm, words: str, remedy: str, more: dict[str, str]
) -> None:
    if more.get("zookeeper_sasl_keytab_file") == "stale":
        more = {**more, "zookeeper_sasl_keytab_file": realm.stale}
    client = realm.client(1.0, **more)
    with pytest.raises(ZooKeeperError, match=words) as refused:
        await client.start()
    assert remedy in refused.value.remedy
    await client.close()


async def test_who_does_not_log_in_is_not_let_in(realm: Realm) -> None:
    client = realm.client(1.0, zookeeper_sasl_principal="", zookeeper_sasl_keytab_file="")
    with pytest.raises(ZooKeeperError):
        async with asyncio.timeout(30):
            await client.start()
            await client.get("/")
    await client.close()


async def test_a_center_that_is_away_is_waited_for(realm: Realm) -> None:
    realm.center.stop()
    try:
        client = realm.client(1.0)
        with pytest.raises(ZooKeeperError, match="Cannot contact any KDC") as refused:
            await client.start()
        assert "up and reachable" in refused.value.remedy
    finally:
        realm.center.start()
    until = time.monotonic() + 30
    while True:
        try:
            await client.exists("/")
            break
        except ZooKeeperError:
            assert time.monotonic() < until
    await client.close()


def test_settings_that_do_not_fit_are_named(realm: Realm, tmp_path: Path) -> None:
    def wrong(words: str, **more: str) -> None:
        with pytest.raises(SettingsError, match=words):
            settings = realm.settings(**more)
            settings.check()
            zookeeper_settings(settings.systems)

    user = tmp_path / "user"
    user.write_text("sasl:keeper:secret")
    wrong("the daemon would be two users", zookeeper_auth_file=str(user))
    wrong("zookeeper_sasl_principal: 'keeper' is no principal", zookeeper_sasl_principal="keeper")
    wrong("there is no login that it is for", zookeeper_sasl_principal="")
    wrong("zookeeper_sasl_keytab_file = '/nowhere'", zookeeper_sasl_keytab_file="/nowhere")
    wrong("nodes would be shut to who makes them", zookeeper_acl="sasl:keeper")
    cut = realm.settings(zookeeper_sasl_user="keeper", zookeeper_acl="sasl:keeper")
    assert zookeeper_settings(cut.systems).acl == (Entry(ALL, "sasl", "keeper"),)
    found = user_of(cut.systems)
    assert found is not None and found.who == "sasl:keeper"
