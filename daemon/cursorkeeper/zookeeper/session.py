"""The session: one id that outlives connections.

Owns which host is tried when, the session's id and password, its state and watches, and the
wait for a connection. Does not own bytes (`codec`), one connection (`connection`), or what requests
mean (`client`). One task does all the connecting, so there is no lock that a lost connection could
leave taken.

Invariants:
- The id and password are kept through any number of failed hosts and broken connections, until a
  server says that the session is gone.
- CONNECTED only after the watches are set again; not CONNECTED from the moment the connection ends.
- EXPIRED is always said, before the new session is: a session is never swapped in silence.
- A request is sent at most once. Before it is sent, errors are NotSent; after that, Disconnected
  errors are OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.connection import Connection, Listener
from cursorkeeper.zookeeper.errors import (
    AccessDenied,
    ClientClosed,
    ConnectionLost,
    LoginRefused,
    NotConnected,
    OutcomeUnknown,
    ProtocolBroken,
    TooManyRequests,
)
from cursorkeeper.zookeeper.handshake import NO_PASSWORD, Opened, shake_hands
from cursorkeeper.zookeeper.in_flight import InFlight
from cursorkeeper.zookeeper.paths import Chroot
from cursorkeeper.zookeeper.rearm import rearm
from cursorkeeper.zookeeper.sasl import login_of
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import SessionState, StateCallback
from cursorkeeper.zookeeper.watches import WatchTable
from cursorkeeper_client.back_off import BackOff
from cursorkeeper_client.tls import TlsError

T = TypeVar("T")

_HOST_LIMIT_MIN_S = 1.0
_LOGIN_SHARE = 0.9
"""Of a host's time that a login may wait for others, so that it says itself for whom."""


