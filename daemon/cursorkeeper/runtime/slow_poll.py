"""Serves cursors that nobody tells what happened: watches can be lost, an idle deposed owner must
learn it, and a bookie that came back says nothing.

Owns when each footer is looked at: once in a period, and spread over it, because 10,000 reads at
once would hold up everybody's acks.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.runner import CursorRunner
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.values import Stat

GAP_S, GAPS_MIN, LOOKS_MAX = 0.5, 16, 500
"""Those whose time has come are looked at every so many seconds, or so many times in a period where
that is shorter; so many at most each time.
"""
SPREAD = 0.618
"""Of a period, times the number of the cursor: those that open together are looked at apart."""
NEVER = -1
"""No znode was last changed then."""


class SlowPoll:
    """See the module. `ensemble`: bookies that a whole ledger has."""

    def __init__(
        self, footers: FooterStore, ledgers: LedgerStore, ensemble: int, period_s: float
    ) -> None:
        self._footers, self._ledgers = footers, ledgers
        self._ensemble, self._period_s = ensemble, period_s
        self._now_s = asyncio.get_running_loop().time
        self._looks: list[tuple[float, int, int, CursorRunner]] = []
        """A heap: when each cursor is looked at, its number, and the zxid of the last change that
        was seen; those that have ended are dropped when their time comes.
        """

    def begin(self, runner: CursorRunner) -> None:
        """The cursor is held from now on."""
        self._look_again(self._period_s * (SPREAD * runner.number % 1.0), runner, NEVER)

    async def run(self) -> None:
        unshrink_at_s = self._now_s() + self._period_s
        while True:
            await asyncio.sleep(min(GAP_S, self._period_s / GAPS_MIN))
            await self._look()
            if self._now_s() >= unshrink_at_s:
                unshrink_at_s = self._now_s() + self._period_s
                await self._unshrink()

    def _look_again(self, in_s: float, runner: CursorRunner, seen: int) -> None:
        heapq.heappush(self._looks, (self._now_s() + in_s, runner.number, seen, runner))

    async def _look(self) -> None:
        """Asks when the footers of those whose time has come were last changed. One that was
        changed since the last look, that could not be read then, or that is looked at for the first
        time, is its machine's to read; the others share an answer.
        """
        due: list[tuple[CursorRunner, int]] = []
        now_s = self._now_s()
        while self._looks and self._looks[0][0] <= now_s and len(due) < LOOKS_MAX:
            _, _, seen, runner = heapq.heappop(self._looks)
            if runner.is_held:
                due.append((runner, seen))
        if not due:
            return
        stats: Sequence[Stat | None]
        try:
            stats = await self._footers.stats([runner.name for runner, _ in due])
        except zk.Refused:
            # for what one of them is: each asks for itself, and nobody is passed over for it
            stats = [None] * len(due)
        except BaseException as e:
            for runner, seen in due:
                self._look_again(GAP_S, runner, seen)
            if not isinstance(e, zk.ZooKeeperError):
                raise
            return
        news: list[CursorRunner] = []
        for (runner, seen), stat in zip(due, stats, strict=True):
            changed = NEVER if stat is None else stat.mzxid
            self._look_again(self._period_s, runner, changed)
            if stat is None or changed != seen or runner.machine.has_failed_to_look:
                news.append(runner)
        for runner in news:
            runner.dispatch(ev.FooterChanged())

    async def _unshrink(self) -> None:
        """Those that write to fewer bookies than they should, back to all of them."""
        if not self._shrunk():
            return
        try:
            info = await self._ledgers.describe()
        except bk.GatewayError:
            return
        if info.writable_bookies >= self._ensemble:
            for runner in self._shrunk():
                # until a whole one was created: a roll may come at a bad time
                runner.dispatch(ev.Roll())

    def _shrunk(self) -> list[CursorRunner]:
        return [r for *_, r in sorted(self._looks) if r.is_held and r.shrunk_ledger]
