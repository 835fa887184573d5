"""Serves who changes one cursor from this process (import, repair, tests): it is held as a
daemon holds it, by a keeper of its own.

Owns the keeper, what is heard of the cursor, and how long is waited. Invariants: nothing is written
past the commit protocol, so a crash at any point leaves a whole cursor, whose footer names who held
it; whoever waits wakes at each word of the keeper, and at most `stall_s` after the last thing that
moved. Waiting moves nothing, nor does a call that failed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from cursorkeeper.connections import Ports
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Mark
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.telemetry import Telemetry
from cursorkeeper.settings import Settings

DELETE_MAX_S = 10.0
"""For ledgers that are dropped; what is left then is garbage collection's."""
STALL_S = 60.0
"""Without any progress for so long, it is given up."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a cursor is held for. `kind` stands in its footer's writer; `done`, as in "while it was
    imported", and `again`, what to do when it did not end well, in messages.
    """

    kind: str
    done: str
    again: str


class Lost(ProblemError):
    """The cursor was taken from its holder, or never given to it. `code`: of a refusal, else
    empty.
    """

    def __init__(self, message: str, remedy: str, code: str = "") -> None:
        super().__init__(message, remedy)
        self.code = code


class Hold(Listener, Telemetry):
    """One cursor that is held here, or about to be. Hears its keeper."""

    def __init__(self, name: CursorName, purpose: Purpose, stall_s: float) -> None:
        self.name, self._purpose, self._stall_s = name, purpose, stall_s
        self.durable = 0
        self.ended = ""
        """closed, deleted, deposed or refused; empty while it lives."""
        self._machine: CursorMachine | None = None
        self._keeper: Keeper | None = None
        self.attach = 0
        self._paused = ""
        self._refusal = ("", "", "")
        self._changed = asyncio.Event()
        self._clock_s = asyncio.get_running_loop().time
        self._moved_s = self._clock_s()

    # ---- what its holder does

    @property
    def machine(self) -> CursorMachine:
        """After `claimed`."""
        assert self._machine is not None
        return self._machine

    def send(self, event: ev.Event) -> None:
        runner = self._keeper.cursors.get(self.name) if self._keeper is not None else None
        if runner is not None:
            runner.dispatch(event)

    async def claimed(self, what: str) -> CursorMachine:
        """Raises Lost, ProblemError, as everything that waits here."""
        await self.until(lambda: self._machine is not None, what)
        return self.machine

    async def confirmed(self, seq: int, what: str) -> None:
        """Everything up to `seq` is durable."""
        await self.until(lambda: self.durable >= seq, what)

    async def close(self, what: str) -> None:
        """Flushes and closes."""
        self.send(ev.Close(self.attach))
        await self.until(lambda: False, what, ends="closed")

    async def until(self, done: Callable[[], bool], what: str, *, ends: str = "") -> None:
        """Waits as long as something moves, but for `done`, or that it ends as `ends` says."""
        self.moved()
        while not done():
            if self.ended:
                if self.ended == ends:
                    return
                raise self._lost()
            if stuck := self._stuck():
                remedy = "raise the limit, or keep this cursor in the native format, which has none"
                raise ProblemError(f"{self.name} does not fit: {stuck}", remedy)
            self._changed.clear()
            try:
                async with asyncio.timeout_at(self._moved_s + self._stall_s):
                    await self._changed.wait()
            except TimeoutError:
                remedy = f"check both systems, then {self._purpose.again}"
                raise ProblemError(
                    f"{self.name}: {what}: nothing moved for {self._stall_s:.0f} s{self._why()}",
                    remedy,
                    Kind.AWAY,
                ) from None

    def _stuck(self) -> str:
        """Why what was sent can never become durable, in a format with limits; empty: it can."""
        machine = self._machine
        return "" if machine is None else machine.statistics.stuck_for

    def _why(self) -> str:
        runner = self._keeper.cursors.get(self.name) if self._keeper is not None else None
        why = self._paused or (runner.machine.waiting_for if runner is not None else "")
        return f" ({why})" if why else ""

    def _lost(self) -> Lost:
        again, (code, message, remedy) = self._purpose.again, self._refusal
        if self.ended == "refused":
            return Lost(f"{self.name}: {message} ({code})", remedy, code)
        if self.ended == "deposed":
            return Lost(
                f"{self.name} was taken over while it was {self._purpose.done}",
                f"stop its source, then {again}",
            )
        return Lost(f"{self.name} was {self.ended} while it was {self._purpose.done}", again)

    # ---- what its keeper says

    def opened_by(self, keeper: Keeper, request: ev.Open) -> None:
        self._keeper, self.attach = keeper, keeper.attach_id()
        keeper.open(self.name, request, self.attach, self)

    def moved(self) -> None:
        """Entries were read, or a ledger was recovered, created or closed."""
        self._moved_s = self._clock_s()
        self._changed.set()

    def _end(self, how: str) -> None:
        self.ended = how
        self.moved()

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        self._machine = machine
        self.moved()

    def on_confirm(self, confirm: fx.Confirm) -> None:
        self.durable = confirm.seq
        self.moved()

    def on_pause(self, reason: str) -> None:
        self._paused = reason
        self.moved()

    def on_resume(self) -> None:
        self._paused = ""
        self.moved()

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        self._refusal = (code, message, remedy)
        self._end("refused")

    def on_deposed(self, epoch: int) -> None:
        self._end("deposed")

    def on_closed(self) -> None:
        self._end("closed")

    def on_deleted(self) -> None:
        self._end("deleted")

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        self.moved()

    def log(self, event: str, **fields: Any) -> None:
        """Something has changed, though perhaps for the worse."""
        self._changed.set()


