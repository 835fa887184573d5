"""An asyncio loop without a clock: when nothing is ready, time jumps to the next timer.

Owns time, the order of ready tasks, and the notice that nothing will ever happen again. No real
I/O, no threads: what would run beside the loop runs at once, and is counted. Callbacks keep
asyncio's first-in-first-out order, which code may rely on (a ledger's appends are answered in
order); steps of different tasks have no promised order, so the seed shuffles those that are ready
together.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
TURNS_MAX = 2_000_000


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and the run is not over."""


class TooLong(Exception):
    """More loop turns than a run may take: a busy loop."""


class _Clock:
    """Stands where a loop has its selector."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `rng` None: no shuffling."""

    def __init__(self, rng: random.Random | None = None, turns_max: int = 150_000) -> None:
        super().__init__()
        self._selector = _Clock(self)
        self._rng, self._turns_max = rng, turns_max
        self._now = 0.0
        self._later: dict[int, list[Callable[[], None]]] = {}
        self.turns = 0
        self.ran_beside = 0
        self.errors: list[BaseException | str] = []
        self.set_exception_handler(
            lambda _loop, context: self.errors.append(
                context.get("exception") or context["message"]
            )
        )

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def after_turns(self, turns: int, call: Callable[[], None]) -> None:
        """Calls between two turns of the loop, so that a crash may hit any await."""
        self._later.setdefault(self.turns + max(1, turns), []).append(call)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """To the end of `main`; what is left is cancelled."""
        asyncio.set_event_loop(self)
        try:
            return self.run_until_complete(main)
        finally:
            self._rng = None
            self._later.clear()
            self._turns_max += TURNS_MAX
            # the end of one may begin another
            while left := [t for t in asyncio.all_tasks(self) if not t.done()]:
                for task in left:
                    task.cancel()
                self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.run_until_complete(self.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self.close()

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:  # type: ignore[override]
        self.ran_beside += 1
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    # ---- what BaseEventLoop asks for

    def pass_time(self, timeout: float | None) -> None:
        """Called once per turn, where another loop waits for the network."""
        self.turns += 1
        if self.turns > self._turns_max:
            raise TooLong(f"{self.turns} turns at {self._now:.3f} s")
        for call in self._later.pop(self.turns, ()):
            call()
        if timeout is None:
            if not self._ready and not self._later:
                raise Deadlock(f"nothing can happen any more at {self._now:.3f} s")
        elif timeout > 0 and not self._ready:
            self._now = max(self._now, self._scheduled[0]._when)
        if self._rng is not None and len(self._ready) > 1:
            self._shuffle_tasks(self._rng)

    def _shuffle_tasks(self, rng: random.Random) -> None:
        ready: deque[asyncio.Handle] = self._ready
        places = [
            i
            for i, h in enumerate(ready)
            if isinstance(getattr(h._callback, "__self__", None), asyncio.Task)
        ]
        if len(places) < 2:
            return
        handles = [ready[i] for i in places]
        rng.shuffle(handles)
        for place, handle in zip(places, handles, strict=True):
            ready[place] = handle

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(story: Coroutine[Any, Any, T]) -> T:
    """A story in virtual time; an error that nobody awaited fails it too."""
    loop = VirtualLoop(turns_max=TURNS_MAX)
    result = loop.run(story)
    assert loop.errors == []
    return result
