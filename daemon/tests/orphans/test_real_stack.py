"""The command as people use it, against a real ZooKeeper, real bookies and a daemon that wrote the
cursors.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import names
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper.zookeeper.values import ANY_VERSION
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.cli.test_real_stack import SUB, Daemon, json_lines, make_cursor, tool

pytestmark = pytest.mark.jvm
WELL = [f"persistent://t/ns/well-{number}" for number in range(4)]
GONE = ["persistent://t/ns/gone-partition-0", "persistent://t/cluster/ns/gone, of the first scheme"]
UNSUBSCRIBED, OPEN = "persistent://t/ns/unsubscribed", "persistent://t/ns/open"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("stack")) as running:
        yield running


async def pulsar_has(stack: Standalone, *topics: str) -> None:
    """Each with its subscription, in Pulsar's metadata store, which has a chroot of its own."""
    async with PulsarsStore(stack) as client:
        for topic in topics:
            await client.ensure_path(names.cursor_path(topic, SUB))


async def pulsar_has_no(stack: Standalone, *topics: str, still_topic: bool = False) -> None:
    """As a forced delete leaves it."""
    async with PulsarsStore(stack) as client:
        for topic in topics:
            await client.delete(names.cursor_path(topic, SUB), ANY_VERSION)
            if not still_topic:
                await client.delete(names.topic_path(topic), ANY_VERSION)


class PulsarsStore:
    """A session below Pulsar's chroot."""

    def __init__(self, stack: Standalone) -> None:
        servers, _ = parse_servers(stack.zookeeper)
        self._client = ZooKeeperClient(ZooKeeperSettings(servers=servers, chroot="/pulsar"))

    async def __aenter__(self) -> ZooKeeperClient:
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def ledgers_there(stack: Standalone, ledgers: set[int]) -> set[int]:
    """Which of them have metadata."""
    servers, _ = parse_servers(stack.zookeeper)
    client = ZooKeeperClient(ZooKeeperSettings(servers=servers))
    await client.start()
    found = set()
    for ledger in ledgers:
        digits = f"{ledger:010d}"
        try:
            await client.get(f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}")
            found.add(ledger)
        except zk.NoNode:
            continue
    await client.close()
    return found


def chain_of(stack: Standalone, topic: str) -> set[int]:
    return {
        x["ledger"]
        for x in json_lines(tool(stack, "inspect", topic, SUB, "--json", "--no-records"))
        if x["type"] == "ledger"
    }


def test_topics_deleted_by_force(stack: Standalone, tmp_path: Path) -> None:
    daemon = Daemon(stack, tmp_path)
    for topic in [*WELL, *GONE, UNSUBSCRIBED]:
        asyncio.run(make_cursor(daemon.address, topic, rounds=1))
    assert daemon.stop() == 0
    holder = Daemon(stack, tmp_path)
    try:
        asyncio.run(make_cursor(holder.address, OPEN, rounds=1))
        pulsar = ["--pulsar-zookeeper", f"{stack.zookeeper}/pulsar"]
        wrong = tool(stack, "orphans", "--delete", "--age", "0s", "--percent-max", "100", code=2)
        assert (
            "there is no /managed-ledgers" in wrong.stderr and "--pulsar-zookeeper" in wrong.stderr
        )

        asyncio.run(pulsar_has(stack, *WELL, *GONE, UNSUBSCRIBED))
        kept = {topic: chain_of(stack, topic) for topic in [*WELL, *GONE, UNSUBSCRIBED, OPEN]}
        assert all(kept.values())
        asyncio.run(pulsar_has_no(stack, *GONE))
        asyncio.run(pulsar_has_no(stack, UNSUBSCRIBED, still_topic=True))

        # a dry run: who, why, what would go
        found = {
            x["topic"]: x
            for x in json_lines(tool(stack, "orphans", *pulsar, "--json", code=1))
            if "topic" in x
        }
        assert {topic: (x["gone"], x["verdict"]) for topic, x in found.items()} == {
            GONE[0]: ("topic", "young"),
            GONE[1]: ("topic", "young"),
            UNSUBSCRIBED: ("subscription", "young"),
            OPEN: ("topic", "open"),
        }
        shown = tool(stack, "orphans", *pulsar, "--age", "0s", code=1)
        assert (
            "3 may go, 1 open" in shown.stdout
            and "4 of 8 cursors are orphans, 50.0 percent" in shown.stderr
        )
        refused = tool(stack, "orphans", *pulsar, "--age", "0s", "--delete", code=1)
        assert "nothing was deleted" in refused.stderr
        assert (
            "3 young" in tool(stack, "orphans", *pulsar, "--delete", "--percent-max", "60").stdout
        )

        # what is closed goes, with its ledgers, and one comes back before
        asyncio.run(pulsar_has(stack, GONE[1]))
        done = tool(stack, "orphans", *pulsar, "--age", "0s", "--delete", "--percent-max", "60")
        assert "2 deleted" in done.stdout
        states = {
            x["topic"]: x["state"]
            for x in json_lines(tool(stack, "ls", "--json", "--deleted", gateway=False))
        }
        deleted = {topic for topic, state in states.items() if state == "deleted"}
        assert deleted == {GONE[0], UNSUBSCRIBED} and states[OPEN] == "open"
        assert asyncio.run(ledgers_there(stack, set().union(*kept.values()))) == set().union(
            *(ledgers for topic, ledgers in kept.items() if topic not in deleted)
        )
        assert "damaged" in tool(stack, "verify", "--all").stdout
        swept = json_lines(tool(stack, "gc", "--json"))[0]
        assert not swept["doubts"] and not swept["failed"]

        # made anew, it is empty
        async def again() -> tuple[bool, int]:
            async with SourceConnection(holder.address) as session:
                state = await session.open(GONE[0], SUB).opened()
                return state.created, state.epoch

        created, epoch = asyncio.run(again())
        assert created and epoch >= 3
        assert CursorName(GONE[0], SUB).display in tool(stack, "ls", gateway=False).stdout
    finally:
        holder.stop()


