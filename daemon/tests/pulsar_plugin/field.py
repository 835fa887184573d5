"""Where the stories of whole brokers are played: ZooKeeper, bookies, daemons, brokers with the
plugin, clients.

Owns: the order of the start and the end, the settings that every broker of a story has. Does not
own: the processes (`stack`), the clients and their ledger (`clients`). Invariant: nothing that was
started is left behind.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import QUICK, LocalCluster
from cursorkeeper.demo.stack.standalone import Standalone
from daemon.tests.pulsar_plugin.clients import Clients
from daemon.tests.pulsar_plugin.jar import jar_of
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.play import plugin_conf
from tools.brokers.sessions import end_session_of

NAMESPACE = "public/default"
BOUND = "public/bound"
"""A namespace whose persistence policy names the storage class: brokers that do not keep cursors
cannot load its topics.
"""
_POLICY = {
    "bookkeeperEnsemble": 2,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 1.0,
    "managedLedgerStorageClassName": "cursorkeeper",
}
WAIT_MAX_S = 90.0
_ADMIN_MAX_S = 60.0
_SMALL = {
    "managedLedgerMaxEntriesPerLedger": "500",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "metadataStoreSessionTimeoutMillis": "60000",
    "brokerShutdownTimeoutMs": "20000",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",  # by default since 4.1
}
"""Several data ledgers a topic. A broker whose machine stands still is not taken for gone; of one
that was killed, `kill` ends the session.
"""


class Conflict(AssertionError):
    """The broker cannot do it now."""


@dataclass
class Field:
    """`daemons` run; `brokers` are made by `broker` and started by the story."""

    folder: Path
    stack: Standalone | LocalCluster
    daemons: list[DaemonProcess]
    cluster: PulsarCluster
    clients: Clients

    def broker(
        self,
        name: str = "broker",
        *,
        daemon: int | None = 0,
        version: str = "",
        conf: Mapping[str, str] | None = None,
        before: Sequence[Path] = (),
        jar: bool = True,
        line: str = "",
    ) -> PulsarBroker:
        """With the plugin and its daemon. `daemon=None`: Pulsar as it is. `before`: of the class
        path, before the plugin's jar. `line`: of the jar, if not the version's own.
        """
        version = version or self.cluster.version
        ours = {} if daemon is None else plugin_conf(version, self.daemons[daemon].address)
        path = [*before, jar_of(line or version[:3])] if jar else list(before)
        return PulsarBroker(
            self.cluster,
            name,
            version=version,
            conf={**_SMALL, **ours, **(conf or {})},
            extra_class_path=path,
        )


@asynccontextmanager
async def field(
    folder: Path,
    version: str,
    *,
    daemons: int = 1,
    apart: bool = False,
    migrator: bool = False,
    cluster_name: str = "local",
    beside: Field | None = None,
) -> AsyncIterator[Field]:
    """`apart`: ZooKeeper, bookies and the gateway are processes of their own. `migrator`: the
    gateway lets anybody have that role, for the way back to Pulsar's own cursors. `beside`: another
    cluster, for replication.
    """
    arguments = ["--migrator"] if migrator else []
    stack: Standalone | LocalCluster
    stack = (
        LocalCluster(folder / "stack")
        if apart
        else Standalone(folder / "stack", bookies=2, arguments=arguments)
    )
    (folder / "stack").mkdir(parents=True)
    clients = Clients(version, folder / "clients.log")
    running: list[DaemonProcess] = []
    cluster: PulsarCluster | None = None
    try:
        await asyncio.gather(asyncio.to_thread(stack.start), clients.start())
        zookeeper = stack.zookeeper_address if isinstance(stack, LocalCluster) else stack.zookeeper
        for number in range(daemons):
            own = folder / f"daemon-{number}"
            own.mkdir()
            running.append(DaemonProcess(own, stack.gateway, zookeeper))
        shared = beside.cluster.zookeeper if beside else ""
        cluster = PulsarCluster(
            folder / "pulsar",
            zookeeper,
            version=version,
            name=cluster_name,
            configuration=shared,
            java_options=QUICK,
        )
        await asyncio.gather(asyncio.to_thread(cluster.set_up), *(each.start() for each in running))
        yield Field(folder, stack, running, cluster, clients)
    finally:
        await clients.kill()
        if cluster is not None:
            await asyncio.to_thread(cluster.kill)
        for each in running:
            await each.kill()
        await asyncio.to_thread(stack.kill)


async def start(*brokers: PulsarBroker) -> None:
    await asyncio.gather(*(asyncio.to_thread(each.start) for each in brokers))


async def kill(*brokers: PulsarBroker) -> None:
    """SIGKILL, and what ZooKeeper does some time later: the broker is known to be gone."""
    await asyncio.gather(*(asyncio.to_thread(_kill, each) for each in brokers))


async def take_for_dead(broker: PulsarBroker) -> None:
    """What ZooKeeper does with one that it has not heard for long."""
    await asyncio.to_thread(_end_session, broker)


def _kill(broker: PulsarBroker) -> None:
    broker.kill()
    _end_session(broker)


def _end_session(broker: PulsarBroker) -> None:
    with suppress(OSError):  # ZooKeeper is gone, too
        end_session_of(
            broker.cluster.zookeeper,
            f"/loadbalance/brokers/{broker.admin_url.removeprefix('http://')}",
        )


async def stop(*brokers: PulsarBroker) -> None:
    """Clean stops, one after the other, as a roll-out does."""
    for each in brokers:
        await asyncio.to_thread(each.stop)


async def admin(broker: PulsarBroker, method: str, path: str, body: object = None) -> object:
    """One call of the web service under /admin/v2/, at the broker that it names if this one does
    not own the topic; its JSON, or None.
    """
    sent = None if body is None else json.dumps(body).encode()

    def call(url: str, redirects: int) -> object:
        request = urllib.request.Request(
            url, sent, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_ADMIN_MAX_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as e:
            if e.code == HTTPStatus.TEMPORARY_REDIRECT and redirects:
                return call(e.headers["Location"], redirects - 1)
            raise (Conflict if e.code == HTTPStatus.CONFLICT else AssertionError)(
                f"{method} {path}: {e.code} {e.read()[:2_000]!r}"
            ) from e
        return json.loads(said) if said else None

    return await asyncio.to_thread(call, f"{broker.admin_url}/admin/v2/{path}", 3)


async def bind(broker: PulsarBroker, namespace: str = BOUND) -> None:
    """Makes it, of one bundle, with the storage class in its policy."""
    await admin(broker, "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    await admin(broker, "POST", f"namespaces/{namespace}/persistence", _POLICY)


async def until(what: str, done: Callable[[], bool], max_s: float = WAIT_MAX_S) -> None:
    """Waits for a condition that may block for a moment."""
    limit = time.monotonic() + max_s
    while not await asyncio.to_thread(done):
        assert time.monotonic() < limit, f"not within {max_s:.0f} s: {what}"
        await asyncio.sleep(0.1)


def topics_of(broker: PulsarBroker) -> set[str]:
    """The topics that it has loaded now: its metrics page is written anew at every look."""
    return set(re.findall(r'topic="(persistent://[^"]+)"', broker.get("/metrics/").decode()))
