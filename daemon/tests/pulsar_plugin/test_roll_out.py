"""From Pulsar's own cursors to kept ones and back, from one version to the next, and brokers that
cannot keep cursors in the same cluster.

Each is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper.demo.stack.standalone import Standalone
from daemon.tests.pulsar_plugin.field import (
    BOUND,
    NAMESPACE,
    Field,
    admin,
    bind,
    field,
    kill,
    start,
    stop,
)
from daemon.tests.pulsar_plugin.subscription import Subscription, topic
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
MEMBERS = "org/apache/bookkeeper/mledger/impl/members.txt"


async def orphans(at: Field, *more: str) -> list[dict[str, object]]:
    """What `cursorkeeper orphans` says, as JSON."""
    assert isinstance(at.stack, Standalone)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cursorkeeper.cli.main",
        "orphans",
        "--json",
        "--zookeeper",
        at.stack.zookeeper,
        "--gateway",
        at.stack.gateway,
        "--age",
        "0s",
        "--percent-max",
        "100",
        *more,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return [json.loads(line) for line in said.decode().splitlines()]


async def a_topic_is_deleted_by_force(at: Field, broker: PulsarBroker) -> None:
    """One that is not loaded: its cursors are made by nobody, so nobody tells the keeper.
    `cursorkeeper orphans` finds and deletes them.
    """
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


async def goes_to_kept_cursors_and_back(folder: Path, before: str, version: str) -> None:
    async with field(folder, version) as at:
        old, new, stock = (
            at.broker("old", version=before),
            at.broker("new"),
            at.broker("stock", daemon=None, jar=False),
        )
        moved, bound = Subscription(at, topic("moved")), Subscription(at, topic("bound", BOUND))

        await start(old)
        await moved.begins(old)
        await kill(old)
        await start(new)
        await moved.is_whole_at(new, 5)

        await bind(new)
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


@pytest.mark.timeout(600)
async def test_a_cluster_goes_to_kept_cursors_and_back_and_nothing_confirmed_is_lost(
    tmp_path: Path,
) -> None:
    await goes_to_kept_cursors_and_back(tmp_path, "4.2.4", "5.0.0-M1")


@pytest.mark.timeout(300)
async def test_a_broker_that_cannot_keep_cursors_does_not_start_or_leaves_a_bound_namespace_alone(
    tmp_path: Path,
) -> None:
    async with field(tmp_path, "5.0.0-M1") as at:
        other = tmp_path / "other"
        (other / MEMBERS).parent.mkdir(parents=True)
        (other / MEMBERS).write_text(
            "method org.apache.bookkeeper.mledger.impl.ManagedCursorImpl ofAnotherVersion ()V\n"
        )
        words = "ManagedCursorImpl.ofAnotherVersion"
        await does_not_start(at.broker("other", before=[other]), words)
        await does_not_start(
            at.broker("too-old", version="4.0.7", line="4.2"), "does not fit Pulsar"
        )
        lenient = at.broker("lenient", before=[other], conf={"cursorKeeperOnUnsupported": "stock"})
        await start(lenient)
        assert words in lenient.log.read_text()
        await bind(lenient)
        await Subscription(at, topic("t", BOUND)).is_refused_by(
            lenient, "ManagedLedgerStorageClass cursorkeeper not found"
        )
        own = Subscription(at, topic("t"))
        await own.begins(lenient)
        await stop(lenient)

        # nor does a broker that only copies them: of the others it has copies
        shadow = at.broker("shadow", conf={"cursorKeeperMode": "shadow"})
        await start(shadow)
        await Subscription(at, topic("t", BOUND)).is_refused_by(
            shadow, "ManagedLedgerStorageClass cursorkeeper not found"
        )
        await own.is_whole_at(shadow, 2)
