"""Stories on separate processes: ZooKeeper, three bookies, gateway and daemon, each killed or
frozen on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cursorkeeper.demo.stack import LocalCluster
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import Driver, check, driving, recovered

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


async def ends_well(daemons: Daemons, cluster: LocalCluster, topic: str, driver: Driver) -> None:
    """Everything becomes durable by itself, and a new owner finds it."""
    await driver.cursor.durable(timeout_s=180)
    other = await daemons.start(cluster.gateway, cluster.zookeeper_address)
    check(await recovered(other.address, topic), driver.truth)
    assert driver.truth.confirmed == driver.truth.sent


async def test_a_bookie_is_killed_and_comes_back(cluster: LocalCluster, daemons: Daemons) -> None:
    daemon = await daemons.start(cluster.gateway, cluster.zookeeper_address)
    source, driver = await driving(daemon.address, "persistent://sep/ns/bookie", 11)
    await driver.send_some(40)
    cluster.bookies[0].kill()
    await driver.send_some(40)
    await daemon.kill()  # the next owner has to recover and create ledgers with two bookies
    await daemon.start()
    await driver.send_some(40)
    await driver.cursor.durable(timeout_s=180)
    cluster.bookies[0].start()
    await driver.send_some(20)
    await ends_well(daemons, cluster, "persistent://sep/ns/bookie", driver)
    await source.close()


async def test_the_gateway_is_killed(cluster: LocalCluster, daemons: Daemons) -> None:
    daemon = await daemons.start(cluster.gateway, cluster.zookeeper_address)
    source, driver = await driving(daemon.address, "persistent://sep/ns/gateway", 12)
    await driver.send_some(40)
    cluster.gateways[0].kill()
    await driver.send_some(20)
    cluster.gateways[0].start()
    await driver.send_some(20)
    await ends_well(daemons, cluster, "persistent://sep/ns/gateway", driver)
    await source.close()


async def test_zookeeper_is_away_for_a_while(cluster: LocalCluster, daemons: Daemons) -> None:
    daemon = await daemons.start(cluster.gateway, cluster.zookeeper_address)
    source, driver = await driving(daemon.address, "persistent://sep/ns/zookeeper", 13)
    await driver.send_some(40)
    cluster.zookeeper.kill()
    await driver.send_some(40)  # appends need no ZooKeeper
    cluster.zookeeper.start()
    await driver.send_some(20)
    await ends_well(daemons, cluster, "persistent://sep/ns/zookeeper", driver)
    await source.close()


async def test_all_bookies_are_away_and_the_source_is_paused(
    cluster: LocalCluster, daemons: Daemons
) -> None:
    daemon = await daemons.start(
        cluster.gateway, cluster.zookeeper_address, "--inline-state-max-bytes", "0"
    )
    source, driver = await driving(daemon.address, "persistent://sep/ns/bookies", 14)
    await driver.send_some(20)
    await driver.cursor.durable()
    for bookie in cluster.bookies:
        bookie.kill()
    await driver.send_some(20)
    async with asyncio.timeout(180):
        while (reason := driver.cursor.paused_for) in ("", "no connection"):
            await asyncio.sleep(0.05)
    assert "BookKeeper" in reason or "durable" in reason
    for bookie in cluster.bookies:
        bookie.start()
    await ends_well(daemons, cluster, "persistent://sep/ns/bookies", driver)
    assert driver.cursor.paused_for in ("", "no connection")
    await source.close()
