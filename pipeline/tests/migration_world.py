"""Pulsar's cursors and ours on the real stack, for imports and exports; attempts that die, stand
still, or are late.

Pulsar's side has a chroot of its own for each test. Its message ledgers exist only in the topics'
znodes, under numbers that no real ledger has.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyroaring import BitMap

from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.connections import Ports
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import PartialKey, Stamp
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import cursor_info, ledger_info, position_info
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import (
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.inspection.progress import SILENT
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.exporter import Rules
from cursorkeeper.migration.leftovers import sweep
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.pulsar_writer import custom_metadata
from cursorkeeper.pulsar_broker.settings import of_version
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.jobs.export import notes_of
from cursorkeeper_pipeline.jobs.migration import Run
from cursorkeeper_pipeline.sinks.cursor_export import ExportWork
from cursorkeeper_pipeline.sinks.cursor_import import ImportWork
from cursorkeeper_pipeline.sinks.record import RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import Places
from cursorkeeper_pipeline.source.options import Options
from daemon.tests.support.world import SilentTelemetry, Source, acks

FIRST, SECOND, LAST = 9_000_000_007, 9_000_000_009, 9_000_000_012
LAYOUT = (LedgerInfo(FIRST, 100), LedgerInfo(SECOND, 50), LedgerInfo(LAST))
RUN = "test-run"
MUTATIONS = frozenset({"create", "set", "delete", "multi", "append", "close_ledger", "fence"})
READS = frozenset({"get", "exists", "children", "sync", "multi_read", "metadata"})
"""Those that have one answer: between the answers of a read of a ledger nothing is decided."""


def state(mark_delete: int = 3, seed: int = 0) -> PositionInfo:
    """Some acked entries of `LAYOUT`, partly acked batches, properties."""
    rng = random.Random(seed)
    acked = {
        FIRST: BitMap(rng.sample(range(25, 100), 30)),
        SECOND: BitMap([0, 1, 2, 49]),
        LAST: BitMap([5, 700]),
    }
    batches = {PartialKey(FIRST, 24): BitMap([0, 2, 63, 64]), PartialKey(LAST, 9): BitMap([1])}
    return PositionInfo(
        Position(FIRST, mark_delete), acked, batches, {"dedup": -7}, form=Form.LONG_ARRAY
    )


def ref_of(number: int) -> PulsarCursorRef:
    return PulsarCursorRef(f"persistent://acme/shop/topic-{number % 3}", f"sub {number}")


@dataclass
class MigrationWorld:
    """See the module. `settings` are ours, `pulsar` Pulsar's."""

    settings: Settings
    pulsar: Settings
    ports: Ports
    theirs: PulsarPorts
    keepers: list[Keeper] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(self.settings, self.pulsar)

    def options(self, **more: str) -> Options:
        """As the jobs take them."""
        given = {
            "zookeeper": self.settings.systems.zookeeper,
            "gateway": self.settings.systems.gateway,
            "root": self.settings.systems.root,
        }
        return Options.parse(
            {
                **given,
                "pulsarZookeeper": self.pulsar.systems.zookeeper,
                "table": "pulsar_cursors",
                **more,
            }
        )

    # ---- Pulsar's side

    async def put(self, path: str, data: bytes) -> None:
        keeper = self.theirs.zookeeper
        await keeper.ensure_path(path)
        await keeper.set(path, data, (await keeper.get(path)).version)

    async def cursors(self, numbers: Iterable[int], *, form: str = "") -> list[PulsarCursorRef]:
        """In a znode, in a closed ledger and in an open one, in turn, or all in one `form`."""
        made = [ref_of(number) for number in numbers]
        for number, ref in zip(numbers, made, strict=True):
            await self.cursor(
                ref, state(seed=number), form or ("znode", "closed", "open")[number % 3]
            )
        return made

    async def cursor(self, ref: PulsarCursorRef, info: PositionInfo, form: str) -> None:
        await self.put(ref.topic_path, ledger_info.encode(ManagedLedgerInfo(LAYOUT)))
        if form == "znode":
            inline = ManagedCursorInfo(
                -1,
                info.mark_delete,
                info.acked,
                info.batches,
                info.properties,
                {"made by": "pulsar"},
                last_active_ms=1,
            )
            await self.put(ref.path, cursor_info.encode(inline))
            return
        ledgers = self.theirs.ledgers
        ledger = await ledgers.create(LedgerSpec(2, 2, 2), custom_metadata(ref))
        await ledgers.append(ledger, 0, position_info.encode(info, Form.LONG_ARRAY))
        if form == "closed":
            await ledgers.close_ledger(ledger)
        znode = ManagedCursorInfo(
            ledger, Position(FIRST, -1), cursor_properties={"made by": "pulsar"}, last_active_ms=1
        )
        await self.put(ref.path, cursor_info.encode(znode))

    # ---- ours

    async def source(self, ref: PulsarCursorRef, identity: str = "daemon/1") -> Source:
        """A daemon has it open, or who is named."""
        keeper = Keeper(
            self.ports.ledgers,
            self.ports.zookeeper,
            SilentTelemetry(),
            limits=self.settings.machine_limits,
            keeper_limits=self.settings.limits,
            policy=self.settings.ledgers.policy,
            encode=self.settings.encode,
            identity=identity,
            rng=random.Random(),
            root=self.settings.systems.root,
            state_writer=None,
        )
        await keeper.start()
        self.keepers.append(keeper)
        source = Source(keeper, ref.name)
        await source.open()
        return source

    async def acked(self, ref: PulsarCursorRef, entry: int) -> Source:
        """A daemon has it open, and has confirmed one more ack, of `LAST`."""
        source = await self.source(ref)
        source.ack(acks(LAST, entry))
        await source.durable()
        return source

    async def footer(self, ref: PulsarCursorRef) -> Footer | None:
        """The committed one."""
        await self.ports.zookeeper.sync(ref.name.path(self.settings.systems.root))
        found = (await self.ports.footers.read_stored([ref.name]))[0].footer
        assert found is None or isinstance(found, Footer)
        return found

    async def state(self, ref: PulsarCursorRef) -> AckState:
        """Ours."""
        _, answer, _ = await read_state(self.ports, ref.name, SILENT)
        return answer.state

    async def differs(self, ref: PulsarCursorRef) -> str:
        """What ours and Pulsar's do not have in common; empty: nothing."""
        theirs = await read_cursor(self.theirs, ref)
        wanted = to_ack_state(
            theirs.state,
            theirs.layout,
            stamp=Stamp(0, 0),
            cursor_properties=theirs.cursor_properties,
        )
        return str(difference(wanted, await self.state(ref)) or "")

    async def are_whole(self, refs: Iterable[PulsarCursorRef]) -> None:
        """Every cursor is there once, closed, the same as Pulsar's; after garbage collection no
        ledger is left that no footer names.
        """
        named: set[int] = set()
        for ref in refs:
            footer = await self.footer(ref)
            assert footer is not None and footer.state == "closed", (ref, footer)
            assert await self.differs(ref) == "", ref
            named |= footer.named_ledgers()
        await gc.collect(self.ports.ledgers, self.ports.footers)
        deployment = await self.ports.footers.known_deployment()
        found = [
            i
            async for i in self.ports.ledgers.list({"application": APPLICATION})
            if gc.owner_of(i.custom_metadata, deployment)
        ]
        assert {info.ledger for info in found} == named

    # ---- attempts

    async def begun(self, run: str = RUN, kind: str = "import") -> None:
        """The record of a run."""
        await self.record(run, kind).begin(
            kind, {"pulsarZookeeper": self.pulsar.systems.zookeeper} if kind == "export" else {}
        )

    def record(self, run: str = RUN, kind: str = "import") -> RunRecord:
        return RunRecord(self.ports.zookeeper, folder_of(self.settings.systems.root, kind), run)

    async def imported(
        self,
        ref: PulsarCursorRef,
        between: Any = None,
        host: str = "",
        run: str = RUN,
        **more: Any,
    ) -> Outcome:
        """An attempt of its own, with sessions of its own, on a host of its own if one is named."""
        settings = self.settings.but(name=host) if host else self.settings
        work = ImportWork(
            FaultyPlaces(settings, self.pulsar, between), run, **{"wait_s": 30.0, **more}
        )
        async with work.opened("test") as one:
            return await one(ref)

    # ---- exports

    async def exported(
        self,
        ref: PulsarCursorRef,
        between: Any = None,
        host: str = "",
        dry_run: bool = False,
        **rules: bool,
    ) -> Outcome:
        """As `imported`."""
        settings = self.settings.but(name=host) if host else self.settings
        given = Rules(**{"replace": True, **rules})
        work = ExportWork(
            FaultyPlaces(settings, self.pulsar, between),
            RUN,
            of_version("4.2"),
            LedgerSpec(2, 2, 2),
            given,
            dry_run,
        )
        async with work.opened("test") as one:
            return await one(ref)

    async def with_acks_of_its_own(
        self, numbers: Iterable[int], form: str = "closed"
    ) -> list[PulsarCursorRef]:
        """Imported, and acked on here: Pulsar has them as they were."""
        await self.begun()
        refs = await self.cursors(numbers, form=form)
        for ref in refs:
            assert (await self.imported(ref)).ok
            source = await self.acked(ref, 910)
            assert await source.keeper.close() == []
            assert await self.differs(ref) == "1 acked entries too many"
        return refs

    async def pulsar_ledgers(self) -> set[int]:
        """Of all of Pulsar's cursors."""
        return {info.ledger async for info in self.theirs.ledgers.list({"application": b"pulsar"})}

    async def are_pulsars(self, refs: Iterable[PulsarCursorRef], before: set[int]) -> None:
        """Pulsar has every cursor as ours is; since `before` nothing is left that no znode
        names.
        """
        named = set()
        for ref in refs:
            assert await self.differs(ref) == "", ref
            named.add((await read_cursor(self.theirs, ref)).znode.cursors_ledger)
        assert await self.pulsar_ledgers() - before == named - {-1} - before

    async def swept(self) -> list[str]:
        """As the driver does at the end of a run."""
        record = await self.record(kind="export").find()
        assert record is not None
        found = [pair async for pair in sweep(self.theirs, record.token, Patience())]
        return notes_of(found)


