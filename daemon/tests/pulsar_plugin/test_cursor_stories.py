"""What subscriptions live through on one whole broker: every way in which a cursor moves, then kill
-9 of the broker.

Afterwards the ledger of every subscription says: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from daemon.tests.pulsar_plugin.clients import Clients
from daemon.tests.pulsar_plugin.field import NAMESPACE, Conflict, admin, field, kill, start, until
from daemon.tests.pulsar_plugin.outage import displace
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
COUNT = 1_200
"""Messages of a topic: three data ledgers."""
SUBSCRIPTIONS = 300
CONF = {
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": "100",
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "messageExpiryCheckIntervalInMinutes": "1",
}
AGED, AGED_COUNT = "public/aged", COUNT - COUNT % 7 + 1
TTL_S = 10
"""Messages of this namespace are older when all stories are told, and when Pulsar's timer comes, a
minute after the broker's start.
"""


def topic(name: str, namespace: str = NAMESPACE) -> str:
    return f"persistent://{namespace}/{name}"


class Stories:
    """Each begins a subscription's life; `told` are those that are judged after the kill, with the
    number of their un-acked messages.
    """

    def __init__(
        self, broker: PulsarBroker, clients: Clients, daemon: DaemonProcess, ages_by_timer: bool
    ) -> None:
        self.broker, self.do, self.clients, self.daemon, self.ages_by_timer = (
            broker,
            clients.do,
            clients,
            daemon,
            ages_by_timer,
        )
        self.told: list[tuple[str, str, str, int]] = []

    async def acked(
        self, name: str, *, keep: int = 7, kind: str = "Shared", **words: object
    ) -> str:
        """A topic with all of its messages delivered, and acked but for every `keep`th."""
        await self.do(
            "subscribe",
            name=name,
            client="main",
            topic=topic(name),
            sub="sub",
            type=kind,
            keep=keep,
            **words,
        )
        await self.do("send", client="main", topic=topic(name), count=COUNT)
        await self.do("through", topic=topic(name), sub="sub")
        return topic(name)

    async def on_subscription(self, name: str, method: str, path: str, body: object = None) -> None:
        await self.do("close", name=name)
        await admin(
            self.broker, method, f"persistent/{NAMESPACE}/{name}/subscription/sub/{path}", body
        )

    def ends(self, name: str, opens: int, kind: str = "Shared", sub: str = "sub") -> None:
        self.told.append((topic(name), sub, kind, opens))

    async def seek_by_id(self) -> None:
        await self.acked("seek-id")
        await self.do("seek", name="seek-id", number=701, close=1)
        self.ends("seek-id", COUNT - 701)

    async def seek_by_id_and_go_on(self) -> None:
        await self.acked("seek-on")
        await self.do("mark")
        await self.do("seek", name="seek-on", number=301)
        await self.clients.settled(topic("seek-on"), client="main")
        self.ends("seek-on", sum(number % 7 == 0 for number in range(301, COUNT + 1)))

    async def seek_by_time(self) -> None:
        await self.acked("seek-time")
        between_ms = int(time.time() * 1000) + 1
        await asyncio.sleep(0.01)
        await self.do("send", client="main", topic=topic("seek-time"), count=300)
        await self.do("through", topic=topic("seek-time"), sub="sub")
        await self.do("seek", name="seek-time", to_ms=between_ms, number=COUNT, close=1)
        self.ends("seek-time", 300)

    async def skip(self) -> None:
        await self.acked("skip")
        await self.on_subscription("skip", "POST", "skip/100")
        # a hundred un-acked ones: 0, 7, 14, …
        await self.do("set", topic=topic("skip"), sub="sub", to=99 * 7 + 1, gone=1)
        self.ends("skip", len(range(0, COUNT, 7)) - 100)

    async def skip_all(self) -> None:
        await self.acked("skip-all")
        await self.on_subscription("skip-all", "POST", "skip_all")
        await self.do("set", topic=topic("skip-all"), sub="sub", gone=1)
        self.ends("skip-all", 0)

    async def ages(self) -> None:
        """A namespace's TTL: what is un-acked goes, see `is_aged`. Its consumer stays. The last
        message is un-acked: where it is acked Pulsar expires one message at a time.
        """
        await admin(self.broker, "PUT", f"namespaces/{AGED}")
        await self.do(
            "subscribe", name="aged", client="main", topic=topic("t", AGED), sub="sub", keep=7
        )
        await self.do("send", client="main", topic=topic("t", AGED), count=AGED_COUNT)
        await self.do("through", topic=topic("t", AGED), sub="sub")
        if self.ages_by_timer:
            await admin(self.broker, "POST", f"namespaces/{AGED}/messageTTL", TTL_S)

    async def is_aged(self) -> None:
        """By Pulsar's timer; or at once, because it also looks when a namespace gets its TTL. What
        comes later does not age.
        """
        if not self.ages_by_timer:
            await admin(self.broker, "POST", f"namespaces/{AGED}/messageTTL", TTL_S)
        await until(
            "Pulsar expires what is too old", lambda: self.backlog("t", AGED) == 0, max_s=150
        )
        await admin(self.broker, "DELETE", f"namespaces/{AGED}/messageTTL")
        await self.do("set", topic=topic("t", AGED), sub="sub", gone=1)
        await self.do("send", client="main", topic=topic("t", AGED), count=50)
        await self.do("through", topic=topic("t", AGED), sub="sub")
        self.told.append(
            (
                topic("t", AGED),
                "sub",
                "Shared",
                sum(number % 7 == 0 for number in range(AGED_COUNT, AGED_COUNT + 50)),
            )
        )

    async def expire(self) -> None:
        """By age, when an operator says so."""
        await self.acked("expire")
        await self.do("close", name="expire")
        while self.backlog("expire") > 0:
            with contextlib.suppress(Conflict):  # Pulsar is still at it
                await admin(
                    self.broker,
                    "POST",
                    f"persistent/{NAMESPACE}/expire/subscription/sub/expireMessages/1",
                )
            await asyncio.sleep(0.1)
        await self.do("set", topic=topic("expire"), sub="sub", gone=1)
        await self.do("send", client="main", topic=topic("expire"), count=50)
        self.ends("expire", 50)

    def backlog(self, name: str, namespace: str = NAMESPACE) -> int:
        stats = json.loads(self.broker.get(f"/admin/v2/persistent/{namespace}/{name}/stats"))
        return int(stats["subscriptions"]["sub"]["msgBacklog"])

    async def delayed(self) -> None:
        await self.do(
            "subscribe", name="delayed", client="main", topic=topic("delayed"), sub="sub", keep=5
        )
        await self.do("send", client="main", topic=topic("delayed"), count=200, delay_ms=500)
        await self.do("through", topic=topic("delayed"), sub="sub")
        await self.do("close", name="delayed")
        await self.do("send", client="main", topic=topic("delayed"), count=100, delay_ms=10_000)
        self.ends("delayed", 40 + 100)

    async def batches(self) -> None:
        await self.do(
            "subscribe", name="batches", client="main", topic=topic("batches"), sub="sub", keep=7
        )
        await self.do("send", client="main", topic=topic("batches"), count=COUNT, batch=10)
        await self.do("through", topic=topic("batches"), sub="sub")
        self.ends("batches", len(range(0, COUNT, 7)))

    async def key_shared(self) -> None:
        for name in ("key-1", "key-2", "key-3"):
            await self.do(
                "subscribe",
                name=name,
                client="main",
                topic=topic("keys"),
                sub="sub",
                type="Key_Shared",
                keep=7,
            )
        await self.do("send", client="main", topic=topic("keys"), count=COUNT, keys=40)
        await self.do("through", topic=topic("keys"), sub="sub")
        await self.do("close", name="key-2")
        await self.do("send", client="main", topic=topic("keys"), count=100, keys=40)
        await self.do("through", topic=topic("keys"), sub="sub")
        self.ends("keys", len(range(0, COUNT + 100, 7)), "Key_Shared")

    async def exclusive(self) -> None:
        """Acked cumulatively up to every fifth, the last of them is the end but four."""
        await self.acked("exclusive", kind="Exclusive", keep=-5, ack="cumulative")
        self.ends("exclusive", 4, "Exclusive")

    async def failover(self) -> None:
        await self.do(
            "subscribe",
            name="second",
            client="main",
            topic=topic("failover"),
            sub="sub",
            type="Failover",
            keep=7,
        )
        await self.acked("failover", kind="Failover")
        for name in ("second", "failover"):  # whichever was active: the other one takes over
            await self.do("close", name=name)
            await self.do(
                "subscribe",
                name=name,
                client="main",
                topic=topic("failover"),
                sub="sub",
                type="Failover",
                keep=7,
            )
            await self.do("send", client="main", topic=topic("failover"), count=100)
            await self.do("through", topic=topic("failover"), sub="sub")
        self.ends("failover", len(range(0, COUNT + 200, 7)), "Failover")

    async def partitioned(self) -> None:
        await admin(self.broker, "PUT", f"persistent/{NAMESPACE}/parts/partitions", 4)
        await self.acked("parts")
        self.ends("parts", len(range(0, COUNT, 7)))

    async def many(self) -> None:
        """Three hundred subscriptions, and Pulsar's own cursor of deduplication."""
        await self.do(
            "subscribe",
            name="many-",
            client="main",
            topic=topic("many"),
            sub="sub-",
            count=SUBSCRIPTIONS,
            keep=7,
            queue=20,
        )
        await self.do("send", client="main", topic=topic("many"), count=40)
        for number in range(SUBSCRIPTIONS):
            await self.do("through", topic=topic("many"), sub=f"sub-{number}")

    async def transactions(self) -> None:
        """Acks of a committed transaction count, those of an aborted one and of one that was left
        do not.
        """
        await self.do("client", name="transactions", url=self.broker.service_url, transactions=1)
        await self.do(
            "subscribe",
            name="held",
            client="transactions",
            topic=topic("transactions"),
            sub="sub",
            ack="none",
        )
        await self.do("send", client="main", topic=topic("transactions"), count=300)
        with_client = {"name": "held", "client": "transactions"}
        await self.do("transact", **with_client, count=100, end="commit")
        await self.do("transact", **with_client, count=50, end="abort")
        await self.do("transact", **with_client, count=30, end="commit")
        await self.do("transact", **with_client, count=20, end="left", timeout_s=10)
        self.ends("transactions", 170)

    async def displaced(self) -> None:
        """A newer load has the log of a subscription's pending acks: its topic is loaded anew, and
        transactions go on.
        """
        held = {"name": "displaced", "client": "transactions"}
        await self.do("subscribe", **held, topic=topic("displaced"), sub="sub", ack="none")
        await self.do("send", client="main", topic=topic("displaced"), count=100)
        await self.do("transact", **held, count=40, end="commit")
        await displace(
            self.daemon, f"{topic('displaced')}-sub__transaction_pending_ack", "__pending_ack_state"
        )
        await until(
            "the topic is unloaded",
            lambda: (
                "It is the log of pending acks of" in self.broker.log.read_text(errors="replace")
            ),
        )
        await self.do("close", name="displaced")
        await self.do("subscribe", **held, topic=topic("displaced"), sub="sub", ack="none")
        await self.do("transact", **held, count=50, end="commit")
        self.ends("displaced", 10)

    async def resent(self) -> None:
        """Pulsar's own cursor of deduplication has the last number of each producer, see
        `is_resent`.
        """
        await self.do("send", client="main", topic=topic("resent"), count=COUNT, named="one")

    async def is_resent(self) -> None:
        """A producer that had no answers sends once more: the broker has all of them."""
        await self.do("send", client="main", topic=topic("resent"), count=0, named="one")
        said = await self.do("resend", topic=topic("resent"), **{"from": COUNT - 100})
        assert said["known"] == 100, said

    async def compacted(self) -> None:
        """Pulsar's own cursor of compaction has the compacted ledger, see `is_compacted`."""
        await self.do("send", client="main", topic=topic("compacted"), count=COUNT, keys=40)
        await admin(self.broker, "PUT", f"persistent/{NAMESPACE}/compacted/compaction")
        await until("the topic is compacted", self.is_at_the_end)
        self.compaction = self.compaction_now()
        assert self.compaction[0] != -1, self.compaction

    async def is_compacted(self) -> None:
        await until(
            f"the compaction is as it was: {self.compaction}",
            lambda: self.compaction_now() == self.compaction,
        )

    def compaction_now(self) -> tuple[object, object, object]:
        """The compacted ledger, its entries, and the properties of the cursor that knows it."""
        stats = json.loads(
            self.broker.get(f"/admin/v2/persistent/{NAMESPACE}/compacted/internalStats")
        )
        ledger, cursor = stats["compactedLedger"], stats["cursors"]["__compaction"]
        assert cursor["cursorLedger"] == -1, cursor
        return ledger["ledgerId"], ledger["entries"], cursor["properties"]

    def is_at_the_end(self) -> bool:
        said = json.loads(self.broker.get(f"/admin/v2/persistent/{NAMESPACE}/compacted/compaction"))
        assert said["status"] != "ERROR", said
        return bool(said["status"] == "SUCCESS")

    async def properties(self) -> None:
        """String properties of a subscription stay."""
        await self.acked("properties")
        await admin(
            self.broker,
            "PUT",
            f"persistent/{NAMESPACE}/properties/subscription/sub/properties",
            {"owner": "team"},
        )
        self.ends("properties", len(range(0, COUNT, 7)))

    async def recreated(self) -> None:
        """Deleted and made again: nothing of the first life is left. Another subscription keeps the
        messages.
        """
        await self.do(
            "subscribe",
            name="other",
            client="main",
            topic=topic("recreated"),
            sub="other",
            ack="none",
        )
        await self.acked("recreated")
        await self.do("close", name="recreated")
        await admin(self.broker, "DELETE", f"persistent/{NAMESPACE}/recreated/subscription/sub")
        await self.do("set", topic=topic("recreated"), sub="sub")
        await self.do("mark")
        await self.do(
            "subscribe",
            name="recreated",
            client="main",
            topic=topic("recreated"),
            sub="sub",
            keep=3,
        )
        await self.clients.settled(topic("recreated"), client="main")
        self.ends("recreated", COUNT // 3 + 1)

    async def are_told(self) -> None:
        for story in (
            self.ages,
            self.seek_by_id,
            self.seek_by_id_and_go_on,
            self.seek_by_time,
            self.skip,
            self.skip_all,
            self.expire,
            self.delayed,
            self.batches,
            self.key_shared,
            self.exclusive,
            self.failover,
            self.partitioned,
            self.many,
            self.transactions,
            self.displaced,
            self.resent,
            self.compacted,
            self.properties,
            self.recreated,
            self.is_aged,
        ):
            began = time.monotonic()
            await story()
            print(f"{story.__name__}: {time.monotonic() - began:.1f} s")

    async def are_judged(self) -> None:
        # whoever comes with transactions loads their coordinator, which ends the one that was left
        await self.do("client", name="transactions", url=self.broker.service_url, transactions=1)
        for name, sub, kind, opens in self.told:
            more = 8 if name == topic("parts") else 1  # each partition has one behind all others
            await self.do(
                "subscribe",
                name=f"judge-{name}",
                client="main",
                topic=name,
                sub=sub,
                type=kind,
                ack="none",
            )
            await self.clients.settled(name, sub, more=more, client="main", opens=opens + more)
        await self.is_resent()
        await self.is_compacted()

    async def many_are_judged(self, daemon: DaemonProcess) -> None:
        """Then the daemon is killed, too: all of them go on."""
        await self.do(
            "subscribe",
            name="many-",
            client="main",
            topic=topic("many"),
            sub="sub-",
            count=SUBSCRIPTIONS,
            keep=7,
            queue=20,
        )
        many = await self.clients.settled(topic("many"), "sub-0", client="main", every=1)
        assert (
            many["ledgers"] == SUBSCRIPTIONS
            and many["one_more"]
            and many["open"] == SUBSCRIPTIONS * 6
        ), many
        await daemon.kill()
        await self.do("send", client="main", topic=topic("many"), count=2)
        await daemon.start()
        many = await self.clients.settled(topic("many"), "sub-0", client="main", every=1)
        assert many["one_more"] and many["open"] == SUBSCRIPTIONS * (6 + 1), many


async def are_lived_through(folder: Path, version: str, *, ages_by_timer: bool = False) -> None:
    async with field(folder, version) as at:
        broker = at.broker(conf=CONF)
        await start(broker)
        stories = Stories(broker, at.clients, at.daemons[0], ages_by_timer)
        await at.clients.do("client", name="main", url=broker.service_url)
        await stories.are_told()
        await kill(broker)
        await asyncio.gather(at.clients.do("drop"), start(broker))
        await at.clients.do("client", name="main", url=broker.service_url)
        await stories.are_judged()
        await stories.many_are_judged(at.daemons[0])


@pytest.mark.timeout(500)
async def test_what_moved_cursors_holds_when_the_broker_is_killed(tmp_path: Path) -> None:
    await are_lived_through(tmp_path, "5.0.0-M1")