def test_a_daemon_that_looks_by_itself(stack: Standalone, tmp_path: Path) -> None:
    root = ["--root", "/second/cursors"]
    topics = [f"persistent://t/second/topic-{number}" for number in range(5)]
    first = Daemon(stack, tmp_path, *root)
    for topic in topics:
        asyncio.run(make_cursor(first.address, topic, rounds=1))
    assert first.stop() == 0
    asyncio.run(pulsar_has(stack, *topics))
    asyncio.run(pulsar_has_no(stack, topics[3]))
    looks = [
        "--pulsar-metadata",
        f"{stack.zookeeper}/pulsar",
        "--orphans-interval-s",
        "0.3",
        "--metrics-listen",
        "127.0.0.1:0",
    ]

    def until_said(daemon: Daemon, event: str) -> dict:
        for _ in range(600):
            for line in (tmp_path / "log").read_text().splitlines():
                if f'"{event}"' in line:
                    return json.loads(line)
            assert daemon.process.poll() is None
            time.sleep(0.1)
        raise AssertionError(f"{event!r} was not said")

    def metric(daemon: Daemon) -> str:
        with urlopen(f"http://{daemon.ready['metrics']}/metrics", timeout=60) as page:
            [line] = [
                line
                for line in page.read().decode().splitlines()
                if line.startswith("cursorkeeper_orphans ")
            ]
        return line.split()[1]

    teller = Daemon(stack, tmp_path, *root, *looks)
    try:
        said = until_said(teller, "orphans found")
        assert (
            said["cursors"] == [f"{topics[3]}|{SUB}"]
            and said["level"] == "warning"
            and metric(teller) == "1.0"
        )
    finally:
        assert teller.stop() == 0
    states = {
        x["topic"]: x["state"]
        for x in json_lines(tool(stack, "ls", *root, "--json", "--deleted", gateway=False))
    }
    assert states == dict.fromkeys(topics, "closed")
    deleter = Daemon(stack, tmp_path, *root, *looks, "--orphans-delete-after-s", "0.5")
    try:
        assert until_said(deleter, "orphan deleted")["cursor"] == f"{topics[3]}|{SUB}"
        for _ in range(600):
            if metric(deleter) == "0.0":
                break
            time.sleep(0.1)
        assert metric(deleter) == "0.0"
    finally:
        assert deleter.stop() == 0
    states = {
        x["topic"]: x["state"]
        for x in json_lines(tool(stack, "ls", *root, "--json", "--deleted", gateway=False))
    }
    assert states == dict.fromkeys(topics, "closed") | {topics[3]: "deleted"}
