"""A keeper on fakes, and a listener that remembers what it was told: the bench for runtime
tests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import ROOT, CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState, Partial
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.telemetry import Telemetry
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeperServer

NAME = CursorName("persistent://t/ns/topic", "sub")
PASSWORD = b""


class SilentTelemetry(Telemetry):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.flushes = 0
        self.opens: list[str] = []
        self.refusals: list[str] = []
        self.recoveries_s: list[float] = []

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        self.flushes += 1

    def log(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def opened(self, result: str) -> None:
        self.opens.append(result)

    def recovered(self, seconds: float) -> None:
        self.recoveries_s.append(seconds)

    def refused(self, code: str) -> None:
        self.refusals.append(code)


@dataclass
class Recorder(Listener):
    """A listener: what a source would know."""

    machine: CursorMachine | None = None
    created: bool = False
    continued: bool = False
    durable: int = 0
    released: int = 0
    ended: str = ""
    refused: tuple[str, str, str] | None = None
    pauses: list[str] = field(default_factory=list)
    resumes: int = 0
    resets: list[fx.ResetDone] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        self.machine, self.created = machine, created
        self.changed.set()

    def on_continued(self, machine: CursorMachine) -> None:
        self.continued, self.machine = True, machine
        self.changed.set()

    def on_confirm(self, confirm: fx.Confirm) -> None:
        assert confirm.seq >= self.durable
        self.durable = confirm.seq
        self.released += confirm.released_bytes
        self.changed.set()

    def on_reset_done(self, done: fx.ResetDone) -> None:
        self.resets.append(done)
        self.changed.set()

    def on_pause(self, reason: str) -> None:
        self.pauses.append(reason)
        self.changed.set()

    def on_resume(self) -> None:
        self.resumes += 1
        self.changed.set()

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        self.refused, self.ended = (str(code), message, remedy), "refused"
        self.changed.set()

    def on_deposed(self, epoch: int) -> None:
        self.ended = "deposed"
        self.changed.set()

    def on_closed(self) -> None:
        self.ended = "closed"
        self.changed.set()

    def on_deleted(self) -> None:
        self.ended = "deleted"
        self.changed.set()

    async def until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class World:
    """Shared fakes; any number of keepers on them."""

    def __init__(
        self,
        seed: int = 0,
        limits: Limits | None = None,
        keeper_limits: KeeperLimits | None = None,
        state_writer: StateWriter | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.bookkeeper = FakeBookKeeper(random.Random(seed + 1))
        self.zookeeper = FakeZooKeeperServer(random.Random(seed + 2))
        self.limits = limits or Limits()
        self.keeper_limits = keeper_limits or KeeperLimits()
        self.state_writer = state_writer
        """Of keepers that are made from now on; None: the native form."""
        self.record_version = 1
        """Theirs."""
        self.keepers: list[Keeper] = []

    async def keeper(self, identity: str = "k", telemetry: Telemetry | None = None) -> Keeper:
        gateway, session = self.bookkeeper.gateway(), self.zookeeper.session()
        await gateway.start()
        await session.start()
        keeper = Keeper(
            gateway,
            session,
            telemetry or SilentTelemetry(),
            limits=self.limits,
            keeper_limits=self.keeper_limits,
            policy=LedgerPolicy(password=PASSWORD),
            encode=EncodeSettings(self.limits.max_entry_bytes, record_version=self.record_version),
            identity=identity,
            rng=self.rng,
            root=ROOT,
            state_writer=self.state_writer,
        )
        await keeper.start()
        self.keepers.append(keeper)
        return keeper


class Source:
    """Drives one cursor of one keeper."""

    def __init__(self, keeper: Keeper, name: CursorName = NAME) -> None:
        self.keeper, self.name, self.told, self.seq = keeper, name, Recorder(), 0
        self.attach = keeper.attach_id()

    async def open(self, **request: Any) -> Recorder:
        self.keeper.open(
            self.name, ev.Open(**{"takeover": True, **request}), self.attach, self.told
        )
        await self.told.until(lambda: self.told.machine is not None or bool(self.told.ended))
        return self.told

    @property
    def machine(self) -> CursorMachine:
        assert self.told.machine is not None
        return self.told.machine

    def send(self, event: ev.Event) -> None:
        self.keeper.cursors[self.name].dispatch(event)

    def send_close(self) -> None:
        self.keeper.end(self.name, ev.Close(self.attach))

    def poll_footer(self) -> None:
        """What the slow poll does, now."""
        self.send(ev.FooterChanged())

    def ack(
        self,
        *ledgers: LedgerColumns,
        mark_delete: Position | None = None,
        properties: dict[str, int] | None = None,
    ) -> int:
        self.seq += 1
        batch = AckBatch(
            self.seq,
            self.machine.generation,
            mark_delete,
            ledgers,
            properties,
            100,
            count_acks(ledgers, mark_delete),
        )
        self.send(ev.Acks(self.attach, batch))
        return self.seq

    async def durable(self, seq: int | None = None, limit_s: float = 20.0) -> None:
        wanted = self.seq if seq is None else seq
        await self.told.until(lambda: self.told.durable >= wanted or bool(self.told.ended), limit_s)
        assert self.told.durable >= wanted, (self.told.ended, self.told.refused)


def acks(ledger: int, *entries: int) -> LedgerColumns:
    return LedgerColumns(ledger, BitMap(entries))


def ranges(ledger: int, *pairs: tuple[int, int]) -> LedgerColumns:
    return LedgerColumns(ledger, ranges=np.array([x for p in pairs for x in p], dtype=np.uint32))


def partial(ledger: int, entry: int, size: int, missing: set[int]) -> LedgerColumns:
    return LedgerColumns(ledger, partials=((entry, Partial(size, BitMap(missing))),))


def closed(ledger: int, entries: int) -> LayoutItem:
    return LayoutItem(ledger, LayoutState.CLOSED, entries)


def opened(ledger: int) -> LayoutItem:
    return LayoutItem(ledger, LayoutState.OPEN, 0)


def small(limits: Limits, **changes: Any) -> Limits:
    return replace(limits, **changes)
