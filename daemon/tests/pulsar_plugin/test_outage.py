"""A topic while its daemon is away, and what it tells of itself."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.stack.ports import free_port
from daemon.tests.pulsar_plugin.field import (
    BOUND,
    NAMESPACE,
    Field,
    admin,
    bind,
    field,
    kill,
    start,
    until,
)
from daemon.tests.pulsar_plugin.jar import ENDS
from daemon.tests.pulsar_plugin.mains import RUN_MAX_S, run
from daemon.tests.pulsar_plugin.outage import (
    CONF,
    LATE,
    OF,
    QUEUE,
    STATE_MAX,
    STATE_MAX_BYTES,
    Page,
    a_cursor_grows_too_large,
    displace,
    goes_on,
    is_large,
    is_paused,
    other_protocols_are_refused,
    page_of,
)
from daemon.tests.support.frozen import freeze, thaw
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
VERSION = "5.0.0-M1"
GATED = {"topic": f"persistent://{BOUND}/gated", "sub": "sub"}
DELAY_S = 15.0


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_stories_of_a_topic_whose_keeper_is_away(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    assert (await run(line, "OutageMain", tmp_path, stack.zookeeper, daemon.address)).startswith(
        "stories "
    )


def is_loaded(broker: PulsarBroker, topic: str) -> bool:
    """Pulsar's page has series of every topic that is loaded."""
    return f'topic="{topic}"' in broker.get("/metrics/").decode()


def the_pages_of_a_healthy_broker(page: Page, meters_port: int) -> None:
    def meters() -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{meters_port}/metrics", timeout=30
        ) as answer:
            text: str = answer.read().decode()
        return text

    healthy = page.now()
    assert (
        page.of("link_up") == 1
        and page.of('cursors{state="kept"}') >= 2
        and page.of('cursors{state="stock"}') == 0
    ), healthy
    assert (
        page.of("opens_total") >= 2
        and page.of("receipt_latency_seconds_count") > 0
        and page.of("acks_without_room_total") == 0
    ), healthy
    latency = "pulsar_cursorkeeper_receipt_latency_seconds"
    assert healthy[f'{latency}_bucket{{le="+Inf"}}'] == healthy[f"{latency}_count"], healthy
    by_meter = Page(meters).now()
    assert [
        by_meter[name] for name in by_meter if name.startswith("pulsar_broker_cursorkeeper_link_up")
    ] == [1], by_meter
    assert any(
        name.startswith("pulsar_broker_cursorkeeper_receipt_latency_seconds_count")
        for name in by_meter
    ), by_meter
    assert any('pulsar_managed_ledger_cursor_name="sub"' in name for name in by_meter), by_meter


async def the_daemon_stands_still(at: Field, page: Page) -> None:
    """Acks wait up to the limit, dispatch pauses, delayed messages that are due wait, too."""
    daemon, do = at.daemons[0], at.clients.do
    loop = asyncio.get_running_loop()
    await do("send", client="main", topic=LATE["topic"], count=50, delay_ms=int(DELAY_S * 1_000))
    due = loop.time() + DELAY_S
    freeze(daemon.pid)
    await do("send", client="main", topic=OF["topic"], count=2_000)
    deliveries = await is_paused(at, page)
    in_time = loop.time() < due
    assert deliveries < 2_500, deliveries
    assert page.of('cursors{state="paused"}') >= 2 and page.of('cursors{state="kept"}') == 0
    assert page.of("waiting_bytes") > 0 and page.of("waiting_oldest_seconds") > 0
    assert (
        page.of(
            'cursor_waiting_acks{namespace="public/default",ledger_name="public/default/persistent/busy",cursor_name="sub"}'
        )
        > 0
    )
    await asyncio.sleep(max(0.0, due + 3 - loop.time()))
    held = await do("report", **LATE)
    assert not in_time or held["deliveries"] == 0, held
    later = (await do("report", **OF))["deliveries"]
    assert later - deliveries <= QUEUE, "more was dispatched than had been before the pause"
    thaw(daemon.pid)
    await goes_on(at, page, OF, LATE)
    assert (await do("report", **LATE))["confirmed"] == 50


async def the_daemon_is_killed(at: Field, broker: PulsarBroker, page: Page) -> None:
    """The same as while it stands still."""
    daemon, do = at.daemons[0], at.clients.do
    await daemon.kill()
    await page.becomes("link_up", lambda up: up == 0)
    await do("send", client="main", topic=OF["topic"], count=1_000)
    assert await is_paused(at, page) < 3_500
    await daemon.start()
    await goes_on(at, page, OF, LATE)
    assert page.of("link_connects_total") >= 2
    stats = await admin(broker, "GET", f"persistent/{NAMESPACE}/busy/internalStats")
    assert isinstance(stats, dict)
    cursor = stats["cursors"]["sub"]
    assert (
        cursor["state"] == "Open"
        and cursor["totalNonContiguousDeletedMessagesRange"] == 0
        and cursor["cursorLedger"] == -1
    ), cursor


