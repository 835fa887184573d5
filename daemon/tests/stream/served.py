"""The daemon's stream served over real gRPC, on the fakes: killed and started again like a
process.
"""

from __future__ import annotations

import random
from functools import partial

import grpc

from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Callers, table_of_tokens
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import ROOT
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.guard import Guard
from cursorkeeper.stream.servers import (
    ENVELOPE_BYTES,
    REQUEST_MAX_S,
    UNREAD_END_MAX_S,
    AckSinkService,
    CallCheck,
)
from cursorkeeper.stream.session import Session
from cursorkeeper.stream.siblings import Siblings
from cursorkeeper.stream.store_service import CursorStoreService
from cursorkeeper.stream.usage import Usage
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.channels import SERVER_OPTIONS, connection_options
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeperServer
from daemon.tests.support.world import SilentTelemetry


class ServedKeeper:
    """Implements the contract's `Keeper`."""

    def __init__(
        self,
        limits: Limits | None = None,
        keeper_limits: KeeperLimits | None = None,
        pool: CreditPool | None = None,
    ) -> None:
        self.bookkeeper = FakeBookKeeper(random.Random(1))
        self.zookeeper = FakeZooKeeperServer(random.Random(2))
        self.limits, self.keeper_limits = limits or Limits(), keeper_limits or KeeperLimits()
        self.pool = pool or CreditPool()
        self.credentials, self.readers_token = b"", b""
        self.callers: Callers | None = None
        """Who may call, if not those of the two tokens."""
        self.audit = Audit()
        self.server_credentials: grpc.ServerCredentials | None = None
        self.guard: Guard | None = None
        self.session: type[Session] = Session
        self.hello_timeout_s, self.streams_max = 10.0, 1_000
        self.request_max_s, self.unread_end_max_s = REQUEST_MAX_S, UNREAD_END_MAX_S
        self.identity = "served"
        self.worker, self.workers = 0, list[ServedKeeper]()
        """Which one of several workers it is; none: it is the whole daemon."""
        self._address = f"127.0.0.1:{free_port()}"
        self._server: grpc.aio.Server | None = None
        self.keeper: Keeper | None = None

    @property
    def address(self) -> str:
        return self._address

    async def start(self) -> ServedKeeper:
        gateway, session = self.bookkeeper.gateway(), self.zookeeper.session()
        await gateway.start()
        await session.start()
        self.keeper = Keeper(
            gateway,
            session,
            SilentTelemetry(),
            limits=self.limits,
            keeper_limits=self.keeper_limits,
            policy=LedgerPolicy(),
            encode=EncodeSettings(self.limits.max_entry_bytes),
            identity=self.identity,
            rng=random.Random(3),
            root=ROOT,
            state_writer=None,
            is_worker=bool(self.workers),
        )
        await self.keeper.start()
        callers = self.callers or Callers(table_of_tokens(self.credentials, self.readers_token))
        self.guard = Guard(callers, Usage(self.pool), self.audit)
        addresses = [worker.address for worker in self.workers]
        self._siblings = Siblings(addresses, self.worker, "known to workers" if addresses else "")
        server = self._server = grpc.aio.server(
            options=[*connection_options((4 << 20) + ENVELOPE_BYTES), *SERVER_OPTIONS],
            interceptors=[CallCheck(self.guard, self._siblings.is_asking, self.request_max_s)],
        )
        sessions = partial(
            self.session,
            self.keeper,
            self.guard,
            name="served",
            incarnation="1",
            worker=self.worker,
            worker_addresses=addresses,
        )
        AckSinkService(
            sessions,
            hello_timeout_s=self.hello_timeout_s,
            streams_max=self.streams_max,
            unread_end_max_s=self.unread_end_max_s,
        ).add_to(server)
        self.store = CursorStoreService(self.keeper, self._siblings)
        rpc.add_CursorStoreServicer_to_server(self.store, server)
        if self.server_credentials is None:
            server.add_insecure_port(self._address)
        else:
            server.add_secure_port(self._address, self.server_credentials)
        await server.start()
        return self

    async def kill(self) -> None:
        """As a crash: nothing is written any more, streams break."""
        if self.keeper is not None:
            assert not self.keeper.failures, self.keeper.failures
            self.keeper.abandon()
        if self._server is not None:
            await self._server.stop(grace=0)
            await self._siblings.close()
            self._server = None
