"""The login with Kerberos: what any security context does, of the fake and, where this machine has
it, of the system's library with a real key distribution center; and the steps of RFC 4752 on it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from cursorkeeper.core.setting import SettingsError
from cursorkeeper.zookeeper.errors import LoginRefused, ProtocolBroken
from cursorkeeper.zookeeper.kerberos import Context, KerberosLogin
from cursorkeeper.zookeeper.kerberos_library import LibraryContext, require_library
from cursorkeeper.zookeeper.settings import Kerberos
from daemon.tests.fakes.zookeeper.kerberos import FakeAcceptor, FakeCenter
from daemon.tests.support import kerberos_center
from daemon.tests.support.kerberos_center import REALM, canonical

HOST = "127.0.0.1"
CLIENT, OTHER = f"keeper@{REALM}", f"other@{REALM}"


class World(Protocol):
    """One realm with the principals CLIENT and OTHER and a server at HOST."""

    keys: str
    """A keytab with CLIENT and OTHER."""

    def context(self, asked: Kerberos) -> Context: ...
    def acceptor(self) -> Any: ...
    def another_key(self, principal: str) -> None: ...
    def stop(self) -> None: ...


class FakeWorld:
    def __init__(self, folder: Path) -> None:
        self._center = FakeCenter()
        self._server = f"zookeeper/localhost@{REALM}"
        self._center.keys = {CLIENT: "a", OTHER: "b", self._server: "c"}
        file = folder / "keys"
        file.write_text(json.dumps({CLIENT: "a", OTHER: "b", f"unknown@{REALM}": "x"}))
        self.keys = str(file)

    def context(self, asked: Kerberos) -> Context:
        return self._center.context(asked, "localhost")

    def acceptor(self) -> FakeAcceptor:
        return FakeAcceptor(self._center, self._server)

    def another_key(self, principal: str) -> None:
        self._center.keys[principal] += "2"

    def stop(self) -> None:
        self._center.is_up = False


class RealAcceptor:
    def __init__(self, keytab: str) -> None:
        import gssapi

        self._context = gssapi.SecurityContext(
            creds=gssapi.Credentials(usage="accept", store={"keytab": keytab}), usage="accept"
        )

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def step(self, said: bytes) -> bytes:
        return bytes(self._context.step(said))

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._context.unwrap(message).message)

    def wrap(self, content: bytes) -> bytes:
        return bytes(self._context.wrap(content, False).message)


class RealWorld:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._center = kerberos_center.Center(folder)
        self.keys = self._center.keytab("clients", "keeper", "other", "unknown")
        self._center._run("kadmin.local", "-r", REALM, "delprinc", "-force", "unknown")
        self._server = self._center.keytab("server", f"zookeeper/{canonical()}")
        for name, value in self._center.environment.items():
            patch.setenv(name, value)
        self._center.start()

    def context(self, asked: Kerberos) -> Context:
        return LibraryContext(asked, HOST)

    def acceptor(self) -> RealAcceptor:
        return RealAcceptor(self._server)

    def another_key(self, principal: str) -> None:
        self._center.keytab("newer", principal, is_new=False)

    def stop(self) -> None:
        self._center.stop()


needs_kerberos = pytest.mark.skipif(not kerberos_center.is_here(), reason=kerberos_center.WHY_NOT)


@pytest.fixture(params=["fake", pytest.param("real", marks=needs_kerberos)])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    made: World = (
        FakeWorld(tmp_path) if request.param == "fake" else RealWorld(tmp_path, monkeypatch)
    )
    yield made
    made.stop()


# --- what any context does


def test_two_ends_know_each_other_and_their_messages(world: World) -> None:
    client, server = world.context(Kerberos(CLIENT, world.keys)), world.acceptor()
    assert not client.is_complete
    said = client.step(b"")
    assert said and not client.is_complete
    assert client.step(server.step(said)) == b"" and client.is_complete
    assert server.client == CLIENT
    assert client.unwrap(server.wrap(b"four")) == b"four"
    assert server.unwrap(client.wrap(b"five")) == b"five"
    message = bytearray(server.wrap(b"four"))
    message[-1] ^= 1
    with pytest.raises(LoginRefused):
        client.unwrap(bytes(message))


def test_a_server_that_is_not_the_one_is_not_believed(world: World) -> None:
    client = world.context(Kerberos(CLIENT, world.keys))
    said, server = client.step(b""), world.acceptor()
    answer = bytearray(server.step(said))
    answer[-1] ^= 1
    with pytest.raises(LoginRefused):
        client.step(bytes(answer))
    assert not client.is_complete


def test_what_stands_in_the_way_is_said_with_its_remedy(world: World) -> None:
    def refused(words: str, remedy: str, asked: Kerberos) -> None:
        with pytest.raises(LoginRefused, match=words) as told:
            world.context(asked).step(b"")
        assert remedy in told.value.remedy and asked.principal in str(told.value)

    refused("not found", "create the server's principal", Kerberos(CLIENT, world.keys, "other"))
    refused(
        "not found",
        "create zookeeper_sasl_principal",
        Kerberos(f"unknown@{REALM}", world.keys),
    )
    refused("holds no key of it", "name a keytab", Kerberos(f"nobody@{REALM}", world.keys))
    world.another_key(OTHER)
    refused("check failed", "again (kadmin: ktadd)", Kerberos(OTHER, world.keys))
    world.context(Kerberos(CLIENT, world.keys)).step(b"")
    world.stop()
    refused("Cannot contact any KDC", "up and reachable", Kerberos(CLIENT, world.keys))


def test_a_server_may_be_named_whole(world: World) -> None:
    host = canonical() if isinstance(world, RealWorld) else "localhost"
    whole = Kerberos(CLIENT, world.keys, f"zookeeper/{host}@{REALM}")
    server = world.acceptor()
    server.step(world.context(whole).step(b""))
    assert server.client == CLIENT


# --- the steps on it


async def test_the_steps_of_the_rfc(world: World) -> None:
    login = KerberosLogin(
        Kerberos(CLIENT, world.keys), HOST, 30.0, lambda asked, _host: world.context(asked)
    )
    server = world.acceptor()
    first = await login.answer(b"")
    assert first is not None
    assert await login.answer(server.step(first)) == b""
    # a server that would also sign or encrypt what follows, in messages of 64 KiB
    chosen = await login.answer(server.wrap(b"\x07\x01\x00\x00"))
    assert chosen is not None and server.unwrap(chosen) == b"\x01\x00\x00\x00"
    assert await login.answer(b"") is None
    with pytest.raises(ProtocolBroken, match="goes on after the login"):
        await login.answer(b"more")


@pytest.fixture
def fake(tmp_path: Path) -> FakeWorld:
    return FakeWorld(tmp_path)


async def half_way(world: FakeWorld) -> tuple[KerberosLogin, FakeAcceptor]:
    login = KerberosLogin(
        Kerberos(CLIENT, world.keys), HOST, 30.0, lambda asked, _host: world.context(asked)
    )
    server = world.acceptor()
    await login.answer(server.step(await login.answer(b"") or b""))
    return login, server


@pytest.mark.parametrize(
    ("offered", "error", "words"),
    [
        (b"\x06\x01\x00\x00", LoginRefused, "wants a security layer"),
        (b"\x00\x00\x00\x00", LoginRefused, "wants a security layer"),
        (b"", ProtocolBroken, "offers no security layers"),
        (b"\x01\x00\x00\x00more", ProtocolBroken, "offers no security layers"),
    ],
)
async def test_a_server_that_offers_what_does_not_fit(
    fake: FakeWorld, offered: bytes, error: type[Exception], words: str
) -> None:
    login, server = await half_way(fake)
    with pytest.raises(error, match=words):
        await login.answer(server.wrap(offered))


async def test_an_offer_that_is_not_the_servers_is_refused(fake: FakeWorld) -> None:
    login, _ = await half_way(fake)
    with pytest.raises(LoginRefused):
        await login.answer(b"\x01\x00\x00\x00")


async def test_a_silent_center_holds_up_neither_the_loop_nor_more_than_some_threads(
    fake: FakeWorld,
) -> None:
    is_over = threading.Event()

    def silent(asked: Kerberos, _host: str) -> Context:
        is_over.wait(30)
        return fake.context(asked)

    asked = Kerberos(CLIENT, fake.keys)
    try:
        waiting = await asyncio.gather(
            *(KerberosLogin(asked, HOST, 0.2, silent).answer(b"") for _ in range(6)),
            return_exceptions=True,
        )
        said = [str(one) for one in waiting]
        assert sum("no key distribution center answered within" in one for one in said) == 4
        assert sum("4 logins wait" in one for one in said) == 2
        with pytest.raises(LoginRefused, match="4 logins wait"):
            await KerberosLogin(asked, HOST, 0.2, silent).answer(b"")
    finally:
        is_over.set()
    # their places are free again when they have an answer
    async with asyncio.timeout(30):
        while True:
            try:
                assert await KerberosLogin(asked, HOST, 5.0, silent).answer(b"")
                break
            except LoginRefused:
                await asyncio.sleep(0.01)


async def test_a_login_without_a_thread_keeps_no_place(
    fake: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asked = Kerberos(CLIENT, fake.keys, "zookeeper", "")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(5):
            with pytest.raises(LoginRefused, match="no thread for the login"):
                await KerberosLogin(asked, HOST, 5.0, lambda k, _h: fake.context(k)).answer(b"")
    login = KerberosLogin(asked, HOST, 5.0, lambda k, _h: fake.context(k))
    assert await login.answer(b"")


def test_who_has_no_library_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SettingsError, match="gssapi cannot be used here") as told:
        require_library()
    assert "cursorkeeper[kerberos]" in told.value.remedy


@pytest.mark.parametrize("principal", ["", "keeper", "keeper@", "@R", "a/b/c@R", "a b@R", "a:b@R"])
def test_what_is_no_principal_is_refused(principal: str) -> None:
    with pytest.raises(ValueError, match="is no principal"):
        Kerberos(principal)
