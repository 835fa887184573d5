"""A fake session: what its caller sees of connections, watches, and each request's fate.

Owns the states, the fake's own misbehaviour (disconnect, expire, lag, crash) and how a request
travels to the tree and back through its fault. Does not own the operations (`fake`), the tree
(`fake_tree`) or the ensemble (`fake_server`).

Invariants: requests of one session reach the tree in the order they were made (only `Late` and
requests caught by a disconnect may come later); a watch is told before its session can read the new
value; each request ends with the answer or with one error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from cursorkeeper.zookeeper.errors import (
    ClientClosed,
    ConnectionLost,
    NotConnected,
    OutcomeUnknown,
    SessionExpired,
    TooManyRequests,
    ZooKeeperError,
    show_paths,
)
from cursorkeeper.zookeeper.paths import Chroot
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import (
    SessionState,
    StateCallback,
    WatchCallback,
)
from cursorkeeper.zookeeper.watches import WatchTable
from daemon.tests.fakes.zookeeper.faults import (
    Delay,
    Expire,
    Fault,
    Faults,
    Late,
    Meanwhile,
    NotNow,
    UnknownDone,
    UnknownNotDone,
)
from daemon.tests.fakes.zookeeper.server import FakeServer
from daemon.tests.fakes.zookeeper.tree import FakeTree

T = TypeVar("T")

_NEED_QUORUM = frozenset({"create", "set", "set_acl", "delete", "multi"})
_RECONNECT_S = 0.05  # the client's smallest back-off


class FakeSession:
    """Everything of a fake session but its operations."""

    def __init__(self, server: FakeServer, settings: ZooKeeperSettings, faults: Faults) -> None:
        self.server, self.settings, self.faults = server, settings, faults
        self._chroot = Chroot(settings.chroot)
        self._state = SessionState.SUSPENDED
        self._listeners: list[StateCallback] = []
        self._started = False
        self._session_id = 0
        # counts connections, so that a request knows whether its own is still there
        self._connection = 0
        self._away_until_s = 0.0
        self._reconnect: asyncio.TimerHandle | None = None
        self._connected = asyncio.Event()
        self._in_flight: dict[asyncio.Future[None], None] = {}
        self._server_free_s = 0.0
        self._watches = WatchTable(self._chroot.outside)
        self._seen_mzxid: dict[str, int] = {}
        self._view: FakeTree | None = None
        self._old_leader = False
        self._stalled_until_s = self._answers_stalled_until_s = 0.0

    # --- session ----------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_state(self, callback: StateCallback) -> None:
        self._listeners.append(callback)

    async def start(self) -> None:
        if self._state is SessionState.CLOSED:
            raise ClientClosed()
        if not self._started:
            self._started = True
            self.server.follow(self)
            self._schedule_reconnect(0)
        try:
            async with asyncio.timeout(self.settings.start_timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise NotConnected(f"no server within {self.settings.start_timeout_s} s") from None

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        session_id, said = self._session_id, self._connected.is_set()
        self._end()
        if said:
            # Like any request, the closing waits behind what was sent before it; that is still
            # done, its callers just do not hear of it.
            await asyncio.sleep(
                min(
                    self.settings.close_timeout_s,
                    self._server_free_s - asyncio.get_running_loop().time(),
                )
            )
            self.server.end_session(session_id)

    def disconnect(self, for_s: float = _RECONNECT_S) -> None:
        """Lose the connection now, get it back in `for_s` (or when the server is up). Longer than
        the session timeout: it expires.
        """
        loop = asyncio.get_running_loop()
        self._away_until_s = max(self._away_until_s, loop.time() + for_s)
        if self._connected.is_set():
            self._connected.clear()
            self._connection += 1
            self._stop_reconnecting()
            self._lose_requests()
            self.server.silent(self._session_id)
            self._go(SessionState.SUSPENDED)
        if self._started and self._state is not SessionState.CLOSED:
            self._schedule_reconnect(self._away_until_s - loop.time())

    def expire(self, reconnect_s: float = _RECONNECT_S) -> None:
        """The ensemble drops the session now (ephemerals go at once); this client learns it when it
        reconnects.
        """
        self.server.end_session(self._session_id)
        self.disconnect(reconnect_s)

    def lag(self) -> None:
        """From now on read the tree as it is now, until this session writes, syncs, reconnects or
        `catch_up` is called.
        """
        self._view = self.server.tree.copy()

    def stall(self, for_s: float, *, answers_only: bool = False) -> None:
        """The link carries nothing for so long; the connection stays. What was sent arrives
        afterwards. `answers_only`: requests still reach the server, answers and watches wait.
        """
        until_s = asyncio.get_running_loop().time() + for_s
        self._answers_stalled_until_s = max(self._answers_stalled_until_s, until_s)
        if not answers_only:
            self._stalled_until_s = max(self._stalled_until_s, until_s)

    def follow_old_leader(self, for_s: float) -> None:
        """For so long the server that this session talks to is a leader that the others have
        deposed, and does not know it: it answers reads, and sync, with the tree as it is now; what
        needs a quorum is never answered. Then the connection ends.
        """
        self._old_leader = True
        self.lag()
        asyncio.get_running_loop().call_later(for_s, self._old_leader_ends, self._connection)

    def _old_leader_ends(self, connection: int) -> None:
        if self._old_leader and connection == self._connection:
            self.disconnect()

    def catch_up(self) -> None:
        """The lagging server has applied everything."""
        if self._old_leader:
            return
        self._view = None
        if self._connected.is_set():
            self._fire_watches(list(self._seen_mzxid))

    def fire_watches_spuriously(self) -> None:
        """Every watch fires although nothing changed, as after some reconnects."""
        for path in list(self._watches.callbacks):
            self._fire(path)

    def crash(self) -> None:
        """The process dies: nothing is said to anybody, the session expires by its timeout,
        requests under way may still arrive.
        """
        self._connection += 1
        self._end()

    def _end(self) -> None:
        self._stop_reconnecting()
        self._watches.callbacks.clear()
        self._seen_mzxid.clear()
        self._lose_requests()
        self.server.unfollow(self)
        self.server.silent(self._session_id)
        self._session_id = 0
        self._connected.clear()
        self._go(SessionState.CLOSED)

    # --- told by the server -----------------------------------------------------------------------

    def committed(self, paths: list[str]) -> None:
        if self._view is None and self._connected.is_set():
            self._fire_watches([path for path in paths if path in self._seen_mzxid])

    def server_down(self) -> None:
        self.disconnect()

    def server_up(self) -> None:
        self._schedule_reconnect(
            max(_RECONNECT_S, self._away_until_s - asyncio.get_running_loop().time())
        )

    def _schedule_reconnect(self, in_s: float) -> None:
        if self._reconnect is not None:
            self._reconnect.cancel()
        self._reconnect = asyncio.get_running_loop().call_later(max(in_s, 0), self._try_reconnect)

    def _try_reconnect(self) -> None:
        self._reconnect = None
        if not self.server.up or self._connected.is_set():
            return  # server_up comes when it is back
        if self._session_id and not self.server.alive(self._session_id):
            self._lose_session()
        if not self._session_id:
            self._session_id = self.server.open_session(self.settings.session_timeout_ms / 1000)
        self.server.connected(self._session_id)
        self._view, self._old_leader = None, False
        self._connected.set()
        self._go(SessionState.CONNECTED)
        if self.faults.spurious_watches_at_reconnect:
            self.fire_watches_spuriously()
        self._fire_watches(list(self._seen_mzxid))

    def _lose_session(self) -> None:
        self._session_id = 0
        self._go(SessionState.EXPIRED)
        for path in list(self._watches.callbacks):
            self._fire(path, lost=True)

    def _go(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            for listener in self._listeners:
                asyncio.get_running_loop().call_soon(listener, state)

    def _stop_reconnecting(self) -> None:
        if self._reconnect is not None:
            self._reconnect.cancel()
            self._reconnect = None

    def _lose_requests(self) -> None:
        for answer in list(self._in_flight):
            if not answer.done():
                answer.set_exception(ConnectionLost("fake connection lost"))
        self._in_flight.clear()

    # --- watches ----------------------------------------------------------------------------------

    def _watch(self, path: str, callback: WatchCallback | None, mzxid: int) -> None:
        if callback is None:
            return
        self._watches.add(path, callback)
        self._seen_mzxid.setdefault(path, mzxid)
        if self._view is None:
            self._fire_watches([path])

    def _fire_watches(self, paths: Sequence[str]) -> None:
        for path in paths:
            if self._seen_mzxid[path] != self.server.tree.mzxid(path):
                self._fire(path)

    def _fire(self, path: str, *, lost: bool = False) -> None:
        self._seen_mzxid.pop(path, None)
        if not lost and self.faults.hit(self.faults.watch_drop_probability):
            self._watches.callbacks.pop(path, None)
        elif delay_s := max(self.faults.watch_delay_s, self._left_s(self._answers_stalled_until_s)):
            asyncio.get_running_loop().call_later(delay_s, self._watches.fire, path)
        else:
            self._watches.fire(path)

    # --- requests ---------------------------------------------------------------------------------

    async def _request(self, operation: str, path: str, at_server: Callable[[int], T]) -> T:
        """Carry a request to the tree and its answer back, through whatever fault it meets."""
        loop = asyncio.get_running_loop()
        if self._state is SessionState.CLOSED or not self._started:
            raise ClientClosed(path=path)
        deadline_s = loop.time() + self.settings.request_timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._connected.wait()
        except TimeoutError:
            raise NotConnected(
                f"no connection within {self.settings.request_timeout_s} s", path=path
            ) from None
        if len(self._in_flight) >= self.settings.requests_in_flight_max:
            raise TooManyRequests(f"{len(self._in_flight)} requests in flight", path=path)
        fault = self.faults.take(operation, path)
        if isinstance(fault, NotNow):
            raise NotConnected("fault asked for", path=path)
        if isinstance(fault, Expire):
            self.expire()
            raise SessionExpired(path=path)
        if isinstance(fault, Meanwhile):
            await fault.others()
            deadline_s = loop.time() + self.settings.request_timeout_s
        answer: asyncio.Future[None] = loop.create_future()
        self._in_flight[answer] = None
        outcome: list[T | ZooKeeperError] = []
        self._send(fault, answer, at_server, outcome, needs_quorum=operation in _NEED_QUORUM)
        try:
            async with asyncio.timeout_at(deadline_s):
                await answer
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {self.settings.request_timeout_s} s", path=path
            ) from None
        finally:
            self._in_flight.pop(answer, None)
        result = outcome[0]
        if isinstance(result, ZooKeeperError):
            show_paths(result, self._chroot.outside)
            raise result
        return result

    def _send(
        self,
        fault: Fault | None,
        answer: asyncio.Future[None],
        at_server: Callable[[int], T],
        outcome: list[T | ZooKeeperError],
        *,
        needs_quorum: bool,
    ) -> None:
        """Plan when the server sees the request and when its answer is back."""
        loop = asyncio.get_running_loop()
        connection, session_id = self._connection, self._session_id

        def arrive() -> None:
            if connection != self._connection and self.faults.hit(
                self.faults.lost_with_connection_probability
            ):
                return
            try:
                if not self.server.alive(session_id):
                    raise SessionExpired()
                if not self.server.up or (self._old_leader and needs_quorum):
                    return
                outcome.append(at_server(session_id))
            except ZooKeeperError as error:
                outcome.append(error)
            if isinstance(fault, UnknownDone):
                give_up()
            else:
                loop.call_later(
                    max(self.faults.one_way_s(), self._left_s(self._answers_stalled_until_s)),
                    resolve,
                )

        def resolve() -> None:
            if not answer.done():
                answer.set_result(None)

        def give_up() -> None:
            if not answer.done():
                answer.set_exception(OutcomeUnknown("fault asked for"))
            if (
                isinstance(fault, UnknownDone | UnknownNotDone | Late)
                and fault.disconnect_s is not None
            ):
                self.disconnect(fault.disconnect_s)

        way_s = self.faults.one_way_s()
        if isinstance(fault, UnknownNotDone):
            loop.call_later(2 * way_s, give_up)
        elif isinstance(fault, Late):
            loop.call_later(way_s, give_up)
            loop.call_later(fault.s, arrive)
        else:
            if isinstance(fault, Delay):
                way_s += fault.s
            way_s = max(way_s, self._left_s(self._stalled_until_s))
            # One connection is a queue: nothing overtakes what was sent before it.
            self._server_free_s = max(self._server_free_s, loop.time() + way_s)
            loop.call_at(self._server_free_s, arrive)

    @staticmethod
    def _left_s(until_s: float) -> float:
        return max(0.0, until_s - asyncio.get_running_loop().time())

    def _read_from(self) -> FakeTree:
        if self.faults.stale_reads and self._view is None:
            self.lag()
        elif self._view is not None and self.faults.hit(self.faults.catch_up_probability):
            self.catch_up()
        return self._view or self.server.tree

    def _write(self, session_id: int, change: Callable[[FakeTree, int], T]) -> T:
        """The server that a session is connected to has applied all before it answers a write."""
        try:
            return self.server.write(session_id, change)
        finally:
            self.catch_up()
