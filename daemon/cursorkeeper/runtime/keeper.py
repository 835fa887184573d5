"""All cursors of one daemon: who holds what, whose turn it is, and the limits they share.

Owns the cursors by name, the daemon-wide append window and the one timer. A bug in one cursor's
machine ends that cursor (its source is told) and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core import fencing
from cursorkeeper.core.claim import STOPPING, STOPPING_REMEDY
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.footer import Mark
from cursorkeeper.core.intake_check import IntakeCheck
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.proof import DELETE_AGAIN, UNAVAILABLE_REMEDY
from cursorkeeper.core.shape import component, extended
from cursorkeeper.core.table import LIVE, OPENING
from cursorkeeper.core.turn import Counters
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.admission import Calm, Lane, Pace
from cursorkeeper.runtime.closing import close_all
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.intake import Intake, Spare
from cursorkeeper.runtime.kept_entries import KeptEntries
from cursorkeeper.runtime.ledgers import LedgerPolicy, Scarcity
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.patience import PatientClock
from cursorkeeper.runtime.runner import (
    CursorRunner,
    Gone,
    Held,
    Lanes,
    Proof,
    Services,
    Unknown,
)
from cursorkeeper.runtime.slow_poll import SlowPoll
from cursorkeeper.runtime.supervised import supervised
from cursorkeeper.runtime.telemetry import Telemetry
from cursorkeeper.runtime.timers import Timers
from cursorkeeper.zookeeper.port import ZooKeeper

DELETES_WAIT_MAX_S = 2.0
"""How long a close waits for deletions of dropped ledgers; what is left then is garbage
collection's.
"""
ROOM_MIN = 2
"""A turn may take two places: a segment goes with the delta in front of it."""
WINDOW_MIN, SLOW_SHARE = 128, 4
"""So many records may be on their way where answers take longer than this part of
`bookkeeper_away_ms`. More of them would wait in a queue behind the daemon, and look as if nobody
answered.
"""
ROOM_LOOKS = 8
"""So often in `bookkeeper_away_ms` a full window is looked at."""
END_LOOKS = 8
"""So often in `answer_wait_max_ms` somebody who waits for the end of a cursor is looked at."""
TURNS_MAX = 32
"""Cursors that get their turn before the loop looks at everything else."""


@component
class Waiting:
    """Who wants a cursor that is on its way out, or another handle's: it is asked for again when
    that is over.
    """

    listener: Listener
    name: CursorName
    request: ev.Open
    """Of a deletion by name it is the claim: such a cursor is never opened, there is no handle."""
    waited_s: float = 0.0
    """For the ends of machines before."""
    deletes: bool = False
    """And deleted then: what the handle wished while it waited."""
    since_s: float | None = None
    """Since when it counts that the end does not come."""

    @property
    def by_name(self) -> bool:
        return self.request.for_delete

    def waited_until_s(self, now: float) -> float:
        """Seconds in which an end did not come, of this machine and those before."""
        return self.waited_s + (0.0 if self.since_s is None else now - self.since_s)


def _lanes(limits: KeeperLimits) -> Lanes:
    openings = Lane(limits.openings_at_once_max, at_once_min=limits.openings_at_once_min)
    ledgers = Lane(limits.ledger_requests_at_once_max)
    return Lanes(
        openings,
        ledgers,
        footers=Lane(limits.footer_requests_at_once_max),
        deletions=Lane(limits.ledger_requests_at_once_max),
        calm=Calm(openings, ledgers),
        inline_states=Pace(limits.inline_states_per_s_max),
    )


@extended
class Keeper:
    """See the module. `identity` goes into every footer; `rng` makes nonces and jitter;
    `state_writer`: cursors are written in its format, None: natively. `is_worker`: it is one of
    several of a daemon, and `keeper_limits` are its share.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        zookeeper: ZooKeeper,
        telemetry: Telemetry,
        *,
        limits: Limits,
        keeper_limits: KeeperLimits,
        policy: LedgerPolicy,
        encode: EncodeSettings,
        identity: str,
        rng: random.Random,
        root: str,
        state_writer: StateWriter | None,
        is_worker: bool = False,
    ) -> None:
        self._is_worker, self._loop = is_worker, asyncio.get_running_loop()
        self.limits, self.keeper_limits, self.identity = limits, keeper_limits, identity
        self.rng = rng
        self.own = f"{identity}/{self.rng.getrandbits(64):016x}."
        """How every writer of this keeper begins, and of no other."""
        self._claims = 0
        self.telemetry = telemetry
        self.ledgers = ledgers
        self.state_writer = state_writer
        self.footers = FooterStore(zookeeper, encode, root=root)
        self._clock = PatientClock()
        self._lanes = _lanes(keeper_limits)
        self._intake, self._spare = Intake(), Spare()
        self._services = Services(
            ledgers,
            self.footers,
            policy,
            encode,
            telemetry,
            self._loop,
            self._clock,
            self._lanes,
            Scarcity(),
            KeptEntries(),
            self._spawn,
            self._append_sent,
            self._append_answered,
            self._intake.took,
            self._heard,
            self._fail,
            self._open_again,
        )
        self.policy = policy
        self.cursors: dict[CursorName, CursorRunner] = {}
        self._counted, self._counting = Counters(), threading.Lock()
        self._timers: Timers[CursorRunner] = Timers(self._make_ready)
        self._lingers: Timers[CursorRunner] = Timers(self._make_wanting)
        """When they have something to append."""
        self._ready: dict[CursorRunner, None] = {}
        """Their time has come, with or without room; in that order."""
        self._wanting: dict[CursorRunner, None] = {}
        """They have something to append and wait for room; in that order."""
        self._gathering: dict[CursorRunner, None] = {}
        """They wait for more acks, which nothing but what is in flight is a reason for; in the
        order in which they began.
        """
        self._running = False
        self._appending = 0
        """So many of those who want room have their turn before messages are taken in again."""
        self._pause: asyncio.TimerHandle | None = None
        self._sent: dict[int, tuple[float, int]] = {}
        """Every append that is not answered, by its place: when it was sent, and its bytes; in that
        order.
        """
        self._sent_bytes = 0
        self._window = min(WINDOW_MIN, keeper_limits.daemon_appends_in_flight_max)
        """So many may be on their way; one more with each answer that comes soon, if that many
        are.
        """
        self._slow_s = limits.bookkeeper_away_ms / 1000 / SLOW_SHARE
        self._places = 0
        self._heard_s = self._clock()
        """When ZooKeeper last answered a cursor."""
        self._no_room: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were begun, so that a run can be repeated."""
        self._attachments = 0
        self._waiting: defaultdict[CursorName, dict[int, Waiting]] = defaultdict(dict)
        """By the number of who waits."""
        self._poll = SlowPoll(self.footers, ledgers, policy.ensemble, keeper_limits.footer_poll_s)
        self._polling: asyncio.Task[None] | None = None
        self.draining = False
        self.failures: list[BaseException] = []

    # ---- life

    async def start(self) -> None:
        """Begin the slow poll. Clients must be started by whoever owns them."""
        self._polling = self._loop.create_task(
            supervised("the poll of footers", self._poll.run, self.task_ended)
        )

    async def close(self, timeout_s: float | None = None) -> list[CursorName]:
        """Close every cursor: last flush, footer, end. One that is being claimed is closed when it
        is open; a claim that was not sent is not begun. So many at once that those who began also
        end: what the time allows is closed. Returns those that did not make it: what they had
        confirmed is durable all the same.
        """
        self.draining = True
        limit = self.keeper_limits.close_timeout_s if timeout_s is None else timeout_s
        ends = self._loop.time() + limit
        runners = [runner for runner in self.cursors.values() if not runner.is_ended]
        await close_all(runners, self.keeper_limits.closings_at_once_max, ends)
        left = [r.name for r in self.cursors.values() if not r.is_ended]
        if not left:
            await self.wait_tasks(min(DELETES_WAIT_MAX_S, ends - self._loop.time()))
        self.abandon()
        return left

    async def wait_tasks(self, limit_s: float) -> None:
        """Until what runners do beside the protocol (deleting dropped ledgers) is done, at most so
        long.
        """
        ends = self._loop.time() + limit_s
        while self._tasks and (left_s := ends - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)

    def abandon(self) -> None:
        """Stop at once, as a crash would: nothing is written any more."""
        self.draining = True
        self._timers.close()
        self._lingers.close()
        self._lanes.close()
        self._clock.close()
        for timer in (self._no_room, self._pause):
            if timer is not None:
                timer.cancel()
        if self._polling is not None:
            self._polling.cancel()
        for runner in self.cursors.values():
            runner.stop()
        for task in list(self._tasks):
            task.cancel()
        for runner in list(self.cursors.values()):
            self._forget(runner)
        self._ready.clear()
        self._wanting.clear()
        self._gathering.clear()
        self._waiting.clear()

    # ---- cursors

    def attach_id(self) -> int:
        """A new attachment's number, unique in this daemon."""
        self._attachments += 1
        return self._attachments

    def open(self, name: CursorName, request: ev.Open, attach: int, listener: Listener) -> None:
        """Attach to a cursor, claiming it if it is not held here. Raises RefusedError."""
        self._check_draining(name)
        IntakeCheck(name.display, self.limits).opening(
            request.start, request.layout, request.cursor_properties
        )
        runner = self.held(name)
        self._check_token(name, runner, request.fencing_token)
        if runner is not None:
            self._attach(runner, request, attach, listener)
            return
        if len(self.cursors) - (name in self.cursors) >= self.keeper_limits.cursors_max:
            held = f"{len(self.cursors)} cursors"
            raise RefusedError(
                Refusal.TOO_MANY_CURSORS,
                name.display,
                f"this worker holds {held}, its share of cursors_max"
                if self._is_worker
                else f"this daemon holds {held}",
                "open each cursor at its worker, raise cursors_max, or use another daemon"
                if self._is_worker
                else "raise cursors_max, or use another daemon",
            )
        runner = self._new(name)
        runner.dispatch(replace(request, own=self.own))
        if runner.is_ended:
            raise RefusedError(
                Refusal.UNAVAILABLE,
                name.display,
                "an internal error stopped this cursor",
                "open it again; report this with the log",
            )
        runner.attach(attach, listener, request)

    def held(self, name: CursorName) -> CursorRunner | None:
        """A cursor that has not ended here."""
        runner = self.cursors.get(name)
        return None if runner is None or runner.is_ended else runner

    def _check_draining(self, name: CursorName) -> None:
        if self.draining:
            raise RefusedError(Refusal.SHUTTING_DOWN, name.display, STOPPING, STOPPING_REMEDY)

    def _attach(
        self, runner: CursorRunner, request: ev.Open, attach: int, listener: Listener
    ) -> None:
        if runner.machine.is_leaving or not (
            runner.handle is None or request.takeover or request.fencing_token > 0
        ):
            self._wait(runner, attach, Waiting(listener, runner.name, request))
            return
        if runner.machine.state in OPENING:
            runner.machine.allow(request)
        runner.attach(attach, listener, request)

    def _check_token(self, name: CursorName, runner: CursorRunner | None, given: int) -> None:
        """Raises RefusedError if a higher fencing token was seen: of the footer that is held, or of
        somebody who waits. One of a cursor that is not held is compared with the footer by its
        claim.
        """
        waiting = self._waiting.get(name, {}).values()
        known = max((one.request.fencing_token for one in waiting), default=0)
        if runner is not None:
            known = max(known, runner.machine.known_token)
        if given < known:
            raise RefusedError(
                Refusal.FENCED, name.display, fencing.why_fenced(given, known), fencing.REMEDY
            )

    # ---- those who wait for a cursor

    def _wait(self, runner: CursorRunner, number: int, waiting: Waiting) -> None:
        """For the end of a cursor that is on its way out, else for the proof that it is another
        handle's.
        """
        is_leaving = runner.machine.is_leaving
        if is_leaving:
            self._wait_for_end(runner, number, waiting)
        else:
            self._waiting[runner.name][number] = waiting
            runner.prove(
                number,
                lambda proof: self._learn_holder(runner, proof, number, waiting),
                waiting.request.waited_s + waiting.waited_s,
            )
        if is_leaving or waiting.by_name:
            self._look_at_end(runner, number, waiting)

    def _wait_for_end(self, runner: CursorRunner, number: int, waiting: Waiting) -> None:
        self._waiting[runner.name][number] = waiting
        runner.on_ended.append(lambda _r: self._ask_again(number, waiting))

    def _wait_no_longer(self, name: CursorName, number: int) -> Waiting | None:
        """Who waited; None: nobody did."""
        numbers = self._waiting.get(name, {})
        waiting = numbers.pop(number, None)
        if not numbers:
            self._waiting.pop(name, None)
        return waiting

    def _learn_holder(
        self, runner: CursorRunner, proof: Proof, number: int, waiting: Waiting
    ) -> None:
        """That another handle holds the cursor is an answer, too: it may be held elsewhere since,
        or by nobody.
        """
        by_name = waiting.by_name
        if isinstance(proof, Held) and runner.handle is not None:
            code = Refusal.ALREADY_OPEN
            why, remedy = (
                ("it is open on another handle", "delete it there, or close it first")
                if by_name
                else (
                    "another handle of this daemon holds it",
                    "close that one, or open with takeover",
                )
            )
        elif isinstance(proof, Unknown):
            code, why = Refusal.UNAVAILABLE, proof.reason
            remedy = DELETE_AGAIN if by_name else UNAVAILABLE_REMEDY
        else:
            if not by_name:
                waited_s = proof.waited_s if isinstance(proof, Gone) else 0.0
                waiting.request = replace(waiting.request, waited_s=waited_s)
            self._loop.call_soon(self._ask_again, number, waiting)
            return
        if self._wait_no_longer(runner.name, number) is not None:
            waiting.listener.on_refused(code, why, remedy)

    def _ask_again(self, number: int, waiting: Waiting) -> None:
        """What it waited for is over."""
        name, listener, request = waiting.name, waiting.listener, waiting.request
        if self._wait_no_longer(name, number) is None:
            return  # whoever waited is gone: a cursor must not be held for nobody
        waited_s = waiting.waited_until_s(self._clock())
        try:
            if waiting.by_name:
                self._delete(name, listener, request, waited_s)
            else:
                request = replace(request, waited_s=request.waited_s + waited_s)
                self.open(name, request, number, listener)
        except RefusedError as e:
            listener.on_refused(e.code, e.message, e.remedy)
            return
        if waiting.deletes:
            self.end(name, ev.Delete(number))

    def _look_at_end(self, runner: CursorRunner, attach: int, waiting: Waiting) -> None:
        """Who waits for the end of a cursor waits for ZooKeeper no longer than an open does
        (`proof`), and who wants to delete it by name waits no longer whatever the end waits for.
        """
        if self._waiting.get(runner.name, {}).get(attach) is not waiting or runner.is_ended:
            return
        now, limit_s = self._clock(), self.limits.answer_wait_max_ms / 1000
        if not (waiting.by_name or runner.machine.is_end_with_zookeeper):
            waiting.since_s = None
        elif runner.machine.is_footer_held:
            waiting.since_s = max(waiting.since_s or now, self._heard_s)
        else:
            waiting.since_s = waiting.since_s or now
        if waiting.since_s is not None and waiting.waited_until_s(now) >= limit_s:
            self._wait_no_longer(runner.name, attach)
            runner.forget(attach)
            why = "the cursor is on its way out, and ZooKeeper did not take its footer"
            if waiting.by_name:
                waits = runner.machine.waiting_for
                why = (
                    f"it was not deleted: another handle's opening or end goes before"
                    f"{f', which waits for {waits}' if waits else ''}"
                )
            waiting.listener.on_refused(
                Refusal.UNAVAILABLE,
                f"{why}, not within {limit_s:g} s",
                DELETE_AGAIN if waiting.by_name else UNAVAILABLE_REMEDY,
            )
            return
        self._loop.call_later(limit_s / END_LOOKS, self._look_at_end, runner, attach, waiting)

    @property
    def ends_waited_for(self) -> int:
        """Opens and deletions that wait for a cursor's end, which waits for ZooKeeper."""
        # the metrics' thread asks, too
        return sum(
            one.since_s is not None
            for numbers in list(self._waiting.values())
            for one in list(numbers.values())
        )

    async def proof(self, runner: CursorRunner) -> Proof:
        """Whether this cursor is held here, as of an instant after this call."""
        told: asyncio.Future[Proof] = self._loop.create_future()
        question = self.attach_id()
        runner.prove(question, lambda proof: None if told.done() else told.set_result(proof))
        try:
            return await told
        finally:
            runner.forget(question)

    def _open_again(
        self, runner: CursorRunner, attach: int, listener: Listener, waited_s: float
    ) -> None:
        """The cursor ends only to be read again for this handle."""
        request = replace(runner.request, waited_s=waited_s)
        self._wait_for_end(runner, attach, Waiting(listener, runner.name, request))

    def detach(self, name: CursorName, attach: int) -> None:
        """The handle is gone, also if it was still waiting for its turn to open."""
        self._wait_no_longer(name, attach)
        runner = self.cursors.get(name)
        if runner is not None:
            runner.forget(attach)
            runner.detach(attach)

    def end(self, name: CursorName, wish: ev.Close | ev.Delete) -> None:
        """A handle's own close or delete. One that still waits for its turn is answered here: the
        cursor that it waits for is another handle's.
        """
        assert wish.attach is not None
        waiting = self._waiting.get(name, {}).get(wish.attach)
        if waiting is None:
            runner = self.cursors.get(name)
            if runner is not None:
                runner.dispatch(wish)
        elif isinstance(wish, ev.Delete):
            waiting.deletes = True
        elif not waiting.deletes:
            self._wait_no_longer(name, wish.attach)
            waiting.listener.on_closed()

    def delete_unopened(
        self, name: CursorName, listener: Listener, only: Mark | None = None, fencing_token: int = 0
    ) -> None:
        """Delete a cursor that nobody has open here: claim, fence, tombstone. One that is on its
        way out is deleted when it has ended. With a fencing token it is also deleted when a handle
        has it open, which falls. `only`, `fencing_token`: see `Open`. Where that takes too long it
        is refused as UNAVAILABLE: what was sent by then goes on, and nothing else. Raises
        RefusedError.
        """
        claim = ev.Open(
            create=False, takeover=True, for_delete=True, only=only, fencing_token=fencing_token
        )
        self._delete(name, listener, claim, 0.0)

    def _delete(
        self, name: CursorName, listener: Listener, claim: ev.Open, waited_s: float
    ) -> None:
        self._check_draining(name)
        runner, number, token = self.held(name), self.attach_id(), claim.fencing_token
        if claim.only is None:
            self._check_token(name, runner, token)
        wish = ev.Delete(fencing_token=token, asker=number, waited_s=waited_s)
        if runner is None:
            self._new(name).delete(listener, wish, claim)
        elif not runner.machine.is_leaving and (runner.handle is None or token > 0):
            runner.delete(listener, wish)
        else:
            self._wait(runner, number, Waiting(listener, name, claim, waited_s))

    def _new(self, name: CursorName) -> CursorRunner:
        self._claims += 1
        writer, jitter = f"{self.own}{self._claims:x}", self.rng.uniform(-0.1, 0.1)
        machine = self._machine(name, writer, jitter)
        runner = CursorRunner(machine, self._services, self._changed, self._claims)
        if name in self.cursors:
            self._forget(self.cursors[name])
        self.cursors[name], runner.is_held = runner, True
        self._poll.begin(runner)
        return runner

    def _machine(self, name: CursorName, writer: str, jitter: float) -> CursorMachine:
        return CursorMachine(name, self.limits, writer, jitter, self.state_writer)

    def _forget(self, runner: CursorRunner) -> None:
        """The cursor is held no more; what it counted counts on."""
        with self._counting:
            if runner.is_held:
                runner.is_held = False
                del self.cursors[runner.name]
                self._counted.add(runner.machine.counters)

    def counted(self) -> tuple[Counters, list[CursorRunner]]:
        """What the cursors that ended here counted, and those that count yet. For the metrics'
        thread: no cursor is in both.
        """
        with self._counting:
            return replace(self._counted), list(self.cursors.values())

    # ---- turns

    def _fail(self, runner: CursorRunner, error: BaseException) -> None:
        self.failures.append(error)
        self.telemetry.log("bug: cursor stopped", cursor=str(runner.name), error=repr(error))
        runner.machine.stop()
        self._rest(runner)
        self._forget(runner)
        listeners = list(runner.listeners.values())
        runner.listeners.clear()
        for listener in listeners:
            # whoever listens must not keep the others from hearing it
            with contextlib.suppress(Exception):
                listener.on_refused(
                    Refusal.UNAVAILABLE,
                    f"an internal error stopped this cursor: {error!r}",
                    "open it again; report this with the log",
                )
        runner.tell_ended()

    def _rest(self, runner: CursorRunner) -> None:
        """Nothing is to be done for it any more."""
        self._timers.set(runner, None)
        self._lingers.set(runner, None)
        self._gathering.pop(runner, None)

    def _changed(self, runner: CursorRunner) -> None:
        if not runner.is_held:
            return
        if runner.is_ended:
            self._rest(runner)
            self._forget(runner)
            return
        machine, now = runner.machine, self._clock()
        at, append_at = machine.timer_at_s, machine.append_at_s
        if runner.detached_at is not None and machine.state in LIVE:
            limit = runner.detached_at + self.keeper_limits.detached_cursor_max_ms / 1000
            at = limit if at is None else min(at, limit)
        if append_at is not None and append_at <= now:
            self._make_wanting(runner)
            append_at = None
        elif append_at is not None and machine.is_due_at_once(now):
            self._gathering.setdefault(runner)
            self._schedule()
        else:
            self._gathering.pop(runner, None)
        self._lingers.set(runner, None if append_at is None else self._clock.loop_time(append_at))
        if at is not None and at <= now:
            self._timers.set(runner, None)
            self._make_ready(runner)
        else:
            self._timers.set(runner, None if at is None else self._clock.loop_time(at))

    def _make_wanting(self, runner: CursorRunner) -> None:
        self._gathering.pop(runner, None)
        self._wanting.setdefault(runner)
        if self._room < ROOM_MIN:
            self._watch_room()
        self._schedule()

    def _make_ready(self, runner: CursorRunner) -> None:
        self._ready.setdefault(runner)
        self._schedule()

    @property
    def _is_light(self) -> bool:
        """Nothing is in flight, and few have something to append: they need not wait."""
        count = len(self._wanting) + len(self._gathering)
        if not count or self._sent or self._appending:
            return False
        return self._spare.has(count, self._loop.time())

    def _schedule(self) -> None:
        is_light = self._is_light
        if self._running or not (
            self._ready or is_light or (self._wanting and self._room >= ROOM_MIN)
        ):
            return
        loop = self._loop
        at = loop.time() if self._ready or self._appending or is_light else self._intake.over_at_s
        if at <= loop.time():
            self._running = True
            loop.call_soon(self._run_ready)
        elif self._pause is None:
            self._pause = loop.call_at(at, self._run_ready)

    def _run_ready(self) -> None:
        """A slice of those whose time has come, then of those who want room, as far as there is
        room. Time is everybody's: only appends queue, and taking messages in goes before them. So
        what there is too much of waits in its cursor, where all of it becomes one record, and not
        in a stream, from where each message would become one of its own.
        """
        self._running = False
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        loop = self._loop
        for runner in list(itertools.islice(self._ready, TURNS_MAX)):
            self._ready.pop(runner, None)
            self._turn(runner, 0)
        if self._is_light:
            self._append_at_once()
        if self._wanting and not self._appending and self._intake.is_over(loop.time()):
            self._appending = len(self._wanting)
        if self._appending and self._room >= ROOM_MIN:
            self._intake.stopped(loop.time())
        for runner in list(itertools.islice(self._wanting, min(TURNS_MAX, self._appending))):
            if self._room < ROOM_MIN:
                self._watch_room()
                break
            self._wanting.pop(runner, None)
            self._appending -= 1
            self._turn(runner, self._room)
            if not self._appending:
                self._intake.goes_on(loop.time())
        if self._room < ROOM_MIN:
            self._intake.waits(loop.time())
        self._schedule()

    def _append_at_once(self) -> None:
        few = [*self._wanting, *self._gathering]
        self._spare.used(len(few), self._loop.time())
        self._wanting.clear()
        self._gathering.clear()
        for runner in few:
            if self._room < ROOM_MIN:
                self._make_wanting(runner)
            else:
                self._turn(runner, self._room, at_once=True)

    def _turn(self, runner: CursorRunner, room: int, *, at_once: bool = False) -> None:
        if runner.is_ended or not runner.is_held:
            return
        over = self.keeper_limits.detached_cursor_max_ms / 1000
        if (
            runner.detached_at is not None
            and runner.machine.state in LIVE
            and self._clock() >= runner.detached_at + over
        ):
            runner.detached_at = None
            runner.dispatch(ev.Close())
            return
        runner.dispatch(
            ev.Tick(
                room,
                None if self._room >= ROOM_MIN else self._oldest_sent_s,
                self._heard_s,
                at_once,
            )
        )

    def _heard(self) -> None:
        self._heard_s = self._clock()

    @property
    def _oldest_sent_s(self) -> float | None:
        oldest = next(iter(self._sent.values()), None)
        return None if oldest is None else oldest[0]

    def _watch_room(self) -> None:
        """Those who wait for room are told when what takes it is not answered: it keeps their acks
        from being durable, too.
        """
        oldest = self._oldest_sent_s
        if self._no_room is None and oldest is not None:
            away_s = self.limits.bookkeeper_away_ms / 1000
            loop = self._loop
            due = self._clock.loop_time(oldest + away_s)
            self._no_room = loop.call_at(
                due if due > loop.time() else loop.time() + away_s / ROOM_LOOKS, self._look_for_room
            )

    def _look_for_room(self) -> None:
        self._no_room = None
        oldest = self._oldest_sent_s
        if self._room >= ROOM_MIN or oldest is None or not self._wanting:
            return
        if self._clock() >= oldest + self.limits.bookkeeper_away_ms / 1000:
            for runner in self._wanting:
                if not runner.machine.knows_no_room:
                    self._make_ready(runner)
        self._watch_room()

    @property
    def _room(self) -> int:
        """So many more records may be on their way: many small ones, few large ones. A cursor that
        has begun ends its turn, so those of one turn come on top of the bytes.
        """
        if self._sent_bytes >= self.keeper_limits.daemon_append_bytes_in_flight_max:
            return 0
        return max(0, self._window - len(self._sent))

    def _append_answered(self, place: int) -> None:
        sent_s, size = self._sent.pop(place)
        self._sent_bytes -= size
        most = self.keeper_limits.daemon_appends_in_flight_max
        if self._clock() - sent_s > self._slow_s:
            self._window = min(WINDOW_MIN, most)
        elif self._window < most and len(self._sent) >= self._window // 2:
            self._window += 1
        self._clock.rest()
        self._schedule()

    def _append_sent(self, size: int) -> int:
        self._places += 1
        self._sent[self._places] = self._clock(), size
        self._sent_bytes += size
        self._clock.watch()
        return self._places

    @property
    def appends_in_flight(self) -> int:
        """Records of all cursors that are on their way."""
        return len(self._sent)

    @property
    def flush_interval_ms(self) -> int:
        """The longest wait of an ack before it is sent, when nothing is in the way."""
        return (
            self.limits.flush_interval_ms
            if self.state_writer is None
            else self.limits.whole_state_interval_ms
        )

    @property
    def oldest_unconfirmed_s(self) -> float:
        """For how long the oldest accepted message of all cursors has waited to be durable; 0: none
        waits.
        """
        now, waits = self._clock(), [0.0]
        for runner in list(self.cursors.values()):
            # the metrics' thread asks while the loop confirms
            with contextlib.suppress(IndexError):
                at = runner.machine.progress.oldest_unconfirmed_s
                if at is not None:
                    waits.append(now - at)
        return max(waits)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self.failures.append(error)
            self.telemetry.log("bug: a task failed", error=repr(error))

    def task_ended(self, what: str, error: Exception | None) -> None:
        """Work that should go on for ever did not: see `supervised`."""
        if error is not None:
            self.failures.append(error)
        self.telemetry.log(
            "bug: a task ended, and begins again", task=what, error=repr(error), exc_info=error
        )