class Session:
    """A session with an ensemble, without the operations on nodes. `random_source` orders hosts and
    spreads back-off.
    """

    def __init__(
        self, settings: ZooKeeperSettings, *, random_source: random.Random | None = None
    ) -> None:
        self.settings = settings
        self._chroot = Chroot(settings.chroot)
        self.watches = WatchTable(self._chroot.outside)
        self._listeners: list[StateCallback] = []
        self.state = SessionState.SUSPENDED
        self.session_id = 0
        self._random = random_source or random.Random()
        self._password = NO_PASSWORD
        self._last_zxid = 0
        self._timeout_s = settings.session_timeout_ms / 1000
        self._room = InFlight(settings.requests_in_flight_max, settings.request_bytes_in_flight_max)
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._last_failure = self._last_remedy = ""
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect, and wait for it. Raises NotConnected, ClientClosed."""
        if self._closing is not None:
            raise ClientClosed()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="zookeeper session")
            self._task.add_done_callback(self._stopped)
        await self._wait_connected(
            asyncio.get_running_loop().time() + self.settings.start_timeout_s, None
        )

    async def close(self) -> None:
        """Best effort within `close_timeout_s`, for every caller of it; a cancelled caller leaves
        the closing to finish by itself.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="zookeeper close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # The session task goes last: it may be in the middle of connecting, and must not do so
        # again after the goodbye.
        connection = self._connection
        if connection is not None and connection.alive and self._connected.is_set():
            self._connected.clear()
            goodbye = connection.send(codec.close())
            # fails when the connection ends
            await asyncio.wait({goodbye}, timeout=self.settings.close_timeout_s * 3 / 4)
            if not goodbye.cancel() and not goodbye.cancelled():
                goodbye.exception()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self.settings.close_timeout_s / 4)
        self._cleared()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        # Reaching the end without being closed is a bug in here: what waits must fail, not hang.
        # `_refuse_closed` says why.
        self._cleared()

    def _cleared(self) -> None:
        self._connected.clear()
        if self._connection is not None:
            self._connection.end(ConnectionLost("the client was closed"))
        self.watches.callbacks.clear()
        self.session_id = 0
        self._go(SessionState.CLOSED)
        self._connected.set()  # wakes those who wait; they look at the state

    def on_state(self, callback: StateCallback) -> None:
        """Call `callback` with every new state from now on."""
        self._listeners.append(callback)

    def _go(self, state: SessionState) -> None:
        if self.state not in (state, SessionState.CLOSED):
            self.state = state
            for listener in self._listeners:
                asyncio.get_running_loop().call_soon(listener, state)

    # --- connecting -------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        most_s = self.settings.back_off_max_ms / 1000
        back_off = BackOff(self.settings.back_off_min_ms / 1000, most_s, self._random)
        while True:
            opened = await self._try_hosts()
            if opened is not None and not opened.welcome.expired:
                began_s = loop.time()
                await self._hold(opened)
                if loop.time() - began_s > most_s:
                    back_off.reset()  # not for a server that takes us and drops us at once
            await asyncio.sleep(back_off.next_s())

    async def _try_hosts(self) -> Opened | None:
        """Each host once, in random order, until one answers; an expiry is an answer, and has been
        told when this returns.
        """
        servers = list(self.settings.servers)
        self._random.shuffle(servers)
        limit_s = max(_HOST_LIMIT_MIN_S, 2 / 3 * self._timeout_s / len(servers))
        for host, port in servers:
            hello = codec.connect(
                self._last_zxid, self.settings.session_timeout_ms, self.session_id, self._password
            )
            try:
                context = tls.client_context() if (tls := self.settings.tls) else None
                async with asyncio.timeout(limit_s):
                    opened = await shake_hands(
                        host,
                        port,
                        hello,
                        context,
                        self.settings.tls_server_name,
                        login_of(self.settings, host, limit_s * _LOGIN_SHARE),
                    )
            except (
                OSError,
                EOFError,
                ProtocolBroken,
                AccessDenied,
                TlsError,
            ) as failure:  # TimeoutError is an OSError
                # Also what a server says that lags behind us, or is not ready: the session is kept.
                self._last_failure = f"{host}:{port}: {_said(failure)}"
                self._last_remedy = _remedy(failure)
                continue
            if self.session_id and (
                opened.welcome.expired or opened.welcome.session_id != self.session_id
            ):
                self._expired()
            if opened.welcome.expired:
                opened.writer.transport.abort()
            return opened
        return None

    def _expired(self) -> None:
        """A server said that our session is gone."""
        self.session_id, self._password = 0, NO_PASSWORD
        self._timeout_s = self.settings.session_timeout_ms / 1000
        self._go(SessionState.EXPIRED)
        for path in list(self.watches.callbacks):
            self.watches.fire(path)

    async def _hold(self, opened: Opened) -> None:
        """Use a connection until it ends."""
        welcome = opened.welcome
        self.session_id, self._password, self._timeout_s = (
            welcome.session_id,
            welcome.password,
            welcome.timeout_s,
        )
        held_zxid: list[int] = []
        connection = Connection(
            opened.reader,
            opened.writer,
            session_timeout_s=welcome.timeout_s,
            reply_bytes_max=self.settings.reply_bytes_max,
            authentication=codec.authentication(*said)
            if (said := self.settings.authentication) and not self.settings.login
            else b"",
            listener=Listener(
                zxid=lambda zxid: (
                    held_zxid.append(zxid)
                    if self.state is not SessionState.CONNECTED
                    else self._saw(zxid)
                ),
                event=self._event,
                ended=self._suspend,
            ),
        )
        self._connection = connection
        try:
            limit_s = welcome.timeout_s / 3
            set_again = await rearm(
                connection,
                self.watches,
                self._last_zxid,
                bytes_max=self.settings.set_watches_bytes_max,
                limit_s=limit_s,
            )
            if set_again:
                for zxid in held_zxid:
                    self._saw(zxid)
                self._go(SessionState.CONNECTED)
                self._connected.set()
            reason = await asyncio.shield(connection.ended)
            self._last_failure, self._last_remedy = str(reason), _remedy(reason)
        finally:
            connection.end(ConnectionLost("the client was closed"))

    def _suspend(self) -> None:
        """The connection ended: from here on nothing is sent on it."""
        self._connection = None
        if self.state is not SessionState.CLOSED:
            self._connected.clear()
        if self.state is SessionState.CONNECTED and self._closing is None:
            self._go(SessionState.SUSPENDED)

    def _saw(self, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)

    def _event(self, happened: int, path: str) -> None:
        # An unknown event on a watched path is still a reason to read again.
        if happened != codec.EVENT_CHILDREN_CHANGED:
            self.watches.fire(path)

    # --- requests ---------------------------------------------------------------------------------

    async def request(
        self,
        request: codec.Request[T],
        on_answer: Callable[[T], None] | None = None,
    ) -> T:
        """Send once, when connected and when there is room, and wait for the answer; all within
        `request_timeout_s`.

        Raises NotConnected, TooManyRequests, ClientClosed (not sent), OutcomeUnknown, and the
        server's errors.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.settings.request_timeout_s
        connection = self._connection
        is_ready = connection is not None and self._connected.is_set() and self._closing is None
        size = request.size_bytes
        if connection is None or not is_ready or not self._room.enter_now(size):
            connection = await self._connection_with_room(size, deadline_s, request.path)
        answer = connection.send(
            request, on_answer=on_answer, on_end=partial(self._room.leave, size)
        )
        try:
            async with asyncio.timeout_at(deadline_s):
                return await answer
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {self.settings.request_timeout_s} s", path=request.path
            ) from None

    async def _connection_with_room(
        self, request_bytes: int, deadline_s: float, path: str | None
    ) -> Connection:
        while True:
            await self._wait_connected(deadline_s, path)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._room.enter(request_bytes)
            except TimeoutError:
                raise TooManyRequests(
                    f"{self._room.requests} requests, {self._room.bytes} bytes in flight", path=path
                ) from None
            if self._connected.is_set() and self._connection is not None:
                return self._connection
            self._room.leave(request_bytes)  # it ended while we waited for room

    async def _wait_connected(self, deadline_s: float, path: str | None) -> None:
        self._refuse_closed(path)
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._connected.wait()
        except TimeoutError:
            raise NotConnected(
                f"last failure: {self._last_failure or 'none yet'}",
                path=path,
                remedy=self._last_remedy,
            ) from None
        self._refuse_closed(path)

    def _refuse_closed(self, path: str | None) -> None:
        if self._task is None or self.state is SessionState.CLOSED or self._closing is not None:
            closed = ClientClosed("" if self._task else "never started", path=path)
            crashed = self._task is not None and self._task.done() and not self._task.cancelled()
            raise closed from (self._task.exception() if crashed and self._task else None)


_REFUSES_CERTIFICATE = re.compile("ALERT.*(CERTIFICATE|UNKNOWN_CA)")
"""In OpenSSL's reason, where the server ended the handshake because of what it was shown."""


