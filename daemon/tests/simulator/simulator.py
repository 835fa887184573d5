"""One run from one seed: keepers on misbehaving fakes in virtual time, sources, faults, and the end
where all must be well.

Owns the plan (which limits, faults, habits and formats this seed has) and the course of a run. Does
not own what must hold (`checker`), what sources do (`source`), what breaks (`trouble`).
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import FencedEnd, LedgerEnd, LedgerSpec
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import ROOT, CursorName
from cursorkeeper.core.table import ENDED
from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.gc import GcReport, collect
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.runner import CursorRunner
from cursorkeeper.runtime.telemetry import Telemetry
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper, FakeGateway, Fault
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import Late, NotNow, UnknownDone, UnknownNotDone
from daemon.tests.simulator import trouble
from daemon.tests.simulator.checker import (
    Checker,
    DataLedger,
    FooterMonitor,
    Model,
    Topic,
    WatchedLedgers,
)
from daemon.tests.simulator.source import Handle, Source
from daemon.tests.support.virtual_loop import VirtualLoop

T = TypeVar("T")
JUDGED_EVERY_S = 0.05
SPARE_LEDGERS = 1
"""A chain at its hard limit may take one more: that of the snapshot which shortens it."""
SETTLE_S = 60.0
"""Virtual seconds within which everything must be durable once nothing breaks any more."""

COUNTED = (
    "snapshots",
    "snapshots_aborted",
    "rolls",
    "inline_backstops",
    "restart_states",
    "lost_handle_states",
    "flushes",
    "dropped_batches",
    "late_events",
    "limit_crossings",
)
COMMON: dict[str, float] = {
    "acks": 30,
    "ranges": 8,
    "partials": 12,
    "cumulative": 5,
    "grow": 10,
    "next_ledger": 3,
    "layout": 1,
    "trim": 1,
    "properties": 3,
    "reset": 1.5,
    "close": 1,
    "delete": 0.7,
    "detach": 1,
    "resend": 3,
    "burst": 2,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What this seed is about."""

    limits: Limits
    keeper_limits: KeeperLimits
    cursors: int
    nodes: int
    duration_s: float
    pause_s: float
    """Mean time between two actions of a source."""
    trouble_s: float
    """Mean time between two troubles."""
    actions: dict[str, float]
    open_again: float
    batches: float
    batch_max: int
    entries_max: int
    troubles: dict[str, float]
    latency_s: float
    append_chance: float
    call_chance: float
    zk_chance: float
    watch_drop: float
    switch_chance: float
    """Of a crash right after a snapshot's switch, and of damage to that snapshot once its successor
    has read it.
    """
    stale_reads: bool
    impatience: float = 0.0
    """Of a source that has nothing to do but wait: that it breaks off an open that is not answered,
    in place of an action.
    """
    loads: bool = False
    """Sources open without a layout, are told the known one, and know of no ledger that was trimmed
    before.
    """
    brokers: int = 0
    """So many, each with a fencing token, replace one another; those before go on. 0: sources have
    no tokens.
    """


@dataclass(frozen=True, slots=True)
class Forms:
    """In which format the daemons of a seed write. `pulsar_chance`: of each daemon; `writer`: how
    whole states are written.
    """

    pulsar_chance: float = 0.0
    writer: WholeStateSettings = field(default_factory=WholeStateSettings)
    interval_ms: int = 10


def make_forms(formats: str, rng: random.Random) -> Forms:
    """`formats`: native, pulsar, mixed (each daemon its own, so that formats switch at every change
    of owner), or one of the plans: moves, duels, chains, loads, brokers.
    """
    limited = rng.random() < 0.25
    writer = WholeStateSettings(
        form=rng.choice(list(Form)),
        multiple=limited or rng.random() < 0.8,
        max_entry_bytes=rng.choice((64, 64, 64, 300)),
        compression=rng.choice((Compression.NONE, Compression.NONE, *Compression)),
        state_bytes_max=None,
        ranges_max=rng.choice((1, 3, 8)) if limited else None,
        inline_compression=rng.choice(list(Compression)),
        inline_threshold_bytes=rng.choice((0, 40)),
    )
    chance = {"pulsar": 1.0, "mixed": rng.choice((0.3, 0.5, 0.7))}.get(formats, 0.0)
    if formats == BROKERS:
        chance = rng.choice((0.0, 0.0, 0.5))
    return Forms(chance, writer, rng.choice((1, 10, 100, 400)))


