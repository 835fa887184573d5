"""The daemon's life: start, serve, drain. Wires clients, keeper, servers and telemetry together; decides nothing.

Ready means: ZooKeeper and the gateway answered, their limits fit ours, and the sink listens. One JSON line on standard
output says so. SIGTERM and SIGINT drain: no new cursors, last flush of each, footers, exit within `close_timeout_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import msgspec
import structlog
from cursorkeeper.core.limits import KIB
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.settings import Settings, SettingsError
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.servers import AckSinkService, SessionFactory, Subscriber, channel_options
from cursorkeeper.stream.store_service import CursorStoreService
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from cursorkeeper_clients._proto import acks_pb2, acks_pb2_grpc
from cursorkeeper_clients.bookkeeper import errors as bk
from cursorkeeper_clients.bookkeeper.client import GatewayClient
from cursorkeeper_clients.bookkeeper.port import GatewayInfo
from cursorkeeper_clients.bookkeeper.settings import GatewayClientSettings
from cursorkeeper_clients.zookeeper import errors as zk
from cursorkeeper_clients.zookeeper.client import ZooKeeperClient
from cursorkeeper_clients.zookeeper.settings import ZooKeeperSettings, parse_servers
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

log = structlog.get_logger("cursorkeeper")


class StartError(Exception):
    """The daemon cannot start; the message says why and what to do."""


def gateway_client(settings: Settings, *, role: str = "writer") -> GatewayClient:
    """The client of the ledger gateway. Its window is the keeper's: an append is never refused here for room."""
    return GatewayClient(
        GatewayClientSettings(
            address=settings.gateway,
            role=role,
            token=read_token(settings.gateway_token_file).decode(),
            password=settings.password.encode(),
            append_window_entries_max=8 * settings.daemon_appends_in_flight_max,
            append_window_bytes_max=settings.append_window_bytes,
        )
    )


def zookeeper_client(settings: Settings) -> ZooKeeperClient:
    """The client of ZooKeeper."""
    servers, chroot = parse_servers(settings.zookeeper)
    return ZooKeeperClient(
        ZooKeeperSettings(
            servers=servers,
            chroot=chroot or "/",
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            jute_maxbuffer_bytes=settings.zookeeper_jute_maxbuffer_bytes,
        )
    )


def read_token(file: str) -> bytes:
    """The content of a token file; nothing if none is set. Raises SettingsError."""
    if not file:
        return b""
    try:
        return Path(file).read_bytes().strip()
    except OSError as e:
        raise SettingsError(f"{file}: {e.strerror or e}: a token file must be readable") from e


