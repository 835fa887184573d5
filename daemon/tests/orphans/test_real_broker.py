"""Where a real broker keeps its cursors, and what a forced delete leaves of them: the search must
look there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from cursorkeeper.demo.stack import QUICK, Standalone
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.cli.test_real_stack import Daemon, json_lines, tool
from tools.brokers.cluster import PulsarBroker, PulsarCluster

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
ONE_BOOKIE = {
    f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")
}
NAMESPACE = "persistent://public/default"
ODD, PLAIN, PARTS = (
    f"{NAMESPACE}/a topic, with signs+~*()'!:%2F",
    f"{NAMESPACE}/plain",
    f"{NAMESPACE}/parts",
)
ODD_SUB, SUB = "a sub with signs~*/:", "sub"
"""Without plus and percent signs: the broker's web service decodes names of subscriptions twice."""
CURSORS = [
    (ODD, ODD_SUB),
    (ODD, SUB),
    (PLAIN, ODD_SUB),
    (PLAIN, SUB),
    (f"{PARTS}-partition-0", SUB),
    (f"{PARTS}-partition-1", SUB),
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("stack"), bookies=1) as running:
        yield running


class Admin:
    """The broker's web service."""

    def __init__(self, broker: PulsarBroker) -> None:
        self._broker = broker

    def put(self, topic: str, below: str = "", body: bytes = b"") -> None:
        self._ask("PUT", f"{self._path(topic)}{below}", body)

    def delete(self, topic: str, below: str = "") -> None:
        self._ask("DELETE", f"{self._path(topic)}{below}?force=true", b"")

    @staticmethod
    def _path(topic: str) -> str:
        name = quote(topic.removeprefix(f"{NAMESPACE}/"), safe="")
        return f"/admin/v2/{NAMESPACE.replace('://', '/')}/{name}"

    def _ask(self, method: str, path: str, body: bytes) -> None:
        asked = Request(
            self._broker.admin_url + path, body, {"Content-Type": "application/json"}, method=method
        )
        with urlopen(asked, timeout=60) as answer:
            assert answer.status < 300


async def keep(address: str) -> None:
    """Every cursor at the daemon, closed."""
    async with SourceConnection(address) as session:
        for topic, subscription in CURSORS:
            handle = session.open(topic, subscription)
            await handle.opened()
            await handle.close()


def found(stack: Standalone) -> dict[tuple[str, str], str]:
    """What `orphans` says is gone."""
    lines = json_lines(tool(stack, "orphans", "--percent-max", "100", "--json", gateway=False))
    assert lines[-1]["cursors"] == len(CURSORS)
    return {(x["topic"], x["subscription"]): x["gone"] for x in lines if "topic" in x}


def test_what_a_forced_delete_leaves(stack: Standalone, tmp_path: Path) -> None:
    daemon = Daemon(stack, tmp_path, "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
    asyncio.run(keep(daemon.address))
    assert daemon.stop() == 0
    with PulsarCluster(tmp_path / "pulsar", stack.zookeeper, java_options=QUICK) as cluster:
        broker = PulsarBroker(cluster, conf=ONE_BOOKIE)
        broker.start()
        admin = Admin(broker)
        admin.put(PARTS, "/partitions", b"2")
        for topic, subscription in CURSORS:
            if topic in (ODD, PLAIN) and subscription == ODD_SUB:
                admin.put(topic)
            if topic in (ODD, PLAIN) or topic.endswith("0"):
                of_all = topic.removesuffix("-partition-0")
                admin.put(of_all, f"/subscription/{quote(subscription, safe='')}", b"{}")
        assert found(stack) == {}
        admin.delete(ODD)
        admin.delete(PLAIN, f"/subscription/{quote(ODD_SUB, safe='')}")
        assert found(stack) == {
            (ODD, ODD_SUB): "topic",
            (ODD, SUB): "topic",
            (PLAIN, ODD_SUB): "subscription",
        }
        admin.delete(PARTS, "/partitions")
        gone = {cursor for cursor in CURSORS if cursor != (PLAIN, SUB)}
        assert set(found(stack)) == gone
        done = tool(stack, "orphans", "--delete", "--age", "0s", "--percent-max", "90")
        assert "5 deleted" in done.stdout
        kept = {
            (x["topic"], x["subscription"])
            for x in json_lines(tool(stack, "ls", "--json", gateway=False))
        }
        assert kept == {(PLAIN, SUB)}
