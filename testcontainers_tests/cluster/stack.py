"""The whole system on a network of its own: ZooKeeper (one or three), bookies, gateways, daemons,
and sources on demand.

Owns: the order of the start, names, settings that make tests quick, the verdict on sources, and the
end of everything. Invariant: `close` removes every container and the network, whatever state they
are in.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import docker.errors
from testcontainers.core.network import Network

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper_client import Client, ClientSettings, CursorState
from testcontainers_tests.cluster.conditions import LIMIT_S, until
from testcontainers_tests.cluster.disk import Disk
from testcontainers_tests.cluster.host import LABELS
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import (
    BOOKIE_PORT,
    CLIENT_PORT,
    GATEWAY_PORT,
    SESSION_MS,
    STREAM_PORT,
    AutoRecoveryNode,
    BookieNode,
    DaemonNode,
    GatewayNode,
    ProxyNode,
    SourceNode,
    ZooKeeperNode,
    jvm,
)
from testcontainers_tests.cluster.secrets import OPEN, SECURE_PORT, Secrets
from testcontainers_tests.cluster.truth import Truth, Verdict

SETTINGS: Mapping[str, object] = {
    "zookeeper_session_timeout_ms": SESSION_MS,
    "bookkeeper_away_ms": 3_000,
    "retry_max_ms": 1_000,
    "footer_poll_s": 2,
    "close_timeout_s": 10,
    "snapshot_bytes_min": 20_000,
    "snapshot_interval_min_s": 0.5,
}
"""Of every daemon: the product's, with shorter times, and snapshots that come often."""
_sources = itertools.count(1)


