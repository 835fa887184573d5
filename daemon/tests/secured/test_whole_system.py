"""The main job where everything is secured, from the cluster's own broker.conf: gateway, daemon and
sources show certificates to each other, ZooKeeper and bookies want users; processes are killed;
every command works with the daemon's own settings, and says what is missing without them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cursorkeeper.cli.main import LAZY
from cursorkeeper.demo.processes import LineProcess
from cursorkeeper_client import Client, CursorState
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.end_to_end.workload import Driver, check
from daemon.tests.pulsar_plugin.jar import JAR, LINES
from daemon.tests.pulsar_plugin.one_topic import CONF, consumed, traffic
from daemon.tests.secured import commands, deployed
from daemon.tests.source.random_acks import LAYOUT, START
from daemon.tests.support.frozen import freeze
from tools.brokers.play import plugin_conf
from tools.brokers.secured.broker import (
    CLIENT_ROLE,
    SecuredBroker,
    client_conf,
    cluster_of,
    plugin_link,
)
from tools.brokers.secured.cluster import LEDGERS_USER, NAME, Secured
from tools.brokers.secured.system import System, toml
from tools.brokers.traffic import SUBSCRIPTION, Consumed, Counted, Produced, Topic, compiled

pytestmark = pytest.mark.jvm
VERSION = LINES["5.0"]
TOPIC, SUB = "persistent://public/default/secured", "sub"
CURSOR, COPY = f"{TOPIC}|{SUB}", f"{TOPIC}|copy"
ERROR_MAX_S = 60.0
"""From the start of a command to its word about what is missing; it waits 10 s itself."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    cluster = Secured(tmp_path_factory.mktemp("secured"))
    try:
        cluster.start()
        made = System(cluster, {"inline_state_max_bytes": 0})
        try:
            made.start()
            yield made
        finally:
            made.stop()
    finally:
        cluster.stop()


@pytest.fixture
async def daemon(system: System) -> AsyncIterator[System]:
    """Its daemon runs."""
    await system.start_daemon()
    try:
        yield system
    finally:
        await system.daemon.kill()


async def state_of(system: System, topic: str) -> CursorState:
    """As a new owner finds it."""
    async with SourceConnection(system.address, system.client_settings()) as session:
        return await session.open(topic, SUB, create=False, takeover=True).opened()


async def test_confirmed_acks_outlive_kills_and_every_command_works(daemon: System) -> None:
    system = daemon
    # a gateway shows its certificate to itself, too
    assert "the warm-up failed" not in system.gateway.log.read_text()
    async with Client(system.address, system.client_settings()) as client, asyncio.timeout(240):
        driver = Driver(client.cursor(TOPIC, SUB, layout=LAYOUT, start=START), 61)
        await driver.cursor.opened()
        for _ in range(2):
            await driver.send_some(40)
            await driver.cursor.durable(driver.cursor.last_seq - 10)
            await system.daemon.kill()
            await driver.send_some(10)
            await system.start_daemon()
        await driver.send_some(20)
        await asyncio.to_thread(system.gateway.kill)
        await driver.send_some(20)
        await asyncio.to_thread(system.gateway.start)
        await driver.send_some(20)
        await driver.cursor.durable(timeout_s=120)
        assert driver.cursor.opens >= 3
    await system.daemon.kill()
    await system.start_daemon()
    check(await state_of(system, TOPIC), driver.truth)
    assert driver.truth.confirmed == driver.truth.sent
    await system.daemon.stop()
    truth = driver.truth
    acked = truth.confirmed | truth.wholly(truth.confirmed_indexes)
    await asyncio.to_thread(commands.on_cursors, system, CURSOR, COPY, acked)


def test_no_command_is_forgotten() -> None:
    """A new one has its place in a story of this folder, or a reason to have none."""
    tried = commands.ON_CURSORS | commands.ON_PULSAR | commands.ON_THE_WAY_BACK | commands.SERVERS
    assert tried | commands.ELSEWHERE.keys() == LAZY.keys()
    assert not tried & commands.ELSEWHERE.keys()
    assert {words[0] for words in COMMANDS} >= tried - commands.SERVERS - {"set-acl"}


