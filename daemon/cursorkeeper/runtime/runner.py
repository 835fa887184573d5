"""One cursor at work: gives events to its machine and does what the machine wants, in order.

Owns no decision. An effect's outcome comes back as an event of the same machine; a runner whose
machine has ended ignores what is still on its way. Tasks exist only while something is awaited: an
idle cursor has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import FencedEnd, LedgerEnd, LedgerStore
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.budget import StateBudget
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.table import LIVE, OPENING, State
from cursorkeeper.core.values import Delta, OpenRecord, RawEntry, Segment, SnapshotEnd
from cursorkeeper.format import record
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime import ledgers as ledger_calls
from cursorkeeper.runtime.admission import Age, Calm, Lane, Pace, Turn
from cursorkeeper.runtime.chain import ChainReader
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.kept_entries import LEDGER_BYTES_MAX, KeptEntries
from cursorkeeper.runtime.ledgers import LedgerPolicy, Scarcity
from cursorkeeper.runtime.listener import NOBODY, Listener
from cursorkeeper.runtime.patience import PatientClock
from cursorkeeper.runtime.telemetry import Telemetry
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_client.back_off import BackOff

HEARD = (
    ev.FooterRead,
    ev.FooterUnreadable,
    ev.FooterWritten,
    ev.FooterBadVersion,
    ev.FooterGone,
    ev.FooterChecked,
    ev.FooterCheckFailed,
)
"""Events that only ZooKeeper itself can have caused."""
SETTLING_S = 5.0
"""An opened cursor whose first acks come within this time needs its first ledger as part of being
opened.
"""
FAILED = (ev.FooterReadFailed, ev.FooterWriteUnknown, ev.LedgerEndFailed, ev.LedgerCreateFailed)
"""It will be asked again."""
KINDS: dict[type, str] = {
    Delta: "delta",
    Segment: "segment",
    SnapshotEnd: "snapshot_end",
    OpenRecord: "open",
    RawEntry: "state",
}


class OpenResult(StrEnum):
    """How an Open was answered, beside the codes of a refusal."""

    OPENED = "OPENED"
    RESUMED = "RESUMED"
    """It goes on where an earlier handle broke off."""
    DEPOSED = "DEPOSED"
    CLOSED = "CLOSED"
    DELETED = "DELETED"
    GONE = "GONE"
    """The source did not wait for the answer."""


class Attempt(Protocol):
    """An effect whose outcome carries its token."""

    @property
    def token(self) -> int: ...


A = TypeVar("A", bound=Attempt)


@frozen
class Held:
    """The cursor was held here at an instant after the question came."""


@frozen
class Unknown:
    """ZooKeeper did not say so in time."""

    reason: str


@frozen
class Gone:
    """The cursor is not held here any more; so long ZooKeeper was waited for."""

    waited_s: float = 0.0


Proof = Held | Unknown | Gone
"""What comes of a question whether a cursor is held here."""


@frozen
class Lanes:
    """What the cursors of a daemon take turns for."""

    openings: Lane
    """Whatever an opening asks: reads, claims, recoveries, chains, and what the first ledger that
    follows takes.
    """
    ledgers: Lane
    """Creating and ending ledgers of cursors that are open."""
    footers: Lane
    """Reads and writes of footers of cursors that are open."""
    deletions: Lane
    calm: Calm
    """Nobody waits to be opened, or for a ledger."""
    inline_states: Pace

    def close(self) -> None:
        """Nobody's turn comes any more."""
        for lane in (self.openings, self.ledgers, self.footers, self.deletions):
            lane.close()
        self.calm.close()
        self.inline_states.close()


@frozen
class Services:
    ledgers: LedgerStore
    footers: FooterStore
    policy: LedgerPolicy
    encode: EncodeSettings
    telemetry: Telemetry
    loop: asyncio.AbstractEventLoop
    clock: PatientClock
    lanes: Lanes
    scarcity: Scarcity
    kept_entries: KeptEntries
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    sent: Callable[[int], int]
    """An append of so many bytes, unpacked, takes a place of the daemon's window: which one."""
    appended: Callable[[int], None]
    """An append was answered: the place is free again."""
    took: Callable[[], None]
    """A message of acks came."""
    heard: Callable[[], None]
    """Called when ZooKeeper has answered."""
    failed: Callable[[CursorRunner, BaseException], None]
    """A bug: this cursor cannot go on."""
    reopen: Callable[[CursorRunner, int, Listener, float], None]
    """A handle wants the cursor that ends now, and has waited so many seconds for ZooKeeper: open
    it again for it.
    """

    async def own_ledgers(self) -> LedgerStore:
        """The ledgers, as those of this root's deployment: the gateway ends and deletes no others.
        Raises ZooKeeperError.
        """
        self.ledgers.act_for(await self.footers.deployment())
        return self.ledgers


