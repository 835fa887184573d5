"""Two whole brokers: a topic goes from one to the other by unload, by clean stops, by kill -9, and
from a broker that was taken for dead.

Each is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.field import (
    Field,
    admin,
    field,
    start,
    stop,
    take_for_dead,
    topics_of,
    until,
)
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
from daemon.tests.support.frozen import freeze, thaw
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
VERSION = "5.0.0-M1"
COUNT = 1_000


async def zombie(
    at: Field, first: PulsarBroker, second: PulsarBroker, name: str, daemons: bool = False
) -> None:
    """A broker (and its daemon) stands still, the other one loads the topic, the first one goes on,
    with acks in its socket from before.
    """
    do, of = at.clients.do, {"topic": topic(name), "sub": "sub"}
    await do("client", name=f"{name}-late", url=first.service_url, keep_alive_s=300)
    await do("subscribe", name=f"{name}-early", client=f"{name}-late", **of, keep=4)
    await do("send", client=f"{name}-late", topic=topic(name), count=COUNT)
    await do("through", **of)
    await do("close", name=f"{name}-early")
    await do(
        "subscribe",
        name=f"{name}-late",
        client=f"{name}-late",
        **of,
        ack="none",
        queue=1_000,
        apart=1,
    )
    await do("held", name=f"{name}-late", count=COUNT // 4)
    stopped, other = (first, second) if topic(name) in topics_of(first) else (second, first)
    daemon = at.daemons[0 if stopped is first else 1]
    freeze(stopped.pid)
    if daemons:
        freeze(daemon.pid)
    try:
        await take_for_dead(stopped)
        await do("held", name=f"{name}-late", ack=1)
        await do("mark")
        await do("client", name=name, url=other.service_url, keep_alive_s=2, operation_s=80)
        # the other one delivers what is un-acked, and half of that is confirmed there
        await do("subscribe", name=name, client=name, **of, keep=8)
        await do("delivered", **of, numbers=COUNT // 4, answers=1)
        assert topic(name) in topics_of(other)
    finally:
        thaw(stopped.pid)
        if daemons:
            thaw(daemon.pid)
    late = await do("answered", name=f"{name}-late")
    assert late["confirmed"] == 0 and late["refused"] == COUNT // 4, late
    await until("the topic is ended where it was", lambda: topic(name) not in topics_of(stopped))
    await do("close", name=f"{name}-late")
    await do("set", **of, refused=1)
    # this client, too, is at the other broker now
    await do("send", client=f"{name}-late", topic=topic(name), count=200)
    await do("through", **of)
    assert topic(name) in topics_of(other)


async def moves(at: Field, first: PulsarBroker, second: PulsarBroker, name: str) -> None:
    """Messages and acks flow while the topic is unloaded, while its bundle is shed to the one
    broker and to the other, and while it is
    split: the one half stays, the other one may go.
    """
    await flows(at, name, first, second)
    for broker in (first, second, first):
        await admin(first, "PUT", f"persistent/public/{name}/topic/unload")
        await flows_on(at, name)
        await unload(first, name, WHOLE, broker)
        await flows_on(at, name)
        await is_at(broker, name)
    await admin(first, "PUT", f"namespaces/public/{name}/{WHOLE}/split?unload=true")
    await flows_on(at, name)
    bundles = await admin(first, "GET", f"namespaces/public/{name}/bundles")
    assert isinstance(bundles, dict) and bundles["numBundles"] == 2, bundles


async def rolls(at: Field, first: PulsarBroker, second: PulsarBroker, name: str) -> None:
    """The plugin's upgrade and the daemon's: each is stopped in order and comes back while the
    others go on.
    """
    of = {"topic": topic(name), "sub": "sub"}
    for broker in (first, second):
        await stop(broker)
        await at.clients.do("delivered", **of, more=200)
        await start(broker)
    await at.daemons[0].stop()
    await at.daemons[0].start()
    await at.clients.do("delivered", **of, more=200)


async def goes_from_broker_to_broker(folder: Path, version: str) -> None:
    async with field(folder, version, daemons=2) as at:
        first, second = at.broker("first"), at.broker("second")
        await start(first, second)
        await made(first, "moves", "one-daemon", "two-keepers", "two-daemons")
        await moves(at, first, second, "moves")
        await rolls(at, first, second, "moves")
        await settles(at, "moves")
        await zombie(at, first, second, "one-daemon")

        await stop(second)
        second.conf["cursorKeeperAddress"] = at.daemons[1].address
        await start(second)
        await moves(at, first, second, "two-keepers")
        await settles(at, "two-keepers")
        await zombie(at, first, second, "two-daemons", daemons=True)
        await judged(at, second, "moves", "one-daemon", "two-keepers", "two-daemons")


@pytest.mark.timeout(500)
async def test_a_topic_goes_from_broker_to_broker_and_nothing_confirmed_is_lost(
    tmp_path: Path,
) -> None:
    await goes_from_broker_to_broker(tmp_path, VERSION)
