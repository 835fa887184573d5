"""The fake gateway: a process with write handles, and the client that talks to it, in one loop.

Owns: the calls of the port on a `FakeBookKeeper`, with their delays and faults; the window over all
ledgers; restarts. Does not own: ledgers (`fake_ledger`), appends on their way (`fake_handle`).
Invariants: those of the gateway: a write handle lives in the process that created the ledger and on
the stream that first appended; any other gets ROLL, NOT_DONE. A reader changes nothing, a foreign
ledger is given to nobody, and ours are ended and deleted for their own deployment only (`Access`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from cursorkeeper.bookkeeper.errors import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    Outcome,
)
from cursorkeeper.bookkeeper.port import (
    TO_LAST_CONFIRMED,
    FencedEnd,
    GatewayInfo,
    LedgerEnd,
    LedgerInfo,
    LedgerSpec,
    LedgerState,
    ReadChunk,
    SeenEnd,
)
from cursorkeeper.bookkeeper.settings import ROLES
from daemon.tests.fakes.bookkeeper.access import Access
from daemon.tests.fakes.bookkeeper.faults import Fault
from daemon.tests.fakes.bookkeeper.handle import FakeHandle
from daemon.tests.fakes.bookkeeper.ledger import FakeLedger
from daemon.tests.fakes.bookkeeper.operation import Operation, connection_lost

if TYPE_CHECKING:
    from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper

_READER_MAY = frozenset({Operation.READ, Operation.METADATA, Operation.LIST, Operation.DESCRIBE})
_CHUNK_BYTES = 1 << 20
FENCED_ENTRIES_MAX = 64

T = TypeVar("T")


class FakeProcess:
    """A gateway process: its instance name and its write handles."""

    def __init__(self, store: FakeBookKeeper) -> None:
        self.store = store
        self.instance = store.new_instance()
        self.up = True
        self.handles: dict[int, FakeHandle] = {}
        store.processes.append(self)

    def kill(self) -> None:
        """kill -9: every handle is gone, nothing in flight is answered."""
        self.up = False
        for ledger, handle in self.handles.items():
            handle.cut(_lost(Operation.APPEND, ledger))
        self.handles.clear()

    def start(self) -> None:
        """Up again, as a new process."""
        self.up, self.instance = True, self.store.new_instance()


class FakeGateway:
    """Implements `LedgerStore`. `restart`, `kill`, `come_up` and `break_stream` are for tests."""

    def __init__(
        self,
        store: FakeBookKeeper,
        process: FakeProcess,
        *,
        role: str,
        entries_max: int,
        bytes_max: int,
        append_timeout_s: float,
    ) -> None:
        self.store, self.process, self.role = store, process, role
        self._access = Access(role)
        self._entries_max, self._bytes_max, self._append_timeout_s = (
            entries_max,
            bytes_max,
            append_timeout_s,
        )
        self.entries = self.bytes = 0
        self._stream = object()
        self._closed = False

    # --- for tests ---

    def kill(self) -> None:
        """The gateway process dies and stays away until `come_up`."""
        self.process.kill()

    def come_up(self) -> None:
        """A new gateway process at the same address."""
        self.process.start()

    def restart(self) -> None:
        """The gateway process dies and is back at once, without its handles."""
        self.process.kill()
        self.process.start()

    def break_stream(self) -> None:
        """Only this client's append stream breaks: its handles die, the process lives and may close
        their ledgers.
        """
        for ledger, handle in list(self.process.handles.items()):
            if handle.stream is self._stream:
                handle.cut(_lost(Operation.APPEND, ledger))
                del self.process.handles[ledger]
                if not handle.ledger.fenced and self.store.rng.random() < 0.5:
                    handle.ledger.close_at(handle.ledger.acked)
        self._stream = object()

    # --- the port ---

    async def start(self) -> None:
        await self.describe()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.break_stream()

    def act_for(self, deployment: str) -> None:
        self._access = Access(self.role, deployment)

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        def do() -> int:
            self._access.may_create(custom_metadata)
            self.store.creates_asked += 1
            if not self.store.can_create(spec):
                text = f"{spec.ensemble} needed, {self.store.bookies_up} writable"
                raise GatewayRetry(
                    "NOT_ENOUGH_BOOKIES", Outcome.NOT_DONE, bookkeeper_code=-6, message=text
                )
            made = self.store.new_ledger(spec, custom_metadata)
            self.process.handles[made.ledger] = FakeHandle(self.store, made, self.role)
            return made.ledger

        return await self._call(Operation.CREATE, -1, do)

    def append(self, ledger: int, entry: int, payload: bytes) -> asyncio.Future[None]:
        size = len(payload)
        if self.entries >= self._entries_max or (
            self.bytes + size > self._bytes_max and self.entries > 0
        ):
            raise GatewayRetry("WINDOW_FULL", Outcome.NOT_DONE, ledger=ledger)
        if problem := self._append_problem(ledger):
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(problem)
            return failed
        handle = self.process.handles[ledger]
        handle.stream = self._stream
        self.entries += 1
        self.bytes += size

        def answered(_: asyncio.Future[None]) -> None:
            self.entries -= 1
            self.bytes -= size

        return handle.append(entry, payload, self._append_timeout_s, answered)

    async def read(
        self,
        ledger: int,
        first: int,
        last: int = TO_LAST_CONFIRMED,
        *,
        max_bytes: int = 0,
        unconfirmed: bool = False,
    ) -> AsyncIterator[ReadChunk]:
        if first < 0 or (last != TO_LAST_CONFIRMED and last < first):
            raise GatewayRefused(
                "BAD_REQUEST",
                Outcome.NOT_DONE,
                ledger=ledger,
                message=f"the range {first} to {last} is empty or negative",
            )
        found = await self._call(Operation.READ, ledger, lambda: self._readable(ledger))
        confirmed, closed = found.visible_end, found.state is LedgerState.CLOSED
        stored = len(found.entries) - 1 if unconfirmed else confirmed
        upto = stored if last == TO_LAST_CONFIRMED else min(last, stored)
        stopped_by = ""
        limit, at, told = max_bytes or _CHUNK_BYTES, first, False
        while at <= upto or not told:
            self._check_up(Operation.READ, ledger)
            if not self.store.can_recover(found):
                raise GatewayRetry(
                    "READ_FAILED",
                    Outcome.NOT_DONE,
                    ledger=ledger,
                    bookkeeper_code=-8,
                    message="too few bookies are up",
                )
            payloads: list[bytes] = []
            size = 0
            while at + len(payloads) <= upto:
                try:
                    payload = found.payload(at + len(payloads))
                except GatewayError as e:
                    # beyond it a failure ends the read and not the call
                    if at + len(payloads) > confirmed:
                        stopped_by, upto = e.reason, at + len(payloads) - 1
                        break
                    if payloads:  # what is before the damage is still given
                        break
                    raise
                if payloads and size + len(payload) > limit:
                    break
                payloads.append(payload)
                size += len(payload)
            yield ReadChunk(at, tuple(payloads), confirmed, closed, stopped_by)
            at, told = at + len(payloads), True
            await asyncio.sleep(self.store.faults.delay_s(self.store.rng))

    async def fence(self, ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        def do() -> FencedEnd:
            found = self.store.ledger(ledger)
            self._access.may_fence(ledger, found.custom_metadata)
            if found.state is not LedgerState.CLOSED and not self.store.can_recover(found):
                found.begin_recovery()
                raise GatewayRetry(
                    "LEDGER_RECOVERY", Outcome.UNKNOWN, ledger=ledger, bookkeeper_code=-10
                )
            end = found.recover(self.store.rng)
            return FencedEnd(*end, self._few_entries(found, entries_bytes_max))

        def half_done() -> None:
            if ledger in self.store.ledgers and self.store.rng.random() < 0.5:
                self.store.ledgers[ledger].begin_recovery()

        return await self._call(Operation.FENCE, ledger, do, half_done)

    def _few_entries(self, found: FakeLedger, bytes_max: int) -> tuple[bytes, ...]:
        """As the real one it may always answer without them."""
        few = len(found.entries) <= FENCED_ENTRIES_MAX and found.end.length <= bytes_max
        chance = self.store.faults.fence_without_entries
        if not few or (chance and self.store.rng.random() < chance):
            return ()
        try:
            return tuple(map(found.payload, range(len(found.entries))))
        except GatewayError:
            return ()

    async def close_ledger(self, ledger: int) -> LedgerEnd:
        await self._call(Operation.CLOSE, ledger, lambda: None)
        handle = self.process.handles.get(ledger)
        if handle is None or handle.dead:
            raise GatewayRoll("NO_HANDLE", Outcome.NOT_DONE, ledger=ledger)
        self._access.may_end(ledger, handle.ledger.custom_metadata)
        await handle.wait_drained()
        self._check_up(Operation.CLOSE, ledger)
        if handle.dead:
            raise GatewayRoll("LEDGER_CLOSED", Outcome.UNKNOWN, ledger=ledger, bookkeeper_code=-11)
        handle.dead = True
        self.process.handles.pop(ledger, None)
        found = self.store.ledger(ledger)
        if not found.fenced:
            found.close_at(found.acked)
        # a recovery is under way and will decide the end
        elif found.state is not LedgerState.CLOSED:
            raise GatewayFenced(
                "METADATA_CHANGED", Outcome.UNKNOWN, ledger=ledger, bookkeeper_code=-17
            )
        return found.end

    async def delete(self, ledger: int) -> None:
        def do() -> None:
            found = self.store.ledgers.get(ledger)
            if found:
                self._access.may_end(ledger, found.custom_metadata)
            if handle := self.process.handles.pop(ledger, None):
                handle.cut(_lost(Operation.APPEND, ledger))
            self.store.ledgers.pop(ledger, None)

        await self._call(Operation.DELETE, ledger, do)

    async def metadata(self, ledger: int) -> LedgerInfo:
        return await self._call(Operation.METADATA, ledger, lambda: self._readable(ledger).info())

    async def end_of(self, ledger: int) -> SeenEnd:
        def do() -> SeenEnd:
            found = self.store.ledger(ledger)
            self._access.may_see_the_end(ledger, found.custom_metadata)
            return SeenEnd(found.state is LedgerState.CLOSED, found.visible_end)

        return await self._call(Operation.READ, ledger, do)

    async def list(self, custom_metadata: Mapping[str, bytes]) -> AsyncIterator[LedgerInfo]:
        wanted = custom_metadata.items()
        for ledger in await self._call(Operation.LIST, -1, lambda: list(self.store.ledgers)):
            found = self.store.ledgers.get(ledger)  # deleted meanwhile: not listed
            if (
                found is not None
                and wanted <= found.custom_metadata.items()
                and self._access.sees(found.custom_metadata)
            ):
                yield found.info()

    async def describe(self) -> GatewayInfo:
        def do() -> GatewayInfo:
            up, limit = self.store.bookies_up, self.store.entry_bytes_max
            return GatewayInfo(
                self.process.instance,
                "fake",
                "fake",
                limit,
                max(4 << 20, limit + (64 << 10)),
                up,
                "memory:",
                ROLES,
                self.role,
            )

        return await self._call(Operation.DESCRIBE, -1, do)

    # --- how a call goes, or goes wrong ---

    async def _call(
        self,
        operation: Operation,
        ledger: int,
        do: Callable[[], T],
        half: Callable[[], None] = lambda: None,
    ) -> T:
        self._check_up(operation, ledger)
        if self.role == "reader" and operation not in _READER_MAY:
            raise GatewayRefused("READERS_MAY_NOT", Outcome.NOT_DONE, ledger=ledger)
        process, instance = self.process, self.process.instance
        planned = self.store.faults.take(operation, self.store.rng)
        await asyncio.sleep(self.store.faults.delay_s(self.store.rng))
        if planned and planned.fault is Fault.REFUSE:
            assert planned.error
            raise planned.error
        if (
            (planned and planned.fault is Fault.LOST_BEFORE)
            or process.instance != instance
            or not process.up
        ):
            half()
            raise connection_lost(operation, ledger=ledger)
        result = do()
        await asyncio.sleep(self.store.faults.delay_s(self.store.rng))
        if (
            (planned and planned.fault is Fault.LOST_AFTER)
            or process.instance != instance
            or not process.up
        ):
            raise connection_lost(operation, ledger=ledger)
        return result

    def _readable(self, ledger: int) -> FakeLedger:
        found = self.store.ledger(ledger)
        self._access.may_read(ledger, found.custom_metadata)
        return found

    def _check_up(self, operation: Operation, ledger: int) -> None:
        if self._closed:
            raise GatewayRefused("CLIENT_CLOSED", Outcome.NOT_DONE, ledger=ledger)
        if not self.process.up:
            raise connection_lost(operation, ledger=ledger)

    def _append_problem(self, ledger: int) -> GatewayError | None:
        if self._closed:
            return GatewayRefused("CLIENT_CLOSED", Outcome.NOT_DONE, ledger=ledger)
        if not self.process.up:
            return connection_lost(Operation.APPEND, ledger=ledger)
        if self.role == "reader":
            return GatewayRefused("READERS_MAY_NOT", Outcome.NOT_DONE, ledger=ledger)
        handle = self.process.handles.get(ledger)
        may = handle is not None and self._access.may_append(
            handle.creator, handle.ledger.custom_metadata
        )
        if handle is None or not may or handle.stream not in (None, self._stream):
            return GatewayRoll("NO_HANDLE", Outcome.NOT_DONE, ledger=ledger)
        return None


def _lost(operation: Operation, ledger: int) -> Callable[[], GatewayError]:
    return lambda: connection_lost(operation, ledger=ledger)
