"""The fake ensemble that fake sessions share.

Owns the one committed tree, which sessions are alive, and when a silent one expires. Does not own
what a session's own caller sees (`fake`), nor the data model (`fake_tree`). Invariants: a session
that is not alive changes nothing and owns no ephemerals; an ensemble that is down expires nobody (a
new leader starts all session clocks again); no real time, threads or random source other than the
loop's clock and the ones passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cursorkeeper.zookeeper.errors import AccessDenied, SessionExpired
from daemon.tests.fakes.zookeeper.tree import FakeTree

T = TypeVar("T")


class Follower(Protocol):
    def committed(self, paths: list[str]) -> None: ...

    def server_up(self) -> None: ...

    def server_down(self) -> None: ...


@dataclass(slots=True)
class _Session:
    timeout_s: float
    connected: bool = True
    expiry: asyncio.TimerHandle | None = None


class FakeServer:
    """Tree and sessions. Made by `FakeZooKeeperServer`."""

    def __init__(self, random_source: random.Random) -> None:
        self.tree = FakeTree()
        self.up = True
        self._random = random_source
        self._sessions: dict[int, _Session] = {}
        self._followers: dict[Follower, None] = {}
        self.forbidden: set[str] = set()
        """Nodes whose ACL lets nobody read them, without a chroot."""

    def check_readable(self, paths: Iterable[str]) -> None:
        """One that may not be read denies the whole request."""
        for path in paths:
            if path in self.forbidden:
                raise AccessDenied(path=path)

    def follow(self, follower: Follower) -> None:
        self._followers[follower] = None

    def unfollow(self, follower: Follower) -> None:
        self._followers.pop(follower, None)

    # --- sessions ---------------------------------------------------------------------------------

    def open_session(self, timeout_s: float) -> int:
        """A new session, connected."""
        session_id = self._random.getrandbits(56) + 1
        self._sessions[session_id] = _Session(timeout_s)
        return session_id

    def alive(self, session_id: int) -> bool:
        return session_id in self._sessions

    def connected(self, session_id: int) -> None:
        """A living session is heard again."""
        session = self._sessions[session_id]
        session.connected = True
        self._stop_clock(session)

    def silent(self, session_id: int) -> None:
        """A session's connection is gone: its clock runs."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.connected = False
            self._start_clock(session_id, session)

    def end_session(self, session_id: int) -> None:
        """Closed or expired: the ephemerals go."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._stop_clock(session)
            self.tree.drop_owner(session_id)
            self._publish()

    # --- the ensemble -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops all clocks and answers nobody; the data stay."""
        self.up = False
        for session in self._sessions.values():
            self._stop_clock(session)
        for follower in list(self._followers):
            follower.server_down()

    def start(self) -> None:
        self.up = True
        for session_id, session in self._sessions.items():
            if not session.connected:
                self._start_clock(session_id, session)
        for follower in list(self._followers):
            follower.server_up()

    def write(self, session_id: int, change: Callable[[FakeTree, int], T]) -> T:
        """One transaction of a session: `change(tree, now_ms)`. Raises its error, or
        SessionExpired.
        """
        if not self.alive(session_id):
            raise SessionExpired()
        result = change(self.tree, round(asyncio.get_running_loop().time() * 1000))
        self._publish()
        return result

    def _publish(self) -> None:
        paths = self.tree.changed()
        for follower in list(self._followers):
            follower.committed(paths)

    def _start_clock(self, session_id: int, session: _Session) -> None:
        self._stop_clock(session)
        if self.up:
            session.expiry = asyncio.get_running_loop().call_later(
                session.timeout_s, self.end_session, session_id
            )

    @staticmethod
    def _stop_clock(session: _Session) -> None:
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
