"""The daemon's life: start, serve, drain. Wires clients, keeper, servers and telemetry together;
decides nothing.

Ready means: ZooKeeper and the gateway answered, their limits fit ours, and the sink listens. One
JSON line on standard output says so; until then `readiness` waits, if it may. SIGTERM and SIGINT
drain: no new cursors, last flush of each, footers, exit within `close_timeout_s`. Before ready they
end the start. Nothing is written to a file system but the audit log, and the socket with its lock,
where settings name them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc as garbage
import ipaddress
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import grpc
import msgspec
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Shown
from cursorkeeper.access.configured import callers_of, files_of_secrets
from cursorkeeper.access.secret_files import is_readable_by_others
from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.port import GatewayInfo
from cursorkeeper.connections import gateway_settings, zookeeper_settings
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.orphans.removal import Remover
from cursorkeeper.orphans.watch import OrphanWatch
from cursorkeeper.readiness import SHORT_LIMIT_S, TRY_S, Patience, StartError, check_serving
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.supervised import supervised
from cursorkeeper.settings import Settings, SettingsError, Tls
from cursorkeeper.socket_file import SocketFile, SocketFileError, is_unix, path_of
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.guard import Guard
from cursorkeeper.stream.servers import ENVELOPE_BYTES, AckSinkService, CallCheck, Subscriber
from cursorkeeper.stream.session import Session
from cursorkeeper.stream.siblings import OPTIONS as SIBLING_OPTIONS
from cursorkeeper.stream.siblings import Siblings
from cursorkeeper.stream.store_service import CursorStoreService
from cursorkeeper.stream.usage import Usage
from cursorkeeper.telemetry import logs, pages
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import parse_servers
from cursorkeeper_client._proto import acks_pb2, acks_pb2_grpc
from cursorkeeper_client.channels import SERVER_OPTIONS, Dialled, connection_options
from cursorkeeper_client.tls import RenewedContext, TlsError

log = structlog.get_logger("cursorkeeper")


CLOSING_SHARE = 0.95
"""Of `close_timeout_s`: the cursors' part; servers and clients are let go in the rest."""
AGE_GRACE_S = 30.0
"""What is on its way over a connection that is too old gets so long to be answered."""
SERVICES = [one.full_name for one in acks_pb2.DESCRIPTOR.services_by_name.values()]
CANCEL_MAX_S = 2.0
"""How long a start that was told to stop may take to notice."""


def check(settings: Settings) -> None:
    """What would otherwise fail in the middle of the start. Raises SettingsError."""
    own = settings.daemon
    zookeeper_settings(settings.systems)
    gateway_settings(settings, "writer")
    try:
        if settings.limits.pulsar_metadata:
            parse_servers(settings.limits.pulsar_metadata)
    except ValueError as e:
        raise SettingsError(
            f"pulsar_metadata = {settings.limits.pulsar_metadata!r}: {e}",
            "write host:port[,host:port...][/chroot] of Pulsar's ZooKeeper; other metadata stores "
            "are not read",
        ) from e
    for name in ("listen", "metrics_listen"):
        address = getattr(own, name)
        host, colon, port = address.rpartition(":")
        if name == "listen" and is_unix(address):
            try:
                path_of(address)
            except SocketFileError as e:
                raise SettingsError(f"listen = {e.message}", e.remedy) from None
            continue
        if (address or name == "listen") and not (
            host and colon and port.isdecimal() and int(port) < 65_536
        ):
            raise SettingsError(
                f"{name} = {address!r} is not an address",
                "write host:port, or unix: and a path" if name == "listen" else "write host:port",
            )
    if is_unix(own.listen) and own.workers > 1:
        raise SettingsError(
            f"listen = {own.listen!r}: {own.workers} workers need a port each", "use host:port"
        )
    if own.reader_token_file and not own.source_token_file:
        raise SettingsError(
            "reader_token_file without source_token_file leaves sources open to everybody",
            "name both, or neither",
        )
    callers_of(settings)
    tls = settings.tls
    if own.insecure or _is_of_this_machine(own.listen):
        return
    if not (
        own.identities_file
        or own.source_token_file
        or (tls.tls_enabled and tls.tls_require_trusted_client_cert_on_connect)
    ):
        raise SettingsError(
            f"listen = {own.listen!r} lets everybody who reaches this machine ack, reset "
            f"and delete",
            "name identities_file or source_token_file, or set insecure, or listen on 127.0.0.1; "
            "or let TLS ask for certificates (tls_require_trusted_client_cert_on_connect)",
        )
    if not tls.tls_enabled:
        raise SettingsError(
            f"listen = {own.listen!r}: tokens and acks would go through the network in plain text",
            "set tls_enabled and its files, or insecure where nobody else hears that network, or "
            "listen on 127.0.0.1 or at a unix: socket",
        )


