"""Checks of footers' versions by the quorum, many in one request.

A check is a transaction that holds nothing but conditions. Unlike a read it goes through the
leader's log, so a server that lags and a leader that was deposed cannot answer it. Whoever asks
within one turn of the loop shares a request; at most `CHECKS_MAX` go into one, and at most
`REQUESTS_MAX` are in flight: what comes meanwhile shares the next one.

Owns the queue and what becomes of a request in which a condition fails: the culprit has its answer,
the others are asked again in two halves. That never costs more requests than one for each check.
Invariants: a check is sent after it was asked for; a request that was not answered is not repeated
here.
"""

from __future__ import annotations

import asyncio
from collections import deque

from cursorkeeper.core.shape import frozen
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import ANY_VERSION, Check

ABSENT = -1
CHECKS_MAX = 200
"""Conditions in one request: with names of 1 KiB still far below what a server takes."""
REQUESTS_MAX = 4
"""Requests that may be in flight at once."""


@frozen
class _Asked:
    path: str
    version: int
    answer: asyncio.Future[bool]


class FooterChecks:
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zk = zookeeper
        self._waiting: deque[_Asked] = deque()
        self._groups: deque[list[_Asked]] = deque()
        """What goes out by itself: the halves of a request in which a condition failed, and a node
        that is not there, which fails its request; that is its answer, and must not spoil the
        others'.
        """
        self._in_flight = 0
        self.requests = 0
        """Requests sent so far."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def check(self, path: str, version: int) -> bool:
        """Whether the node has this version now (`ABSENT`: is not there). Raises ZooKeeperError if
        nobody could say.
        """
        loop = asyncio.get_running_loop()
        asked = _Asked(path, version, loop.create_future())
        if version == ABSENT:
            self._groups.append([asked])
        else:
            self._waiting.append(asked)
        loop.call_soon(self._send)
        return await asked.answer

    def _send(self) -> None:
        while self._in_flight < REQUESTS_MAX and (self._groups or self._waiting):
            if self._groups:
                group = self._groups.popleft()
            else:
                group = [
                    self._waiting.popleft() for _ in range(min(CHECKS_MAX, len(self._waiting)))
                ]
            group = [a for a in group if not a.answer.done()]  # whoever gave up asks nothing
            if not group:
                continue
            self._in_flight += 1
            self.requests += 1
            task = asyncio.get_running_loop().create_task(self._ask(group), name="footer checks")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, group: list[_Asked]) -> None:
        try:
            await self._decide(group)
        except zk_errors.ZooKeeperError as e:
            for asked in group:
                if not asked.answer.done():
                    asked.answer.set_exception(e)
        except BaseException:
            for asked in group:
                asked.answer.cancel()
            raise
        finally:
            self._in_flight -= 1
            self._send()

    async def _decide(self, group: list[_Asked]) -> None:
        absent = group[0].version == ABSENT
        conditions = [Check(a.path, ANY_VERSION if absent else a.version) for a in group]
        try:
            await self._zk.multi(conditions)
        except zk_errors.MultiFailed as failed:
            at, culprit = failed.culprit_index, group[failed.culprit_index]
            if not isinstance(failed.culprit, zk_errors.BadVersion | zk_errors.NoNode):
                raise failed.culprit from failed
            gone = isinstance(failed.culprit, zk_errors.NoNode)
            _answer(culprit, is_same=absent and gone)
            rest = group[:at] + group[at + 1 :]
            self._groups.extendleft(
                half for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]) if half
            )
            return
        for asked in group:
            _answer(asked, is_same=not absent)


def _answer(asked: _Asked, *, is_same: bool) -> None:
    if not asked.answer.done():
        asked.answer.set_result(is_same)