class ContainerStack:
    """See the module. Use `await open_stack(...)` and `close`. With `secrets` everything asks who
    calls and is said through TLS.
    """

    def __init__(
        self,
        images: Images,
        *,
        zookeepers: int = 1,
        bookies: int = 3,
        gateways: int = 1,
        daemons: int = 2,
        settings: Mapping[str, object] | None = None,
        bookie_arguments: Sequence[str] = (),
        bookie_disk_bytes: int = 0,
        daemon_image: str = "",
        gateway_image: str = "",
        secrets: Secrets | None = None,
    ) -> None:
        mtu = {
            "com.docker.network.driver.mtu": "1450",
            "com.docker.network.bridge.host_binding_ipv4": "127.0.0.1",
        }
        self.images, self.secrets = images, secrets
        self.network = Network(docker_network_kw={"labels": LABELS, "options": mtu})
        self.network.create()
        self.zookeepers = [
            ZooKeeperNode(
                images,
                self.network,
                n,
                zookeepers,
                secrets.of_zookeeper(f"zk-{n}") if secrets else OPEN,
            )
            for n in range(1, zookeepers + 1)
        ]
        port = SECURE_PORT if secrets else CLIENT_PORT
        servers = [f"{z.name}:{port}" for z in self.zookeepers]
        self.uri = f"zk+hierarchical://{';'.join(servers)}/ledgers"
        self.zookeeper_address = ",".join(servers)
        disks = [
            Disk(images, f"bookie-{n}", bookie_disk_bytes) if bookie_disk_bytes else None
            for n in range(1, bookies + 1)
        ]
        self.bookies = [
            BookieNode(
                images,
                self.network,
                n,
                self.uri,
                bookie_arguments,
                disk,
                secrets.of_bookie(f"bookie-{n}") if secrets else OPEN,
            )
            for n, disk in enumerate(disks, start=1)
        ]
        self.gateways = [
            GatewayNode(
                images,
                self.network,
                n,
                self.uri,
                image=gateway_image,
                credentials=(
                    secrets.of_gateway(f"gateway-{n}", self.zookeeper_address) if secrets else OPEN
                ),
            )
            for n in range(1, gateways + 1)
        ]
        self.settings = {**SETTINGS, **(settings or {})}
        self.daemons = [self.make_daemon(n, image=daemon_image) for n in range(1, daemons + 1)]
        self.others: list[Node] = []
        self._sources: list[SourceNode] = []

    # --- parts ---

    @property
    def zookeeper(self) -> ZooKeeperNode:
        """The first."""
        return self.zookeepers[0]

    @property
    def gateway(self) -> GatewayNode:
        """The first."""
        return self.gateways[0]

    @property
    def daemon(self) -> DaemonNode:
        """The first, that sources talk to; `daemons[1]` is the one that checks."""
        return self.daemons[0]

    @property
    def nodes(self) -> list[Node]:
        """Everything there is."""
        return [
            *self.zookeepers,
            *self.bookies,
            *self.gateways,
            *self.daemons,
            *self.others,
            *self._sources,
        ]

    def make_daemon(
        self,
        number: int,
        *,
        image: str = "",
        docker_arguments: Mapping[str, Any] | None = None,
        **settings: object,
    ) -> DaemonNode:
        """A daemon, not started; not among `daemons` until it is put there (or among `others`)."""
        gateway = (
            self.gateways[(number - 1) % len(self.gateways)].name if self.gateways else "gateway-1"
        )
        where = {"gateway": f"{gateway}:{GATEWAY_PORT}", "zookeeper": self.zookeeper_address}
        secured = self.secrets.of_daemon(f"daemon-{number}") if self.secrets else {}
        return DaemonNode(
            self.images,
            self.network,
            number,
            {**where, **secured, **self.settings, **settings},
            image,
            **{
                **({"volumes": self.secrets.volumes} if self.secrets else {}),
                **(docker_arguments or {}),
            },
        )

    def make_proxy(
        self, name: str, target: str, port: int, *, delay_ms: int, jitter_ms: int = 0
    ) -> ProxyNode:
        """A delaying proxy, not started; removed with the stack."""
        proxy = ProxyNode(self.images, self.network, name, port, target, delay_ms, jitter_ms)
        self.others.append(proxy)
        return proxy

    def make_autorecovery(self, **arguments: Any) -> AutoRecoveryNode:
        """Auto-recovery, not started; removed with the stack."""
        node = AutoRecoveryNode(self.images, self.network, self.uri, **arguments)
        self.others.append(node)
        return node

    async def source(
        self,
        story: str,
        cursors: int = 3,
        *,
        topics: Sequence[str] = (),
        daemon: str = "",
        flows: int = 10,
        **arguments: Any,
    ) -> SourceNode:
        """A source on new cursors (or those of `topics`) of daemon-1 (or host:port `daemon`),
        started; some of its acks are durable.
        """
        number = next(_sources)
        topics = topics or [
            f"persistent://containers/{story}/topic-{number}-{c}" for c in range(cursors)
        ]
        where = daemon or f"{self.daemon.name}:{STREAM_PORT}"
        source = SourceNode(
            self.images,
            self.network,
            f"source-{number}",
            where,
            topics,
            seed=1_000 * number,
            credentials=self.secrets.of_source(self.secrets.source) if self.secrets else OPEN,
            **arguments,
        )
        return await self._flowing(source, flows)

    async def source_again(
        self, former: SourceNode, daemon: DaemonNode, flows: int = 10
    ) -> SourceNode:
        """The same cursors and the same acks, from the first on, through another daemon, which
        takes the cursors over.
        """
        number = next(_sources)
        where = f"{daemon.name}:{STREAM_PORT}"
        source = SourceNode(
            self.images,
            self.network,
            f"source-{number}",
            where,
            former.topics,
            seed=former.seed,
            moves=former.moves,
            credentials=self.secrets.of_source(self.secrets.source) if self.secrets else OPEN,
        )
        return await self._flowing(source, flows)

    async def _flowing(self, source: SourceNode, flows: int) -> SourceNode:
        self._sources.append(source)
        await asyncio.to_thread(source.start)
        await source.ready()
        if flows:
            await source.flows(flows)
        return source

    # --- life ---

    async def start(self) -> None:
        """Everything. What waits for another by itself is started beside it, so that not every
        start waits for the one before.
        """
        if self.secrets:
            self.others += await self.secrets.begin(self.network)
        init = [self._init_cluster()] if self.bookies else []
        await asyncio.gather(self._start(self.zookeepers), *init)
        await asyncio.gather(self._start(self.bookies), self._start(self.gateways))
        await self._start(self.daemons)

    async def _init_cluster(self) -> None:
        credentials = self.secrets.of_bookie("init-cluster") if self.secrets else OPEN
        command = [
            "init-cluster",
            "--metadata-service-uri",
            self.uri,
            "--wait-s",
            str(int(LIMIT_S)),
            *credentials.arguments,
        ]
        init = Node(
            "init-cluster",
            self.images.node,
            command,
            self.network,
            env=jvm(credentials),
            volumes=credentials.volumes,
        )
        try:
            await asyncio.to_thread(init.start)
            assert (await asyncio.to_thread(init.docker.wait, timeout=LIMIT_S + 10))[
                "StatusCode"
            ] == 0, init.log_tail()
        finally:
            await asyncio.to_thread(init.remove)

    async def add(self, node: Node) -> None:
        """One node more, started and ready; removed with the stack."""
        if node not in self.others:
            self.others.append(node)
        await self._start([node])

    async def _start(self, nodes: Sequence[Node]) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))
        await asyncio.gather(*(node.ready() for node in nodes))

    async def replace_daemon(self, number: int, image: str = "", **settings: object) -> int:
        """SIGTERM daemon `number`, and another container of that name, from another image or with
        other settings; returns how the old one ended.
        """
        old = self.daemons[number - 1]
        code = await asyncio.to_thread(old.stop, 30)
        old.remove()
        self.daemons[number - 1] = self.make_daemon(number, image=image, **settings)
        await self._start(self.daemons[number - 1 : number])
        return code

    async def replace_gateway(self, number: int, image: str = "", extra: Sequence[str] = ()) -> int:
        """The same for gateway `number`, with `extra` flags."""
        old = self.gateways[number - 1]
        code = await asyncio.to_thread(old.stop, 30)
        old.remove()
        self.gateways[number - 1] = GatewayNode(
            self.images, self.network, number, self.uri, extra, image
        )
        await self._start(self.gateways[number - 1 : number])
        return code

    def close(self) -> None:
        """Remove everything."""
        for node in reversed(self.nodes):
            node.remove()
        with suppress(docker.errors.APIError):
            self.network.remove()

    def forget_sources(self) -> None:
        """Remove the sources; their topics stay."""
        sources, self._sources = self._sources, []
        for source in sources:
            source.remove()

    def log_tails(self) -> str:
        """The end of every node's log."""
        return "\n".join(node.log_tail() for node in self.nodes)

    async def writable_bookies(self, gateway: GatewayNode | None = None) -> int:
        """As many as a gateway sees registered now."""
        client = GatewayClient(
            GatewayClientSettings(
                address=(gateway or self.gateway).client_address, role="reader", start_timeout_s=5
            )
        )
        try:
            await client.start()
            return (await client.describe()).writable_bookies
        finally:
            await client.close()

    async def lists_bookies(self, count: int | None = None) -> None:
        """So many bookies are registered, as the gateway sees it; None: all, so that the next fault
        finds nothing of the one before.
        """
        wanted = len(self.bookies) if count is None else count

        async def look() -> bool:
            return await self.writable_bookies() == wanted

        await until(look, f"{wanted} bookies are writable")

    async def settled(self) -> None:
        """Every bookie that runs is registered by a session that is connected. A bookie whose
        session has ended and that is about to register again ends itself if ZooKeeper goes just
        then: that is BookKeeper's, and not what a next fault is about.
        """

        def look() -> list[str]:
            owners = self.zookeeper.owners()
            connected = set[int]().union(*(z.connected_sessions() for z in self.zookeepers))
            registered = {
                path.rpartition("/")[2] for path, owner in owners.items() if owner in connected
            }
            return [
                b.name
                for b in self.bookies
                if b.status == "running" and f"{b.name}:{BOOKIE_PORT}" not in registered
            ]

        async def none_missing() -> bool:
            missing = await asyncio.to_thread(look)
            assert not missing, f"not registered: {missing}"
            return True

        await until(none_missing, "every bookie is registered by a session that is connected")

    # --- verdicts ---

    async def read(
        self, topic: str, daemon: DaemonNode | None = None, subscription: str = "steady"
    ) -> CursorState:
        """The state that a new owner finds: daemon-2 claims, fences and reads, however often it
        takes until all is healed.
        """
        node = daemon or self.daemons[-1]
        where = node.client_address
        limits = ClientSettings(
            connect_timeout_s=10,
            open_timeout_s=60,
            tls=self.secrets.source if self.secrets else None,
            tls_server_name=node.name if self.secrets else "",
        )

        async def look() -> CursorState:
            async with Client(where, limits) as client:
                return await client.cursor(topic, subscription, create=False).opened()

        return await until(look, f"{topic} opens on {where}")

    async def verdict(self, *sources: SourceNode, daemon: DaemonNode | None = None) -> Verdict:
        """Every ack of these sources, as a new owner of their cursors finds it. Several may have
        acked on one topic.
        """
        verdict, truths = Verdict(), dict[str, Truth]()
        for source in sources:
            for topic, truth in zip(source.topics, source.truth(), strict=True):
                truths[topic] = truths[topic] | truth if topic in truths else truth
        found = await asyncio.gather(*(self.read(topic, daemon) for topic in truths))
        for (topic, truth), state in zip(truths.items(), found, strict=True):
            verdict.add(topic, truth, state)
        return verdict


async def open_stack(images: Images, **arguments: Any) -> ContainerStack:
    """A started stack; removed again if it does not start, with its logs in the error."""
    stack = ContainerStack(images, **arguments)
    try:
        await stack.start()
    except BaseException as e:
        e.add_note(stack.log_tails())
        await asyncio.to_thread(stack.close)
        raise
    return stack