class Daemon:
    """One daemon in this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.telemetry = DaemonTelemetry()
        self.gateway = gateway_client(settings)
        self.zookeeper = zookeeper_client(settings)
        self.keeper: Keeper | None = None
        self.address = ""
        self.metrics_address = ""
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_metrics: Callable[[], None] | None = None

    async def start(self) -> None:
        """Raises StartError or SettingsError."""
        info = await self._connect()
        keeper = self.keeper = Keeper(
            self.gateway,
            self.zookeeper,
            self.telemetry,
            limits=self.settings.limits,
            keeper_limits=self.settings.keeper_limits,
            policy=self.settings.policy,
            encode=self.settings.encode,
            identity=self.settings.identity,
            rng=random.Random(),
            root=self.settings.root,
            state_writer=self.settings.state_writer(min(info.entry_bytes_max, info.message_bytes_max - 64 * KIB)),
        )
        try:
            await keeper.footers.deployment()
        except zk.ZooKeeperError as e:
            raise StartError(f"ZooKeeper at {self.settings.zookeeper}: {self.settings.root} cannot be claimed: {e}. {e.hint}") from e
        self.telemetry.watch(keeper)
        await keeper.start()
        pool = CreditPool(self.settings.credit_bytes, self.settings.daemon_credit_bytes)
        sessions = SessionFactory(
            keeper,
            pool,
            name=self.settings.identity,
            incarnation=f"{random.getrandbits(64):016x}",
            credentials=read_token(self.settings.source_token_file),
        )
        await self._serve(keeper, sessions)
        for source in self.settings.sources:
            subscriber = Subscriber(source, sessions, self.settings.ack_message_bytes_max)
            self._tasks.append(asyncio.create_task(subscriber.run()))
        if self.settings.gc_interval_s > 0:
            self._tasks.append(asyncio.create_task(self._collect_garbage(keeper)))
        self._start_metrics()

    async def _connect(self) -> GatewayInfo:
        try:
            await self.gateway.start()
            info = await self.gateway.describe()
        except bk.GatewayError as e:
            raise StartError(f"the gateway at {self.settings.gateway} does not answer: {e}") from e
        self.settings.check_gateway(info.entry_bytes_max, info.message_bytes_max)
        if info.writable_bookies < self.settings.ack_quorum:
            log.warning("too few bookies", writable=info.writable_bookies, ack_quorum=self.settings.ack_quorum)
        elif info.writable_bookies < self.settings.ensemble:
            log.warning("fewer bookies than the ensemble", writable=info.writable_bookies, ensemble=self.settings.ensemble)
        try:
            await self.zookeeper.start()
            await self.zookeeper.ensure_path(self.settings.root)
        except zk.ZooKeeperError as e:
            raise StartError(f"ZooKeeper at {self.settings.zookeeper} does not answer: {e}. {e.hint}") from e
        return info

    async def _serve(self, keeper: Keeper, sessions: SessionFactory) -> None:
        server = self._server = grpc.aio.server(options=channel_options(self.settings.ack_message_bytes_max, server=True))
        acks_pb2_grpc.add_AckSinkServicer_to_server(AckSinkService(sessions), server)  # type: ignore[no-untyped-call]
        acks_pb2_grpc.add_CursorStoreServicer_to_server(CursorStoreService(keeper), server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [d.full_name for d in acks_pb2.DESCRIPTOR.services_by_name.values()]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        host, _, port = self.settings.listen.rpartition(":")
        try:
            bound = server.add_insecure_port(self.settings.listen)
        except RuntimeError as e:
            raise StartError(f"cannot listen on {self.settings.listen}: is another daemon running there? Use --listen") from e
        await server.start()
        self.address = f"{host}:{bound or port}"
        for service in ("", *names):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def _start_metrics(self) -> None:
        if not self.settings.metrics_listen:
            return
        host, _, port = self.settings.metrics_listen.rpartition(":")
        try:
            bound, self._stop_metrics = self.telemetry.serve(host, int(port))
        except OSError as e:
            raise StartError(f"cannot serve metrics on {self.settings.metrics_listen}: {e.strerror or e}; use --metrics-listen") from e
        self.metrics_address = f"{host}:{bound}"

    async def _collect_garbage(self, keeper: Keeper) -> None:
        while True:
            await asyncio.sleep(self.settings.gc_interval_s * random.uniform(0.9, 1.1))
            try:
                report = await gc.collect(keeper.ledgers, keeper.footers)
            except (bk.GatewayError, zk.ZooKeeperError) as e:
                log.info("garbage collection postponed", problem=str(e))
                continue
            log.info("garbage collected", **report.as_fields())

    async def stop(self) -> list[str]:
        """Drain and let go of everything; returns the cursors that did not close in time."""
        left: list[str] = []
        await self._health.enter_graceful_shutdown()
        for task in self._tasks:
            task.cancel()
        if self.keeper is not None:
            left = [str(n) for n in await self.keeper.close()]
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self._stop_metrics is not None:
            self._stop_metrics()
        await self.zookeeper.close()
        await self.gateway.close()
        return left


async def run(settings: Settings, *, parent_pid: int = 0) -> int:
    """The whole life; returns the exit code. `parent_pid`: stop when that process is gone (0: never)."""
    daemon = Daemon(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    watcher = asyncio.create_task(_watch_parent(parent_pid, stopping)) if parent_pid else None
    try:
        await daemon.start()
    except (StartError, SettingsError):
        with contextlib.suppress(Exception):
            await daemon.stop()
        raise
    ready = {"ready": "cursorkeeper", "listen": daemon.address, "metrics": daemon.metrics_address, "pid": os.getpid()}
    print(msgspec.json.encode(ready).decode(), flush=True)
    log.info("ready", listen=daemon.address, gateway=settings.gateway, zookeeper=settings.zookeeper)
    await stopping.wait()
    log.info("stopping", cursors=len(daemon.keeper.cursors) if daemon.keeper else 0)
    left = await daemon.stop()
    if watcher is not None:
        watcher.cancel()
    if left:
        log.warning("stopped before these cursors were closed; what they had confirmed is durable", cursors=left[:20], count=len(left))
        return 1
    log.info("stopped")
    return 0


async def _watch_parent(pid: int, stopping: asyncio.Event) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            sys.stderr.write(f"parent process {pid} is gone: stopping\n")
            stopping.set()
            return
        await asyncio.sleep(1)