def _is_of_this_machine(address: str) -> bool:
    """Whether nobody else can connect to it. A name that is not known is anybody's."""
    if is_unix(address):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(
        ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Which worker of a daemon a process is, and where all of them are: as sources dial them, and
    as they dial each other. `secret`: what they alone know.
    """

    number: int
    told: tuple[str, ...]
    dialled: tuple[str, ...]
    secret: str


class Daemon:
    """`place`: it is one of several workers, and serves when it is told that all of them do."""

    def __init__(self, settings: Settings, place: Place | None = None) -> None:
        self.settings, self.own, self._place = settings, settings.daemon, place
        self._tls = settings.tls
        self._siblings = (
            Siblings()
            if place is None
            else Siblings(place.dialled, place.number, place.secret, self._sibling)
        )
        self.systems, self.limits = settings.systems, settings.limits
        self.telemetry = DaemonTelemetry()
        pool = CreditPool(self.limits.credit_bytes, self.limits.daemon_credit_bytes)
        self._guard = Guard(
            callers_of(settings),
            Usage(pool),
            Audit(self.own.audit_log_file, self.telemetry.audit_line_dropped),
        )
        self.gateway = GatewayClient(gateway_settings(settings, "writer", SHORT_LIMIT_S))
        # one try to reach it is short: `readiness` has the patience
        self.zookeeper = ZooKeeperClient(zookeeper_settings(self.systems, TRY_S))
        self.pulsar_zookeeper = self.zookeeper
        if self.limits.pulsar_metadata not in ("", self.systems.zookeeper):
            theirs = replace(self.systems, zookeeper=self.limits.pulsar_metadata)
            self.pulsar_zookeeper = ZooKeeperClient(zookeeper_settings(theirs, TRY_S))
        self.keeper: Keeper | None = None
        self.address = ""
        self.metrics_address = ""
        self._server: grpc.aio.Server | None = None
        self._socket = SocketFile(self.own.listen) if is_unix(self.own.listen) else None
        self._health = health.aio.HealthServicer()
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_metrics: Callable[[], None] | None = None

    async def start(self) -> None:
        """Raises StartError or SettingsError."""
        patience = Patience(self.limits.start_timeout_s)
        info = await self._connect(patience)
        keeper = self.keeper = Keeper(
            self.gateway,
            self.zookeeper,
            self.telemetry,
            limits=self.settings.machine_limits,
            keeper_limits=self.limits,
            policy=self.settings.ledgers.policy,
            encode=self.settings.encode,
            identity=self.own.identity,
            rng=random.Random(),
            root=self.systems.root,
            state_writer=self.settings.state_writer(info),
            is_worker=self._place is not None,
        )
        await patience.until("ZooKeeper", self.systems.zookeeper, lambda: self._claim_root(keeper))
        self.telemetry.watch(keeper)
        await keeper.start()
        sessions = partial(
            Session,
            keeper,
            self._guard,
            name=self.own.identity,
            incarnation=f"{random.getrandbits(64):016x}",
            worker=self._place.number if self._place is not None else 0,
            worker_addresses=self._place.told if self._place is not None else (),
        )
        await self._serve(keeper, sessions)
        for source in self.own.sources:
            subscriber = Subscriber(
                source,
                sessions,
                self.limits.ack_message_bytes_max,
                hello_timeout_s=self.own.hello_timeout_s,
                tls=self._tls.of_sources,
                server_name=self._tls.tls_server_name,
            )
            self._tasks.append(asyncio.create_task(subscriber.run()))
        if self.limits.gc_interval_s > 0:
            collecting = supervised(
                "garbage collection", lambda: self._collect_garbage(keeper), keeper.task_ended
            )
            self._tasks.append(asyncio.create_task(collecting))
        self._tasks.append(
            asyncio.create_task(
                supervised("looking who may call", self._look_at_callers, keeper.task_ended)
            )
        )
        if self.limits.pulsar_metadata:
            searching = supervised(
                "the search for orphans", self._orphan_watch(keeper).run, keeper.task_ended
            )
            self._tasks.append(asyncio.create_task(searching))
        self._start_metrics()

    async def _connect(self, patience: Patience) -> GatewayInfo:
        # ZooKeeper first: without it the gateway cannot serve, and what is missing should be called
        # by its name.
        await patience.until("ZooKeeper", self.systems.zookeeper, self._reach_zookeeper)
        ledgers = self.settings.ledgers
        info = await patience.until("the gateway", self.systems.gateway, self._reach_gateway)
        self.settings.check_gateway(info)
        if info.writable_bookies < ledgers.ack_quorum:
            log.warning(
                "too few bookies",
                writable=info.writable_bookies,
                ack_quorum=ledgers.ack_quorum,
            )
        elif info.writable_bookies < ledgers.ensemble:
            log.warning(
                "fewer bookies than the ensemble",
                writable=info.writable_bookies,
                ensemble=ledgers.ensemble,
            )
        return info

    async def _reach_zookeeper(self) -> None:
        try:
            await self.zookeeper.start()
        except zk.ZooKeeperError as e:
            raise _zookeeper_missing(
                e, f"ZooKeeper at {self.systems.zookeeper} does not answer"
            ) from e

    async def _reach_gateway(self) -> GatewayInfo:
        try:
            await check_serving(
                self.systems.gateway,
                answers=not self.limits.start_timeout_s,
                tls=self._tls.of_gateway,
                server_name=self._tls.gateway_tls_server_name,
            )
        except TlsError as e:  # somebody writes the files
            raise StartError(e.message, e.remedy, passing=True) from None
        try:
            await self.gateway.start()
            return await self.gateway.describe()
        except bk.GatewayError as e:
            passing = isinstance(e, bk.GatewayRetry)
            raise StartError(
                f"the gateway at {self.systems.gateway} does not answer: {e.said}",
                e.remedy,
                passing=passing,
            ) from e

    async def _claim_root(self, keeper: Keeper) -> None:
        try:
            await self.zookeeper.ensure_path(self.systems.root)
            if await keeper.footers.known_deployment() is None:
                log.warning(
                    "a new root: cursors of another root or chroot are not seen",
                    root=self.systems.root,
                    where=self.systems.zookeeper,
                )
            await keeper.footers.deployment()
        except zk.ZooKeeperError as e:
            raise _zookeeper_missing(
                e, f"ZooKeeper at {self.systems.zookeeper}: {self.systems.root} cannot be claimed"
            ) from e

    async def _serve(self, keeper: Keeper, sessions: Callable[[Shown], Session]) -> None:
        server = self._server = grpc.aio.server(
            options=[
                *connection_options(self.limits.ack_message_bytes_max + ENVELOPE_BYTES),
                *SERVER_OPTIONS,
                *_age_options(self.own.connection_age_max_s),
            ],
            interceptors=[CallCheck(self._guard, self._siblings.is_asking)],
        )
        sink = AckSinkService(
            sessions,
            hello_timeout_s=self.own.hello_timeout_s,
            streams_max=self.own.streams_max,
        )
        sink.add_to(server)
        store = CursorStoreService(keeper, self._siblings)
        acks_pb2_grpc.add_CursorStoreServicer_to_server(store, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.own.reflection:
            reflection.enable_server_reflection(
                [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], server
            )
        host, _, port = self.own.listen.rpartition(":")
        try:
            bound = self._add_port(server)
        except RuntimeError as e:
            option = "--worker-port" if self._place and self._place.number else "--listen"
            raise StartError(
                f"cannot listen on {self.own.listen}: is another daemon running there? Use {option}"
            ) from e
        await server.start()
        self.address = f"{host}:{bound or port}" if self._socket is None else self.own.listen
        await self.say_health(serving=self._place is None)

    def _add_port(self, server: grpc.aio.Server) -> int:
        """Raises RuntimeError, StartError."""
        if self._socket is None:
            return self._bind(server)
        try:
            self._socket.take()
        except SocketFileError as e:
            raise StartError(e.message, e.remedy) from None
        with self._socket.mode():
            return self._bind(server)

    def _bind(self, server: grpc.aio.Server) -> int:
        tls = self._tls
        if not tls.tls_enabled:
            return int(server.add_insecure_port(self.own.listen))
        try:
            credentials = tls.files.server_credentials(
                is_client_asked=tls.tls_require_trusted_client_cert_on_connect,
                refresh_s=tls.tls_cert_refresh_check_duration_sec,
                on_problem=not_renewed,
            )
        except TlsError as e:
            raise StartError(f"{e.file}: {e.reason}", e.remedy) from None
        return int(server.add_secure_port(self.own.listen, credentials))

    def _sibling(self, address: str) -> Dialled:
        tls = self._tls
        return Dialled(
            address,
            SIBLING_OPTIONS,
            tls.of_sources,
            tls.tls_server_name,
            tls.tls_cert_refresh_check_duration_sec,
        )

    async def say_health(self, *, serving: bool) -> None:
        """What the health service answers from now on, until the daemon stops."""
        status = health_pb2.HealthCheckResponse
        for service in ("", *SERVICES):
            await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)

    def _start_metrics(self) -> None:
        if not self.own.metrics_listen:
            return
        # a worker's page is for its supervisor, on this machine
        self.metrics_address, self._stop_metrics = pages.serve_at(
            self.telemetry.registry,
            self.own.metrics_listen,
            contexts_of(self._tls) if self._place is None else None,
        )

    def _footer_in_doubt(self, name: CursorName, why: str) -> None:
        self.telemetry.log("footer in doubt", cursor=str(name), problem=why)

    async def _collect_garbage(self, keeper: Keeper) -> None:
        while True:
            await asyncio.sleep(self.limits.gc_interval_s * random.uniform(0.9, 1.1))
            try:
                report = await gc.collect(
                    keeper.ledgers, keeper.footers, on_doubt=self._footer_in_doubt
                )
            except (bk.GatewayError, zk.ZooKeeperError) as e:
                log.info("garbage collection postponed", problem=str(e))
                continue
            log.info("garbage collected", **report.as_fields())

    async def _look_at_callers(self) -> None:
        problem = ""
        while True:
            await asyncio.sleep(self._tls.tls_cert_refresh_check_duration_sec)
            was, problem = problem, ""
            try:
                await self._guard.look()
            except SettingsError as e:
                problem = e.message
                if problem != was:
                    log.warning("identities not renewed", problem=e.message, remedy=e.remedy)

    def _orphan_watch(self, keeper: Keeper) -> OrphanWatch:
        def new_writer() -> str:
            return f"{self.own.identity}/orphans/{random.getrandbits(64):016x}"

        remover = Remover(
            PulsarStore(self.pulsar_zookeeper), keeper.footers, keeper.ledgers, new_writer
        )
        return OrphanWatch(
            remover,
            self.telemetry,
            self.limits.orphans_interval_s,
            self.limits.orphans_delete_after_s,
            random.Random(),
        )

    async def stop(self) -> list[str]:
        """Drain and let go of everything; returns the cursors that did not close in time."""
        left: list[str] = []
        await self._health.enter_graceful_shutdown()
        for task in self._tasks:
            task.cancel()
        if self.keeper is not None:
            left = [
                str(n) for n in await self.keeper.close(self.limits.close_timeout_s * CLOSING_SHARE)
            ]
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self._socket is not None:
            self._socket.let_go()  # gRPC has removed the socket, and cannot remove a successor's
        await self._siblings.close()
        if self._stop_metrics is not None:
            self._stop_metrics()
        if self.pulsar_zookeeper is not self.zookeeper:
            await self.pulsar_zookeeper.close()
        await self.zookeeper.close()
        await self.gateway.close()
        self._guard.audit.close()
        return left


def _age_options(age_max_s: float) -> list[tuple[str, int]]:
    if not age_max_s:
        return []
    return [
        ("grpc.max_connection_age_ms", min(round(age_max_s * 1000), (1 << 31) - 1)),
        ("grpc.max_connection_age_grace_ms", round(AGE_GRACE_S * 1000)),
    ]


def contexts_of(tls: Tls) -> RenewedContext | None:
    """For a server of pages. Raises StartError."""
    try:
        return tls.of_pages(not_renewed)
    except TlsError as e:
        raise StartError(e.message, e.remedy) from None


def not_renewed(error: TlsError) -> None:
    """The files have changed and cannot be used: those before are still shown."""
    log.warning("certificates not renewed", problem=f"{error.file}: {error.reason}")


def _zookeeper_missing(error: zk.ZooKeeperError, what: str) -> StartError:
    return StartError(
        f"{what}: {error}", error.remedy, passing=error.kind in (zk.Kind.UNKNOWN, zk.Kind.NOT_DONE)
    )


Watch = Callable[[Daemon, asyncio.Event], Coroutine[Any, Any, None]]
"""Runs beside a daemon; sets the event when it is to stop."""


async def run(settings: Settings, watch: Watch, place: Place | None = None) -> int:
    """The whole life; returns the exit code."""
    stopping = asyncio.Event()
    stop_at_signals(stopping)
    daemon = Daemon(settings, place)
    watcher = asyncio.create_task(watch(daemon, stopping))
    try:
        is_ready = await _start(daemon, stopping)
    except (StartError, SettingsError):
        with contextlib.suppress(Exception):
            await daemon.stop()
        raise
    if not is_ready:
        log.info("stopped before it was ready")
        await daemon.stop()
        return 0
    ready = {
        "ready": "cursorkeeper",
        "listen": daemon.address,
        "metrics": daemon.metrics_address,
        "pid": os.getpid(),
    }
    print(msgspec.json.encode(ready).decode(), flush=True)
    log.info(
        "ready",
        listen=daemon.address,
        gateway=daemon.systems.gateway,
        zookeeper=daemon.systems.zookeeper,
    )
    await stopping.wait()
    log.info("stopping", cursors=len(daemon.keeper.cursors) if daemon.keeper else 0)
    left = await daemon.stop()
    watcher.cancel()
    if left:
        log.warning(
            "stopped before these cursors were closed; what they had confirmed is durable",
            cursors=left[:20],
            count=len(left),
        )
        return 1
    log.info("stopped")
    return 0


async def _start(daemon: Daemon, stopping: asyncio.Event) -> bool:
    """Whether it is ready; False: it was told to stop before. Raises what `Daemon.start` raises."""
    start, told = asyncio.create_task(daemon.start()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({start, told}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            return True
        return False
    finally:
        told.cancel()
        if not start.done():
            start.cancel()
            await asyncio.wait({start}, timeout=CANCEL_MAX_S)
            if start.done() and not start.cancelled():
                start.exception()  # what it failed of no longer matters


def stop_at_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)


async def watch_parent(pid: int, stopping: asyncio.Event) -> None:
    """Sets the event when that process is gone; 0: never."""
    while pid:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            sys.stderr.write(f"parent process {pid} is gone: stopping\n")
            stopping.set()
            return
        await asyncio.sleep(1)


def serve(settings: Settings, parent_pid: int) -> int:
    """Runs the daemon as this process; returns its exit code. `parent_pid`: stop when that process
    is gone; 0: never. Raises SettingsError, StartError.
    """
    return serve_watched(settings, lambda _daemon, stopping: watch_parent(parent_pid, stopping))


def serve_watched(settings: Settings, watch: Watch, place: Place | None = None) -> int:
    """The same, beside something else that may stop it."""
    check(settings)
    told: dict[str, Any] = {} if place is None else {"worker": place.number, "pid": os.getpid()}
    logs.configure(settings.limits.log_level, **told)
    if place is None or place.number == 0:
        _warn_of_open_files(settings)
    _spare_collector()
    with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
        return runner.run(run(settings, watch, place))


def _warn_of_open_files(settings: Settings) -> None:
    own = settings.daemon
    if (own.token_secret_key or own.token_public_key) and not own.identities_file:
        log.info("signed tokens are not looked at", remedy="set identities_file")
    for name, file in files_of_secrets(settings):
        if is_readable_by_others(file):
            log.warning(
                "a secret that everybody on this machine can read",
                setting=name,
                file=file,
                remedy=f"chmod o-rwx {file}",
            )


def _spare_collector() -> None:
    """Modules are not looked through for cycles again and again, and hardly any cycle is made: with
    Python's own thresholds the collector took a tenth of the CPU under load, and stood in the way
    of all cursors for a tenth of a second at a time. Where messages wait for a second, what they
    hold should not be looked at meanwhile. What is large is in no cycle when it has ended.
    """
    garbage.collect()
    garbage.freeze()
    garbage.set_threshold(400_000, 10, 20)


def _loop_factory(settings: Settings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not settings.limits.uvloop:
        return None
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        sys.stderr.write(
            "uvloop is not installed: going on with asyncio's own loop (pip install uvloop)\n"
        )
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
