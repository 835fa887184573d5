"""Every job on a cluster that is wholly secured, from its own `broker.conf` and the daemon's
settings: ZooKeeper with TLS, users and ACLs, bookies with TLS and users, a gateway that asks for
certificates and knows its callers by name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cursorkeeper import connections
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import ledger_info
from cursorkeeper.format.pulsar.values import LedgerInfo, ManagedLedgerInfo
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.options import settings_of
from cursorkeeper.zookeeper.acl import OPEN
from cursorkeeper_pipeline import cli
from cursorkeeper_pipeline.jobs.frame import CLEAN, JOBS
from pipeline.tests.migration_world import newest_report
from pipeline.tests.real_cursors import fleet_of
from tools.brokers.secured.cluster import Secured
from tools.brokers.secured.system import TENANT, System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(400)]
CURSORS = [CursorName(f"{TENANT}default/topic-{number}", "sub") for number in range(3)]
ACKED = 60
"""Of each: three rounds of 20."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Its daemon does not run; cursors are there, closed, whose acks are in BookKeeper."""
    cluster = Secured(tmp_path_factory.mktemp("secured"))
    try:
        cluster.start()
        made = System(cluster)
        try:
            made.start()
            asyncio.run(with_cursors(settings(made)))
            yield made
        finally:
            made.stop()
    finally:
        cluster.stop()


def settings(system: System) -> Settings:
    return settings_of(config=Path(system.config), broker_conf=Path(system.conf))


async def with_cursors(settings: Settings) -> None:
    async with fleet_of(settings) as fleet:
        for name in CURSORS:
            await fleet.closed(name)


def refs() -> list[PulsarCursorRef]:
    return [PulsarCursorRef(name.topic, name.subscription) for name in CURSORS]


async def pulsar_has_the_topics(system: System) -> None:
    """As a broker has them: nodes for everybody."""
    topic = ledger_info.encode(ManagedLedgerInfo((LedgerInfo(7, 200), LedgerInfo(8))))
    systems = settings(system).but(zookeeper_acl="open").systems
    async with connections.zookeeper(systems) as keeper:
        for ref in refs():
            await keeper.ensure_path(ref.topic_path)
            await keeper.set(ref.topic_path, topic, 0)


async def pulsars_nodes_are_everybodys(system: System) -> None:
    async with connections.zookeeper(settings(system).systems) as keeper:
        for ref in refs():
            assert (await keeper.acl(ref.path))[0] == OPEN


def test_every_job_runs_with_the_settings_of_the_daemon(
    spark: SparkSession, system: System, tmp_path: Path
) -> None:
    asyncio.run(pulsar_has_the_topics(system))
    tried = set[str]()

    def told(name: str, folder: str = "", **given: Any) -> dict[str, Any]:
        """The report of a job, as the command line prepares it. It is clean."""
        tried.add(name)
        out = tmp_path / (folder or name)
        where = {"config": system.config, "broker_conf": system.conf, "out": str(out)}
        call = cli.prepare(name, cli.job_of(name), {**where, "option": ["waitS=20"], **given})
        done = cli.job_of(name).run(spark, call.source, call.arguments, call.out)
        found: dict[str, Any] = (
            newest_report(out)
            if name in ("import", "export")
            else json.loads((out / f"{name}.json").read_text())
        )
        assert done == CLEAN, found
        return found

    count = len(CURSORS)
    assert told("report")["cursors"]["total"] == count
    assert told("audit", settle="0s")["cursors"] == count
    assert told("archive")["cursors"] == count
    assert told("export")["statuses"] == {"exported": count}
    assert told("export", "exported", verify=True)["statuses"] == {"same": count}
    asyncio.run(pulsars_nodes_are_everybodys(system))
    second = {"root": "/cursorkeeper/second"}
    assert told("import", **second)["statuses"] == {"imported": count}
    assert told("import", "imported", verify=True, **second)["statuses"] == {"same": count}
    assert told("audit", "audited", settle="0s", **second)["cursors"] == count
    assert tried == JOBS.keys()