@asynccontextmanager
async def migration_world(
    stack: Standalone, root: str, **changes: Any
) -> AsyncIterator[MigrationWorld]:
    """Nothing of ours fits the footer, so that there are ledgers to lose, unless `changes` say
    otherwise.
    """
    given = {
        "zookeeper": stack.zookeeper,
        "gateway": stack.gateway,
        "root": root,
        "inline_state_max_bytes": 0,
        "flush_interval_ms": 5,
    }
    settings = Settings.of(**{**given, **changes})
    pulsar = settings.but(zookeeper=f"{stack.zookeeper}{root.rpartition('/')[0]}-pulsar")
    async with (
        connections.ports(settings, "writer") as ports,
        connections.zookeeper(pulsar.systems) as zookeeper,
        connections.gateway(settings, "migrator") as theirs,
    ):
        await zookeeper.ensure_path("/managed-ledgers")
        world = MigrationWorld(settings, pulsar, ports, PulsarPorts(zookeeper, theirs))
        try:
            yield world
        finally:
            for keeper in world.keepers:
                keeper.abandon()


def newest_report(folder: Path) -> Any:
    """Of a job that writes to this folder: each kind of run has a file of its own."""
    return json.loads(
        max(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns).read_text()
    )


# ---- what stands between an attempt and its systems