class Unwanted(Exception):
    """The cursor has ended while something was tried again for it."""


class CursorRunner:
    """See the module. `changed(runner)` is called after every step: the hub sets its timer or lets
    it tick. `number`: in the order in which a daemon began with its cursors.
    """

    def __init__(
        self,
        machine: CursorMachine,
        services: Services,
        changed: Callable[[CursorRunner], None],
        number: int,
    ) -> None:
        self.machine, self._services, self._changed, self._number = (
            machine,
            services,
            changed,
            number,
        )
        self.is_held = False
        """It is the daemon's cursor of this name; the keeper says so."""
        self.listeners: dict[int, Listener] = {}
        self.handle: int | None = None
        """The attachment that is live or waits for the state."""
        self.request = ev.Open()
        self.detached_at: float | None = services.clock()
        self._since_s = services.clock()
        self._is_retrying = False
        """What it asked for has failed: it has had its turn."""
        self._live_s: float | None = None
        """Since when it is open."""
        self._recovering_since: float | None = services.loop.time()
        self.shrunk_ledger = False
        self.waiting_for = ""
        self.on_ended: list[Callable[[CursorRunner], None]] = []
        self._asked: dict[int, Callable[[Proof], None]] = {}
        self._stopped = False

    @property
    def name(self) -> CursorName:
        return self.machine.name

    @property
    def number(self) -> int:
        """In the order in which the daemon began with its cursors."""
        return self._number

    @property
    def is_ended(self) -> bool:
        return self.machine.is_ended

    # ---- handles

    def attach(self, attach: int, listener: Listener, request: ev.Open) -> None:
        """A source wants this cursor; an earlier handle is told that it was taken over."""
        self.request = request
        if self.handle != attach:
            self._displace()
        self.listeners[attach] = listener
        self.handle, self.detached_at = attach, None
        self.dispatch(
            ev.Attach(
                attach,
                request.layout,
                request.resume,
                request.source,
                request.waited_s,
                request.fencing_token,
            )
        )

    def _displace(self) -> None:
        old = self.listeners.pop(self.handle, None) if self.handle is not None else None
        if old is not None:
            old.on_deposed(self.machine.epoch)

    def delete(self, listener: Listener, wish: ev.Delete, claim: ev.Open | None = None) -> None:
        """For somebody who has no handle (the wish says its number); whoever has one is told that
        the cursor was taken over. `claim`: of a cursor that is not held.
        """
        assert wish.asker is not None
        self._displace()
        self.handle = None
        self.listeners[wish.asker] = listener
        if claim is not None:
            self.dispatch(claim)
        self.dispatch(wish)

    def detach(self, attach: int) -> None:
        """The handle is gone; the cursor stays until `detached_cursor_max_ms`."""
        self.listeners.pop(attach, None)
        self._let_go(attach)
        self.dispatch(ev.Detach(attach))

    def _let_go(self, attach: int) -> None:
        if self.handle == attach:
            self.handle, self.detached_at = None, self._services.clock()

    # ---- the machine

    def stop(self) -> None:
        """The daemon is abandoned: answers that still come change nothing and cause nothing."""
        self._stopped = True

    def dispatch(self, event: ev.Event) -> None:
        """One step. An exception here is a bug: it ends this cursor and no other."""
        if self._stopped or self.machine.is_ended:
            return
        if isinstance(event, ev.Acks):
            self._services.took()
        try:
            for effect in self.machine.step(event, self._services.clock()):
                self._perform(effect)
        except Exception as e:
            self._services.failed(self, e)
            return
        if self._recovering_since is not None and self.machine.state in LIVE:
            self._services.telemetry.recovered(self._services.loop.time() - self._recovering_since)
            self._recovering_since, self._is_retrying, self._live_s = (
                None,
                False,
                self._services.clock(),
            )
        self._changed(self)

    def _perform(self, effect: fx.Effect) -> None:
        lanes = self._services.lanes
        match effect:
            case fx.Append():
                self._append(effect)
            case fx.Confirm():
                self._listener(effect.attach).on_confirm(effect)
            case fx.WriteFooter():
                self._admit(lanes.footers, effect, self._write)
            case fx.ReadFooter():
                self._admit(lanes.footers, effect, self._read)
            case fx.CheckFooter():
                # at once: it is put together with those of other cursors anyway
                checking = self._services.footers.check(self.name, effect.token, effect.version)
                self._services.spawn(self._learn_from(checking))
            case fx.CreateLedger():
                self._admit(lanes.ledgers, effect, self._create)
            case fx.FenceLedger() | fx.CloseLedger():
                self._admit(lanes.ledgers, effect, self._end)
            case fx.ReadChain():
                self._admit(lanes.openings, effect, self._read_chain)
            case fx.DeleteLedgers():
                for ledger in effect.ledgers:
                    self._services.spawn(self._delete_in_turn(ledger))
            case fx.AskInlineTurn():
                lanes.inline_states.ask(self._age, lambda: self._take_inline_turn(effect.token))
            case _:
                self._tell(effect)

    def _tell(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StreamState():
                self._listener(effect.attach).on_state(self.machine, created=effect.created)
            case fx.ContinueHandle():
                self._listener(effect.attach).on_continued(self.machine)
            case fx.Proved():
                self._answer(effect.question, Held())
            case fx.Unproved():
                self._answer(effect.question, Unknown(effect.reason))
            case fx.ResetDone():
                self._listener(effect.attach).on_reset_done(effect)
            case fx.RefuseHandle():
                self._log("handle refused", code=str(effect.code), problem=effect.message)
                listener = self.listeners.pop(effect.attach, NOBODY)
                self._let_go(effect.attach)
                listener.on_refused(effect.code, effect.message, effect.remedy, effect.seq)
            case fx.Refuse():
                self._log("cursor refused", code=str(effect.code), problem=effect.message)
                for listener in self._all():
                    listener.on_refused(effect.code, effect.message, effect.remedy)
                self.listeners.clear()
            case fx.KeepFooter():
                self._log(
                    "footer to restore",
                    footer=self._services.footers.encoded(effect.footer).decode(),
                )
            case fx.Report():
                self._log(effect.event, **effect.fields)
            case fx.Pause():
                self._log("paused", waiting_for=effect.reason)
                for listener in self._all():
                    listener.on_pause(effect.reason)
            case fx.Resume():
                self._log("resumed")
                for listener in self._all():
                    listener.on_resume()
            case fx.Ended():
                self._end_all(effect)
            case _:
                raise AssertionError(f"nobody does {effect}")

    def _end_all(self, effect: fx.Ended) -> None:
        state = self.machine.state
        waiting = self.listeners.pop(effect.reopen, None) if effect.reopen is not None else None
        if waiting is not None and effect.reopen is not None:
            self._services.reopen(self, effect.reopen, waiting, effect.waited_s)
        self._log("cursor ended", state=str(state), epoch=self.machine.epoch)
        for listener in self._all():
            if state is State.DEPOSED:
                listener.on_deposed(effect.epoch)
            elif state is State.DELETED:
                listener.on_deleted()
            elif state is State.CLOSED:
                listener.on_closed()
        self.listeners.clear()
        self.handle = None
        self.tell_ended()

    # ---- questions

    def prove(self, question: int, told: Callable[[Proof], None], waited_s: float = 0.0) -> None:
        """`told` learns once whether this cursor is held here, as of an instant after this call.
        `forget` takes it back.
        """
        if self._stopped or self.machine.is_ended:
            told(Gone(waited_s))
            return
        self._asked[question] = told
        self.dispatch(ev.Prove(question, waited_s))

    def forget(self, question: int) -> None:
        if self._asked.pop(question, None) is not None:
            self.dispatch(ev.Detach(question))

    def _answer(self, question: int, proof: Proof) -> None:
        told = self._asked.pop(question, None)
        if told is not None:
            told(proof)

    def tell_ended(self) -> None:
        """Tells whoever waits for this end, once."""
        self._services.kept_entries.drop(self._number)
        for question in list(self._asked):
            self._answer(question, Gone(self.machine.waited_s(question, self._services.clock())))
        waiting, self.on_ended = self.on_ended, []
        for callback in waiting:
            callback(self)

    async def wait_ended(self) -> None:
        if not self.is_ended:
            ended = asyncio.Event()
            self.on_ended.append(lambda _runner: ended.set())
            await ended.wait()

    def _log(self, event: str, **fields: Any) -> None:
        self._services.telemetry.log(event, cursor=str(self.name), **fields)

    def _all(self) -> list[Listener]:
        return list(self.listeners.values())

    def _listener(self, attach: int) -> Listener:
        return self.listeners.get(attach, NOBODY)

    # ---- doing

    @property
    def _age(self) -> Age:
        """In a queue. What an opening asks next is as old as the opening: the first ones get
        through before others begin. What has failed is as old as its repetition: cursors that
        cannot go on must not stand in front of all others, again and again.
        """
        since = self._since_s if self._is_settling else self.machine.progress.oldest_unconfirmed_s
        return (
            self._services.clock() if since is None or self._is_retrying else since
        ), self._number

    @property
    def _is_settling(self) -> bool:
        """It is being opened, or was just now and has acks that wait for its first footer write,
        which names a ledger or holds the state: until then its source waits as it does for an
        opening, and those that come after it are not to be opened before.
        """
        m = self.machine
        if m.state in OPENING:
            return True
        first = m.progress.oldest_unconfirmed_s
        is_first = (
            m.state in (State.READY, State.ROLLING) and m.has_only_claimed and not self._is_retrying
        )
        return (
            is_first
            and self._live_s is not None
            and first is not None
            and first <= self._live_s + SETTLING_S
        )

    def _admit(
        self,
        lane: Lane,
        effect: A,
        work: Callable[[A, Turn], Coroutine[Any, Any, ev.Event | None]],
    ) -> None:
        """Does it when it is its turn; while it waits, the machine knows that it is not sent. An
        opening has its own lane.
        """
        if self._is_settling:
            lane = self._services.lanes.openings
        admitted = _Admitted(self, lane, effect.token, partial(work, effect))
        if not lane.enter(self._age, admitted.begin):
            admitted.has_waited = True
            self.machine.hold(effect.token)

    def begin(
        self,
        turn: Turn,
        work: Callable[[Turn], Coroutine[Any, Any, ev.Event | None]],
        waited: int | None,
    ) -> bool:
        """It is the turn of this work; `waited`: the token of what the machine holds till then.
        False: it is not wanted any more.
        """
        if self._stopped or self.is_ended:
            return False
        self._services.clock.watch()
        self._services.spawn(self._do(turn, work))
        if waited is not None:
            self.dispatch(ev.Sent(waited))
        return True

    async def _do(
        self, turn: Turn, work: Callable[[Turn], Coroutine[Any, Any, ev.Event | None]]
    ) -> None:
        try:
            await self._learn_from(work(turn))
        finally:
            self._services.clock.rest()
            turn.end()

    async def _learn_from(self, work: Coroutine[Any, Any, ev.Event | None]) -> None:
        """None: nobody wants the outcome any more."""
        try:
            outcome = await work
            if outcome is not None:
                self._learn(outcome)
        except Exception as e:  # a bug: without an outcome the machine would wait for ever
            self._services.failed(self, e)

    def _learn(self, outcome: ev.Event) -> None:
        if isinstance(outcome, HEARD):
            self._services.heard()
        if isinstance(outcome, FAILED):
            self._is_retrying = True
        elif self.machine.state not in OPENING:
            self._is_retrying = False
        self.dispatch(outcome)

    def _take_inline_turn(self, token: int) -> bool:
        """Whether the state was written; else another cursor may write its own."""
        before = self.machine.counters.inline_backstops
        self.dispatch(ev.InlineTurn(token))
        return self.machine.counters.inline_backstops > before

    async def _delete_in_turn(self, ledger: int) -> None:
        """When nobody waits to be opened, or for a ledger: nobody waits for a deletion."""
        await self._services.lanes.calm.wait()
        turn = Turn(self._services.lanes.deletions)
        await turn.again((self._services.clock(), self._number))
        try:
            if not self._stopped:
                await self._delete(ledger)
        finally:
            turn.end()

    def _append(self, effect: fx.Append) -> None:
        loop = self._services.loop
        started = loop.time()
        crc = 0
        if isinstance(effect.record, RawEntry):
            data, kind = effect.record.payload, KINDS[RawEntry]
            size = held = len(data)
        else:
            data, kind = (
                record.encode(effect.record, self._services.encode),
                KINDS[type(effect.record.body)],
            )
            size = held = len(data)
            crc = int.from_bytes(data[record.CRC_AT : record.CRC_AT + 4], "little")
            unpacked = data[record.BODY_BYTES_AT : record.BODY_BYTES_AT + 4]
            held = max(held, int.from_bytes(unpacked, "little"))
        place = self._services.sent(held)
        try:
            future = self._services.ledgers.append(effect.ledger, effect.entry, data)
        except bk.GatewayError as e:
            loop.call_soon(self._append_failed, effect, str(e), e.is_handle_lost, place)
            return
        except BaseException:
            self._services.appended(place)
            raise

        def done(answer: asyncio.Future[None]) -> None:
            self._services.appended(place)
            if answer.cancelled():
                self._append_failed(effect, "cancelled")
                return
            error = answer.exception()
            if error is None:
                self._services.telemetry.flushed(kind, size, loop.time() - started)
                self.dispatch(ev.Appended(effect.ledger, effect.entry, size, crc))
            elif isinstance(error, bk.GatewayError):
                self._append_failed(effect, str(error), error.is_handle_lost)
            else:
                self._services.failed(self, error)

        future.add_done_callback(done)

    def _append_failed(
        self,
        effect: fx.Append,
        reason: str,
        is_handle_lost: bool = False,
        place: int | None = None,
    ) -> None:
        if place is not None:
            self._services.appended(place)
        self.dispatch(ev.AppendFailed(effect.ledger, effect.entry, reason, is_handle_lost))

    async def _write(self, effect: fx.WriteFooter, _turn: Turn) -> ev.Event:
        return await self._services.footers.write(
            self.name, effect.token, effect.footer, effect.expected_version
        )

    async def _read(self, effect: fx.ReadFooter, _turn: Turn) -> ev.Event:
        # a claim would use the watch up: it is set when the footer is looked at afterwards
        watch = None if self.machine.state is State.CLAIMING else self._footer_changed
        return await self._services.footers.read(
            self.name, effect.token, sync=effect.sync, watch=watch
        )

    async def _read_chain(self, effect: fx.ReadChain, turn: Turn) -> ev.Event | None:
        limits = self.machine.limits
        budget = StateBudget.reading(limits.state_bytes_max, limits.layout_ledgers_max)
        reader = ChainReader(
            self.name,
            self._services.ledgers,
            self.machine.wait_for,
            self._moved,
            budget=budget,
            rest=partial(self._rest_of_reading, turn),
            on_joined=partial(self._tell_joined, self.machine.answerable),
            known=self._services.kept_entries.of(self._number),
        )
        try:
            found = await reader.read(effect.token, effect.footer)
        except Unwanted:
            return None
        finally:
            self._services.kept_entries.drop(self._number)
        if isinstance(found, ev.ChainRead) and found.unfinished:
            # of a flush that was cut off: nothing of it was ever confirmed
            first, count = found.unfinished[0], len(found.unfinished)
            self._log(
                "unfinished state",
                ledger=first.ledger,
                entry=first.entry,
                entries=count,
            )
        return found

    def _moved(self, _bytes: int) -> None:
        self._services.telemetry.moved()

    def _tell_joined(self, asked: int | None, joined: Sequence[Delta | Segment] | None) -> None:
        # who came since must not miss what was joined before
        is_proved = asked is not None and asked == self.machine.answerable
        for attach, listener in list(self.listeners.items()):
            is_theirs = is_proved and attach == asked
            listener.on_recovering(self.machine, joined if is_theirs else None)

    async def _rest_of_reading(self, turn: Turn, seconds: float) -> None:
        """Somebody else reads meanwhile. Raises Unwanted."""
        turn.end()
        self._services.clock.rest()
        try:
            await asyncio.sleep(seconds)
            self._check_wanted()
            self._is_retrying = True
            await turn.again(self._age)
            self._check_wanted()
        finally:
            self._services.clock.watch()

    def _check_wanted(self) -> None:
        """Raises Unwanted."""
        if self.is_ended:
            raise Unwanted

    async def _create(self, effect: fx.CreateLedger, _turn: Turn) -> ev.Event:
        scarcity = self._services.scarcity
        why_not = scarcity.told()
        if why_not is not None:
            return ev.LedgerCreateFailed(effect.token, why_not)
        try:
            deployment, ledgers = (
                await self._services.footers.deployment(),
                await self._services.own_ledgers(),
            )
            metadata = ledger_calls.custom_metadata(
                self.name,
                effect.epoch,
                effect.generation,
                self.machine.nonce,
                deployment,
                form=effect.format,
                more=effect.metadata,
            )
            ledger, self.shrunk_ledger = await ledger_calls.create(
                ledgers, self._services.policy, metadata
            )
        except bk.GatewayError as e:
            scarcity.failed(e)
            return ev.LedgerCreateFailed(effect.token, str(e))
        except zk.ZooKeeperError as e:
            return ev.LedgerCreateFailed(effect.token, str(e))
        scarcity.created()
        self._services.telemetry.moved()
        return ev.LedgerCreated(effect.token, ledger)

    async def _end(self, effect: fx.FenceLedger | fx.CloseLedger, _turn: Turn) -> ev.Event:
        token, ledger = effect.token, effect.ledger
        try:
            ledgers = await self._services.own_ledgers()
            end: LedgerEnd | FencedEnd | None = None
            if isinstance(effect, fx.CloseLedger):
                try:
                    end = await ledgers.close_ledger(ledger)
                except bk.NoSuchLedger:
                    raise
                except bk.GatewayError:
                    pass  # recovery gives the same end, or a later one
            if end is None:
                end = await self._fence(ledgers, ledger)
            self._services.telemetry.moved()
            return ev.LedgerEnded(token, ledger, end.last_entry)
        except (bk.GatewayError, zk.ZooKeeperError) as e:
            return ev.LedgerEndFailed(token, ledger, isinstance(e, bk.NoSuchLedger), str(e))

    async def _fence(self, ledgers: LedgerStore, ledger: int) -> FencedEnd:
        """Of an opening also what its chain will want."""
        if self.machine.state not in OPENING:
            return await ledgers.fence(ledger)
        end = await ledgers.fence(ledger, entries_bytes_max=LEDGER_BYTES_MAX)
        if self.machine.state in OPENING:
            self._services.kept_entries.keep(self._number, ledger, end.last_entry, end.entries)
        return end

    async def _delete(self, ledger: int) -> None:
        back_off = BackOff(0.1, 12.8)
        for _ in range(8):
            if await self._is_delete_over(ledger):
                return
            await asyncio.sleep(back_off.next_s())
        # garbage collection takes it: no footer names it any more
        self._log("ledger left to garbage collection", ledger=ledger)

    async def _is_delete_over(self, ledger: int) -> bool:
        """It is deleted, or never will be."""
        try:
            await (await self._services.own_ledgers()).delete(ledger)
        except bk.GatewayRefused as e:
            self._log("ledger not deleted", ledger=ledger, problem=str(e))
        except (bk.GatewayError, zk.ZooKeeperError):
            return False
        return True

    def _footer_changed(self, _path: str) -> None:
        if not self.is_ended:
            self.dispatch(ev.FooterChanged())


class _Admitted:
    """Work of a cursor that its lane begins, at once or later. It is not two functions within one:
    as machine code, where one calls the other, what they share keeps them, the cursor and its state
    until the collector of cycles looks.
    """

    def __init__(
        self,
        runner: CursorRunner,
        lane: Lane,
        token: int,
        work: Callable[[Turn], Coroutine[Any, Any, ev.Event | None]],
    ) -> None:
        self._runner, self._lane, self._token, self._work = runner, lane, token, work
        self.has_waited = False

    def begin(self, place: int) -> bool:
        return self._runner.begin(
            Turn(self._lane, place), self._work, self._token if self.has_waited else None
        )
