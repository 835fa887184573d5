"""One cursor of a client: what was acked and is not confirmed yet, kept over connections.

Owns: the batch that gathers single acks, the bounded memory of unconfirmed batches (their seqs grow
over all connections), opening again. Does not own: the connection (`client`), one opening
(`handle`). Invariants: batches are sent in order of their seqs on every stream, from the first that
is not confirmed; a batch of an older generation is dropped and counts as decided, as the daemon
would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cursorkeeper_client import tasks
from cursorkeeper_client.ack_stream.columns import encode_acks
from cursorkeeper_client.ack_stream.handle import CursorHandle, encoded_within
from cursorkeeper_client.ack_stream.series import Series, T, told
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.errors import (
    AnswerTimeout,
    ConnectionLost,
    CursorClosed,
    CursorKeeperError,
    CursorRefused,
    HeldElsewhere,
    defect,
)
from cursorkeeper_client.gap import GAP_MS
from cursorkeeper_client.open_batch import (
    OpenBatch,
    batch_size_of,
    entries_of,
    entry_of,
    indexes_of,
    ledger_of,
    properties_of,
)
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.store import CursorStore
from cursorkeeper_client.values import U32, Acks, CursorState, LayoutItem, Position

GATHERED_BYTES = 64 << 10
"""Of single acks in one batch."""
LEAVE_MAX_S = 5.0
"""How long the daemon's answer to a close is waited for when something failed before it."""
NO_CONNECTION = "no connection"
UNCONFIRMED_BATCHES_MAX = 100_000
"""Batches of a cursor that are kept to be sent again: each takes memory beside its bytes."""


