"""Two clusters that replicate a topic and its subscription's state, each with kept cursors: the
brokers of both are killed.

`make test-brokers`. Kept are the subscription on both sides and the replicator's cursor: 0
confirmed delivered again where it was confirmed, 0 un-acked missing on either side, and what the
other side had taken over of the subscription's state is still there. Messages that the replicator
had just sent come twice to the other side, as in Pulsar without deduplication: nobody was told of
their acks.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.field import Field, admin, field, kill, start, until
from daemon.tests.pulsar_plugin.jar import LINES
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
TOPIC = "persistent://public/geo/topic"
OF = {"topic": TOPIC, "sub": "sub"}
CONF = {
    "enableReplicatedSubscriptions": "true",
    "replicatedSubscriptionsSnapshotFrequencyMillis": "500",
}
BEHIND_MAX = 200
UNACKED = 100


async def joined(*sides: tuple[Field, PulsarBroker]) -> None:
    names = [at.cluster.name for at, _ in sides]
    for at, broker in sides:
        urls = {"serviceUrl": broker.admin_url, "brokerServiceUrl": broker.service_url}
        await admin(sides[0][1], "POST", f"clusters/{at.cluster.name}", urls)
    await admin(sides[0][1], "POST", "tenants/public", {"adminRoles": [], "allowedClusters": names})
    await admin(
        sides[0][1],
        "PUT",
        "namespaces/public/geo",
        {"replication_clusters": names, "bundles": {"numBundles": 1}},
    )


def backlog(broker: PulsarBroker) -> int:
    found = json.loads(broker.get("/admin/v2/persistent/public/geo/topic/stats"))
    return int(found["subscriptions"]["sub"]["msgBacklog"])


@pytest.mark.parametrize("version", LINES.values())
async def test_a_replicated_subscription_keeps_its_state_on_both_sides(
    tmp_path: Path, version: str
) -> None:
    async with (
        field(tmp_path / "a", version) as a,
        field(tmp_path / "b", version, cluster_name="b", beside=a) as b,
    ):
        at_a, at_b = a.broker(conf=CONF), b.broker(conf=CONF)
        await start(at_a, at_b)
        await joined((a, at_a), (b, at_b))
        await b.clients.do("client", name="main", url=at_b.service_url)
        await b.clients.do("subscribe", name="main", client="main", **OF, replicated=1, ack="none")
        await b.clients.do("close")
        await a.clients.do("client", name="main", url=at_a.service_url)
        await a.clients.do("subscribe", name="main", client="main", **OF, replicated=1)
        await a.clients.do("flow", client="main", topic=TOPIC, pause_ms=5)
        await a.clients.do("delivered", **OF, more=1_500)
        # snapshots are taken while messages flow, and mark-delete goes to the other side when it
        # passes one
        await until("the other side has taken mark-delete over", lambda: backlog(at_b) < BEHIND_MAX)
        await a.clients.do("halt", topic=TOPIC)
        said = await a.clients.do("through", **OF)
        await a.clients.do("close")
        await a.clients.do("send", client="main", topic=TOPIC, count=UNACKED)
        before = backlog(at_b)

        await kill(at_a, at_b)
        await asyncio.gather(a.clients.do("drop"), b.clients.do("drop"), start(at_a, at_b))
        await a.clients.do("client", name="main", url=at_a.service_url)
        await a.clients.do("subscribe", name="main", client="main", **OF, ack="none")
        await a.clients.settled(TOPIC, client="main", opens=UNACKED + 1)
        await b.clients.do("client", name="main", url=at_b.service_url)
        await b.clients.do("subscribe", name="main", client="main", **OF, ack="none")
        await b.clients.do("delivered", **OF, numbers=UNACKED + 1)
        print(said, "backlog of the other side before", before, "after", backlog(at_b))
        received = await b.clients.do("report", **OF)
        assert UNACKED + 1 <= received["numbers"] <= before + UNACKED + 1, (before, received)
