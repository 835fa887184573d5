"""The main job where everything is secured, from the cluster's own broker.conf: gateway, daemon and
sources show certificates to each other, ZooKeeper and bookies want users; processes are killed;
every command works with the daemon's own settings, and says what is missing without them.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.demo.processes import LineProcess
from cursorkeeper_client import Client, CursorState
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.end_to_end.workload import Driver, check
from daemon.tests.pulsar_plugin.one_topic import consumed, traffic
from daemon.tests.secured import pulsar
from daemon.tests.secured.cluster import NAME, Secured
from daemon.tests.secured.system import System, toml
from daemon.tests.source.random_acks import LAYOUT, START
from daemon.tests.support.frozen import freeze
from tools.brokers.traffic import SUBSCRIPTION, Counted, Produced, Topic

pytestmark = pytest.mark.jvm
TOPIC, SUB = "persistent://public/default/secured", "sub"
CURSOR, COPY = f"{TOPIC}|{SUB}", f"{TOPIC}|copy"
ERROR_MAX_S = 60.0
"""From the start of a command to its word about what is missing; it waits 10 s itself."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    cluster = Secured(tmp_path_factory.mktemp("secured"))
    try:
        cluster.start()
        made = System(cluster)
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
    await asyncio.to_thread(every_command_works, system, acked)


SMALL = """\
{"type":"cursor","format":1,"topic":"persistent://public/default/small","subscription":"s",\
"markDelete":[7,3],"epoch":3,"generation":2,"markDeleteProperties":{},"cursorProperties":{},\
"layout":[[7,"OPEN",0]]}
{"type":"acks","ledger":7,"ranges":[[5,6],[9,9]]}
{"type":"end","acked":3,"partials":0,"lines":2}
"""
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
    file = secured.written("small.jsonl", SMALL)
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
    wrong = secured.written("wrong-user", "sasl:keeper:wrong")
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
            "refuses the login of 'keeper'",
        ),
        (less("foreign.toml", **shows(secured.other)), ("ls",), 3, wants),
        (nobody, ("ls",), 1, "AccessDenied .*zookeeper_auth_file"),
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
    and after the last receipt daemon and broker.
    """
    system = daemon
    cluster = await asyncio.to_thread(pulsar.cluster_of, system, tmp_path / "pulsar")
    try:
        broker = pulsar.SecuredBroker(cluster, system)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.admit, "public/default", pulsar.CLIENT_ROLE)
        topic = Topic(
            pulsar.VERSION,
            broker.service_url,
            "persistent://public/default/tokens",
            MESSAGES,
            tmp_path / "traffic.log",
            client=pulsar.client_conf(system),
            every_second=True,
        )
        await traffic(topic, "produce", Produced)
        async with consumed(topic, lambda one: met_by_a_kill(one, system)) as receipts:
            await asyncio.gather(system.daemon.kill(), asyncio.to_thread(broker.kill))
        await asyncio.gather(system.start_daemon(), asyncio.to_thread(broker.start))
        counted = await traffic(topic, "count", Counted)
        assert receipts.acked == counted.unacked == MESSAGES // 2
        assert counted.confirmed_again == counted.unacked_not_delivered == 0
        await asyncio.to_thread(commands_on_pulsar_work, system, f"{topic.name}|{SUBSCRIPTION}")
    finally:
        await asyncio.to_thread(cluster.kill)


def commands_on_pulsar_work(system: System, cursor: str) -> None:
    """Also those that look at Pulsar's own metadata, or make cursors of it."""
    topic, _, _ = cursor.partition("|")
    second = ("--root", "/cursorkeeper/second")
    with ThreadPoolExecutor(3) as threads:
        orphans, assessed, imported, exported = threads.map(
            lambda words: said(system.tool(*words, "--json")),
            [
                # those of cursors that were made without a broker, if there are any
                ("orphans", "--percent-max", "100"),
                ("assess", "--all"),
                ("import-pulsar", cursor, *second),
                ("export-pulsar", cursor, "--live", "--dry-run"),
            ],
        )
    assert topic not in {one.get("topic") for one in orphans}
    assert [one["topic"] for one in assessed[:-1]] == [topic]
    for done in (imported, exported):
        [one, summary] = done
        assert (one["cursor"], one["ok"], summary["cursors"]) == (cursor, True, 1)
    [report] = said(system.tool("verify", "--all", *second, "--json"))
    assert (report["cursor"], report["ok"]) == (cursor, True)


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Its JSON lines; it went well."""
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def every_command_works(system: System, acked: set[tuple[int, int]]) -> None:
    """The daemon has stopped, and closed its cursors."""
    tool, file = system.tool, str(system.cluster.folder / "cursor.jsonl")
    with ThreadPoolExecutor(3) as threads:
        listed, shown, verified = threads.map(
            lambda words: said(tool(*words, "--json")),
            [("ls",), ("inspect", CURSOR), ("verify", "--all")],
        )
        assert [(one["cursor"], one["state"]) for one in listed] == [(CURSOR, "closed")]
        assert shown[0]["type"] == "footer" and all(one.get("ok", True) for one in shown)
        assert verified[0]["ok"] and not verified[0]["atLeast"]
        assert verified[0]["totals"]["acked"] == len(acked)
        said(tool("export", CURSOR, "-o", file, "--json"))
        [made] = said(tool("import", file, "--cursor", COPY, "--json"))
        assert made["acked"] == verified[0]["totals"]["acked"]
        swept, restored, forgotten, again = threads.map(
            lambda words: said(tool(*words, "--json")),
            [
                ("gc",),
                ("restore-footer", COPY, "--as-it-is", "--yes"),
                ("forget-token", CURSOR),
                ("export", COPY, "-o", f"{file}.again"),
            ],
        )
    # a daemon that was killed may have left a ledger that no footer came to name
    assert swept[0]["named"] >= 2 and swept[0]["garbage"] == swept[0]["deleted"]
    assert swept[0]["failed"] == swept[0]["doubtful"] == 0
    assert restored[0]["written"] and restored[0]["differences"] == {}
    assert forgotten[0]["fencingToken"] == 0
    assert not again[0]["atLeast"]
    one, other = (Path(each).read_text().splitlines() for each in (file, f"{file}.again"))
    assert one[1:] == other[1:]
