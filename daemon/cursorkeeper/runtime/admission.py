"""Whose turn it is: work that costs others something is let in so much at a time, the oldest first.

Owns the places of one kind of work, and who waits for one. Does not own the work. What waits here
costs nothing, is not sent, and so is no evidence that anybody does not answer. Invariants: never
more than `at_once_max` at work that were let in within `lease_s`; whoever waited longest is let in
first; a place is given back once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from functools import partial

Age = tuple[float, int]
"""Since when somebody waits for it, in seconds, and for equal times the number of the cursor."""
STUCK_FACTOR = 12
"""So many times the places that it has where few wait a lane has at work when nothing of it is
answered; or twice the most, if that is more.
"""
WAITING_OF_A_PLACE = 32
"""So many must wait for each place beyond those that a lane has where few wait."""

NO_PLACE = 0
"""Of a turn that did not come yet: places are numbered from 1."""
UNUSED_MAX = 32
"""So many who let their turn go are asked before the loop looks at everything else."""


class Lane:
    """`enter` begins a work now or later. Work that is not answered within `lease_s` keeps its
    place from nobody: a few that are stuck must not hold up all others.

    `at_once_min`: so many places there are where few wait, each of whom is through soon; there is
    one for each `WAITING_OF_A_PLACE` that wait. Where many do, what they ask goes out together and
    costs all systems less, and no cursor waits much longer for it than the others do.
    """

    def __init__(
        self, at_once_max: int, lease_s: float = 1.0, at_once_min: int | None = None
    ) -> None:
        self._at_once_max, self._lease_s = at_once_max, lease_s
        self._at_once_min = min(at_once_max, at_once_min or at_once_max)
        self._at_work_max = max(2 * at_once_max, STUCK_FACTOR * self._at_once_min)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Age, int, Callable[[int], bool]]] = []
        self._working: dict[int, float] = {}
        """Place -> when its lease ends; in that order."""
        self._stuck: set[int] = set()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def at_work(self) -> int:
        """Those that were let in and have not left."""
        return len(self._working) + len(self._stuck)

    def enter(self, age: Age, begin: Callable[[int], bool]) -> bool:
        """`begin(place)` is called when it is this work's turn, here or later; False: it is not
        wanted any more. Returns whether it was called here.
        """
        self._count += 1
        entry = (age, self._count, begin)
        if self._waiting or not self._has_place():
            heapq.heappush(self._waiting, entry)
            self._arm()
            return False
        self._begin(entry)
        return True

    def leave(self, place: int) -> None:
        """Also a place whose lease is over. Whoever waits is let in at once."""
        if self._working.pop(place, None) is None:
            self._stuck.discard(place)
        self._let_in()

    def close(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _places(self) -> int:
        wanted = len(self._waiting) // WAITING_OF_A_PLACE
        return min(self._at_once_max, max(self._at_once_min, wanted))

    def _has_place(self) -> bool:
        return len(self._working) < self._places and self.at_work < self._at_work_max

    def _let_in(self) -> None:
        while self._waiting and self._has_place():
            self._begin(heapq.heappop(self._waiting))
        self._arm()

    def _arm(self) -> None:
        if self._waiting and self._working and self._timer is None:
            ends = next(iter(self._working.values()))
            self._timer = self._loop.call_at(ends, self._look)

    def _begin(self, entry: tuple[Age, int, Callable[[int], bool]]) -> None:
        _, place, begin = entry
        self._working[place] = self._loop.time() + self._lease_s
        if not begin(place):
            del self._working[place]

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for place, ends in list(self._working.items()):
            if ends > now:
                break
            del self._working[place]
            self._stuck.add(place)
        self._let_in()


class Turn:
    """A place that is given back while the work rests: who waits before it tries again keeps nobody
    else waiting.
    """

    def __init__(self, lane: Lane, place: int = NO_PLACE) -> None:
        self._lane, self._place = lane, place

    def end(self) -> None:
        """The work is done. A place that was given back already is nobody's."""
        self._lane.leave(self._place)

    async def again(self, age: Age) -> None:
        """Another turn, after `end`. It comes with those of this age."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lane.enter(age, partial(_give, turn))
        self._place = await turn


def _give(turn: asyncio.Future[int], place: int) -> bool:
    if turn.cancelled():
        return False
    turn.set_result(place)
    return True


class Calm:
    """Work that nobody waits for lets everybody who waits for one of these lanes go first, for so
    long at most. One timer looks for all of it.
    """

    def __init__(self, *lanes: Lane, wait_max_s: float = 30.0, look_s: float = 0.5) -> None:
        self._lanes, self._wait_max_s, self._look_s = lanes, wait_max_s, look_s
        self._came = asyncio.Event()
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Until nobody waits for the lanes."""
        if self._timer is None:
            if not any(map(len, self._lanes)):
                return
            self._came.clear()
            self._ends_at = asyncio.get_running_loop().time() + self._wait_max_s
            self._arm()
        await self._came.wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if any(map(len, self._lanes)) and asyncio.get_running_loop().time() < self._ends_at:
            self._arm()
        else:
            self._came.set()


class Pace:
    """Lets so many a second through, the oldest first."""

    def __init__(self, per_s: float) -> None:
        self._gap_s = 1 / per_s
        self._waiting: list[tuple[Age, int, Callable[[], bool]]] = []
        self._count = 0
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, age: Age, begin: Callable[[], bool]) -> None:
        """`begin()` is called when it is its turn, never from within this call; False: it did not
        use it, the next one may.
        """
        self._count += 1
        heapq.heappush(self._waiting, (age, self._count, begin))
        self._arm()

    def close(self) -> None:
        """Nobody's turn comes any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._waiting and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next_at, loop.time()), self._turn)

    def _turn(self) -> None:
        self._timer = None
        for _ in range(UNUSED_MAX):
            if not self._waiting:
                break
            if heapq.heappop(self._waiting)[2]():
                self._next_at = asyncio.get_running_loop().time() + self._gap_s
                break
        self._arm()
