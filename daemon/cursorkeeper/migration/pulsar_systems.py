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
from cursorkeeper.settings import Settings, SettingsError


def pulsar_conf(file: Path | None) -> dict[str, str]:
    """Pulsar's broker.conf as it is; empty if none is given. Raises ProblemError."""
    if file is None:
        return {}
    try:
        return read_properties(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise SettingsError(f"{file}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise SettingsError(f"{file}: byte {e.start} is not UTF-8: is it a broker.conf?") from e


def pulsar_settings(settings: Settings, conf: Mapping[str, str], zookeeper: str | None) -> Settings:
    """Our own settings, pointed at Pulsar's metadata store and at ledgers with Pulsar's
    password.
    """
    address = (
        zookeeper
        or conf.get("metadataStoreUrl", "").removeprefix("zk:")
        or conf.get("zookeeperServers")
        or settings.zookeeper
    )
    return replace(settings, zookeeper=address, password=conf.get("managedLedgerPassword", ""))


@asynccontextmanager
async def pulsar_ports(
    settings: Settings, pulsar: Settings, ours: connections.Ports, role: str, *, own: bool = False
) -> AsyncIterator[PulsarPorts]:
    """Our own connections where they reach the same; `own`: a gateway client of its own, for its
    role. Raises ProblemError.
    """
    async with AsyncExitStack() as stack:
        zookeeper, ledgers = ours.zookeeper, ours.ledgers
        if pulsar.zookeeper != settings.zookeeper:
            zookeeper = await stack.enter_async_context(connections.zookeeper(pulsar))
        if own or pulsar.password != settings.password:
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
