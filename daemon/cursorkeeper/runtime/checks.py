"""Checks of footers' versions by the quorum, many in one request.

A check is a transaction that holds nothing but conditions. Unlike a read it goes through the
leader's log, so a server that lags and a leader that was deposed cannot answer it.

Owns what becomes of a request in which a condition fails: the culprit has its answer, the others
are asked for again. A node that is not there fails its request; that is its answer, and must not
spoil the others': such a check goes out by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper.core.shape import frozen
from cursorkeeper.runtime.shared_requests import Asked, SharedRequests
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.values import ANY_VERSION, Check

ABSENT = -1


@frozen
class Condition:
    path: str
    version: int
    size_bytes: int = 0


class FooterChecks(SharedRequests[Condition, bool]):
    async def check(self, path: str, version: int) -> bool:
        """Whether the node has this version now (`ABSENT`: is not there). Raises ZooKeeperError if
        nobody could say.
        """
        return await self._ask(Condition(path, version), alone=version == ABSENT)

    async def _decide(self, group: Sequence[Asked[Condition, bool]]) -> None:
        absent = group[0].wish.version == ABSENT
        conditions = [Check(a.wish.path, ANY_VERSION if absent else a.wish.version) for a in group]
        try:
            await self._zk.multi(conditions)
        except zk_errors.MultiFailed as failed:
            at = failed.culprit_index
            if not isinstance(failed.culprit, zk_errors.BadVersion | zk_errors.NoNode):
                raise failed.culprit from failed
            group[at].tell(absent and isinstance(failed.culprit, zk_errors.NoNode))
            self._again([*group[:at], *group[at + 1 :]])
            return
        for asked in group:
            asked.tell(not absent)