async def the_broker_is_killed(at: Field, broker: PulsarBroker) -> int:
    """What was acked beyond the limit is kept, too: after a kill nothing of it comes. Returns the
    deliveries before it.
    """
    do = at.clients.do
    await kill(broker)
    await start(broker)
    await do("drop")
    await do("client", name="main", url=broker.service_url)
    before = (await do("report", **OF))["deliveries"]
    await do("subscribe", name="judge", client="main", **OF)
    said = await at.clients.settled(OF["topic"], client="main", opens=0)
    assert said["deliveries"] == before + 1, said
    await is_large(at)
    return int(before)


async def loads_without_the_daemon(
    at: Field, broker: PulsarBroker, page: Page, before: int
) -> None:
    """A load that is refused fails; one without an answer goes on with Pulsar's own cursors, also
    in a bound namespace, and the next one with the keeper's.
    """
    daemon, do = at.daemons[0], at.clients.do
    await do("close", name="judge")
    for name in (f"{NAMESPACE}/late", f"{BOUND}/gated"):
        await admin(broker, "GET", f"persistent/{name}/stats")  # loads it
    await admin(broker, "PUT", f"persistent/{NAMESPACE}/late/unload")
    await daemon.kill()
    await other_protocols_are_refused(at, broker, page)
    await asyncio.gather(
        *(
            admin(broker, "PUT", f"persistent/{name}/unload")
            for name in (f"{NAMESPACE}/busy", f"{BOUND}/gated")
        )
    )
    own = do("subscribe", name="own", client="main", topic=OF["topic"], sub="own")
    await asyncio.gather(own, admin(broker, "GET", f"persistent/{BOUND}/gated/stats"))
    assert (
        page.of("stock_topics") == 2
        and page.of("stock_loads_total") >= 2
        and page.of('cursors{state="stock"}') == 3
    ), page.now()
    assert page.of("failed_loads_total") >= 1 and page.of("closes_without_word_total") >= 1, (
        page.now()
    )
    assert "Loaded with Pulsar's own cursors" in broker.log.read_text()
    await do("send", client="main", topic=OF["topic"], count=20)
    await do("delivered", topic=OF["topic"], sub="own", numbers=20, answers=1)
    await daemon.start()
    await page.becomes("link_up", lambda up: up == 1)
    await asyncio.gather(
        *(
            admin(broker, "PUT", f"persistent/{name}/unload")
            for name in (f"{NAMESPACE}/busy", f"{BOUND}/gated")
        )
    )
    await do("subscribe", name="judge", client="main", **OF)
    said = await at.clients.settled(OF["topic"], client="main", opens=0)
    assert said["deliveries"] == before + 22, said
    assert (
        page.of("stock_topics") == 0
        and page.of("stale_total") >= 1
        and page.of("imports_total") >= 1
    ), page.now()


async def a_newer_load_has_its_cursor(at: Field, broker: PulsarBroker, page: Page) -> None:
    """A topic that nobody reads is unloaded then."""
    daemon = at.daemons[0]
    alone = f"persistent://{NAMESPACE}/alone"
    await admin(broker, "PUT", f"persistent/{NAMESPACE}/alone")
    await admin(
        broker,
        "PUT",
        f"persistent/{NAMESPACE}/alone/subscription/sub",
        {"ledgerId": -1, "entryId": -1},
    )
    assert is_loaded(broker, alone)
    await displace(daemon, alone)
    await until("the topic is unloaded", lambda: not is_loaded(broker, alone))
    assert page.of("fenced_total") >= 1
    assert (
        f"[{NAMESPACE}/persistent/alone] This load of the topic is over" in broker.log.read_text()
    )


async def goes_on_while_its_daemon_is_away(
    folder: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters_port = free_port()
    for name, value in {
        "OTEL_SDK_DISABLED": "false",
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(meters_port),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(STATE_MAX, str(STATE_MAX_BYTES))

    async with field(folder, version) as at:
        broker = at.broker(conf=CONF)
        page, do = page_of(broker), at.clients.do
        await start(broker)
        await bind(broker)
        await do("client", name="main", url=broker.service_url)
        for each in (OF, LATE, GATED):
            await do("subscribe", name=each["topic"], client="main", **each, queue=QUEUE)
        await do("send", client="main", topic=OF["topic"], count=300)
        await do("through", **OF)

        the_pages_of_a_healthy_broker(page, meters_port)
        await a_cursor_grows_too_large(at, broker, page, monkeypatch)
        await the_daemon_stands_still(at, page)
        await the_daemon_is_killed(at, broker, page)
        before = await the_broker_is_killed(at, broker)
        await loads_without_the_daemon(at, broker, page, before)
        await a_newer_load_has_its_cursor(at, broker, page)


@pytest.mark.timeout(400)
async def test_a_broker_goes_on_while_its_daemon_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await goes_on_while_its_daemon_is_away(tmp_path, VERSION, monkeypatch)
