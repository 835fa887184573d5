"""Whole parts are killed while messages and acks flow: daemon, gateway, ZooKeeper, bookies, the
broker, and broker and daemon together.

Each is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cursorkeeper.demo.stack import LocalCluster
from daemon.tests.pulsar_plugin.field import NAMESPACE, Field, field, kill, start
from daemon.tests.pulsar_plugin.outage import page_of

pytestmark = pytest.mark.jvm
VERSION = "5.0.0-M1"
TOPIC = f"persistent://{NAMESPACE}/faults"
OF = {"topic": TOPIC, "sub": "sub"}
KEEP = 9


async def goes_on(at: Field) -> None:
    """Acks are answered again: what was sent until now, by whichever part, is delivered and what is
    to be acked is confirmed.
    """
    await at.clients.do("delivered", **OF, more=100)
    said = await at.clients.do("answers", **OF, more=100)
    assert said["again"] == 0, said


async def are_killed(folder: Path, version: str) -> None:
    async with field(folder, version, apart=True) as at:
        stack, daemon, broker = at.stack, at.daemons[0], at.broker()
        assert isinstance(stack, LocalCluster)
        await start(broker)
        await at.clients.do(
            "client", name="main", url=broker.service_url, keep_alive_s=2, operation_s=10
        )
        for number in range(2):
            await at.clients.do("subscribe", name=f"main-{number}", client="main", **OF, keep=KEEP)
        await at.clients.do("flow", client="main", topic=TOPIC, pause_ms=5)
        await goes_on(at)

        # the daemon is dead: no receipt, and nothing stops; when it is back all of them come
        await daemon.kill()
        said = await at.clients.do("report", **OF)
        await at.clients.do("delivered", **OF, more=300)
        silent = await at.clients.do("report", **OF)
        assert silent["confirmed"] - said["confirmed"] <= said["asked"], (said, silent)
        assert silent["asked"] >= 200, silent
        await daemon.start()
        await goes_on(at)

        await asyncio.to_thread(stack.gateways[0].restart)
        await goes_on(at)
        for bookie in stack.bookies[:2]:
            await asyncio.to_thread(bookie.restart)
            await goes_on(at)
        await asyncio.to_thread(stack.zookeeper.restart)
        await goes_on(at)

        await kill(broker)
        await start(broker)
        await goes_on(at)
        await asyncio.gather(kill(broker), daemon.kill())
        await asyncio.gather(start(broker), daemon.start())
        await goes_on(at)

        await at.clients.do("halt", topic=TOPIC)
        before = await at.clients.do("through", **OF)
        assert before["again"] == 0, before

        # receipts with the daemon dead, to the end: what was never confirmed may come again, and
        # nothing else
        await daemon.kill()
        await at.clients.do("send", client="main", topic=TOPIC, count=500)
        await at.clients.do("delivered", **OF, more=0, numbers=0)
        await kill(broker)

        # a load without the daemon fails, and delivers nothing; the next one with it does not
        broker.conf["cursorKeeperOpenTimeoutMs"] = "5000"
        await asyncio.gather(at.clients.do("drop"), start(broker))
        page = page_of(broker)
        await at.clients.do("client", name="judge", url=broker.service_url, operation_s=85)
        subscribed = asyncio.create_task(
            at.clients.do("subscribe", name="judge", client="judge", **OF, ack="none", queue=5_000)
        )
        await page.becomes("failed_loads_total", lambda count: count >= 1)
        assert (
            not subscribed.done()
            and page.of('cursors{state="stock"}') == page.of("stock_loads_total") == 0
        ), page.now()
        await daemon.start()
        await subscribed
        said = await at.clients.settled(TOPIC, client="judge")
        print(said)


@pytest.mark.timeout(500)
async def test_parts_are_killed_while_acks_flow_and_nothing_confirmed_comes_again(
    tmp_path: Path,
) -> None:
    await are_killed(tmp_path, VERSION)
