"""Machines on a bench: the test plays ZooKeeper and BookKeeper, and decides which answer is lost,
late, or never sent.

One `Bench` holds one footer and the ledgers; any number of `Owner`s, each around a pure machine,
work on it. An owner's effects wait in `todo` until the test does them (`go`), takes one out of the
row (`hold`), applies it without telling (`applied_but_unknown`), or loses it (`unknown`) to let it
arrive later (`arrives`). Bytes are real: records, footers and the chain reader are those of the
daemon. `ask` is the checker's question at the end of every story: nothing confirmed is lost,
nothing is acked that was never sent, and the next owner can work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cursorkeeper.bookkeeper.errors import NO_SUCH_LEDGER_REASON, NoSuchLedger, Outcome
from cursorkeeper.bookkeeper.port import Digest, LedgerInfo, LedgerState, ReadChunk
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.errors import ReplacedError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import State
from cursorkeeper.core.turn import earliest
from cursorkeeper.core.values import RawEntry
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.runtime.chain import ChainReader
from cursorkeeper.runtime.ledgers import custom_metadata
from daemon.tests.support.world import NAME, acks

E = TypeVar("E")
DATA = 10
"""The data ledger of most stories."""


@dataclass
class BenchLedger:
    """What the bookies hold. Entries beyond `acked` are the tail: recovery may keep them or not."""

    epoch: int
    metadata: dict[str, bytes] = field(default_factory=dict)
    entries: list[bytes] = field(default_factory=list)
    acked: int = -1
    closed: bool = False
    broken: bool = False
    """An append was not answered: its handle takes no more."""

    def recover(self, *, keep_tail: bool) -> int:
        if not self.closed:
            self.closed = True
            if not keep_tail:
                del self.entries[self.acked + 1 :]
        return len(self.entries) - 1


class _Reads:
    """The calls of the ledger port that the chain reader makes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def metadata(self, ledger: int) -> LedgerInfo:
        found = self._bench.ledgers.get(ledger)
        if found is None:
            raise NoSuchLedger(
                NO_SUCH_LEDGER_REASON, Outcome.NOT_DONE, ledger=ledger, bookkeeper_code=-25
            )
        return LedgerInfo(
            ledger,
            1,
            1,
            1,
            Digest.CRC32C,
            LedgerState.CLOSED,
            len(found.entries) - 1,
            0,
            0,
            found.metadata,
        )

    async def read(
        self,
        ledger: int,
        first: int,
        last: int = -1,
        *,
        max_bytes: int = 0,
        unconfirmed: bool = False,
    ) -> AsyncIterator[ReadChunk]:
        found = self._bench.ledgers.get(ledger)
        if found is None:
            raise NoSuchLedger(
                NO_SUCH_LEDGER_REASON, Outcome.NOT_DONE, ledger=ledger, bookkeeper_code=-25
            )
        # a ledger that nobody closed shows all but its last acknowledged entry
        end = len(found.entries) - 1 if found.closed else found.acked - 1
        spoilt = self._bench.damaged
        payloads = [_flip(p) if (ledger, at) in spoilt else p for at, p in enumerate(found.entries)]
        yield ReadChunk(first, tuple(payloads[first : min(last, end) + 1]), end, found.closed)


def _flip(payload: bytes) -> bytes:
    at = len(payload) - 1
    return payload[:at] + bytes([payload[at] ^ 0xFF])