def _remedy(failure: Exception) -> str:
    """Where there is a server and it does not take us; empty: there may be none."""
    match failure:
        case TlsError() | LoginRefused():
            return failure.remedy
        case AccessDenied():
            return "correct the user and password in zookeeper_auth_file, or add the user there"
        case ssl.SSLCertVerificationError():
            return "name the file of its authority (tls_trust_certs_file_path), or a name in it"
        case ssl.SSLError() if failure.reason and _REFUSES_CERTIFICATE.search(failure.reason):
            return "show one of an authority that it believes (tls_certificate_file_path)"
        case ssl.SSLError():
            return (
                "check that ZooKeeper expects TLS there (zookeeper_tls_enabled, secureClientPort)"
            )
    return ""


def _said(failure: Exception) -> str:
    """Why a server did not take us, in the system's words and without Python's."""
    match failure:
        case EOFError():
            return (
                "closed the connection: no quorum? Or does it expect TLS (zookeeper_tls_enabled)?"
            )
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed: {failure.verify_message}"
        case ssl.SSLError() if failure.reason and _REFUSES_CERTIFICATE.search(failure.reason):
            return f"it refuses this client's certificate, or wants one: {failure.reason}"
        case ssl.SSLError():
            reason = failure.reason or str(failure)
            why = (
                "it wants a certificate, or does not believe this one: "
                if "ALERT" in reason
                else ""
            )
            return f"no TLS with it: {why}{reason}"
        case socket.gaierror():
            return f"its name is not known: {failure.strerror}"
        case ConnectionResetError() if not failure.errno:  # asyncio's, of a handshake of TLS
            return "closed the connection: does it speak TLS?"
        case OSError() if failure.errno:
            return os.strerror(failure.errno).lower()
        case TimeoutError():
            return "no answer"
    return str(failure) or type(failure).__name__