def make_plan(rng: random.Random) -> Plan:
    """Small limits, so that everything happens often."""
    entry_bytes = rng.choice((330, 400, 600, 1000, 4000))
    soft = rng.randint(2, 6)
    limits = Limits(
        max_entry_bytes=entry_bytes,
        flush_interval_ms=rng.choice((1, 5, 10, 50)),
        flush_acks_min=rng.choice((1, 10)),
        flush_acks_max=rng.choice((4, 50, 65_536)),
        flush_bytes_max=rng.choice((100, 1000, 1 << 19)),
        appends_in_flight_max=rng.randint(2, 4),
        inline_state_max_bytes=min(entry_bytes, rng.choice((60, 150, 300, 2000))),
        chain_ledgers_max=soft,
        chain_ledgers_hard_max=soft + rng.randint(1, 4),
        ledger_bytes_max=rng.choice((300, 1000, 5000, 1 << 28)),
        ledger_age_max_s=rng.choice((0.3, 3.0, 14_400.0)),
        snapshot_interval_min_s=rng.choice((0.0, 0.1, 0.5)),
        snapshot_age_max_s=rng.choice((1.0, 1e5)),
        snapshot_bytes_min=rng.choice((100, 600, 3000, 1 << 20)),
        snapshot_segments_in_flight_max=rng.randint(1, 3),
        inline_backstop_interval_ms=rng.choice((100, 1000)),
        bookkeeper_away_ms=rng.choice((600, 2000)),
        retry_min_ms=rng.choice((5, 50)),
        retry_max_ms=rng.choice((200, 1000)),
        answer_wait_max_ms=rng.choice((1_000, 30_000)),
    )
    actions = {k: w * rng.choice((0.3, 1.0, 1.0, 3.0)) for k, w in COMMON.items()}
    for kind in ("reset", "delete", "close", "detach", "trim", "properties"):
        if rng.random() < 0.3:
            actions[kind] = 0.0
    calm = rng.random() < 0.1
    troubles = {k: w * rng.choice((0.0, 1.0, 1.0, 3.0)) for k, w in trouble.KINDS.items()}
    appends = rng.choice((4, 8, 256))
    return Plan(
        limits=limits,
        keeper_limits=KeeperLimits(
            daemon_appends_in_flight_max=appends,
            daemon_append_bytes_in_flight_max=400 if appends == 8 else 256 << 20,
            detached_cursor_max_ms=rng.choice((200, 2000, 60_000)),
            footer_poll_s=rng.choice((2.0, 5.0, 15.0)),
            openings_at_once_max=rng.choice((1, 64)),
            ledger_requests_at_once_max=rng.choice((1, 64)),
            footer_requests_at_once_max=rng.choice((1, 4, 128)),
            inline_states_per_s_max=rng.choice((2, 50)),
            closings_at_once_max=rng.choice((1, 256)),
        ),
        cursors=rng.choice((1, 1, 1, 2, 3)),
        nodes=rng.choice((1, 2, 2, 3)),
        duration_s=rng.choice((3.0, 6.0)),
        pause_s=rng.choice((0.01, 0.03, 0.1)),
        trouble_s=1e9 if calm else rng.choice((0.1, 0.3, 1.0)),
        actions=actions,
        open_again=rng.choice((0.0, 0.005, 0.03)),
        batches=rng.choice((0.0, 0.2, 0.7)),
        batch_max=rng.choice((2, 6, 20)),
        entries_max=rng.choice((10, 40, 120)),
        troubles=troubles if any(troubles.values()) else dict(trouble.KINDS),
        latency_s=rng.choice((0.0005, 0.005, 0.03)),
        append_chance=0.0 if calm else rng.choice((0.0, 0.002, 0.02)),
        call_chance=0.0 if calm else rng.choice((0.0, 0.02, 0.1)),
        zk_chance=0.0 if calm else rng.choice((0.0, 0.02, 0.1)),
        switch_chance=0.0 if calm else rng.choice((0.0, 0.0, 0.2)),
        watch_drop=rng.choice((0.0, 0.0, 0.5)),
        stale_reads=rng.random() < 0.3,
    )