class Bench:
    """ZooKeeper's one znode and BookKeeper's ledgers, and what the sources know."""

    def __init__(
        self, limits: Limits | None = None, state_writer: StateWriter | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.state_writer = state_writer
        """Of owners that are made from now on; None: the native form."""
        self.now = 0.0
        self.znode: tuple[bytes, int] | None = None
        self.ledgers: dict[int, BenchLedger] = {}
        self.deleted: set[int] = set()
        self.damaged: set[tuple[int, int]] = set()
        self.keep_tail = True
        self.sent: set[tuple[int, int]] = set()
        self.confirmed: set[tuple[int, int]] = set()
        self._next_ledger = 100

    @property
    def footer(self) -> Footer:
        assert self.znode is not None
        return footer_bytes.decode(self.znode[0], NAME)

    @property
    def chain(self) -> list[int]:
        return [c.ledger for c in self.footer.chain]

    def compare_and_set(self, footer: Footer, expected: int) -> int | None:
        """The new version; None: BadVersion (or NodeExists)."""
        version = self.znode[1] if self.znode else -1
        if version != expected:
            return None
        self.znode = (footer_bytes.encode(footer), version + 1)
        return version + 1

    def new_ledger(self, epoch: int, metadata: dict[str, bytes] | None = None) -> int:
        self._next_ledger += 1
        self.ledgers[self._next_ledger] = BenchLedger(epoch, metadata or {})
        return self._next_ledger

    def owner(self, nonce: str, **limits: Any) -> Owner:
        return Owner(self, nonce, replace(self.limits, **limits))

    def opened(self, nonce: str, **limits: Any) -> Owner:
        """An owner that is READY and has a source."""
        return self.owner(nonce, **limits).open()

    def new_generation(self) -> None:
        """A reset was confirmed: acks of before are gone, as asked."""
        self.sent.clear()
        self.confirmed.clear()

    def ask(self, *, beyond: tuple[tuple[int, int], ...] = ()) -> AckState:
        """A new owner comes. Nothing confirmed is lost, there is no phantom, and it can work.

        `beyond`: entries that count as acked without having been sent (below mark-delete, say).
        """
        checker = self.opened("checker")
        assert checker.state is State.READY, (checker.state, checker.refused)
        state = checker.machine.acks
        lost = {e for e in self.confirmed if not state.is_acked(*e)}
        assert not lost, f"confirmed and lost: {sorted(lost)}"
        found = {(ledger, e) for ledger in state.ledgers for e in state.acked_of(ledger)}
        phantoms = found - self.sent - set(beyond)
        assert not phantoms, f"acked by nobody: {sorted(phantoms)}"
        seq = checker.ack(999_999, ledger=DATA if state.layout.last is None else state.layout.last)
        checker.go()
        assert checker.durable == seq, "a stall: the next ack is never confirmed"
        return state


class Owner:
    """One machine with its source. Effects wait in `todo`."""

    def __init__(self, bench: Bench, nonce: str, limits: Limits) -> None:
        self.bench = bench
        self.machine = CursorMachine(NAME, limits, nonce, state_writer=bench.state_writer)
        self.todo: deque[fx.Effect] = deque()
        self.log: list[fx.Effect] = []
        """Every effect there ever was, in order."""
        self.attach = 1
        self.seq = 0
        self.durable = 0
        self.streamed = 0
        self.created = 0
        self.continued = 0
        self.proved: list[int] = []
        self.unproved: list[fx.Unproved] = []
        self.ended: fx.Ended | None = None
        self.truncated_acks = 0
        """As of the newest confirmation."""
        self.reports: list[fx.Report] = []
        self.refused: fx.Refuse | None = None
        self.refused_handle: fx.RefuseHandle | None = None
        self.resets: list[fx.ResetDone] = []
        self._acks_of: dict[tuple[int, int], set[tuple[int, int]]] = {}

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def wake_at_s(self) -> float | None:
        """When the machine wants a Tick at the latest, given room."""
        return earliest(self.machine.timer_at_s, self.machine.append_at_s)

    # ---- the source

    def open(self, **request: Any) -> Owner:
        """Open, attach, and go on until READY (or whatever it comes to)."""
        self.start(**request)
        self.go()
        return self

    def start(self, **request: Any) -> Owner:
        self.step(ev.Open(**{"takeover": True, **request}))
        self.step(ev.Attach(self.attach, request.get("layout", ())))
        return self

    def ack(self, *entries: int, ledger: int = DATA, mark_delete: Position | None = None) -> int:
        return self.send(acks(ledger, *entries), mark_delete=mark_delete)

    def send(self, *ledgers: LedgerColumns, mark_delete: Position | None = None) -> int:
        self.seq += 1
        named = {(c.ledger, int(e)) for c in ledgers for e in c.entries}
        self._acks_of[self.attach, self.seq] = named
        self.bench.sent |= named
        batch = AckBatch(
            self.seq,
            self.machine.generation,
            mark_delete,
            ledgers,
            None,
            100,
            count_acks(ledgers, mark_delete),
        )
        self.step(ev.Acks(self.attach, batch))
        return self.seq

    def reset(self, target: Position) -> int:
        self.seq += 1
        self.step(ev.Reset(self.attach, self.seq, self.machine.generation, target))
        return self.seq

    def snapshot(self) -> None:
        """Begins one, although the cost rule wants none."""
        self.machine.snapshots.start("test")
        self.step(ev.Tick(0))

    # ---- effects

    def step(self, event: ev.Event) -> None:
        for effect in self.machine.step(event, self.bench.now):
            self.log.append(effect)
            self._note(effect)

    def _note(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Confirm():
                if effect.attach == self.attach:
                    assert effect.seq >= self.durable, "confirmations are cumulative"
                    self.durable = effect.seq
                    self.truncated_acks = effect.truncated_acks
                for key in [
                    k for k in self._acks_of if k[0] == effect.attach and k[1] <= effect.seq
                ]:
                    self.bench.confirmed |= self._acks_of.pop(key)
            case fx.StreamState():
                self.streamed += 1
                self.created += effect.created
            case fx.Refuse():
                self.refused = effect
            case fx.RefuseHandle():
                self.refused_handle = effect
            case fx.ResetDone():
                self.resets.append(effect)
            case fx.Report():
                self.reports.append(effect)
            case fx.ContinueHandle():
                self.continued += 1
            case fx.Proved():
                self.proved.append(effect.question)
            case fx.Unproved():
                self.unproved.append(effect)
            case fx.Ended():
                self.ended = effect
            case fx.Pause() | fx.Resume() | fx.KeepFooter():
                pass
            case _:
                self.todo.append(effect)

    def go(self, until: Callable[[], bool] = lambda: False, *, horizon_s: float = 30.0) -> None:
        """Do everything that is wanted, let time pass where the machine waits for it, until nothing
        is left.
        """
        end = self.bench.now + horizon_s
        for _ in range(20_000):
            if until():
                return
            if self.todo:
                self.do(self.todo.popleft())
                continue
            at = self.wake_at_s
            if at is None or at > end or self.machine.is_ended:
                return
            self.bench.now = max(self.bench.now, at)
            self.step(ev.Tick(64))
        raise AssertionError(f"the machine never comes to rest: {list(self.log)[-6:]}")

    def go_a_little(self) -> None:
        """Until something more is wanted."""
        seen = len(self.log)
        self.go(lambda: len(self.log) > seen)

    def hold(self, kind: type[E]) -> E:
        """Go on until an effect of this kind is wanted; take it out of the row undone."""
        self.go(lambda: any(isinstance(e, kind) for e in self.todo))
        for at, effect in enumerate(self.todo):
            if isinstance(effect, kind):
                del self.todo[at]
                return effect
        raise AssertionError(f"no {kind.__name__} is wanted; todo: {list(self.todo)}")

    def did(self, kind: type[E]) -> list[E]:
        """Every effect of this kind so far, done or not."""
        return [e for e in self.log if isinstance(e, kind)]

    def deletions(self) -> set[int]:
        return {ledger for effect in self.did(fx.DeleteLedgers) for ledger in effect.ledgers}

    def bodies(self, ledger: int) -> list[str]:
        """What was sent to a ledger: OpenRecord, Delta, Segment, SnapshotEnd, RawEntry."""
        sent = [e.record for e in self.did(fx.Append) if e.ledger == ledger]
        return [type(r if isinstance(r, RawEntry) else r.body).__name__ for r in sent]

    # ---- what the test decides about one effect

    def do(self, effect: fx.Effect) -> None:
        """It happens, and the answer comes."""
        answer = self.arrives(effect)
        if answer is not None:
            self.step(answer)

    def applied_but_unknown(self, effect: fx.WriteFooter | fx.Append) -> None:
        """It happens; the answer is lost."""
        self.arrives(effect, acknowledged=False)
        self.unknown(effect)

    def unknown(self, effect: fx.WriteFooter | fx.Append) -> None:
        """No answer. The request itself may still arrive: `arrives`."""
        if isinstance(effect, fx.WriteFooter):
            self.step(ev.FooterWriteUnknown(effect.token, "connection lost"))
        else:
            if effect.ledger in self.bench.ledgers:
                self.bench.ledgers[effect.ledger].broken = True
            self.step(ev.AppendFailed(effect.ledger, effect.entry, "connection lost"))

    def handle_lost(self, effect: fx.Append) -> None:
        """The gateway is gone, and with it the handles of all ledgers; what was sent to it may
        still arrive.
        """
        if effect.ledger in self.bench.ledgers:
            self.bench.ledgers[effect.ledger].broken = True
        self.step(ev.AppendFailed(effect.ledger, effect.entry, "gateway lost", is_handle_lost=True))

    def arrives(self, effect: fx.Effect, *, acknowledged: bool = True) -> ev.Event | None:
        """It happens in ZooKeeper or BookKeeper; returns the answer without giving it."""
        bench = self.bench
        match effect:
            case fx.WriteFooter():
                version = bench.compare_and_set(effect.footer, effect.expected_version)
                return (
                    ev.FooterBadVersion(effect.token)
                    if version is None
                    else ev.FooterWritten(effect.token, version)
                )
            case fx.ReadFooter():
                if bench.znode is None:
                    return ev.FooterRead(effect.token, None, -1)
                try:
                    found = footer_bytes.decode(bench.znode[0], NAME, bench.znode[1])
                except ReplacedError as e:
                    return ev.FooterUnreadable(effect.token, str(e), False, True)
                return ev.FooterRead(effect.token, found, bench.znode[1])
            case fx.CheckFooter():
                version = bench.znode[1] if bench.znode else -1
                return (
                    ev.FooterChecked(effect.token)
                    if version == effect.version
                    else ev.FooterCheckFailed(effect.token)
                )
            case fx.AskInlineTurn():
                return ev.InlineTurn(effect.token)
            case fx.CreateLedger():
                made = custom_metadata(
                    NAME,
                    effect.epoch,
                    effect.generation,
                    "w",
                    "0" * 32,
                    form=effect.format,
                    more=effect.metadata,
                )
                return ev.LedgerCreated(effect.token, bench.new_ledger(effect.epoch, made))
            case fx.FenceLedger() | fx.CloseLedger():
                found = bench.ledgers.get(effect.ledger)
                if found is None:
                    return ev.LedgerEndFailed(effect.token, effect.ledger, True, "no such ledger")
                return ev.LedgerEnded(
                    effect.token, effect.ledger, found.recover(keep_tail=bench.keep_tail)
                )
            case fx.Append():
                return self._append(effect, acknowledged)
            case fx.DeleteLedgers():
                for ledger in effect.ledgers:
                    bench.ledgers.pop(ledger, None)
                    bench.deleted.add(ledger)
                return None
            case fx.ReadChain():
                reader = ChainReader(NAME, _Reads(bench))  # type: ignore[arg-type]
                return asyncio.run(reader.read(effect.token, effect.footer))
        raise AssertionError(f"nobody does {effect}")

    def _append(self, effect: fx.Append, acknowledged: bool) -> ev.Event:
        found = self.bench.ledgers.get(effect.ledger)
        if found is None or found.closed or found.broken:
            return ev.AppendFailed(effect.ledger, effect.entry, "fenced")
        assert effect.entry == len(found.entries), (
            "entries are numbered 0, 1, ... and never repeated"
        )
        raw = effect.record.payload if isinstance(effect.record, RawEntry) else None
        data = record.encode(effect.record) if raw is None else raw  # type: ignore[arg-type]
        found.entries.append(data)
        if acknowledged:
            found.acked = effect.entry
        return ev.Appended(
            effect.ledger, effect.entry, len(data), record.peek(data).crc32c if raw is None else 0
        )


def working(bench: Bench, entries: range = range(0, 10, 2)) -> Owner:
    """An owner that writes a ledger: these entries are durable."""
    a = bench.opened("A")
    a.ack(*entries)
    a.go()
    assert bench.chain and a.durable == a.seq
    return a


def restarted(bench: Bench, entries: range = range(0, 10, 2)) -> Owner:
    """The owner after one that was killed with these entries durable."""
    working(bench, entries)
    return bench.opened("B")
