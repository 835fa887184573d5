"""A cluster where everybody asks who calls and nothing is plain text: ZooKeeper and bookies with
certificates, users and ACLs, a gateway that has a `broker.conf`, daemons and a source with
certificates and identities. The main job under kills; and who has no certificate, a wrong one, or
a role that it must not have, is answered as docs/run/security.md, rights.md and rights-gateway.md
say.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cursorkeeper.bookkeeper import LedgerSpec
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.errors import GatewayRefused, GatewayRetry
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.core.names import ROOT
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied, ZooKeeperError
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper_client import (
    Client,
    ClientSettings,
    ConnectionRefused,
    CursorKeeperError,
    CursorStore,
    NotAllowed,
)
from cursorkeeper_client.tls import TlsFiles
from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import LIMIT_S, until
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import (
    GATEWAY_METRICS_PORT,
    METRICS_PORT,
    GatewayNode,
)
from testcontainers_tests.cluster.pulsar import Pulsar
from testcontainers_tests.cluster.secrets import CURSORS_USER, LEDGERS_USER, TOPICS, Secrets
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener
from tools.brokers.traffic import Consumed, Counted, Produced

Accept = Callable[[Verdict], None]
TOPIC = f"{TOPICS}secured/topic"
CURSORS = ("sasl", f"{CURSORS_USER}:secret too".encode())
LEDGERS = ("sasl", f"{LEDGERS_USER}:secret".encode())


def secrets_of(stack: ContainerStack) -> Secrets:
    assert stack.secrets is not None
    return stack.secrets


def zookeeper(stack: ContainerStack, files: TlsFiles | None, **more: Any) -> ZooKeeperClient:
    """A client that shows this certificate at ZooKeeper's only published port."""
    host, _, port = stack.zookeeper.client_address.rpartition(":")
    return ZooKeeperClient(
        ZooKeeperSettings(
            servers=((host, int(port)),),
            tls=files,
            tls_server_name=stack.zookeeper.name if files else "",
            **{"start_timeout_s": 30.0, **more},
        )
    )


@pytest.fixture(scope="module")
def shared_stack(opener: Opener, tmp_path_factory: pytest.TempPathFactory) -> ContainerStack:
    """Daemons are allowed the ledgers of their own deployment alone, as soon as it has a name."""
    stack = opener(secrets=Secrets(tmp_path_factory.mktemp("secrets")))

    async def deployment() -> str:
        files = secrets_of(stack).client("operator")
        client = zookeeper(stack, files, authentication=CURSORS)
        await client.start()
        try:
            return (await client.get(ROOT))[0].decode()
        finally:
            await client.close()

    secrets_of(stack).narrow(asyncio.run(deployment()))
    return stack


# --- the main job


async def test_nothing_is_lost_when_nodes_are_killed(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "secured", moves=True)
    async with story.step("a bookie is killed: acks flow on"), faults.killed(stack.bookies[0]):
        await story.flows()
    async with story.step("the gateway is killed"), faults.killed(stack.gateway):
        pass
    async with story.step("the daemon is killed"), faults.killed(stack.daemon):
        pass
    async with (
        story.step("gateway, daemon and source are killed"),
        faults.killed(stack.gateway, stack.daemon, story.source),
    ):
        pass
    await story.end(accept)
    await audit_says(stack.daemons[1], ("source", "open", "done"))
    await audit_says(stack.gateway, ("daemons", "create", "ok"))


async def audit_says(node: Node, *wanted: tuple[str, str, str]) -> None:
    """Its audit log, on standard error, has these lines: who, action, result."""

    def missing() -> set[tuple[str, str, str]]:
        found = set(wanted)
        for line in node.docker.logs(stdout=False).decode(errors="replace").splitlines():
            if line.startswith("{") and '"action"' in line:
                said = json.loads(line)
                found.discard((said["who"], said["action"], said["result"]))
        return found

    def look() -> bool:
        left = missing()
        assert not left, f"not told: {left}"
        return True

    await until(look, f"{node.name} tells who was let in and who was not", limit_s=30)


MESSAGES = 4_000


async def test_a_broker_delivers_nothing_again_that_was_confirmed(stack: ContainerStack) -> None:
    """Pulsar's own clients, by tokens, at a broker with TLS and the plugin: every second message is
    acked, the broker killed right after the last receipt, and the daemon with it.
    """
    pulsar = await asyncio.to_thread(Pulsar, stack)
    await pulsar.set_up()
    assert await asyncio.to_thread(pulsar.broker.is_refused)
    await pulsar.traffic("produce", MESSAGES, Produced)
    consumer = pulsar.client("consume", MESSAGES)
    try:
        consumer.start()
        receipts = await pulsar.last_line(consumer, Consumed)
        async with faults.killed(pulsar.broker, stack.daemon):
            # before it can connect again
            consumer.remove()
    finally:
        consumer.remove()
    counted = await pulsar.traffic("count", MESSAGES, Counted)
    assert receipts.acked == counted.unacked == MESSAGES // 2
    assert counted.confirmed_again == counted.unacked_not_delivered == 0
    await audit_says(stack.daemon, ("brokers", "open", "done"))


