"""A gateway on a ZooKeeper and bookies that want certificates and users: what a `broker.conf` says
is enough, and who does not fit is told why.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cursorkeeper.bookkeeper import LedgerSpec, LedgerState
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.certificates import CLIENT, Authority
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper_client.tls import TlsFiles
from tools.brokers.secured.cluster import CURSORS_USER, DIGEST, NAME, Secured, lines

pytestmark = pytest.mark.jvm

OURS = {"application": b"cursorkeeper", "cursor": b"t|s"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def lives(gateway: JavaProcess, files: TlsFiles | None = None) -> int:
    """A ledger's life, through the gateway; one that stays is returned."""
    settings = GatewayClientSettings(
        address=str(gateway.ready["gateway"]),
        start_timeout_s=30,
        tls=files,
        tls_server_name="gateway" if files else "",
    )
    client, reader = GatewayClient(settings), GatewayClient(settings)
    async with asyncio.timeout(60):
        await client.start()
        ledger = await client.create(LedgerSpec(), OURS)
        for entry in range(20):
            await client.append(ledger, entry, b"%d" % entry)
        await reader.start()
        assert (await reader.fence(ledger)).last_entry == 19
        got = [p async for chunk in reader.read(ledger, 0, -1) for p in chunk.payloads]
        assert got == [b"%d" % entry for entry in range(20)]
        assert (await reader.metadata(ledger)).state is LedgerState.CLOSED
        gone = await client.create(LedgerSpec(), OURS)
        await client.append(gone, 0, b"0")
        await client.close_ledger(gone)
        found = {info.ledger async for info in client.list(OURS)}
        assert {ledger, gone} <= found
        # also those of another gateway, which is the same user
        for one in found - {ledger}:
            await client.delete(one)
        assert {info.ledger async for info in client.list(OURS)} == {ledger}
        await reader.close()
        await client.close()
    return ledger


async def test_a_broker_conf_is_enough(secured: Secured) -> None:
    conf = secured.written("broker.conf", lines(secured.broker_conf()))
    gateway = secured.gateway("gateway", "--broker-conf", conf, java=(secured.log_in,))
    with gateway:
        ledger = await lives(gateway)
    # what it made is its user's alone, and not a daemon's
    scheme, _, cursors = CURSORS_USER.partition(":")
    stranger = secured.authority.issue("neighbour", uses=(CLIENT,))
    client = ZooKeeperClient(
        ZooKeeperSettings(
            servers=(("127.0.0.1", secured.secure),),
            tls=stranger,
            tls_server_name=NAME,
            authentication=(scheme, cursors.encode()),
            start_timeout_s=30,
        )
    )
    await client.start()
    with pytest.raises(AccessDenied):
        await client.get(metadata_node(ledger))
    with pytest.raises(AccessDenied):
        await client.create("/ledgers/idgen/ID-one", b"")
    await client.close()