class Cursor(Series):
    """Made by `Client.cursor`, as `async with client.cursor(...) as cursor`: opened at its begin,
    and at its end closed, with everything durable that was acked.

    Acks are taken into memory, gathered, sent, and sent again after every loss of the connection
    until the daemon has confirmed them. Taking waits only while `unconfirmed_bytes_max` of the
    settings are not confirmed; who is cancelled meanwhile has acked nothing by that call. `seq`
    numbers what was handed over: a batch of `send`, or of acks that were gathered. `on_durable` is
    called with a seq, and `on_recovered` with a state, in the loop.
    """

    def __init__(
        self,
        topic: str,
        subscription: str,
        settings: ClientSettings,
        rng: random.Random,
        store: CursorStore,
        opening: dict[str, Any],
    ) -> None:
        super().__init__(f"{topic}|{subscription}", settings)
        self.topic, self.subscription = topic, subscription
        self._rng, self._store, self._opening = rng, store, opening
        self.on_recovered: Callable[[CursorState], None] | None = None
        self.on_ended: Callable[[Cursor], None] | None = None
        self.recovered: CursorState | None = None
        """What the daemon had when the cursor was opened; after a loss that could not be resumed,
        when it was opened again.
        """
        self.handle: CursorHandle | None = None
        """What the cursor is called on the present stream; None while it is not open there."""
        self.problem: CursorKeeperError | None = None
        """Why there is no connection, or no opening, yet."""
        self.opens = self.resumes = 0
        """How often the state was given, and how often a broken stream was taken up again without
        one.
        """
        self.unconfirmed_bytes = 0
        self._open = OpenBatch()
        self._is_due = False
        self._batch_bytes = min(GATHERED_BYTES, settings.message_bytes_max // 2)
        # seq -> batch, its generation
        self._unconfirmed: dict[int, tuple[bytes, int | None]] = {}
        self._generation: int | None = None
        self._resume: CursorState | None = None
        self._sent_seq = 0
        self._seqs: deque[tuple[int, int]] = deque()
        """A seq of the handle, and ours."""
        self._reset_target: Position | None = None
        self._layout_changed = False
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- acks ---

    async def ack(self, ledger: int, entry: int) -> None:
        """One message. Not durable yet: see `durable`."""
        ledger, entry = ledger_of(ledger), entry_of(entry)
        (await self._room(8)).add(ledger, entry)

    async def ack_many(self, ledger: int, entries: Iterable[int] | U32) -> None:
        """Messages of one data ledger, in any order. Who is cancelled may have acked some."""
        ledger, column = ledger_of(ledger), entries_of(entries)
        step = max(1, self._batch_bytes // 8)
        for at in range(0, column.size, step):
            piece = column[at : at + step]
            (await self._room(8 * piece.size)).add_column(ledger, piece)

    async def ack_cumulative(
        self, ledger: int, entry: int, properties: Mapping[str, int] | None = None
    ) -> None:
        """Every message up to this one. `properties` replaces those of the mark-delete; None leaves
        them.
        """
        position = Position(ledger_of(ledger), entry_of(entry))
        kept, size = None, 0
        if properties is not None:
            kept, size = properties_of(properties, self._settings.message_bytes_max // 2)
        (await self._room(16 + size)).move(position, kept)

    async def ack_batch_indexes(
        self, ledger: int, entry: int, indexes: Iterable[int], batch_size: int
    ) -> None:
        """Some messages of an entry that is a batch of `batch_size`, the first has the index 0."""
        ledger, entry = ledger_of(ledger), entry_of(entry)
        batch_size = batch_size_of(batch_size)
        acked = indexes_of(indexes, batch_size)
        room = await self._room(16 + batch_size // 8)
        room.add_indexes(ledger, entry, acked, batch_size)

    async def send(self, acks: Acks) -> int:
        """One batch of columns, for who has gathered it himself. Returns its seq."""
        encoded = encoded_within(acks, self._settings)
        await self._wait_until(
            lambda: (
                self._has_room(len(encoded))
                and self.last_seq - self.durable_seq < UNCONFIRMED_BATCHES_MAX
            )
        )
        self._seal()
        return self._keep(encoded)

    async def durable(self, seq: int | None = None, timeout_s: float | None = None) -> None:
        """Returns when everything that was acked before the call (or up to `seq`) is durable, over
        however many connections; or decided, because a reset came after it. Raises `AnswerTimeout`
        after `timeout_s` (None: `answer_timeout_s` of the settings; 0: unless it is durable
        already), and then goes on trying.
        """
        wanted = self._sent(seq)
        if seq is None and self._open.bytes:
            wanted += 1
            asyncio.get_running_loop().call_soon(self._set_due)  # with the others of this turn
        await self._wait_durable(wanted, timeout_s)

    # --- what is known of it ---

    @property
    def paused_for(self) -> str:
        """Why no more messages should be dispatched: the daemon's reason, or that there is no
        connection. Empty: nothing is wrong. Acks are taken all the same.
        """
        return NO_CONNECTION if self.handle is None else self.handle.paused_for

    async def opened(self, timeout_s: float | None = None) -> CursorState:
        """The state of the newest opening, as soon as there is one. Raises `AnswerTimeout`, with
        the last problem, after `timeout_s` (None: after `connect_timeout_s` without a connection,
        `open_timeout_s` with one).
        """
        settings = self._settings
        if timeout_s is None:
            connected = self._wait_until(lambda: self._task or self.recovered)
            await self._within(connected, settings.connect_timeout_s, "a connection")
            timeout_s = settings.open_timeout_s
        await self._within(self._wait_until(lambda: self.recovered), timeout_s, "its state")
        assert self.recovered
        return self.recovered

    async def state(self) -> CursorState:
        """What the daemon has of it now: what is acked, mark-delete, counts. Acks that it has taken
        and not confirmed yet are among it.
        """
        return await self._store.export(self.topic, self.subscription)

    # --- changes of it ---

    def layout(self, items: Iterable[LayoutItem]) -> None:
        """The run of data ledgers from now on; told now, and at every opening."""
        run = tuple(LayoutItem(*item) for item in items)
        self._opening["layout"], self._layout_changed = run, True
        self._work.set()

    async def reset(self, target: Position, timeout_s: float | None = None) -> int:
        """Seek: forgets all acks, and every message after `target` is un-acked. What is not
        confirmed is dropped and counts as decided. Returns the new generation. One that is no
        longer waited for still happens.
        """
        ledger, entry = target
        target = Position(ledger_of(ledger), -1 if entry == -1 else entry_of(entry))
        self._check()
        self._seal()
        self._drop_until(self.last_seq)
        self._reset_target, self._generation = target, None
        self._work.set()
        return await self._within(self._reset_done(), timeout_s, "the reset")

    async def close(self, timeout_s: float | None = None) -> None:
        """Waits until all is durable, then gives the cursor back, which ends it in any case."""
        began = asyncio.get_running_loop().time()
        try:
            await self.durable(timeout_s=timeout_s)
        except BaseException:
            await self.leave()
            raise
        # else the daemon gives it back by itself after a while
        with contextlib.suppress(ConnectionLost):
            if timeout_s is not None:
                timeout_s = max(0.0, timeout_s - (asyncio.get_running_loop().time() - began))
            await self._leave("closed", CursorHandle.close, timeout_s)

    async def delete(self, timeout_s: float | None = None) -> None:
        """Deletes the cursor, and what is not confirmed with it. After an error it may or may not
        be there: `Client.delete` finds out.
        """
        opened = self._wait_until(lambda: self.handle)
        await self._within(opened, timeout_s, "a connection")
        await self._leave("deleted", CursorHandle.delete, timeout_s)

    async def leave(self) -> None:
        """Ends it at once: what is not confirmed stays so; whoever waits gets `CursorClosed`."""
        with contextlib.suppress(CursorKeeperError, TimeoutError):
            async with asyncio.timeout(LEAVE_MAX_S):
                await self._leave("closed", CursorHandle.close)

    async def __aenter__(self) -> Cursor:
        try:
            await self.opened()
        except BaseException:
            await self.leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.leave() if kind else self.close())

    # --- for the client ---

    def attach(self, session: SourceSession) -> None:
        """A new stream: open on it."""
        if self.ended is None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(session), name="cursor")
            self._changed.set()

    async def detach(self) -> None:
        """The stream is gone, or is not wanted any more."""
        task, self._task = self._task, None
        if task:
            await tasks.end(task)

    def fail(self, error: CursorKeeperError) -> None:
        """Ends the cursor for good: whoever waits gets the error."""
        self._end(error)
        if self.on_ended:
            self.on_ended(self)

    # --- inside ---

    async def _within(self, waiting: Awaitable[T], timeout_s: float | None, what: str) -> T:
        try:
            return await super()._within(waiting, timeout_s, what)
        except AnswerTimeout as late:
            if self.problem is not None:
                why, remedy = self.problem.message, self.problem.remedy
            elif self.handle is not None and self.handle.paused_for:
                why, remedy = f"the daemon is paused: {self.handle.paused_for}", ""
            else:
                raise
            raise AnswerTimeout(f"{late.message}: {why}", remedy) from None

    async def _room(self, size: int) -> OpenBatch:
        """The batch that is open, with room for so many bytes, which are counted already."""
        while True:
            self._check()
            if self._open.bytes and self._open.bytes + size > self._batch_bytes:
                self._seal()
                await asyncio.sleep(0)  # who acks without a pause lets the others run, too
            elif self._has_room(size):
                break
            else:
                await self._wait_until(lambda: self._has_room(size))
        if not self._open.bytes:
            # The first ack after a pause leaves with those of its turn, others within the gap.
            idle = self.durable_seq == self.last_seq
            asyncio.get_running_loop().call_later(0 if idle else GAP_MS / 1000, self._set_due)
        self._open.bytes += size
        return self._open

    def _has_room(self, size: int) -> bool:
        taken = self.unconfirmed_bytes + self._open.bytes + size
        return taken <= self._settings.unconfirmed_bytes_max

    def _set_due(self) -> None:
        self._is_due = True
        self._work.set()

    def _seal(self) -> None:
        """What was gathered becomes a batch."""
        batch, self._open, self._is_due = self._open, OpenBatch(), False
        if batch.bytes:
            self._keep(encode_acks(batch.acks()))
            self._changed.set()  # encoded it takes less room

    def _keep(self, encoded: bytes) -> int:
        self.last_seq += 1
        self._unconfirmed[self.last_seq] = (encoded, self._generation)
        self.unconfirmed_bytes += len(encoded)
        self._work.set()
        return self.last_seq

    async def _run(self, session: SourceSession) -> None:
        """Open and send on this stream until it ends, or until a refusal that no pause cures."""
        back_off = self._settings.back_off(self._rng)
        while self.ended is None:
            try:
                await self._open_and_send(session)
            except ConnectionLost:
                return  # the client brings a new stream, on which this one may be resumed
            except (AnswerTimeout, CursorClosed) as late:  # or the daemon closed it by itself
                self.problem = late
            except CursorRefused as refusal:
                self.problem = refusal
                held = isinstance(refusal, HeldElsewhere) and not self._opening["takeover"]
                if held or not refusal.retry:
                    self.fail(refusal)
            except CursorKeeperError as final:
                self.fail(final)
            except Exception as raised:
                self.fail(defect(raised, "report it: a defect of this package", f"{self.name}: "))
            finally:
                self.handle = None
                self._changed.set()
            # the daemon ended it: what it holds from now on has to be asked for
            self._resume = None
            await asyncio.sleep(back_off.next_s())

    async def _open_and_send(self, session: SourceSession) -> None:
        self._layout_changed = False  # what is told from now on is told behind this opening
        handle = session.open(self.topic, self.subscription, resume=self._resume, **self._opening)
        try:
            state = await handle.opened()
        except BaseException:
            handle.abandon()
            raise
        self._opening["takeover"] = True  # what is lost from now on may be ours
        self._opened(state, resumed=handle.resumed)
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
                handle.layout(self._opening["layout"])
            elif self._sent_seq < self.last_seq:
                await self._send_next(handle)
            elif self._is_due:
                self._seal()
            else:
                await self._work.wait()

    async def _reset_done(self) -> int:
        await self._wait_until(lambda: self._reset_target is None)
        assert self._generation is not None
        return self._generation

    async def _send_next(self, handle: CursorHandle) -> None:
        seq = self._sent_seq + 1
        encoded, generation = self._unconfirmed[seq]
        if generation is None:
            self._unconfirmed[seq] = (encoded, handle.generation)
        sent = await handle.send(encoded)
        if seq in self._unconfirmed:  # else a reset dropped it meanwhile
            self._sent_seq = seq
            self._seqs.append((sent, seq))

    def _opened(self, state: CursorState, *, resumed: bool) -> None:
        """A new handle: send again from the first that is not confirmed. If it does not go on
        where an earlier one broke off, acks from before somebody's reset are void.
        """
        self._seqs.clear()
        self.problem = None
        if resumed:
            self.resumes += 1
        else:
            self._seal()  # what was gathered is of the generation that was
            self.recovered, self._resume, self.opens = state, state, self.opens + 1
            if self._reset_target is None:
                self._generation = state.generation
            while self._unconfirmed:
                seq, (_, generation) = next(iter(self._unconfirmed.items()))
                if generation is None or generation >= state.generation:
                    break
                self._drop_until(seq)
        self._sent_seq = self.durable_seq
        if not resumed:
            told(self.on_recovered, state)

    def _confirmed(self, seq: int) -> None:
        while self._seqs and self._seqs[0][0] <= seq:
            self._drop_until(self._seqs.popleft()[1])

    def _drop_until(self, seq: int) -> None:
        """Durable or decided up to here."""
        for confirmed in range(self.durable_seq + 1, seq + 1):
            self.unconfirmed_bytes -= len(self._unconfirmed.pop(confirmed)[0])
        self._confirm(seq)
        self._sent_seq = max(self._sent_seq, self.durable_seq)

    async def _leave(
        self,
        done: str,
        end: Callable[[CursorHandle], Awaitable[None]],
        timeout_s: float | None = None,
    ) -> None:
        handle = self.handle
        self.fail(CursorClosed(f"{self.name} was {done}"))
        await self.detach()
        if handle and handle.ended is None:
            await self._within(end(handle), timeout_s, f"the answer that it was {done}")
        elif end is CursorHandle.delete:
            raise (handle and handle.ended) or ConnectionLost(f"{self.name} was not deleted")
