"""Serves a daemon with many cursors: what they ask of ZooKeeper, many in one request.

Whoever asks within one turn of the loop shares a request; at most `TOGETHER_MAX` go into one, and
at most `REQUESTS_MAX` are in flight: what comes meanwhile shares the next one.

Owns the queue and which of those who ask share a request; what it is, and what its answer means to
each of them, is the subclass's. Invariants: a request is sent after all in it asked; no two in it
ask about the same node; one that was not answered is not repeated here.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from cursorkeeper.core.shape import frozen
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper

TOGETHER_MAX = 200
"""In one request: with names of 1 KiB still far below what a server takes."""
BYTES_MAX = 256 << 10
"""Of data in one request, unless one alone has more."""
REQUESTS_MAX = 4
"""Requests that may be in flight at once."""


class Wish(Protocol):
    """What one of them asks for."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


W = TypeVar("W", bound=Wish)
A = TypeVar("A")


@frozen
class Asked(Generic[W, A]):
    wish: W
    answer: asyncio.Future[A]

    def tell(self, answer: A) -> None:
        """Whoever gave up meanwhile is told nothing."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class SharedRequests(Generic[W, A]):
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zk = zookeeper
        self._waiting: deque[Asked[W, A]] = deque()
        self._groups: deque[Sequence[Asked[W, A]]] = deque()
        """What goes out by itself, and first."""
        self._in_flight = 0
        self._is_due = False
        self.requests = 0
        """Requests sent so far."""
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _decide(self, group: Sequence[Asked[W, A]]) -> None:
        """Sends the request of these and tells each its answer; who gets none is to be asked for
        `_again`. Raises ZooKeeperError: the answer of all who have none.
        """

    async def _ask(self, wish: W, *, alone: bool = False) -> A:
        loop = asyncio.get_running_loop()
        asked: Asked[W, A] = Asked(wish, loop.create_future())
        if alone:
            self._groups.append([asked])
        else:
            self._waiting.append(asked)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._send)
        return await asked.answer

    def _again(self, group: Sequence[Asked[W, A]]) -> None:
        """These are asked for again, in two halves: they were certainly not done. With one who has
        an answer less each time, that never costs more requests than one for each.
        """
        half = len(group) // 2
        self._groups.extendleft(part for part in (group[:half], group[half:]) if part)

    def _send(self) -> None:
        self._is_due = False
        while self._in_flight < REQUESTS_MAX and (self._groups or self._waiting):
            group = self._groups.popleft() if self._groups else self._together()
            group = [a for a in group if not a.answer.done()]  # whoever gave up asks nothing
            if not group:
                continue
            self._in_flight += 1
            self.requests += 1
            task = asyncio.get_running_loop().create_task(self._run(group), name="shared request")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _together(self) -> Sequence[Asked[W, A]]:
        group: list[Asked[W, A]] = []
        paths: set[str] = set()
        size_bytes = 0
        while self._waiting and len(group) < TOGETHER_MAX:
            wish = self._waiting[0].wish
            size_bytes += wish.size_bytes
            if group and (size_bytes > BYTES_MAX or wish.path in paths):
                break
            paths.add(wish.path)
            group.append(self._waiting.popleft())
        return group

    async def _run(self, group: Sequence[Asked[W, A]]) -> None:
        try:
            await self._decide(group)
        except zk_errors.Refused as e:
            # for what one of them is, or because they are too large together
            if len(group) == 1:
                group[0].fail(e)
            else:
                self._again(group)
        except Exception as e:  # a bug, too: without an answer each of them would wait for ever
            for asked in group:
                asked.fail(e)
        except BaseException:
            for asked in group:
                asked.answer.cancel()
            raise
        finally:
            self._in_flight -= 1
            self._send()
