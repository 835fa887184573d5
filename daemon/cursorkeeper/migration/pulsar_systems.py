"""Serves who migrates or assesses: the settings of a Pulsar cluster, and connections to its
metadata store and ledgers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from cursorkeeper import connections
from cursorkeeper.broker_conf import read_properties
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.pulsar_broker.settings import PulsarSettings, of_version, with_broker_conf
from cursorkeeper.settings import Settings


def pulsar_conf(file: Path | None) -> dict[str, str]:
    """Pulsar's broker.conf as it is; empty if none is given. Raises SettingsError."""
    return {} if file is None else read_properties(file)


def pulsar_settings(settings: Settings, conf: Mapping[str, str], zookeeper: str | None) -> Settings:
    """Our own settings, pointed at Pulsar's metadata store and at ledgers with Pulsar's password.
    What is made in its store is for its brokers, too, and has the ACL that they give their own.
    """
    address = (
        zookeeper
        or conf.get("metadataStoreUrl", "").removeprefix("zk:")
        or conf.get("zookeeperServers")
        or settings.systems.zookeeper
    )
    return settings.but(
        zookeeper=address, password=conf.get("managedLedgerPassword", ""), zookeeper_acl="open"
    )


@asynccontextmanager
async def pulsar_ports(
    settings: Settings, pulsar: Settings, ours: connections.Ports, role: str, *, own: bool = False
) -> AsyncIterator[PulsarPorts]:
    """Our own connections where they reach the same; `own`: a gateway client of its own, for its
    role. Raises ProblemError.
    """
    async with AsyncExitStack() as stack:
        zookeeper, ledgers = ours.zookeeper, ours.ledgers
        there, here = (of.systems for of in (pulsar, settings))
        if (there.zookeeper, there.zookeeper_acl) != (here.zookeeper, here.zookeeper_acl):
            zookeeper = await stack.enter_async_context(connections.zookeeper(pulsar.systems))
        if own or pulsar.ledgers.password != settings.ledgers.password:
            ledgers = await stack.enter_async_context(connections.gateway(pulsar, role))
        yield PulsarPorts(zookeeper, ledgers)


def cluster_settings(
    version: str, conf: Mapping[str, str], frame_bytes: int | None, znode_bytes: int
) -> PulsarSettings:
    """How the cluster that is looked at is set. Raises PulsarSettingsError."""
    found = with_broker_conf(of_version(version), conf)
    return replace(
        found, frame_bytes_max=frame_bytes or found.frame_bytes_max, znode_bytes_max=znode_bytes
    )
