"""One cursor of a resuming source: what was handed over and is not confirmed yet, kept over
connections.

Owns: tickets (1, 2, ... for every batch handed over, growing over all connections), the bounded
memory of unconfirmed batches, opening again. Does not own: the connection (`resuming`). Invariants:
`durable_ticket <= last_ticket`; batches are sent in ticket order on every stream, from the first
that is not confirmed; a batch of an older generation is dropped and counts as decided, as the
keeper would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cursorkeeper_client.ack_stream.columns import encode_acks
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.errors import (
    AcksTooLarge,
    AckStreamError,
    CursorRefused,
    HandleClosed,
    KeeperTimeout,
    SessionLost,
)
from cursorkeeper_client.settings import SourceSettings
from cursorkeeper_client.values import Acks, CursorState, LayoutItem, Position


class ResumingCursor:
    """Made by `ResumingSource.cursor`. `on_recovered(state)` and `on_durable(ticket)` are called in
    the loop.
    """

    def __init__(
        self,
        topic: str,
        subscription: str,
        layout: Sequence[LayoutItem],
        create: bool,
        start: Position | None,
        cursor_properties: Mapping[str, str],
        settings: SourceSettings,
        rng: random.Random,
    ) -> None:
        self.topic, self.subscription = topic, subscription
        self._layout, self._create, self._start, self._cursor_properties = (
            tuple(layout),
            create,
            start,
            dict(cursor_properties),
        )
        self._settings, self._rng = settings, rng
        self.on_recovered: Callable[[CursorState], None] | None = None
        self.on_durable: Callable[[int], None] | None = None
        self.state: CursorState | None = None
        self.handle: CursorHandle | None = None
        self.failed: AckStreamError | None = None
        self.opens = self.resumes = 0
        """How often the state was given, and how often a broken stream was taken up again without
        one.
        """
        self.last_ticket = self.durable_ticket = 0
        self.unconfirmed_bytes = 0
        # ticket -> batch, its generation
        self._unconfirmed: dict[int, tuple[bytes, int | None]] = {}
        self._generation: int | None = None
        self._resume: CursorState | None = None
        self._sent_ticket = 0
        self._seqs: deque[tuple[int, int]] = deque()  # seq, ticket
        self._reset_target: Position | None = None
        self._layout_changed = False
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._work, self._changed = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- for the program ---

    @property
    def paused(self) -> bool:
        """The keeper asks to stop dispatching, or there is no keeper now."""
        return self.handle is None or self.handle.paused

    async def wait_opened(self) -> CursorState:
        """The state of the newest opening, as soon as there is one."""
        while self.state is None:
            await self._wait_changed()
        return self.state

    async def send(self, acks: Acks) -> int:
        """Take one batch into memory, to be sent until it is confirmed. Waits while the memory is
        full. Returns its ticket.
        """
        encoded = encode_acks(acks)
        if len(encoded) > self._settings.message_bytes_max:
            raise AcksTooLarge(
                f"{len(encoded)} bytes of acks, the limit is {self._settings.message_bytes_max}. "
                f"What to do: split them"
            )
        while self.unconfirmed_bytes + len(encoded) > self._settings.unconfirmed_bytes_max:
            await self._wait_changed()
        self._check()
        self.last_ticket += 1
        self._unconfirmed[self.last_ticket] = (encoded, self._generation)
        self.unconfirmed_bytes += len(encoded)
        self._work.set()
        return self.last_ticket

    async def wait_durable(self, ticket: int | None = None) -> None:
        """Until everything up to `ticket` (None: all so far) is durable or decided, over however
        many connections.
        """
        wanted = self.last_ticket if ticket is None else ticket
        if wanted > self.last_ticket:
            raise HandleClosed(f"ticket {wanted} was never given, the last is {self.last_ticket}")
        if wanted <= self.durable_ticket:
            return
        self._check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (wanted, id(waiter), waiter))
        await waiter

    def layout(self, items: Sequence[LayoutItem]) -> None:
        """The run of data ledgers from now on; told now, and at every opening."""
        self._layout, self._layout_changed = tuple(items), True
        self._work.set()

    async def reset(self, target: Position) -> int:
        """Seek. What is not confirmed is dropped and counts as decided. Returns the new
        generation.
        """
        self._check()
        self._drop_until(self.last_ticket)
        self._reset_target, self._generation = target, None
        self._work.set()
        while self._resetting:
            await self._wait_changed()
        assert self.handle
        return self.handle.generation

    async def close(self) -> None:
        """Wait until all is durable, then give the cursor back."""
        await self.wait_durable()
        handle = self.handle
        self.failed = self.failed or HandleClosed(f"{self.topic}|{self.subscription} was closed")
        await self.detach()
        if handle and handle.ended is None:
            # then the daemon gives it back by itself after a while
            with contextlib.suppress(SessionLost):
                await handle.close()

    # --- for the source ---

    def attach(self, session: SourceSession) -> None:
        """A new stream: open on it."""
        if self.failed is None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(session), name="resuming cursor"
            )

    async def detach(self) -> None:
        """The stream is gone, or is not wanted any more."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def fail(self, error: AckStreamError) -> None:
        """Ends the cursor for good: whoever waits gets the error."""
        self.failed = self.failed or error
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self.failed)
        self._changed.set()

    # --- inside ---

    async def _run(self, session: SourceSession) -> None:
        """Open and send on this stream until it ends, or until a refusal that no pause cures."""
        attempt = 0
        while self.failed is None:
            try:
                await self._open_and_send(session)
            except SessionLost:
                return  # the source brings a new stream, on which this one may be resumed
            except (KeeperTimeout, HandleClosed):  # no answer; or the keeper closed it by itself
                attempt += 1
            except CursorRefused as refusal:
                if not refusal.retry:
                    self.fail(refusal)
                attempt += 1
            except AckStreamError as final:
                self.fail(final)
            finally:
                self.handle = None
                self._changed.set()
            # the keeper ended it: what it holds from now on has to be asked for
            self._resume = None
            await asyncio.sleep(self._pause_s(attempt))

    async def _open_and_send(self, session: SourceSession) -> None:
        handle = session.open(
            self.topic,
            self.subscription,
            layout=self._layout,
            create=self._create,
            start=self._start,
            takeover=True,
            cursor_properties=self._cursor_properties,
            resume=self._resume,
        )
        state = await handle.wait_opened()
        if handle.resumed:
            self._resumed()
        else:
            self._recovered(state)
        handle.on_durable, handle.on_ended = self._confirmed, self._work.set
        self.handle = handle
        self._changed.set()
        while True:
            self._work.clear()
            if handle.ended:
                raise handle.ended
            if self._reset_target is not None:
                target = self._reset_target
                self._generation = await handle.reset(target)
                if self._resume is not None:
                    self._resume = replace(self._resume, generation=self._generation)
                if self._reset_target is target:
                    self._reset_target = None
                self._changed.set()
            elif self._layout_changed:
                self._layout_changed = False
                handle.layout(self._layout)
            elif self._sent_ticket < self.last_ticket:
                await self._send_next(handle)
            else:
                await self._work.wait()

    async def _send_next(self, handle: CursorHandle) -> None:
        ticket = self._sent_ticket + 1
        encoded, generation = self._unconfirmed[ticket]
        if generation is None:
            self._unconfirmed[ticket] = (encoded, handle.generation)
        seq = await handle.send_acks(encoded)
        if ticket in self._unconfirmed:  # else a reset dropped it meanwhile
            self._sent_ticket = ticket
            self._seqs.append((seq, ticket))

    def _resumed(self) -> None:
        """A new handle of the same opening: send again from the first that is not confirmed."""
        self.resumes += 1
        self._seqs.clear()
        self._layout_changed = False
        self._sent_ticket = self.durable_ticket

    def _recovered(self, state: CursorState) -> None:
        """A new handle: send again from the first that is not confirmed; acks from before
        somebody's reset are void.
        """
        self.state, self._resume, self.opens = state, state, self.opens + 1
        self._seqs.clear()
        self._layout_changed = False
        if self._reset_target is None:
            self._generation = state.generation
        while self._unconfirmed:
            ticket, (_, generation) = next(iter(self._unconfirmed.items()))
            if generation is None or generation >= state.generation:
                break
            self._drop_until(ticket)
        self._sent_ticket = self.durable_ticket
        if self.on_recovered:
            self.on_recovered(state)

    def _confirmed(self, seq: int) -> None:
        while self._seqs and self._seqs[0][0] <= seq:
            self._drop_until(self._seqs.popleft()[1])

    def _drop_until(self, ticket: int) -> None:
        """Durable or decided up to here."""
        for confirmed in range(self.durable_ticket + 1, ticket + 1):
            self.unconfirmed_bytes -= len(self._unconfirmed.pop(confirmed)[0])
        self.durable_ticket = max(self.durable_ticket, ticket)
        self._sent_ticket = max(self._sent_ticket, self.durable_ticket)
        while self._waiters and self._waiters[0][0] <= self.durable_ticket:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        if self.on_durable:
            self.on_durable(self.durable_ticket)
        self._changed.set()

    @property
    def _resetting(self) -> bool:
        return self._reset_target is not None

    def _check(self) -> None:
        if self.failed:
            raise self.failed

    async def _wait_changed(self) -> None:
        self._check()
        self._changed.clear()
        await self._changed.wait()
        self._check()

    def _pause_s(self, attempt: int) -> float:
        step_ms: int = min(
            self._settings.back_off_min_ms << min(attempt, 20), self._settings.back_off_max_ms
        )
        return step_ms / 1000 * self._rng.uniform(0.5, 1.0)