MOVES = "moves"
"""In place of a format: native, and the source goes to and fro between two daemons, whose ways to
ZooKeeper are bad.
"""


def make_moves(plan: Plan, rng: random.Random) -> Plan:
    """What makes a daemon stale: streams that break often, claims that take time, links and leaders
    that do not know.
    """
    still = dict.fromkeys(trouble.KINDS, 0.0)
    return replace(
        plan,
        cursors=1,
        nodes=2,
        duration_s=4.0,
        pause_s=rng.choice((0.01, 0.02)),
        trouble_s=rng.choice((0.1, 0.2)),
        actions={
            **plan.actions,
            "acks": 30,
            "resend": 3,
            "detach": rng.choice((5, 15)),
            "reset": rng.choice((0, 1, 3)),
            "reset_and_detach": 2,
        },
        open_again=rng.choice((0.02, 0.1)),
        troubles={
            **still,
            "zk_stall": 3,
            "zk_old_leader": 3,
            "zk_lag": 1,
            "zk_disconnect": 0.5,
            "gateway_away": 1,
            "bookies_away": 1,
        },
        latency_s=rng.choice((0.001, 0.005, 0.02)),
        call_chance=rng.choice((0.0, 0.1)),
        impatience=rng.choice((0.05, 0.2)),
        keeper_limits=replace(plan.keeper_limits, detached_cursor_max_ms=60_000),
    )


DUELS = "duels"
"""As `MOVES`, but opens are waited for at both daemons, and one of them is slow to recover what the
other one replaces.
"""


def make_duels(plan: Plan, rng: random.Random) -> Plan:
    """A claim that takes so long that another one is claimed, read and continued meanwhile."""
    plan = make_moves(plan, rng)
    still = dict.fromkeys(plan.troubles, 0.0)
    return replace(
        plan,
        trouble_s=rng.choice((0.1, 0.3)),
        actions={**plan.actions, "acks": 60, "detach": 5, "delete": 0},
        open_again=rng.choice((0.05, 0.1)),
        troubles={**still, "slow_recoveries": 3, "crash": 0.5, "zk_stall": 0.5},
        impatience=0.0,
        limits=replace(
            plan.limits, snapshot_bytes_min=100, snapshot_interval_min_s=0.0, snapshot_age_max_s=1.0
        ),
    )


CHAINS = "chains"
"""In place of a format: native, and ledgers are rolled faster than snapshots may be taken."""


def make_chains(plan: Plan, _rng: random.Random) -> Plan:
    """Chains at their hard limit, in owners that stay and in owners that go."""
    limits = replace(
        plan.limits,
        inline_state_max_bytes=0,
        chain_ledgers_max=2,
        chain_ledgers_hard_max=3,
        ledger_bytes_max=300,
        ledger_age_max_s=0.3,
        snapshot_interval_min_s=1.0,
    )
    return replace(
        plan, cursors=1, limits=limits, actions={**plan.actions, "reset": 0.0, "delete": 0.0}
    )


LOADS = "loads"
"""In place of a format: native, and the topic is trimmed while nobody tells its cursors."""