async def test_the_secured_forms_of_deploy_run_as_they_are(system: System) -> None:
    """Each with its own files, on this cluster: an ack becomes durable, and probes find it well."""

    async def runs(name: str) -> None:
        form = deployed.Deployed(name, system.cluster)
        try:
            await asyncio.to_thread(form.gateway.start)
            await form.daemon.start()
            await form.daemon.line()
            async with Client(form.address, form.client_settings()) as client:
                driver = Driver(
                    client.cursor(f"{TOPIC}-{name}", SUB, layout=LAYOUT, start=START), 7
                )
                await driver.cursor.opened()
                await driver.send_some(3)
                await driver.cursor.durable(timeout_s=120)
            assert driver.truth.confirmed == driver.truth.sent
            assert await asyncio.to_thread(form.probed, *deployed.PROBES[name]) == 0
            await form.daemon.stop()
        finally:
            await form.daemon.kill()
            await asyncio.to_thread(form.gateway.kill)

    async with asyncio.timeout(240), asyncio.TaskGroup() as together:
        for name in deployed.FORMS:
            together.create_task(runs(name))


EXPECTS_TLS = r"closed the connection: .*zookeeper_tls_enabled"
COMMANDS = (
    ("ls",),
    ("inspect", CURSOR),
    ("verify", "--all"),
    ("export", CURSOR),
    ("import", "{file}", "--cursor", COPY),
    ("gc",),
    ("restore-footer", CURSOR, "--as-it-is"),
    ("forget-token", CURSOR),
    ("orphans",),
    ("assess", "--all"),
    ("import-pulsar", "--all"),
    ("export-pulsar", "--all"),
)


async def test_who_shows_nothing_or_too_little_is_told_what_is_missing(daemon: System) -> None:
    """Each command ends by itself, with a word about the very thing."""
    system, secured = daemon, daemon.cluster
    file = secured.written("small.jsonl", commands.SMALL)
    bare = {
        "zookeeper": f"{NAME}:{secured.secure}",
        "gateway": system.gateway_address,
    }
    nothing = ["--config", secured.written("nothing.toml", toml(bare))]

    def less(name: str, *names: str, **more: object) -> list[str]:
        """The daemon's own settings, but for some."""
        values = {**system.daemon_settings(), **more}
        kept = {key: value for key, value in values.items() if key not in names}
        return ["--broker-conf", system.conf, "--config", secured.written(name, toml(kept))]

    def shows(files: TlsFiles) -> dict[str, object]:
        return {
            "tls_certificate_file_path": files.certificate,
            "tls_key_file_path": files.key,
        }

    nobody = less("nobody.toml", "zookeeper_auth_file", "zookeeper_acl", **shows(system.stranger))
    gateways = secured.written("gateways-user", LEDGERS_USER)
    wrong = secured.written("wrong-user", "sasl:cursors:wrong")
    of_tls = ["--tls", "--tls-trust-certs-file-path", system.source.trust_certs]
    shown = ["--tls-certificate-file-path", system.source.certificate]
    shown += ["--tls-key-file-path", system.source.key]
    wants = "(may want|wants) a certificate, or does not believe|refuses this client.s certificate"
    cases: list[tuple[list[str], tuple[str, ...], int, str]] = [
        *((nothing, words, 3, EXPECTS_TLS) for words in COMMANDS),
        (
            less("wrong.toml", zookeeper_auth_file=wrong),
            ("ls",),
            3,
            "refuses the login of 'cursors'",
        ),
        (less("foreign.toml", **shows(secured.other)), ("ls",), 3, wants),
        (nobody, ("ls",), 1, "AccessDenied .*zookeeper_auth_file"),
        (
            # a gateway's user has the ledgers' metadata, and no footer
            less("gateways.toml", zookeeper_auth_file=gateways, **shows(system.gateway_files)),
            ("ls",),
            1,
            "AccessDenied .*zookeeper_auth_file",
        ),
        (less("plain.toml", "gateway_tls_enabled"), ("gc",), 3, "other side may expect TLS"),
        (less("stranger.toml", **shows(system.stranger)), ("gc",), 1, "UNKNOWN_CERTIFICATE"),
        *(
            ([], ("health", "--timeout-s", "20", "--address", at, *flags), 3, words)
            for at in (system.address, system.gateway_address)
            for flags, words in (([], "the other side may expect TLS"), (of_tls, wants))
        ),
        *(
            ([], ("health", "--timeout-s", "20", "--address", at, *of_tls, *shown), 0, "")
            for at in (system.address, system.gateway_address)
        ),
    ]

    def told(case: tuple[list[str], tuple[str, ...], int, str]) -> str:
        here, words, code, what = case
        began_s = time.monotonic()
        done = system.tool(*(word.format(file=file) for word in words), here=here)
        took_s = time.monotonic() - began_s
        if (
            done.returncode == code
            and re.search(what, done.stderr, re.DOTALL)
            and "Traceback" not in done.stderr
            and took_s < ERROR_MAX_S
        ):
            return ""
        return f"{here} {words}, {done.returncode} after {took_s:.1f} s: {done.stdout}{done.stderr}"

    with ThreadPoolExecutor(8) as threads:
        answers = await asyncio.to_thread(lambda: list(threads.map(told, cases)))
    assert [answer for answer in answers if answer] == []