@asynccontextmanager
async def hold(
    name: CursorName,
    ports: Ports,
    settings: Settings,
    purpose: Purpose,
    *,
    only: Mark | None,
    start: Position,
    state_writer: StateWriter | None,
    rng: random.Random | None,
    stall_s: float,
) -> AsyncIterator[Hold]:
    """The cursor, created at `start` if its footer is still `only`.

    Await `claimed` first, and `close` it; who leaves it open leaves it as a crash would. Raises
    what ZooKeeper's client raises.
    """
    request = ev.Open(create=True, takeover=False, start=start, only=only)
    held = Hold(name, purpose, stall_s)
    async with _keeper(held, ports, settings, state_writer, rng, purpose.kind) as keeper:
        held.opened_by(keeper, request)
        yield held


async def delete(
    name: CursorName,
    ports: Ports,
    settings: Settings,
    purpose: Purpose,
    *,
    only: Mark | None,
    what: str,
    stall_s: float = STALL_S,
) -> None:
    """Takes the cursor over and deletes it, if its footer is still `only`. Raises Lost,
    ProblemError.
    """
    held = Hold(name, purpose, stall_s)
    async with _keeper(held, ports, settings, None, None, purpose.kind) as keeper:
        keeper.delete_unopened(name, held, only)
        await held.until(lambda: False, what, ends="deleted")


@asynccontextmanager
async def _keeper(
    held: Hold,
    ports: Ports,
    settings: Settings,
    state_writer: StateWriter | None,
    rng: random.Random | None,
    kind: str,
) -> AsyncIterator[Keeper]:
    keeper = Keeper(
        ports.ledgers,
        ports.zookeeper,
        held,
        limits=settings.machine_limits,
        keeper_limits=settings.limits,
        policy=settings.ledgers.policy,
        encode=settings.encode,
        identity=f"{settings.daemon.identity}/{kind}",
        rng=rng or random.SystemRandom(),
        root=settings.systems.root,
        state_writer=state_writer,
    )
    await keeper.start()
    try:
        yield keeper
        # else the ledgers it left would wait for garbage collection
        await keeper.wait_tasks(DELETE_MAX_S)
    finally:
        keeper.abandon()