def make_loads(plan: Plan, rng: random.Random) -> Plan:
    """A topic of many ledgers, and sources that know only those that are there."""
    actions = {
        **plan.actions,
        "next_ledger": 15,
        "trim": 2,
        "trim_untold": 6,
        "detach": 6,
        "close": 4,
        "layout": 3,
    }
    return replace(plan, loads=True, cursors=1, actions=actions, open_again=rng.choice((0.05, 0.1)))


BROKERS = "brokers"
"""As `MOVES`, over one daemon or two, but brokers with fencing tokens replace one another, stand
still at any moment, and go on.
"""


def make_brokers(plan: Plan, rng: random.Random) -> Plan:
    """Each broker believes that the topic is its own."""
    plan = make_moves(plan, rng)
    actions = {**plan.actions, "delete": rng.choice((0, 1)), "close": rng.choice((0, 2))}
    return replace(
        plan,
        nodes=rng.choice((1, 2)),
        brokers=rng.choice((2, 3)),
        actions=actions,
        troubles={
            **plan.troubles,
            "slow_recoveries": 1,
            "delete_unopened": 3,
            "crash": 0.5,
            "collect": 1,
        },
    )


PLANS = {
    MOVES: make_moves,
    DUELS: make_duels,
    CHAINS: make_chains,
    LOADS: make_loads,
    BROKERS: make_brokers,
}