@dataclass(frozen=True)
class FaultyPlaces(Places):
    """Systems with something before each port; None: with nothing."""

    between: Any = None

    @asynccontextmanager
    async def opened(self, role: str, pulsar_role: str) -> AsyncIterator[tuple[Ports, PulsarPorts]]:
        plain = Places(self.settings, self.pulsar)
        async with plain.opened(role, pulsar_role) as (ports, theirs):
            if self.between is not None:
                zookeeper, ledgers = map(self.between, (ports.zookeeper, ports.ledgers))
                footers = connections.footer_store(zookeeper, self.settings)
                ports = Ports(zookeeper, ledgers, footers)
                theirs = PulsarPorts(self.between(theirs.zookeeper), self.between(theirs.ledgers))
            yield ports, theirs


def faulty(run: Run, between: Any) -> Run:
    """The same run; in its tasks something stands before each port."""
    run.places = FaultyPlaces(run.places.settings, run.places.pulsar, between)
    return run


class Died(BaseException):
    """The attempt is no more."""


class Stepping:
    """A port that tells of every change it has made, or of every one of `kinds`: a step."""

    def __init__(
        self,
        port: Any,
        before: Callable[[], None],
        after: Callable[[str], Awaitable[None]],
        kinds: frozenset[str] = MUTATIONS,
    ) -> None:
        self._port, self._before, self._after, self._kinds = port, before, after, kinds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._kinds:
            return found

        async def stepped(*arguments: Any, **named: Any) -> Any:
            result = await found(*arguments, **named)
            await self._after(name)
            return result

        def step(*arguments: Any, **named: Any) -> Any:
            self._before()
            return (
                asyncio.ensure_future(stepped(*arguments, **named))
                if name == "append"
                else stepped(*arguments, **named)
            )

        return step