MESSAGES = 6_000
FEW_MESSAGES = 2_000
"""Half of them are holes: five times what a znode of this version holds."""


ACKS_IN_FLIGHT_MAX = 1_000
"""So many acks Traffic.java sends without a receipt."""


async def met_by_a_kill(consumer: LineProcess, system: System) -> None:
    """Starts it while the daemon stands still, which is killed when acks wait."""
    freeze(system.daemon.pid)
    await consumer.start()
    while (await consumer.line()).get("waiting") != ACKS_IN_FLIGHT_MAX:
        pass
    await system.daemon.kill()
    await system.start_daemon()


async def test_a_broker_with_tls_and_tokens_delivers_nothing_confirmed_again(
    daemon: System, tmp_path: Path
) -> None:
    """A client with a token acks every second message. The daemon is killed while acks wait for it,
    and after the last receipt daemon and broker. Another topic leaves: the broker closes it, its
    cursor is exported, and the broker goes on with Pulsar's own.
    """
    system = daemon
    cluster, classes = await asyncio.gather(
        asyncio.to_thread(cluster_of, system, tmp_path / "pulsar", VERSION),
        asyncio.to_thread(compiled, VERSION, tmp_path / "traffic"),
    )
    try:
        conf = {**CONF, **plugin_conf(VERSION, system.address), **plugin_link(system)}
        broker = SecuredBroker(cluster, system, conf=conf, extra_class_path=[JAR])
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.admit, "public/default", CLIENT_ROLE)
        topic, leaving = (
            Topic(
                VERSION,
                broker.service_url,
                f"persistent://public/default/{name}",
                messages,
                tmp_path / f"{name}.log",
                classes,
                client_conf(system),
                every_second=True,
            )
            for name, messages in (("tokens", MESSAGES), ("leaving", FEW_MESSAGES))
        )
        await asyncio.gather(*(traffic(each, "produce", Produced) for each in (topic, leaving)))
        async with consumed(topic, lambda one: met_by_a_kill(one, system)) as receipts:
            await asyncio.gather(system.daemon.kill(), asyncio.to_thread(broker.kill))
        await asyncio.gather(system.start_daemon(), asyncio.to_thread(broker.start))
        counted = await traffic(topic, "count", Counted)
        is_unharmed(topic, receipts, counted)
        async with consumed(leaving) as left:
            pass
        cursor = f"{leaving.name}|{SUBSCRIPTION}"
        await asyncio.to_thread(commands.on_pulsar, system, f"{topic.name}|{SUBSCRIPTION}")
        await asyncio.to_thread(broker.stop)
        await system.daemon.stop()
        await asyncio.to_thread(commands.on_the_way_back, system, cursor, VERSION)
        broker.conf["cursorKeeperMode"] = "off"
        await asyncio.to_thread(broker.start)
        is_unharmed(leaving, left, await traffic(leaving, "count", Counted))
    finally:
        await asyncio.to_thread(cluster.kill)


def is_unharmed(topic: Topic, receipts: Consumed, counted: Counted) -> None:
    """Nothing that was confirmed came again, and nothing else is missing."""
    assert receipts.acked == counted.unacked == topic.messages // 2
    assert counted.confirmed_again == counted.unacked_not_delivered == 0