# --- who is not answered


def is_shown(node: Node, files: TlsFiles | None) -> dict[str, Any]:
    """Settings of a client that dials this node with these files."""
    return {"tls": files, "tls_server_name": node.name if files else ""}


async def test_a_daemon_answers_whom_it_knows(stack: ContainerStack) -> None:
    secrets, daemon = secrets_of(stack), stack.daemon

    async def is_refused(words: str, files: TlsFiles | None) -> None:
        settings = ClientSettings(connect_timeout_s=5, **is_shown(daemon, files))
        async with CursorStore(daemon.client_address, settings) as store:
            with pytest.raises(CursorKeeperError, match=words):
                async with asyncio.timeout(LIMIT_S):
                    await store.ack_state(TOPIC, "steady", 7, [1])

    async def may_not_ack(kind: type[CursorKeeperError], files: TlsFiles) -> None:
        settings = ClientSettings(connect_timeout_s=5, **is_shown(daemon, files))
        async with Client(daemon.client_address, settings) as client:
            with pytest.raises(kind):
                async with asyncio.timeout(LIMIT_S):
                    await client.cursor(TOPIC, "steady").opened()

    await asyncio.gather(
        is_refused("may expect TLS", None),
        is_refused("may want a certificate", secrets.nobody),
        is_refused("may want a certificate, or does not believe this one", secrets.stranger),
        is_refused("UNAUTHENTICATED", secrets.client("unnamed")),
        is_refused("PERMISSION_DENIED", secrets.client("neighbour")),
        is_refused("PERMISSION_DENIED", secrets.client("daemon-2")),
        may_not_ack(ConnectionRefused, secrets.client("unnamed")),
        may_not_ack(NotAllowed, secrets.client("neighbour")),
        # who has no role that opens cursors has no stream, either
        may_not_ack(ConnectionRefused, secrets.client("jobs")),
        may_not_ack(ConnectionRefused, secrets.client("daemon-2")),
    )
    await audit_says(
        daemon,
        ("", "AckState", "unauthenticated"),
        ("", "Publish", "unauthenticated"),
        ("neighbour", "AckState", "refused"),
        ("neighbour", "cursor", "refused"),
        ("jobs", "Publish", "refused"),
        ("daemons", "Publish", "refused"),
    )


OURS = {"application": b"cursorkeeper"}


async def test_a_gateway_answers_whom_it_knows(stack: ContainerStack) -> None:
    secrets, gateway = secrets_of(stack), stack.gateway
    await stack.source("read", cursors=1, flows=1)

    @asynccontextmanager
    async def client(
        files: TlsFiles | None, role: str, deployment: str = "", start_timeout_s: float = 30
    ) -> AsyncIterator[GatewayClient]:
        made = GatewayClient(
            GatewayClientSettings(
                address=gateway.client_address,
                role=role,
                start_timeout_s=start_timeout_s,
                **is_shown(gateway, files),
            )
        )
        made.act_for(deployment)
        try:
            await made.start()
            yield made
        finally:
            await made.close()

    async def is_not_heard(words: str, files: TlsFiles | None) -> None:
        with pytest.raises(GatewayRetry, match=words):
            async with client(files, "writer", start_timeout_s=3):
                pass

    async def is_refused(reason: str, doing: Awaitable[Any]) -> None:
        with pytest.raises(GatewayRefused) as refused:
            await doing
        assert refused.value.reason == reason

    await asyncio.gather(
        is_not_heard("may expect TLS", None),
        is_not_heard("want", secrets.nobody),
        is_not_heard("want", secrets.stranger),
    )
    with pytest.raises(GatewayRefused, match="UNKNOWN_CERTIFICATE"):
        async with client(secrets.client("unnamed"), "writer"):
            pass
    own = secrets.deployments[0]
    async with client(secrets.client("jobs"), "reader", own) as jobs:
        ledgers = [info.ledger async for info in jobs.list(OURS)]
        assert ledgers
        await jobs.metadata(ledgers[0])
        await is_refused("READERS_MAY_NOT", jobs.delete(ledgers[0]))
    async with client(secrets.client("jobs"), "writer", own) as jobs:
        await is_refused("ROLE_NOT_HELD", jobs.delete(ledgers[0]))
    async with client(secrets.source, "reader", own) as source:
        await is_refused("ROLE_NOT_HELD", source.metadata(ledgers[0]))
    # who may write, and not here
    for deployment in ("another", own):
        async with client(secrets.client("other-daemon"), "writer", deployment) as other:
            assert [info.ledger async for info in other.list(OURS)] == []
            await is_refused("OTHER_DEPLOYMENT", other.metadata(ledgers[0]))
            await is_refused("OTHER_DEPLOYMENT", other.fence(ledgers[0]))
            await is_refused("OTHER_DEPLOYMENT", other.delete(ledgers[0]))
    async with client(secrets.client("daemon-2"), "writer", "another") as daemon:
        await is_refused(
            "OTHER_DEPLOYMENT",
            daemon.create(LedgerSpec(), {**OURS, "cursor": b"t|s", "deployment": b"another"}),
        )


