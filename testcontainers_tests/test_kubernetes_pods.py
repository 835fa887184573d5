"""The pods of deploy/kubernetes' example, as containers: what kustomize rendered comes up, keeps
acks, passes its probes, lives without its neighbours, and stops in time. Only a Kubernetes itself
is missing.
"""

from __future__ import annotations

import asyncio
import shlex
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from daemon.tests.deployment.cluster import Cluster, container, pod, probes, sleep_before_stop_s
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import PYTHON, STREAM_PORT
from testcontainers_tests.cluster.pods import node_of
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.conftest import Opener

ACK = """
import asyncio, pathlib, sys
from cursorkeeper_client import Client, ClientSettings, LayoutItem, LayoutState

async def main(topic, token_file):
    token = pathlib.Path(token_file).read_bytes().strip()
    async with (
        Client("127.0.0.1:7650", ClientSettings(credentials=token)) as client,
        client.cursor(topic, "pods", layout=[LayoutItem(1, LayoutState.OPEN)]) as cursor,
    ):
        for number in range(1, 51):
            await cursor.ack(1, 2 * number - 1)
        await cursor.durable(timeout_s=60)

asyncio.run(main(*sys.argv[1:]))
"""
"""A source in the pod: it knows the address and the file with its token, and nothing else."""
SOURCE_TOKEN = "/etc/cursorkeeper/source/source-token"
LEDGERS, METRICS = "cursorkeeper-gateway:7651", 7653


@dataclass
class Pods:
    """The example's containers."""

    cluster: Cluster
    storage: ContainerStack
    gateway: Node
    daemon: Node

    def answers(self, path: str) -> bool:
        """An HTTP probe of the gateway."""
        with urllib.request.urlopen(
            f"http://{self.gateway.address(METRICS)}{path}", timeout=60
        ) as page:
            return bool(page.status == 200)

    def says(self, *where: str) -> int:
        """The exit code of `cursorkeeper health` in the daemon's container: 0 SERVING, 1
        NOT_SERVING, 3 no answer.
        """
        return self.daemon.run("cursorkeeper", "health", *where)[0]


@pytest.fixture(scope="module")
def pods(built: Images, opener: Opener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """ZooKeeper and three bookies under the names that the example has for them, and its two
    containers, ready.
    """
    storage, cluster, folder = (
        opener(gateways=0, daemons=0),
        Cluster.of("example"),
        tmp_path_factory.mktemp("mounted"),
    )
    folder.chmod(0o755)
    names = [server.partition(":")[0] for server in cluster.daemon_file()["zookeeper"].split(",")]
    hosts = dict.fromkeys(names, storage.zookeeper.ip)
    made = [
        node_of(
            cluster,
            cluster.gateway,
            "gateway",
            "cursorkeeper-gateway",
            built,
            storage.network,
            folder,
            ports=[METRICS],
            extra_hosts=hosts,
        ),
        node_of(
            cluster,
            cluster.broker,
            "cursorkeeper",
            "pulsar-broker-0",
            built,
            storage.network,
            folder,
            extra_hosts=hosts,
        ),
    ]

    async def start() -> None:
        for node in made:
            await storage.add(node)

    asyncio.run(start())
    yield Pods(cluster, storage, *made)


async def test_the_probes_pass(pods: Pods) -> None:
    asked = probes(container(pods.cluster.gateway, "gateway"))
    budget_s = asked["startup"]["periodSeconds"] * asked["startup"]["failureThreshold"]
    await until(
        lambda: pods.answers(asked["startup"]["httpGet"]["path"]),
        "the gateway has started",
        budget_s,
    )
    await until(lambda: pods.says("--address", LEDGERS) == 0, "the gateway is ready")
    for probe in probes(pods.cluster.daemon).values():
        code, said = pods.daemon.run(*probe["exec"]["command"])
        assert code == 0, said


def test_a_source_of_the_pod_is_served_and_keeps_its_acks(pods: Pods) -> None:
    code, said = pods.daemon.run(
        PYTHON, "-c", ACK, "persistent://pods/kubernetes/acks", SOURCE_TOKEN
    )
    assert code == 0, said
    code, said = pods.daemon.run(
        "cursorkeeper", "ls", "--json", "--config", "/etc/cursorkeeper/config/cursorkeeper.toml"
    )
    assert code == 0, said
    assert "persistent://pods/kubernetes/acks" in said


def test_nobody_else_is_served(pods: Pods) -> None:
    assert pods.says("--address", f"{pods.daemon.ip}:{STREAM_PORT}") == 3, "the pod's own address"
    code, said = pods.daemon.run(
        PYTHON,
        "-c",
        ACK,
        "persistent://pods/kubernetes/others",
        "/etc/cursorkeeper/tokens/writer-token",
    )
    assert code != 0 and "ConnectionRefused" in said and "credentials" in said, said


async def test_without_zookeeper_both_live_and_the_gateway_is_not_ready(pods: Pods) -> None:
    liveness = probes(container(pods.cluster.gateway, "gateway"))["liveness"]["httpGet"]["path"]
    pods.storage.zookeeper.pause()
    try:
        await until(lambda: pods.says("--address", LEDGERS) == 1, "the gateway is not ready")
        assert pods.answers(liveness)
        assert pods.daemon.run(*probes(pods.cluster.daemon)["liveness"]["exec"]["command"])[0] == 0
    finally:
        pods.storage.zookeeper.unpause()
    await until(lambda: pods.says("--address", LEDGERS) == 0, "the gateway is ready again")


async def test_both_stop_within_their_grace_period(pods: Pods) -> None:
    hook = container(pods.cluster.gateway, "gateway")["lifecycle"]["preStop"]["exec"]["command"]
    began = time.monotonic()
    code, said = pods.gateway.run(*hook)
    assert code == 0, f"{shlex.join(hook)}: {said}"
    assert time.monotonic() - began >= sleep_before_stop_s(
        container(pods.cluster.gateway, "gateway")
    )
    ended = {
        node.name: await asyncio.to_thread(node.stop, pod(body)["terminationGracePeriodSeconds"])
        for node, body in ((pods.daemon, pods.cluster.broker), (pods.gateway, pods.cluster.gateway))
    }
    assert ended == {"pulsar-broker-0": 0, "cursorkeeper-gateway": 143}