class NodeGateway:
    """A gateway client whose requests may outlive the daemon that sent them."""

    def __init__(self, inner: FakeGateway, rng: random.Random) -> None:
        self.inner, self._rng = inner, rng
        self.unanswered: dict[tuple[int, int], float] = {}
        """(ledger, entry) -> when the append was sent."""
        self.recovers_at_s = 0.0
        """Recoveries wait until then."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def _through(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._rng.random() < 0.5:
                task.cancel()
            raise

    def append(self, ledger: int, entry: int, data: bytes) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future = self.inner.append(ledger, entry, data)
        self.unanswered[ledger, entry] = loop.time()
        future.add_done_callback(lambda _f: self.unanswered.pop((ledger, entry), None))
        return future

    async def create(self, spec: LedgerSpec, custom_metadata: dict[str, bytes]) -> int:
        return await self._through(self.inner.create(spec, custom_metadata))

    async def fence(self, ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        wait_s = self.recovers_at_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return await self._through(self.inner.fence(ledger, entries_bytes_max=entries_bytes_max))

    async def close_ledger(self, ledger: int) -> LedgerEnd:
        return await self._through(self.inner.close_ledger(ledger))

    async def delete(self, ledger: int) -> None:
        await self._through(self.inner.delete(ledger))


class Watched(CursorMachine):
    """A machine whose steps are looked at, each before anything is done."""

    check: Checker

    def step(self, event: ev.Event, now: float) -> list[fx.Effect]:
        effects = super().step(event, now)
        self.check.stepped(self, event, effects)
        return effects


class SimKeeper(Keeper):
    """A keeper whose machines are looked at after every step."""

    check: Checker
    machines: list[CursorMachine]

    def open(self, name: CursorName, request: ev.Open, attach: int, listener: Listener) -> None:
        begun = len(self.machines)
        try:
            super().open(name, request, attach, listener)
        finally:
            for machine in self.machines[begun:]:
                self.check.begun_for[machine.turn.writer] = listener

    def _machine(self, name: CursorName, writer: str, jitter: float) -> CursorMachine:
        machine = Watched(name, self.limits, writer, jitter, self.state_writer)
        machine.check = self.check
        self.machines.append(machine)
        return machine

    def _changed(self, runner: CursorRunner) -> None:
        super()._changed(runner)
        self.check.after_step(runner.machine)


@dataclass(eq=False, slots=True)
class Node:
    """A daemon with its gateway and its session."""

    title: str
    keeper: SimKeeper
    gateway: NodeGateway
    session: FakeZooKeeper
    alive: bool = True


class Quiet(Telemetry):
    """Telemetry that counts."""

    def __init__(self, sim: Simulation, title: str) -> None:
        self._sim, self._title = sim, title

    def flushed(self, *_numbers: Any) -> None:
        self._sim.stats["appends"] += 1

    def log(self, event: str, **fields: Any) -> None:
        self._sim.stats[f"told {event}"] += 1
        self._sim.check.log(f"{self._title} {event} {sorted(fields.items())}")

    def recovered(self, seconds: float) -> None:
        self._sim.stats["recoveries"] += 1


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    violations: list[str]
    trace: list[str]
    stats: Counter[str]
    turns: int = 0

    @property
    def digest(self) -> str:
        """Equal digests: the same run."""
        return hashlib.sha256("\n".join([*self.trace, str(self.turns)]).encode()).hexdigest()


@dataclass
class Simulation:
    """One run."""

    seed: int
    verbose: bool = False
    formats: str = "native"
    stats: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/plan")
        self.plan = make_plan(self.rng)
        if self.formats in PLANS:
            self.plan = PLANS[self.formats](self.plan, self.rng)
        self.forms = make_forms(self.formats, random.Random(f"{self.seed}/formats"))
        self.writer = PulsarStateWriter(self.forms.writer)
        self.loop = VirtualLoop(random.Random(f"{self.seed}/loop"))
        self.check = Checker(self.loop.time, self.verbose)
        self.nodes: list[Node] = []
        self.machines: list[CursorMachine] = []
        self.opened: list[Handle] = []
        self.damaged: set[int] = set()
        self.over = False
        self._count = 0

    def run(self) -> Outcome:
        """To the end; never raises for what the system does."""
        try:
            self.loop.run(self._main())
        except Exception as e:
            self.check.violations.append(f"{self.loop.time():.4f} {type(e).__name__}: {e}")
            if self.verbose:
                raise
        for error in self.loop.errors:
            self.check.violations.append(f"loop: {error!r}")
        for machine in self.machines:
            for name in COUNTED:
                self.stats[name] += getattr(machine.counters, name)
        self.stats["raises"] += sum(brokers.raises for brokers in self.check.brokers.values())
        self.stats["opens"] += sum(h.epoch > 0 for h in self.opened)
        self.stats["machines"] += len(self.machines)
        return Outcome(
            self.seed, self.check.violations, self.check.trace, self.stats, self.loop.turns
        )

    # ---- the course of a run

    async def _main(self) -> None:
        try:
            await self._story()
        finally:
            for node in self.nodes:
                node.keeper.abandon()

    async def _story(self) -> None:
        self._build()
        self.check.log(f"plan {self.plan} {self.forms}")
        for _ in range(self.plan.nodes):
            await self.start_node()
        busy = [self.loop.create_task(self._source(s)) for s in self.sources]
        judge = self.loop.create_task(self._judge_pauses())
        busy.append(
            self.loop.create_task(trouble.make(self, random.Random(f"{self.seed}/trouble")))
        )
        if self.plan.brokers:
            busy.append(
                self.loop.create_task(self._replace_brokers(random.Random(f"{self.seed}/brokers")))
            )
        await asyncio.gather(*busy)
        self.over = True
        judge.cancel()
        self.check.log("---- the troubles are over")
        trouble.end(self)
        if not self.check.violations:
            await self._settle()
        self.check.judge_costs()

    async def _judge_pauses(self) -> None:
        while True:
            await asyncio.sleep(JUDGED_EVERY_S)
            for node in self.nodes:
                for runner in node.keeper.cursors.values():
                    current = runner.machine.writer.current
                    oldest = (
                        current.in_flight[0].entry
                        if current is not None and current.in_flight
                        else -1
                    )
                    since_s = (
                        node.gateway.unanswered.get((current.ledger, oldest))
                        if current is not None
                        else None
                    )
                    if since_s is not None:
                        self.check.judge_pause(runner.machine, since_s)

    def _build(self) -> None:
        plan, seed = self.plan, self.seed
        self.names = [CursorName(f"t{i}", f"s{i}") for i in range(plan.cursors)]
        self.bookkeeper = FakeBookKeeper(random.Random(f"{seed}/bk"))
        self.server = FakeZooKeeperServer(random.Random(f"{seed}/zk"))
        self.ledgers = WatchedLedgers()
        self.ledgers.check = self.check
        self.bookkeeper.ledgers = self.ledgers
        self.check.ledgers = self.ledgers
        # there a handle at a limit has the cursor read again
        self.check.claims_max = None if self.forms.pulsar_chance else 1
        self.check.chain_max = plan.limits.chain_ledgers_hard_max + SPARE_LEDGERS
        self.check.monitor = FooterMonitor(self.server, self.names, self.check)
        self.check.monitor.on_switch = lambda name, footer: trouble.after_switch(self, name, footer)
        self.sources: list[Source] = []
        self.replaced: list[Source] = []
        """Brokers that have a successor, and do not know it."""
        for i, name in enumerate(self.names):
            rng = random.Random(f"{seed}/source{i}")
            first = DataLedger(rng.randint(0, 3))
            model = Model(name, Topic({first.ledger: first}))
            source = Source(self, model, rng, rng.choice((0, 1)) if plan.brokers else 0)
            source._do_grow(None)  # type: ignore[arg-type]
            self.sources.append(source)
            if plan.brokers:
                self.check.brokers[name] = model.brokers
        self._arm()

    def _arm(self) -> None:
        plan, faults, zk = self.plan, self.bookkeeper.faults, self.server.faults
        faults.delay_max_s = plan.latency_s
        faults.ack_delay_max_s = plan.latency_s
        faults.fence_without_entries = 0.3
        for fault in Fault:
            faults.chance[(Operation.APPEND, fault)] = plan.append_chance / 4
        for operation in (
            Operation.CREATE,
            Operation.FENCE,
            Operation.CLOSE,
            Operation.DELETE,
            Operation.READ,
        ):
            for fault in (Fault.REFUSE, Fault.LOST_BEFORE, Fault.LOST_AFTER):
                faults.chance[(operation, fault)] = plan.call_chance / 3
        zk.latency_s = (0.0, plan.latency_s)
        zk.watch_drop_probability = plan.watch_drop
        zk.stale_reads, zk.catch_up_probability = plan.stale_reads, 0.3
        zk.spurious_watches_at_reconnect = self.rng.random() < 0.3
        if plan.zk_chance:
            for fault in (
                UnknownDone(),
                UnknownNotDone(),
                Late(0.05),
                Late(0.5),
                Late(0.02, 0.1),
                UnknownDone(0.1),
                NotNow(),
            ):
                for operation in ("set", "create", "multi"):
                    zk.chance(operation, plan.zk_chance / 7, fault)
            for operation in ("get", "multi_read"):
                zk.chance(operation, plan.zk_chance / 4, UnknownNotDone())
            zk.chance("sync", plan.zk_chance / 4, NotNow())

    async def _source(self, source: Source) -> None:
        while self.loop.time() < self.plan.duration_s:
            await asyncio.sleep(source.rng.expovariate(1 / self.plan.pause_s))
            source.act()

    async def _replace_brokers(self, rng: random.Random) -> None:
        """The broker that is replaced stands still for a while, before or after it is, or not at
        all; then it goes on.
        """
        tasks = []
        for _ in range(1, self.plan.brokers):
            await asyncio.sleep(rng.uniform(0.1, self.plan.duration_s / self.plan.brokers))
            old = self.sources[0]
            old.stands_until_s = self.loop.time() + rng.choice((0.0, 0.1, 0.5, 1.5))
            await asyncio.sleep(rng.choice((0.0, 0.05)))
            new = Source(
                self,
                old.model,
                random.Random(f"{self.seed}/broker{old.token}"),
                old.token + rng.choice((1, 5)),
            )
            self.replaced.append(old)
            self.sources[0] = new
            self.check.log(f"a broker with token {new.token}")
            tasks.append(self.loop.create_task(self._source(new)))
        await asyncio.gather(*tasks)

    async def start_node(self) -> Node:
        """One more daemon."""
        self._count += 1
        title = f"n{self._count}"
        rng = random.Random(f"{self.seed}/{title}")
        settings = ZooKeeperSettings(session_timeout_ms=3_000, request_timeout_s=1.0)
        session = self.server.session(settings=settings)
        gateway = NodeGateway(self.bookkeeper.gateway(append_timeout_s=2.0), rng)
        while True:
            try:
                await session.start()
                await gateway.start()
                break
            except (bk.GatewayError, zk_errors.ZooKeeperError):
                await asyncio.sleep(0.2)
        form = (
            self.writer
            if random.Random(f"{self.seed}/{title}/format").random() < self.forms.pulsar_chance
            else None
        )
        keeper = SimKeeper(
            gateway,
            session,
            Quiet(self, title),
            limits=replace(self.plan.limits, whole_state_interval_ms=self.forms.interval_ms),
            state_writer=form,
            keeper_limits=self.plan.keeper_limits,
            policy=LedgerPolicy(),
            encode=EncodeSettings(self.plan.limits.max_entry_bytes),
            identity=title,
            rng=rng,
            root=ROOT,
        )
        keeper.check, keeper.machines = self.check, self.machines
        await keeper.start()
        node = Node(title, keeper, gateway, session)
        self.nodes.append(node)
        self.check.log(f"{title} started, writes {'pulsar' if form else 'native'}")
        return node

    def some_node(self, rng: random.Random) -> Node | None:
        """Any that lives."""
        return rng.choice(self.nodes) if self.nodes else None

    def crash(self, node: Node, rng: random.Random) -> None:
        """kill -9 of the daemon, perhaps of its gateway too."""
        if not node.alive:
            return
        self.check.log(f"{node.title} crashes")
        self.stats["crashes"] += 1
        node.alive = False
        self.nodes.remove(node)
        for handle in self.opened:
            if handle.node is node and not handle.ended:
                handle.lose()
        self._failures(node)
        node.keeper.abandon()
        node.session.crash()
        if rng.random() < 0.5:
            node.gateway.inner.break_stream()
        else:
            node.gateway.inner.kill()

    def _failures(self, node: Node) -> None:
        for error in node.keeper.failures:
            self.check.that(False, f"{node.title} has a bug: {error!r}")

    async def collect(self, *, lag: bool = False) -> GcReport | None:
        """One pass of garbage collection, by a process of its own."""
        session, gateway = self.server.session(), self.bookkeeper.gateway()
        try:
            await session.start()
            if lag:
                session.lag()
                await asyncio.sleep(self.rng.random())
            await gateway.start()
            report = await collect(gateway, FooterStore(session, EncodeSettings()))
        except (bk.GatewayError, zk_errors.ZooKeeperError):
            return None
        finally:
            session.crash()
        self.stats["collected"] += report.deleted
        self.check.log(f"garbage collection {report}")
        return report

    # ---- the end: everything must come right

    async def _settle(self) -> None:
        check = self.check
        await asyncio.sleep(5.0)  # late requests arrive, sessions expire
        if not self.nodes:
            await self.start_node()
        node = self.rng.choice(self.nodes)
        for _ in range(6):
            # a keeper may hold a cursor and not know yet that it was deposed, or open one that
            # somebody waits for
            finals = [await self._all_durable(source, node) for source in self.sources]
            if check.violations:
                return
            await asyncio.sleep(2 * self.plan.keeper_limits.footer_poll_s + 5.0)
            if all(h is not None and not h.ended for h in finals):
                break
        else:
            check.that(False, "cursors are taken over again and again")
        for runner in node.keeper.cursors.values():
            check.judge_rest(runner.machine)
        for other in self.nodes:
            if other is not node:
                for runner in other.keeper.cursors.values():
                    check.that(
                        runner.machine.state in ENDED,
                        f"{other.title} still believes it owns {runner.name}: "
                        f"{runner.machine.state}",
                    )
        for other in list(self.nodes):
            self._failures(other)
            self.crash(other, self.rng)
        if check.violations:
            return
        await self._last_reader(await self.start_node())

    async def _all_durable(self, source: Source, node: Node) -> Handle | None:
        """Everything that was ever sent in this generation, confirmed; the handle stays open."""
        for _ in range(5):
            handle = await self._open_at_last(source, node)
            if handle is None:
                return None
            source.resend(handle, everything=True)
            done = await handle.until(
                lambda h=handle: h.durable >= h.seq or bool(h.ended), SETTLE_S
            )  # type: ignore[misc]
            if not done:
                break
            await asyncio.sleep(1.0)
            if not handle.ended:
                return handle
        name = source.model.name.subscription
        self.check.that(
            False,
            f"{name}: {handle.seq} sent, {handle.durable} durable at last {handle.ended} "
            f"{self._why(node, source)}",
        )
        return None

    async def _open_at_last(self, source: Source, node: Node) -> Handle | None:
        for _ in range(20):
            handle = source.open(node, takeover=True)
            if handle is not None:
                await handle.until(lambda h=handle: h.live or bool(h.ended), SETTLE_S)  # type: ignore[misc]
                if handle.live:
                    return handle
                if not handle.ended:
                    self.check.that(
                        False,
                        f"{handle.title}: no state within {SETTLE_S} s {self._why(node, source)}",
                    )
                    return None
            await asyncio.sleep(0.5)
        self.check.that(False, f"{source.model.name} cannot be opened")
        return None

    def _why(self, node: Node, source: Source) -> str:
        runner = node.keeper.cursors.get(source.model.name)
        if runner is None:
            return "(not held)"
        m = runner.machine
        where = f"state {m.state}, writer {m.writer.phase.name}, chain {len(m.chain)}"
        return f"({where}, waits for {m.waiting_for!r}, snapshot {m.snapshots.run})"

    async def _last_reader(self, node: Node) -> None:
        check = self.check
        for source in self.sources:
            handle = await self._open_at_last(source, node)
            if handle is None:
                return
            generation = source.model.generations[handle.generation]
            rest = sorted(
                a
                for a in generation.sent - set(generation.durable)
                if not source.model.topic.is_trimmed(a)
            )
            check.that(not rest, f"{source.model.name}: sent and never durable: {rest[:5]}")
            handle.close()
            closed = await handle.until(lambda h=handle: bool(h.ended), SETTLE_S)  # type: ignore[misc]
            check.that(closed, f"{source.model.name} does not close {self._why(node, source)}")
        self._failures(node)
        kept_bytes = node.keeper._services.kept_entries.kept_bytes
        check.that(not kept_bytes, f"{node.title} keeps {kept_bytes} bytes of entries for nobody")
        if not self.forms.pulsar_chance:  # there a handle at a limit has the cursor read again
            for name in self.names:
                opens = sum(h.model.name == name for h in self.opened)
                check.that(
                    check.monitor.epoch(name) <= opens,
                    f"{name}: {check.monitor.epoch(name)} claims for {opens} opens",
                )
        await asyncio.sleep(5.0)
        await self.collect()
        named = {x for _, f in check.monitor.current.values() for x in f.named_ledgers()}
        left = sorted(set(self.ledgers) - named)
        check.that(not left, f"ledgers that nobody names and nobody deletes: {left[:5]}")


def run(seed: int, *, verbose: bool = False, formats: str = "native") -> Outcome:
    """One seed. The collector of cycles is off meanwhile: it would close forgotten generators at
    times of its own.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        return Simulation(seed, verbose, formats).run()
    finally:
        if was:
            gc.enable()
