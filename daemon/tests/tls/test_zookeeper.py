"""A ZooKeeper that speaks TLS and knows users: nobody else's nodes, and who it does not hear."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.connections import zookeeper_settings
from cursorkeeper.core.setting import SettingsError
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.acl import CREATOR
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied, ConnectionLost, ZooKeeperError
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import Create, SetData
from daemon.tests.support.secured_zookeeper import USER, Secured

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


async def test_what_is_made_is_its_makers(secured: Secured) -> None:
    mine = ZooKeeperClient(secured.settings(authentication=USER, acl=CREATOR))
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
    mine = ZooKeeperClient(secured.settings(**plain, authentication=LOGGED_IN, acl=CREATOR))
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
    client = ZooKeeperClient(secured.settings(authentication=user, acl=CREATOR))
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
    assert found.authentication == ("digest", b"keeper:se:cret") and found.acl == CREATOR
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