async def test_flags_say_the_same(secured: Secured) -> None:
    """The gateway's own certificate, and a file with a user for each system."""
    user = secured.written("user", "sasl:keeper:secret\n")
    at_bookies = secured.written("bookies-user", "sasl:broker:secret")
    files = secured.authority.issue("gateway")
    client_conf = secured.written(
        "bookkeeper.conf",
        lines(
            {
                "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
                "tlsClientAuthentication": "true",
                "tlsKeyStoreType": "PEM",
                "tlsKeyStore": files.key,
                "tlsCertificatePath": files.certificate,
                "tlsTrustStoreType": "PEM",
                "tlsTrustStore": files.trust_certs,
            }
        ),
    )
    gateway = secured.gateway(
        "flags",
        *("--metadata-service-uri", f"zk+hierarchical://{NAME}:{secured.secure}/ledgers"),
        *("--zookeeper-tls-enabled", "--zookeeper-auth-file", user, "--zookeeper-acl", "creator"),
        *("--tls-certificate-file-path", files.certificate, "--tls-key-file-path", files.key),
        *("--tls-trust-certs-file-path", files.trust_certs),
        *("--bookkeeper-conf", client_conf, "--bookkeeper-auth-file", at_bookies),
    )
    with gateway:
        await lives(gateway, files)
        kept = list(gateway.temp.glob("cursorkeeper-zookeeper-*.pem"))
        assert len(kept) == 1 and kept[0].stat().st_mode & 0o777 == 0o600
    assert not kept[0].exists()


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A ZooKeeper and bookies that ask for nothing."""
    with Standalone(tmp_path_factory.mktemp("open") / "stack", bookies=3) as stack:
        yield stack


async def test_a_user_by_digest_has_ledgers_of_its_own(
    open_to_all: Standalone, tmp_path: Path
) -> None:
    user = tmp_path / "user"
    user.write_text("digest:keeper:secret")
    gateway = JavaProcess(
        "gateway",
        [
            *("--metadata-service-uri", open_to_all.metadata_service_uri),
            *("--zookeeper-auth-file", str(user), "--zookeeper-acl", "creator"),
        ],
        tmp_path / "gateway.log",
        heap_mib=128,
    )
    with gateway:
        ledger = await lives(gateway)
    host, _, port = open_to_all.zookeeper.rpartition(":")
    for password, is_its_own in ((b"secret", True), (b"wrong", False)):
        client = ZooKeeperClient(
            ZooKeeperSettings(
                servers=((host, int(port)),),
                authentication=("digest", b"keeper:" + password),
                start_timeout_s=30,
            )
        )
        await client.start()
        with contextlib.nullcontext() if is_its_own else pytest.raises(AccessDenied):
            await client.get(metadata_node(ledger))
        await client.close()


def test_bookies_without_tls_are_told_apart(open_to_all: Standalone, tmp_path: Path) -> None:
    files = Authority(tmp_path / "authority").issue("broker")
    conf = tmp_path / "broker.conf"
    conf.write_text(
        lines(
            {
                "metadataStoreUrl": f"zk:{open_to_all.zookeeper}",
                "bookkeeperTLSClientAuthentication": "true",
                "bookkeeperTLSKeyFilePath": files.key,
                "bookkeeperTLSCertificateFilePath": files.certificate,
                "bookkeeperTLSTrustCertsFilePath": files.trust_certs,
                "bookkeeper_throttle": "5000",
            }
        )
    )
    log = tmp_path / "gateway.log"
    gateway = JavaProcess("gateway", ["--broker-conf", str(conf)], log, heap_mib=128)
    with pytest.raises(StackError), gateway:
        pass
    said = log.read_text()
    assert re.search(r"bookie .* does not speak TLS: set it up there", said.splitlines()[-1]), said
    assert f"{conf}: bookkeeper_throttle = 5000 does not count: the gateway's own is 0" in said


def metadata_node(ledger: int) -> str:
    """Where BookKeeper keeps what it knows of a ledger."""
    return f"/ledgers/{ledger // 10**8:02}/{ledger // 10**4 % 10**4:04}/L{ledger % 10**4:04}"


Case = Callable[[Secured, dict[str, str]], "list[str] | None"]
"""Spoils what a broker has; gives arguments and Java options that are to be used beside it."""


def foreign_certificate(secured: Secured) -> dict[str, str]:
    return secured.zookeeper_client(
        TlsFiles(secured.other.certificate, secured.other.key, secured.broker.trust_certs)
    )


def zookeeper_conf(secured: Secured, name: str, **changed: str | None) -> str:
    values: dict[str, str | None] = {**secured.zookeeper_client(secured.broker)}
    for key, value in changed.items():
        values[f"zookeeper.{key.replace('_', '.')}"] = value
    return secured.written(name, lines({k: v for k, v in values.items() if v is not None}))


def no_tls_to_zookeeper(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    conf["metadataStoreConfigPath"] = ""
    return None


def tls_to_the_plain_port(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    conf["metadataStoreUrl"] = f"zk:{NAME}:{secured.plain}"
    return None


def own_certificate_of_others_to_zookeeper(
    secured: Secured, conf: dict[str, str]
) -> list[str] | None:
    conf["metadataStoreConfigPath"] = secured.written(
        "foreign.conf", lines(foreign_certificate(secured))
    )
    return None


def zookeeper_of_others(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    conf["metadataStoreConfigPath"] = zookeeper_conf(
        secured, "unbelieving.conf", ssl_trustStore_location=secured.other.trust_certs
    )
    return None


def password_to_zookeeper(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    jaas = secured.written("zookeeper.jaas", secured.logins(zookeeper="wrong"))
    return ["--jaas-file", jaas]


def digest_to_zookeeper(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    """Somebody whom ZooKeeper does not refuse, and who may make nothing."""
    only = secured.written(
        "bookkeeper.jaas",
        f'BookKeeper {{ {DIGEST} username="broker" password="secret"; }};',
    )
    user = secured.written("nobody", "digest:keeper:wrong")
    stranger = secured.authority.issue("stranger", uses=(CLIENT,))
    conf["metadataStoreConfigPath"] = secured.written(
        "stranger.conf", lines(secured.zookeeper_client(stranger))
    )
    return ["--jaas-file", only, "--zookeeper-auth-file", user]


def own_certificate_of_others_to_bookies(
    secured: Secured, conf: dict[str, str]
) -> list[str] | None:
    conf["bookkeeperTLSKeyFilePath"] = secured.other.key
    conf["bookkeeperTLSCertificateFilePath"] = secured.other.certificate
    return None


def bookies_of_others(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    conf["bookkeeperTLSTrustCertsFilePath"] = secured.other.trust_certs
    return None


def password_to_bookies(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    return ["--jaas-file", secured.written("bookies.jaas", secured.logins(bookies="wrong"))]


def nobody_to_bookies(secured: Secured, conf: dict[str, str]) -> list[str] | None:
    del conf["bookkeeperClientAuthenticationPlugin"]
    return None


WRONG: dict[str, Case] = {
    r"ZooKeeper at localhost:\d+ expects TLS: set --zookeeper-tls-enabled": no_tls_to_zookeeper,
    r"does not speak TLS there, and .*zookeeper.client.secure": tls_to_the_plain_port,
    r"refuses this gateway's certificate .*: is .*foreign.conf: zookeeper.ssl.keyStore.location": (
        own_certificate_of_others_to_zookeeper
    ),
    r"ZooKeeper .* shows a certificate that is not believed .*trustStore": zookeeper_of_others,
    r"ZooKeeper refuses user keeper of JAAS section Client": password_to_zookeeper,
    r"ZooKeeper lets --zookeeper-auth-file .* do nothing below /ledgers": digest_to_zookeeper,
    r"bookie .* refuses this gateway's certificate .*bookkeeperTLSCertificateFilePath": (
        own_certificate_of_others_to_bookies
    ),
    r"bookie .* shows a certificate that is not believed .*bookkeeperTLSTrustCertsFilePath": (
        bookies_of_others
    ),
    r"bookie .* refuses user broker of JAAS section BookKeeper": password_to_bookies,
    r"bookie .* asks who this gateway is: set bookkeeperClientAuthenticationPlugin": (
        nobody_to_bookies
    ),
}


def test_who_does_not_fit_is_told_why(secured: Secured) -> None:
    """Each start ends by itself, with the likely cause."""

    def told(words: str) -> str:
        name = WRONG[words].__name__
        conf = secured.broker_conf()
        arguments = WRONG[words](secured, conf) or []
        file = secured.written(f"{name}.conf", lines(conf))
        java = () if "--jaas-file" in arguments else (secured.log_in,)
        gateway = secured.gateway(
            name,
            *("--broker-conf", file, "--zookeeper-timeout-ms", "3000", *arguments),
            java=java,
        )
        began_s = time.monotonic()
        with contextlib.suppress(StackError), gateway:
            return f"{name}: it started"
        took_s = time.monotonic() - began_s
        last = gateway.log.read_text().splitlines()[-5:]  # threads of ZooKeeper's client log, too
        if any(re.search(words, line) for line in last) and took_s < 60:
            return ""
        return f"{name}, after {took_s:.1f} s: {last}"

    # one after the other: they write the same files of keys
    assert [answer for answer in map(told, WRONG) if answer] == []
