"""What the play's brokers stand on: a cluster where nobody asks who calls, or one where everybody
does, with the daemon beside it.

Owns: what the two have in common for the play, and its order. Does not own: the systems (`stack`,
`secured`), the play. Invariant: after `stop` nothing runs, however far the start came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cursorkeeper.demo.processes import DaemonProcess, LineProcess
from cursorkeeper.demo.stack import QUICK, Standalone
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.secured.broker import (
    CLIENT_ROLE,
    SecuredBroker,
    client_conf,
    cluster_of,
    plugin_link,
)
from tools.brokers.secured.cluster import Secured
from tools.brokers.secured.system import System


class Ground(Protocol):
    """`words`: what starts, for people."""

    words: str

    def start(self) -> None:
        """ZooKeeper, bookies, the gateway. Blocks. Raises StackError."""

    def set_up(self) -> None:
        """Pulsar's metadata. Blocks. Raises StackError."""

    async def start_daemon(self) -> Mapping[str, str]:
        """Its address is in the lines of broker.conf that this gives, for the plugin: `address`,
        and how the plugin proves itself.
        """

    def broker(self, name: str, conf: Mapping[str, str], plugin: Path | None) -> PulsarBroker:
        """Not started yet."""

    def admit(self, broker: PulsarBroker, namespace: str) -> Mapping[str, str]:
        """Settings of a client that may produce and consume there, once the broker serves.
        Blocks.
        """

    async def stop(self) -> None: ...


class Plain:
    """The embedded stack, in plain text."""

    words = "ZooKeeper and two bookies start"

    def __init__(self, folder: Path, version: str, stack: Standalone) -> None:
        self._folder, self._version, self._stack = folder, version, stack
        self._cluster: PulsarCluster | None = None
        self._daemon: DaemonProcess | None = None

    def start(self) -> None:
        self._stack.start()

    def set_up(self) -> None:
        self._cluster = PulsarCluster(
            self._folder / "pulsar",
            self._stack.zookeeper,
            version=self._version,
            java_options=QUICK,
        )
        self._cluster.set_up()

    async def start_daemon(self) -> Mapping[str, str]:
        self._daemon = DaemonProcess(self._folder, self._stack.gateway, self._stack.zookeeper)
        await self._daemon.start()
        return {"cursorKeeperAddress": self._daemon.address}

    def broker(self, name: str, conf: Mapping[str, str], plugin: Path | None) -> PulsarBroker:
        assert self._cluster is not None
        return PulsarBroker(
            self._cluster, name, conf=conf, extra_class_path=[plugin] if plugin else []
        )

    def admit(self, broker: PulsarBroker, namespace: str) -> Mapping[str, str]:
        return {}

    async def stop(self) -> None:
        await _stopped(self._daemon, self._cluster)


class SecuredGround:
    """Everybody shows a certificate and asks for one; ZooKeeper and bookies know users, brokers and
    the daemon tokens, gateway and daemon identities. All of it is made in the folder.
    """

    words = "ZooKeeper, three bookies and a gateway start, with TLS and users"

    def __init__(self, folder: Path, version: str) -> None:
        self._folder, self._version = folder, version
        place = folder / "secured"
        place.mkdir(parents=True, exist_ok=True)
        self._secured = Secured(place)
        self._system = System(self._secured)
        self._cluster: PulsarCluster | None = None

    def start(self) -> None:
        self._secured.start()
        self._system.start()

    def set_up(self) -> None:
        self._cluster = cluster_of(self._system, self._folder / "pulsar", self._version)

    async def start_daemon(self) -> Mapping[str, str]:
        await self._system.start_daemon()
        return {"cursorKeeperAddress": self._system.address, **plugin_link(self._system)}

    def broker(self, name: str, conf: Mapping[str, str], plugin: Path | None) -> PulsarBroker:
        assert self._cluster is not None
        return SecuredBroker(
            self._cluster,
            self._system,
            name,
            conf=conf,
            extra_class_path=[plugin] if plugin else [],
        )

    def admit(self, broker: PulsarBroker, namespace: str) -> Mapping[str, str]:
        assert isinstance(broker, SecuredBroker)
        broker.admit(namespace, CLIENT_ROLE)
        return client_conf(self._system)

    async def stop(self) -> None:
        try:
            await _stopped(self._system.daemon, self._cluster)
        finally:
            await asyncio.to_thread(self._system.stop)
            await asyncio.to_thread(self._secured.stop)


async def _stopped(daemon: LineProcess | None, cluster: PulsarCluster | None) -> None:
    try:
        if daemon is not None:
            await daemon.stop()
    finally:
        if cluster is not None:
            await asyncio.to_thread(cluster.kill)
