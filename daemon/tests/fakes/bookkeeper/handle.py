"""A write handle in the fake gateway: appends on their way to the bookies and back, in order.

Owns: the queue of unanswered appends of one ledger, its one timer, the expected entry id. Does not
own: what the ledger keeps (`fake_ledger`), the window over all ledgers (`fake_gateway`).
Invariants: futures are answered in entry order; after a failure every later one of the queue has
failed too; a handle that met ROLL or FENCED never appends again; one that met a refusal does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cursorkeeper.bookkeeper.errors import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRoll,
    Outcome,
    afterwards,
    from_status,
)
from daemon.tests.fakes.bookkeeper.faults import Fault, Planned
from daemon.tests.fakes.bookkeeper.ledger import FakeLedger
from daemon.tests.fakes.bookkeeper.operation import Operation, connection_lost

if TYPE_CHECKING:
    from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper


@dataclass(slots=True)
class _Append:
    """One unanswered append. `ack_at_s` counts from its arrival; `error`: what it fails with when
    its turn comes.
    """

    payload: bytes
    answered: asyncio.Future[None]
    arrive_at_s: float
    deadline_s: float
    planned: Planned | None
    entry: int
    ack_at_s: float = 0.0
    arrived: bool = False
    error: GatewayError | None = None


class FakeHandle:
    """The write handle of one ledger in one gateway process; `creator` is the role of who created
    it, `stream` the append stream it is bound to.
    """

    def __init__(self, store: FakeBookKeeper, ledger: FakeLedger, creator: str = "writer") -> None:
        self.store, self.ledger, self.creator = store, ledger, creator
        self.stream: object | None = None
        self.next_entry = 0
        self.dead = False
        self._died_of: GatewayError | None = None
        self._queue: deque[_Append] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._drained: list[asyncio.Future[None]] = []

    def append(
        self,
        entry: int,
        payload: bytes,
        timeout_s: float,
        done: Callable[[asyncio.Future[None]], None],
    ) -> asyncio.Future[None]:
        """Queue one entry. `done` is called when it is answered, before anybody who waits for it
        runs.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        answered.add_done_callback(done)
        faults, rng, now = self.store.faults, self.store.rng, loop.time()
        if problem := self._refusal(entry, payload):
            if self.dead and self._queue:  # in its turn, behind those that are still unanswered
                self._queue.append(
                    _Append(payload, answered, now, now + timeout_s, None, entry, error=problem)
                )
            else:
                answered.set_exception(problem)
            return answered
        arrive_at = now + faults.delay_s(rng)
        if self._queue:  # one connection: nobody overtakes
            arrive_at = max(arrive_at, self._queue[-1].arrive_at_s)
        self._queue.append(
            _Append(
                payload,
                answered,
                arrive_at,
                now + timeout_s,
                faults.take(Operation.APPEND, rng),
                entry,
            )
        )
        self.next_entry = entry + 1
        self._wake_at(arrive_at)
        return answered

    async def wait_drained(self) -> None:
        """Returns when everything queued is answered."""
        if self._queue:
            drained = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    def cut(self, error: Callable[[], GatewayError]) -> None:
        """The stream or the process died: of what was on its way a random part still arrives;
        nothing is answered.
        """
        on_the_way = [a for a in self._queue if not a.arrived]
        for append in on_the_way[: self.store.rng.randint(0, len(on_the_way))]:
            self._arrive(append)
        self.dead = True
        self._fail_rest(0, error)
        self._answer()

    def _refusal(self, entry: int, payload: bytes) -> GatewayError | None:
        where, not_done = self.ledger.ledger, Outcome.NOT_DONE
        if self.dead:
            return afterwards(where, self._died_of)
        if len(payload) > self.store.entry_bytes_max:
            text = (
                f"entry {entry} has {len(payload)} bytes, the limit is {self.store.entry_bytes_max}"
            )
            return GatewayRefused("ENTRY_TOO_LARGE", not_done, ledger=where, message=text)
        if entry != self.next_entry:
            return GatewayRefused(
                "UNEXPECTED_ENTRY_ID",
                not_done,
                ledger=where,
                message=f"entry {entry} given, {self.next_entry} is next",
            )
        return None

    def _advance(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for append in self._queue:
            if append.arrived or append.error:
                continue
            if append.arrive_at_s > now:
                break
            self._arrive(append)
        self._answer()

    def _arrive(self, append: _Append) -> None:
        """The append reaches the bookies, or does not."""
        if append.error:
            return
        fault = append.planned.fault if append.planned else None
        if fault is Fault.FENCE:
            self.ledger.recover(self.store.rng)
        if fault is Fault.REFUSE:
            assert append.planned and append.planned.error
            self._refuse_from(append, append.planned.error)
        elif fault is Fault.LOST_BEFORE:
            self._fail_from(
                append, lambda: connection_lost(Operation.APPEND, ledger=self.ledger.ledger)
            )
        elif self.ledger.fenced:
            self._fail_from(append, self._fenced)
        elif not self.store.can_add(self.ledger):
            self.dead = True
            self._fail_rest(0, self._no_bookies)
            # The real client then tries to close the ledger where it is; whether that worked is not
            # told.
            if self.store.rng.random() < 0.5:
                self.ledger.close_at(self.ledger.acked)
        else:
            self.ledger.store(append.payload)
            append.arrived = True
            faults, rng = self.store.faults, self.store.rng
            append.ack_at_s = (
                asyncio.get_running_loop().time() + faults.ack_delay_s(rng) + faults.delay_s(rng)
            )
            if fault is Fault.LOST_AFTER:
                self.ledger.ack(append.entry)
                self._fail_from(
                    append, lambda: connection_lost(Operation.APPEND, ledger=self.ledger.ledger)
                )

    def _answer(self) -> None:
        """Answer from the head as far as time and the ledger allow, then set the timer."""
        now = asyncio.get_running_loop().time()
        while self._queue:
            head = self._queue[0]
            if (
                head.error is None
                and head.arrived
                and self.ledger.fenced
                and not self._survived(head)
            ):
                self._fail_from(head, self._fenced)
            if head.error is None and head.deadline_s <= now:
                self._fail_from(
                    head,
                    lambda: from_status(
                        "DEADLINE_EXCEEDED", ledger=self.ledger.ledger, of_append=True
                    ),
                )
            if head.error is None and (
                not head.arrived or head.ack_at_s > now or self.store.acks_stalled
            ):
                break
            self._queue.popleft()
            if head.error is None:
                self.ledger.ack(head.entry)
            if not head.answered.done():  # the caller may have cancelled it; the entry goes its way
                head.answered.set_exception(head.error) if head.error else head.answered.set_result(
                    None
                )
        if self._queue:
            head = self._queue[0]
            due = [a.arrive_at_s for a in self._queue if not a.arrived and not a.error][:1]
            if head.arrived and not self.store.acks_stalled:
                due.append(head.ack_at_s)
            self._wake_at(min([*due, head.deadline_s]))
            return
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()

    def _survived(self, append: _Append) -> bool:
        """Recovery kept this entry, and the bookies' ack was already on its way when they were
        fenced.
        """
        return append.entry < len(self.ledger.entries) and self.store.rng.random() < 0.5

    def _fail_from(self, first: _Append, error: Callable[[], GatewayError]) -> None:
        """This append and all later ones fail in their turn; the handle is dead."""
        self.dead = True
        self._died_of = self._died_of or error()
        self._fail_rest(next(i for i, a in enumerate(self._queue) if a is first), error)

    def _refuse_from(self, first: _Append, error: GatewayError) -> None:
        """This append and all later ones are refused. A lone one leaves the handle alive, expecting
        it again.
        """
        self._fail_rest(next(i for i, a in enumerate(self._queue) if a is first), lambda: error)
        lone = self._queue[-1] is first
        if (
            lone
            and error.outcome is Outcome.NOT_DONE
            and not isinstance(error, GatewayRoll | GatewayFenced)
        ):
            self.next_entry = first.entry
        else:
            self.dead, self._died_of = True, error

    def _fail_rest(self, start: int, error: Callable[[], GatewayError]) -> None:
        for append in list(self._queue)[start:]:
            append.error = append.error or error()

    def _fenced(self) -> GatewayError:
        return GatewayFenced(
            "FENCED", Outcome.UNKNOWN, ledger=self.ledger.ledger, bookkeeper_code=-101
        )

    def _no_bookies(self) -> GatewayError:
        return GatewayRoll(
            "NOT_ENOUGH_BOOKIES", Outcome.UNKNOWN, ledger=self.ledger.ledger, bookkeeper_code=-6
        )

    def _wake_at(self, when_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when_s, self._advance)

    def wake(self) -> None:
        """Something changed from outside (acks flow again, say): look at the queue once more."""
        if self._queue:
            self._wake_at(asyncio.get_running_loop().time())