async def test_zookeeper_lets_each_user_touch_its_own(stack: ContainerStack) -> None:
    secrets = secrets_of(stack)
    operator = secrets.client("operator")
    quick = {"start_timeout_s": 3.0}

    async def is_not_heard(files: TlsFiles | None, words: str, **more: Any) -> None:
        client = zookeeper(stack, files, **quick, **more)
        with pytest.raises(ZooKeeperError, match=words):
            await client.start()
        await client.close()

    await asyncio.gather(
        is_not_heard(None, "does it expect TLS|connection reset|no answer"),
        is_not_heard(secrets.nobody, "refuses this client's certificate, or wants one|closed"),
        is_not_heard(secrets.stranger, "refuses this client's certificate, or wants one|closed"),
        is_not_heard(operator, "zookeeper_auth_file", authentication=("sasl", b"cursors:secret")),
    )
    for user, may, may_not in (
        (None, [], [ROOT, "/ledgers/available"]),
        (CURSORS, [ROOT], ["/ledgers/available"]),
        (LEDGERS, ["/ledgers/available"], [ROOT]),
    ):
        client = zookeeper(stack, operator, authentication=user)
        await client.start()
        for path in may:
            await client.get(path)
        for path in may_not:
            with pytest.raises(AccessDenied):
                await client.get(path)
            with pytest.raises(AccessDenied):
                await client.create(f"{path}/new", b"")
        await client.close()


async def test_who_does_not_fit_ends_and_says_why(stack: ContainerStack) -> None:
    """Gateways and daemons whose files are wrong in one place."""
    secrets = secrets_of(stack)
    other = secrets.foreign("broker")
    foreign = {
        "bookkeeperTLSKeyFilePath": secrets.inside(other.key),
        "bookkeeperTLSCertificateFilePath": secrets.inside(other.certificate),
    }
    passwords = [
        secrets.written("at-zookeeper.jaas", secrets.brokers_logins(zookeeper="wrong")),
        secrets.written("at-bookies.jaas", secrets.brokers_logins(bookies="wrong")),
    ]
    gateways = {
        "ZooKeeper refuses user keeper of JAAS section Client": {"jaas": passwords[0]},
        "bookie .* refuses user broker of JAAS section BookKeeper": {"jaas": passwords[1]},
        "bookie .* refuses this gateway's certificate": foreign,
    }
    nodes: dict[str, Node] = {
        words: GatewayNode(
            stack.images,
            stack.network,
            number,
            stack.uri,
            credentials=secrets.of_gateway(f"gateway-{number}", stack.zookeeper_address, **wrong),
        )
        for number, (words, wrong) in enumerate(gateways.items(), 7)
    }
    daemons: dict[str, dict[str, object]] = {
        "refuses the login of 'cursors'.*What to do: correct the user and password": {
            "zookeeper_auth_file": secrets.written("wrong-user", f"sasl:{CURSORS_USER}:wrong")
        },
        # its name is in no identity of the gateway
        "UNKNOWN_CERTIFICATE.* CN=daemon-8.*What to do: add the certificate's subject": {},
        "refuses this client's certificate.*What to do: show one of an authority": (
            secrets.files_of_daemon(secrets.foreign("daemon-1"))
        ),
    }
    for number, (words, settings) in enumerate(daemons.items(), 7):
        nodes[words] = stack.make_daemon(number, **{"start_timeout_s": 5, **settings})  # type: ignore[arg-type]  # of settings only
    stack.others += nodes.values()
    few = asyncio.Semaphore(3)

    async def told(words: str, node: Node) -> str:
        async with few:
            await asyncio.to_thread(node.start)
            await until(lambda: node.status == "exited", f"{node.name} ends")
        said = " ".join(node.docker.logs().decode(errors="replace").splitlines()[-2:])
        print(f"{node.name}: {said}")
        if node.exit_code and re.search(words, said):
            return ""
        return f"{words!r} is not what {node.name} says: {node.exit_code} {said}"

    answers = await asyncio.gather(*(told(words, node) for words, node in nodes.items()))
    assert [answer for answer in answers if answer] == []


# --- pages and health


async def test_pages_are_encrypted_and_docker_calls_them_healthy(stack: ContainerStack) -> None:
    context = ssl.create_default_context(cafile=secrets_of(stack).nobody.trust_certs)
    context.check_hostname = False

    def page(node: Node, port: int, scheme: str = "https") -> str:
        where = f"{scheme}://{node.address(port)}/metrics"
        used = context if scheme == "https" else None
        with urllib.request.urlopen(where, context=used, timeout=30) as got:
            text: str = got.read().decode()
        return text

    for node, port in ((stack.gateway, GATEWAY_METRICS_PORT), (stack.daemon, METRICS_PORT)):
        assert "cursorkeeper" in await asyncio.to_thread(page, node, port)
        with pytest.raises(OSError):
            await asyncio.to_thread(page, node, port, "http")
        await until(lambda node=node: health_of(node) == "healthy", f"{node.name} is healthy")


def health_of(node: Node) -> str:
    """Docker's own word."""
    return str(node.docker.attrs["State"]["Health"]["Status"])