@dataclass
class StopsAt:
    """After its `step`th change the attempt stands still (`reached` is set) until `go`; if it is
    `dead`, it changes nothing any more. `kinds`: what is a step; with READS also between two reads,
    where nothing has been changed.
    """

    step: int
    dead: bool = False
    kinds: frozenset[str] = MUTATIONS
    steps: list[str] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def _before(self) -> None:
        if self.dead and self.reached.is_set():
            raise Died

    async def _after(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) == self.step:
            self.reached.set()
        if self.reached.is_set():
            await self.go.wait()
            self._before()

    def __call__(self, port: Any) -> Any:
        return Stepping(port, self._before, self._after, self.kinds)


@dataclass(frozen=True)
class Exits:
    """In a task: the process ends, as with kill -9, after a change: each attempt of a task after
    another one, `deaths` times in all.

    `folder`: where it is kept which deaths were died, over processes.
    """

    folder: str
    deaths: int = 2
    stride: int = 5

    def _count(self) -> Callable[[str], Awaitable[None]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        died = len(list(Path(self.folder).glob(f"{task}-*")))
        at, seen = 1 + task + died * self.stride, 0

        async def after(_name: str) -> None:
            nonlocal seen
            seen += 1
            if died < self.deaths and seen == at:
                Path(self.folder, f"{task}-{died}").touch()  # noqa: ASYNC240 - these are its last words
                os._exit(9)

        return after

    def __call__(self, port: Any) -> Any:
        from pyspark import TaskContext

        is_driver = TaskContext.get() is None
        return port if is_driver else Stepping(port, lambda: None, self._count())


@dataclass(frozen=True)
class Slow:
    """In a task: the first attempt at the first task stands still in the middle of a cursor until
    there is a second one, elsewhere.

    `folder`: where every attempt leaves a mark, over processes.
    """

    folder: str
    step: int = 6
    limit_s: float = 90.0

    def _count(self) -> Callable[[str], Awaitable[None]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        Path(self.folder, f"{task}-{attempt}").touch()
        seen = 0

        async def after(_name: str) -> None:
            nonlocal seen
            seen += 1
            if (task, attempt, seen) == (0, 0, self.step):
                async with asyncio.timeout(self.limit_s):
                    while not Path(self.folder, "0-1").exists():  # noqa: ASYNC110, ASYNC240 - another process does it
                        await asyncio.sleep(0.05)

        return after

    def __call__(self, port: Any) -> Any:
        from pyspark import TaskContext

        is_driver = TaskContext.get() is None
        return port if is_driver else Stepping(port, lambda: None, self._count())


async def dies(work: Awaitable[Outcome], at: StopsAt) -> bool:
    """Runs an attempt until it dies; whether it did."""
    attempt = asyncio.ensure_future(work)
    reached = asyncio.ensure_future(at.reached.wait())
    await asyncio.wait({attempt, reached}, return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    if not at.reached.is_set():
        await attempt
        return False
    at.go.set()
    attempt.cancel()
    with suppress(asyncio.CancelledError, Died, BaseExceptionGroup):
        await attempt
    return True
