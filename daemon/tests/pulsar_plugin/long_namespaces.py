"""Cursors are kept in one namespace and Pulsar's own in another: side by side in one broker, and in
a cluster in which one broker lacks the jar, with messages and acks under way: that one never opens
a cursor of its own beside a kept one. `make test-brokers`.

The kept are judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from daemon.tests.pulsar_plugin.field import (
    Field,
    admin,
    bind,
    field,
    kill,
    start,
    stop,
    topics_of,
    until,
)
from daemon.tests.pulsar_plugin.jar import LINES
from daemon.tests.pulsar_plugin.outage import page_of
from daemon.tests.pulsar_plugin.two_brokers import (
    WHOLE,
    flows,
    flows_on,
    is_at,
    judged,
    made,
    settles,
    topic,
    unload,
)
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
KEPT, STOCK = "kept", "stock"
CONF = {
    "cursorKeeperNamespaces": f"public/{KEPT}",
    "managedLedgerCursorPositionFlushSeconds": "3600",  # what Pulsar's own cursors persist at times
}
COUNT, KEEP = 1_200, 7
OPEN = len(range(0, COUNT, KEEP))
REFUSED = "ManagedLedgerStorageClass cursorkeeper not found"


async def cursor(broker: PulsarBroker, name: str) -> Mapping[str, Any]:
    """What the broker says of the subscription's cursor."""
    stats = await admin(broker, "GET", f"persistent/public/{name}/side/internalStats")
    assert isinstance(stats, dict)
    found: Mapping[str, Any] = stats["cursors"]["sub"]
    return found


async def backlog(broker: PulsarBroker, name: str) -> object:
    stats = await admin(broker, "GET", f"persistent/public/{name}/side/stats")
    assert isinstance(stats, dict)
    return stats["subscriptions"]["sub"]["msgBacklog"]


def side(name: str) -> str:
    return f"persistent://public/{name}/side"


async def are_side_by_side(at: Field, broker: PulsarBroker) -> None:
    """The same in both namespaces, with the same figures but for the cursor ledger."""
    page, do = page_of(broker), at.clients.do
    await do("client", name="main", url=broker.service_url)
    for name in (KEPT, STOCK):
        await do("subscribe", name=name, client="main", topic=side(name), sub="sub", keep=KEEP)
        await do("send", client="main", topic=side(name), count=COUNT)
        assert (await do("through", topic=side(name), sub="sub"))["confirmed"] == COUNT - OPEN
    kept, stock = [await cursor(broker, name) for name in (KEPT, STOCK)]
    assert kept["cursorLedger"] == -1 and stock["cursorLedger"] >= 0, (kept, stock)
    for figure in ("messagesConsumedCounter", "state"):
        assert kept[figure] == stock[figure], (figure, kept, stock)
    assert all(each["totalNonContiguousDeletedMessagesRange"] >= OPEN for each in (kept, stock)), (
        kept,
        stock,
    )
    assert [await backlog(broker, name) for name in (KEPT, STOCK)] == [OPEN, OPEN]
    assert (
        page.of('cursors{state="kept"}') == page.of("opens_total") == 1
        and page.of('cursors{state="stock"}') == 0
    ), page.now()


async def are_judged_side_by_side(at: Field, broker: PulsarBroker) -> None:
    """After kill -9. Of Pulsar's own cursor comes again what it had not persisted."""
    await at.clients.do("client", name="main", url=broker.service_url)
    for name in (KEPT, STOCK):
        await at.clients.do(
            "subscribe",
            name=name,
            client="main",
            topic=side(name),
            sub="sub",
            ack="none",
            queue=2 * COUNT,
        )
    await at.clients.settled(side(KEPT), client="main", opens=OPEN + 1)
    said = await at.clients.do("settle", topic=side(STOCK), sub="sub", client="main")
    assert said["missing"] == 0, said
    print("of Pulsar's own came again:", said["again"])
    assert [(await cursor(broker, name))["cursorLedger"] == -1 for name in (KEPT, STOCK)] == [
        True,
        False,
    ]
    await at.clients.do("close")


async def refuses(bare: PulsarBroker, times: int) -> None:
    """One more than so many times, because clients come again and again. It has not loaded the
    topic.
    """
    await until(
        "the topic is refused", lambda: bare.log.read_text(errors="replace").count(REFUSED) > times
    )
    assert topic(KEPT) not in topics_of(bare)


async def one_lacks_the_jar(at: Field, kept: PulsarBroker, bare: PulsarBroker) -> None:
    """The kept topic is sent there, and falls to it when the other broker is killed. It waits, and
    goes on where cursors are kept.
    """

    def refusals() -> int:
        return bare.log.read_text(errors="replace").count(REFUSED)

    await flows(at, KEPT, kept, bare)
    await flows(at, STOCK, kept, bare)
    for _ in range(2):
        for to in (bare, kept):
            await unload(kept, STOCK, WHOLE, to)
            await flows_on(at, STOCK)
        before = refusals()
        await unload(kept, KEPT, WHOLE, bare)
        await refuses(bare, before)
        await unload(bare, KEPT, WHOLE, kept)
        await flows_on(at, KEPT)
        await is_at(kept, KEPT)
    before = refusals()
    await kill(kept)
    await refuses(bare, before)
    await start(kept)
    await unload(bare, KEPT, WHOLE, kept)
    await flows_on(at, KEPT, STOCK)
    await is_at(kept, KEPT)


@pytest.mark.parametrize("version", LINES.values())
async def test_a_namespace_is_kept_and_no_broker_without_the_jar_has_its_topics(
    tmp_path: Path, version: str
) -> None:
    async with field(tmp_path, version) as at:
        kept, bare, later = (
            at.broker("kept", conf=CONF),
            at.broker("bare", daemon=None, jar=False),
            at.broker("later", conf=CONF),
        )
        await start(kept)
        await bind(kept, f"public/{KEPT}")
        await made(kept, STOCK)
        await are_side_by_side(at, kept)
        await kill(kept)
        await at.clients.do("drop")
        await start(kept)
        await are_judged_side_by_side(at, kept)

        await start(bare)
        await one_lacks_the_jar(at, kept, bare)
        page = page_of(kept)
        assert page.of("stale_total") == page.of("imports_total") == 0, page.now()

        # the roll-out ends: another broker, which has the jar, in its place
        await stop(bare)
        await flows_on(at, KEPT)
        await start(later)
        await unload(kept, KEPT, WHOLE, later)
        await flows_on(at, KEPT)
        await settles(at, KEPT)
        await at.clients.do("halt", topic=topic(STOCK))
        await judged(at, later, KEPT)
