"""From Pulsar's own cursors to kept ones and back, from one version to the next, and brokers that cannot keep cursors in the same cluster.

Each is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from cursorkeeper_clients.stack import PulsarBroker
from cursorkeeper_clients.stack.errors import StackError
from cursorkeeper_clients.stack.standalone import Standalone

from daemon.tests.pulsar_plugin.field import NAMESPACE, Field, admin, field, kill, start, stop

pytestmark = pytest.mark.jvm
BOUND = "public/bound"
"""A namespace whose persistence policy names the storage class: brokers without the plugin cannot load its topics."""
POLICY = {
    "bookkeeperEnsemble": 2,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 1.0,
    "managedLedgerStorageClassName": "cursorkeeper",
}
COUNT = 1_200
MEMBERS = "org/apache/bookkeeper/mledger/impl/members.txt"


def topic(name: str, namespace: str = NAMESPACE) -> str:
    return f"persistent://{namespace}/{name}"


class Subscription:
    """One that lives through the whole roll-out: at each broker its un-acked messages come, and some of them are acked there."""

    def __init__(self, at: Field, name: str) -> None:
        self._do, self._clients, self._name, self._of = at.clients.do, at.clients, name, {"topic": name, "sub": "sub"}

    async def begins(self, broker: PulsarBroker) -> None:
        await self._connects(broker)
        await self._do("subscribe", name="now", client="now", **self._of, keep=3)
        await self._do("send", client="now", topic=self._name, count=COUNT)
        await self._do("through", **self._of)

    async def is_whole_at(self, broker: PulsarBroker, keep: int) -> None:
        """By new clients, since the last broker's end. Every `keep`th stays un-acked."""
        await self._connects(broker)
        await self._do("subscribe", name="now", client="now", **self._of, keep=keep)
        await self._clients.settled(self._name, client="now")

    async def is_refused_by(self, broker: PulsarBroker, words: str) -> None:
        await self._connects(broker)
        with pytest.raises(AssertionError, match="Exception"):
            await self._do("subscribe", name="now", client="now", **self._of)
        assert words in broker.log.read_text(errors="replace"), f"{broker.log} does not say {words!r}"

    async def _connects(self, broker: PulsarBroker) -> None:
        await self._do("drop")
        await self._do("client", name="now", url=broker.service_url, operation_s=10)


async def orphans(at: Field, *more: str) -> list[dict[str, object]]:
    """What `cursorkeeper orphans` says, as JSON."""
    assert isinstance(at.stack, Standalone)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cursorkeeper.cli.main", "orphans", "--json", "--zookeeper", at.stack.zookeeper,
        "--gateway", at.stack.gateway, "--age", "0s", "--percent-max", "100", *more, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    return [json.loads(line) for line in said.decode().splitlines()]


async def a_topic_is_deleted_by_force(at: Field, broker: PulsarBroker) -> None:
    """One that is not loaded: its cursors are made by nobody, so nobody tells the keeper. `cursorkeeper orphans` finds and deletes them."""
    gone = Subscription(at, topic("gone"))
    await gone.begins(broker)
    await at.clients.do("drop")
    await admin(broker, "PUT", f"persistent/{NAMESPACE}/gone/unload")
    await admin(broker, "DELETE", f"persistent/{NAMESPACE}/gone?force=true")
    names = [each.get("cursor") for each in await orphans(at)]
    assert f"{topic('gone')}|sub" in names, names
    await orphans(at, "--delete")
    assert f"{topic('gone')}|sub" not in [each.get("cursor") for each in await orphans(at)]


async def does_not_start(broker: PulsarBroker, words: str) -> None:
    with pytest.raises(StackError):
        await asyncio.to_thread(broker.start)
    assert words in broker.log.read_text(errors="replace"), broker.log_tail()


@pytest.mark.timeout(600)
async def test_a_cluster_goes_to_kept_cursors_and_back_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    async with field(tmp_path, "5.0.0-M1") as at:
        old, new, stock = at.broker("old", version="4.2.4"), at.broker("new"), at.broker("stock", daemon=None, jar=False)
        moved, bound = Subscription(at, topic("moved")), Subscription(at, topic("bound", BOUND))

        await start(old)
        await moved.begins(old)
        await kill(old)
        await start(new)
        await moved.is_whole_at(new, 5)

        await admin(new, "PUT", f"namespaces/{BOUND}")
        await admin(new, "POST", f"namespaces/{BOUND}/persistence", POLICY)
        await bound.begins(new)
        await a_topic_is_deleted_by_force(at, new)
        await at.clients.do("drop")
        await stop(new)

        await start(stock)
        await moved.is_whole_at(stock, 2)
        await bound.is_refused_by(stock, "ManagedLedgerStorageClass cursorkeeper not found")
        await at.clients.do("drop")
        await admin(stock, "PUT", f"namespaces/{NAMESPACE}/unload")  # Pulsar persists its cursors
        await kill(stock)

        await start(new)
        await bound.is_whole_at(new, 5)
        await moved.is_refused_by(new, "Pulsar itself changed this cursor since the keeper held it")
        await kill(new)
        new.conf["cursorKeeperOnStale"] = "import"
        await start(new)
        await bound.is_whole_at(new, 7)
        await moved.is_whole_at(new, 7)
        await kill(new)


@pytest.mark.timeout(300)
async def test_a_broker_of_another_version_does_not_start_or_starts_without_kept_cursors(tmp_path: Path) -> None:
    async with field(tmp_path, "5.0.0-M1") as at:
        other = tmp_path / "other"
        (other / MEMBERS).parent.mkdir(parents=True)
        (other / MEMBERS).write_text("method org.apache.bookkeeper.mledger.impl.ManagedCursorImpl ofAnotherVersion ()V\n")
        words = "ManagedCursorImpl.ofAnotherVersion"
        await does_not_start(at.broker("other", before=[other]), words)
        await does_not_start(at.broker("too-old", version="4.0.7"), "does not fit Pulsar")
        lenient = at.broker("lenient", before=[other], conf={"cursorKeeperOnUnsupported": "stock"})
        await start(lenient)
        assert words in lenient.log.read_text()
        await admin(lenient, "PUT", f"namespaces/{BOUND}")
        await admin(lenient, "POST", f"namespaces/{BOUND}/persistence", POLICY)
        await Subscription(at, topic("t", BOUND)).is_refused_by(lenient, "ManagedLedgerStorageClass cursorkeeper not found")
        await Subscription(at, topic("t")).begins(lenient)
